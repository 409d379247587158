"""Everything that can go wrong between a host and its server, in one run: `python -m tests.chaos --minutes 5`."""
