"""Builders for the tests of this package."""

from pertoken.costs.prices.book import Priced

H100 = Priced("gpu", "NVIDIA H100 80GB HBM3", "GPU-1")
