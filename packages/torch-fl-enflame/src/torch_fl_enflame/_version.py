"""The version of this package; it has its own releases."""

__version__ = "0.1.0"
