"""The reference pages under docs/, written from the code: `python -m tools.docs`."""
