"""Predictions of configurations on this machine from one probe of one of them: `python -m benchmarks.site --seed N`."""
