"""Prices of device-hours: set by people, listed for detected instances, effective-dated.

Front door: `stored` (the prices of a database as one book), `book` (`Price`, `Priced`, `PriceBook`) and `offers` (lists
that people import).
"""
