"""Garbage collection of processes that repeat the same small work for months."""

import gc

MAX_NEW_OBJECTS = 20_000
"""Allocations before a collection: a few megabytes, even if all of them were in cycles."""


def settle() -> None:
    """Exclude loaded objects from collection, and collect new ones rarely: reference counts release almost all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(MAX_NEW_OBJECTS)
