"""Measurements by `pertoken probe` as advice uses them. Front door: `stored`."""
