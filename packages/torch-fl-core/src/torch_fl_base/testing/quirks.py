"""What a vendor's quirks.py is written with. Apart from `hal`, which brings pytest: quirks are read in every
test process, also where no pytest runs.
"""

from torch_fl_base.testing.kit.gate import Gate, shut_gate
from torch_fl_base.testing.kit.quirks import Exemption, Quirks

__all__ = ["Exemption", "Gate", "Quirks", "shut_gate"]
