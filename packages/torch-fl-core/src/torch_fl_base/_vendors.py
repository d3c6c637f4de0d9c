"""The one table of core that names other people's packages."""

from __future__ import annotations

OTHER_PLUGINS = ("torch_directml", "torch_gcu", "torch_mlu", "torch_musa", "torch_npu", "torch_sdaa")
"""Packages that take PrivateUse1 when they are imported; not all of them have an entry point to be seen."""
