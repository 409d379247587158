"""Benchmarks of `pertoken/store`: speed and size."""
