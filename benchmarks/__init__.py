"""Benchmarks of core: `python -m benchmarks.run` measures, compares with the targets, and writes results/."""
