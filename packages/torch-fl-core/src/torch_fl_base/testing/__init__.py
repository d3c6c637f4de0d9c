"""Tests that a backend must pass, for use inside and outside this repository. `hal` is the HAL level; it
needs no torch."""
