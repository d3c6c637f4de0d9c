"""What this library cannot do, or not yet; see torch_fl_base.testing.quirks."""

import torch_fl___vendor__
from torch_fl_base.testing.quirks import Quirks

QUIRKS = Quirks(library=torch_fl___vendor__.backend().library, name="__vendor__")
