"""The conformance kit's machinery and its tests, one module per group of hal.h.

Nothing here imports pytest: the tests that may crash run in processes of their own, which must start fast.
`torch_fl_base.testing.hal` hands the tests to pytest.
"""
