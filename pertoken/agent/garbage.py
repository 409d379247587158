"""Python's search for cycles, in processes that do the same small work every second for months."""

import gc

LEFT_OVER = 20_000
"""Objects made and not yet let go of before those are searched: a few megabytes, if all of them were in cycles."""


def settle() -> None:
    """What is loaded by now is never searched again; what is made from now on seldom: it is let go of by itself."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(LEFT_OVER)
