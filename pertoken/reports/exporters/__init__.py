"""Dollars for other tools: a metrics page, and the price maps of gateways.

Front door: `dollars` (`Dollars`) and `price_maps`.
"""
