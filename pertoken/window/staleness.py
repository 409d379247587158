"""How long a host may be silent; apart from the inventory, so that screens have it before they open a database."""

STALE_TICKS = 2
"""Ticks without a row after which something is stale: one tick may be late, the next one proves that it is not."""
