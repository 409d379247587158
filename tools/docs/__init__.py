"""Generator of the reference pages under docs/: `python -m tools.docs`."""
