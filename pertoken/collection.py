"""Python's search for cycles of unused objects, paused for a run."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Search for no cycles within the context.

    A run makes millions of small values and hardly any cycle: searching all of them again and again takes a tenth of
    its time, and finds nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
