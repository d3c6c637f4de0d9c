"""`python -m torch_fl_base.testing.kit <backend or library>`: the command torch-fl-conformance."""

import sys

from torch_fl_base.testing.kit.runner import main

sys.exit(main())
