"""Python's search for cycles, in processes that do the same small work every second for months."""

import gc

LEFT_OVER = 20_000
"""Objects made and not yet released before a search: a few megabytes, if all of them were in cycles."""


def settle() -> None:
    """Never search loaded objects again, and new ones seldom: reference counts release almost all of them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(LEFT_OVER)
