"""The device level of the conformance kit on the reference backend, as a vendor would run it."""

from torch_fl.testing.device import *  # noqa: F403
