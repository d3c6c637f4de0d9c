"""The warning for an operator of an accelerator that runs on the host, with the user's line."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

_OWN = ("torch.", "torch_fl.", "torch_fl_base.")


class FallbackWarning(UserWarning):
    """An operator ran on the host; said once per operator. FLAGOS_FALLBACK=error finds the place, allow
    silences it."""


def warn(operator: str, device: str) -> None:
    """Warn that `operator` ran on the host, as if at the innermost line outside of torch and torch_fl."""
    frame = _user_frame(sys._getframe(1) if sys._getframe().f_back else None)
    message = (
        f"flagos: {operator} ran on the host, not on {device}: its data was copied there and back. "
        f'torch_fl.routes.explain("{operator}") tells why; FLAGOS_FALLBACK=error stops at such an operator, '
        "FLAGOS_FALLBACK=allow silences this."
    )
    if frame is None:  # called from a thread without Python code
        warnings.warn(message, FallbackWarning, stacklevel=2)
    else:
        warnings.warn_explicit(
            message,
            FallbackWarning,
            frame.f_code.co_filename,
            frame.f_lineno,
            frame.f_globals.get("__name__"),
        )


def _user_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None:
        module = f"{frame.f_globals.get('__name__', '')}."
        if not module.startswith(_OWN):
            return frame
        frame = frame.f_back
    return None
