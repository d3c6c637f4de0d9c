"""The conformance kit that needs torch: whether a device behaves as PyTorch's CPU does, operator by operator
and area by area.

`torch_fl.testing.ops` walks PyTorch's own operator database; `python -m torch_fl.testing.ops run` starts it.
`torch_fl.testing.device` is a pytest suite to import with `from torch_fl.testing.device import *`.
The level below, one test per requirement of the HAL, is `torch_fl_base.testing` and needs no torch.
"""
