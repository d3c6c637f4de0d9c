"""`python -m torch_fl.testing.ops`."""

from torch_fl.testing.ops.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
