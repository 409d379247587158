"""Facts as data: accelerators, models, prices, engine flags, each row with its source and date."""
