"""Costs of the screens: to start, to open a page, to press a key, and to stay open."""
