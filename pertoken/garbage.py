"""Control of Python's cyclic garbage collection, where it costs time without effect."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

LEFT_OVER = 20_000
"""Allocations before a collection: a few megabytes, even if all of them were in cycles."""


@contextmanager
def paused() -> Iterator[None]:
    """Disable cyclic collection within the context.

    An advice run creates millions of small values and hardly any cycle: repeated collections take a tenth of its time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def settle() -> None:
    """Exclude loaded objects from collection, and collect new ones rarely: reference counts release almost all.

    For processes that repeat the same small work every second for months.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(LEFT_OVER)


def resume() -> None:
    """Enable collection after a start with it disabled; objects loaded until then are excluded."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
