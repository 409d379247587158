"""Measurements of a host beside its operating points.

Front door: `cpu`, hardware in the place of listed hardware, and `realised`, changes that were verified."""
