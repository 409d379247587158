"""Dollars per million tokens by model and hour.

Front door: `hourly`, `model_hours` and `hour` (its values).
"""
