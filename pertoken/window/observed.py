"""Observed share of a time: the time that rows cover, of the time that they should cover."""

STALE_TICKS = 2
"""Ticks without a row after which something is stale: one tick may be late, the next one proves that it is not."""

ROUNDING_MS = 1000
"""Starts are known to the second, and rows end when their tick was read: so much less than expected is no gap."""


def counted_ms(observed_ms: int, expected_ms: int) -> int:
    """Return the observed time of one device or deployment within the expected one, without errors of rounding."""
    return expected_ms if expected_ms - observed_ms < ROUNDING_MS else observed_ms


def observed_share(observed_ms: int, expected_ms: int) -> float | None:
    """Observed of expected time, 0 to 1; None where nothing was to be observed.

    What is observed beyond the expected (the first row of something covers the tick before it was known) adds nothing.
    """
    return min(1.0, observed_ms / expected_ms) if expected_ms > 0 else None
