"""`python -m torch_fl.doctor`: the doctor of torch_fl_base under the name that messages mention."""

from __future__ import annotations

import sys

from torch_fl_base.doctor import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
