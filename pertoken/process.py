"""Processes of pertoken: their end with their parent, and garbage collection where the same small work repeats."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable

MAX_NEW_OBJECTS = 20_000
"""Allocations before a collection: a few megabytes, even if all of them were in cycles."""


def settle() -> None:
    """Exclude loaded objects from collection, and collect new ones rarely: reference counts release almost all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(MAX_NEW_OBJECTS)


def when_parent_ends(then: Callable[[], None]) -> None:
    """Call `then` from a thread once standard input ends: the kernel closes it even if the parent is killed."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        then()

    threading.Thread(target=wait, name="parent", daemon=True).start()
