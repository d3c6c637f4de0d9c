"""The part of torch-fl that needs neither torch nor torch_fl: backends' descriptions, discovery, environment,
doctor.

A vendor package imports `BackendSpec` from here; nothing else of this package is needed to describe a
backend.
"""

from torch_fl_base.spec import ENTRY_POINT_GROUP, BackendError, BackendSpec

__all__ = ["ENTRY_POINT_GROUP", "BackendError", "BackendSpec"]
