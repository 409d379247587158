"""Benchmarks of `pertoken/forecast`: error and speed."""
