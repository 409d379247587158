"""Python's search for cycles of unused objects, where it costs time and finds nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

LEFT_OVER = 20_000
"""Objects made and not yet released before a search: a few megabytes, if all of them were in cycles."""


@contextmanager
def paused() -> Iterator[None]:
    """Search for no cycles within the context.

    A run of the advisor makes millions of small values and hardly any cycle: searching all of them again and again
    takes a tenth of its time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def settle() -> None:
    """Never search loaded objects again, and new ones seldom: reference counts release almost all of them.

    For processes that do the same small work every second for months.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(LEFT_OVER)


def resume() -> None:
    """Search again after a start during which searching was off: what was loaded until then stays, and is skipped."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
