"""Control of Python's cyclic garbage collection, where it costs time without effect."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

LEFT_OVER = 20_000
"""Allocations before a collection: a few megabytes, even if all of them were in cycles."""
OLDER = 5
"""Collections of young objects before one of older objects too: a hundred thousand allocations."""
_resumed = False
"""Whether this process started with collection disabled."""


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
    global _resumed
    if not gc.isenabled():
        _resumed = True
        gc.set_threshold(LEFT_OVER, OLDER, OLDER)
        gc.freeze()
        gc.enable()


def exclude_loaded() -> None:
    """Exclude what was loaded since `resume` too; nothing is done where collection was never disabled.

    A full collection of what the screens load takes a tenth of a second, in which no key is answered.
    """
    if _resumed:
        gc.freeze()
