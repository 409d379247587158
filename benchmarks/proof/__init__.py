"""Benchmarks of `pertoken/proof`: error rates of verdicts on histories with known effects."""
