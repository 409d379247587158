"""Prices of device-hours: set by people, listed for detected instances, effective-dated.

Front door: `book` (`Price`, `Priced`, `PriceBook`), `selectors` (which devices a price is for) and `repricing` (what a
change of prices changes).
"""
