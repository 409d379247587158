"""Readings and computations over a pertoken database. Import `pertoken.tui.store_source`, the front door."""
