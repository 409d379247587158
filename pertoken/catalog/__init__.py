"""Facts as data: accelerators, models, prices, engine flags, each row with its source and date.

Front door: all modules, such as `market` (accelerators, offers, models), `knobs` (flags of each engine) and `clouds`.
Other packages never open the data files.
"""
