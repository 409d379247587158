"""Finite runs under open-loop load that others measured, predicted from their configuration and rate.

`python -m benchmarks.load --runs F --out O [--calibrate-on RATE]`: see `benchmarks.load.__main__`.
"""
