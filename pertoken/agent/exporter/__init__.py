"""Tokens, energy, devices and engines of this host as Prometheus metrics. It knows no price.

Front door: `totals` (`Totals`, fed with ticks) and `endpoint` (`endpoint_of` settings).
"""
