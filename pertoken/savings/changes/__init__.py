"""Savings of each kind of change, one file each; `services` and `estimate` pick by the difference of two fleets."""
