"""The HAL level of the conformance kit, on this package's library."""

from torch_fl_base.testing.hal import *  # noqa: F403
