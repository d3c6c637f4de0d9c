"""The module that the command line hands to pytest."""

from torch_fl_base.testing.hal import *  # noqa: F403
