"""Facts as data: accelerators, models, prices, engine flags, each row with its source and date.

Front door: all of it: `market` (accelerators, offers, models), `knobs` (how each engine spells a knob) and `clouds`.
Others never open its files.
"""
