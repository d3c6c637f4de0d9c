"""Logging: the logger `torch_fl.<subject>` of each subject, and FLAGOS_LOG that sets their levels.

Without FLAGOS_LOG nothing is set up, and logging is the program's affair. Subjects so far: `backends`.
"""

from __future__ import annotations

import logging
import sys

_FORMAT = "%(asctime)s %(name)s %(levelname)s: %(message)s"


def logger(subject: str) -> logging.Logger:
    """Return the logger of a subject."""
    return logging.getLogger(f"torch_fl.{subject}")


def configure(levels: tuple[tuple[str, str], ...]) -> None:
    """Set levels as FLAGOS_LOG says and write to standard error; with no levels do nothing.

    Args:
        levels: (subject, level); the subject "" is everything.
    """
    if not levels:
        return
    root = logging.getLogger("torch_fl")
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(_FORMAT))
        root.addHandler(handler)
        root.propagate = False
    for subject, level in levels:
        (logger(subject) if subject else root).setLevel(level.upper())
