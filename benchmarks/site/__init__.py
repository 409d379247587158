"""How well one probe of one configuration predicts others on this machine: `python -m benchmarks.site --seed N`."""
