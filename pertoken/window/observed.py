"""Observed share of a time: the time that rows cover, of the time that they should cover."""

STALE_TICKS = 2
"""Ticks without a row after which something is stale: one tick may be late, the next one proves that it is not."""


def observed_share(observed_ms: int, expected_ms: int) -> float | None:
    """Observed of expected time, 0 to 1; None where nothing was to be observed.

    What is observed beyond the expected (the first row of something covers the tick before it was known) adds nothing.
    """
    return min(1.0, observed_ms / expected_ms) if expected_ms > 0 else None
