"""Dollars for other tools: a metrics page, OTLP, and the price maps of gateways.

Front door: `dollars` (`Dollars`), `otlp` (`start_otlp`) and `price_maps`.
"""
