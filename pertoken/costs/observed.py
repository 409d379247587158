"""How much of a time was observed: what rows really watched, of the time in which they should have been there."""

from sqlalchemy import Connection

from pertoken.costs.lines import STALE_TICKS
from pertoken.store import read


def observed_share(observed_ms: int, expected_ms: int) -> float | None:
    """Observed of expected time, 0 to 1; None where nothing was to be observed.

    What is observed beyond the expected (the first row of something covers the tick before it was known) adds nothing.
    """
    return min(1.0, observed_ms / expected_ms) if expected_ms > 0 else None


def silent_hosts(connection: Connection, now_ts: int) -> frozenset[int]:
    """Hosts that stopped reporting: their newest row is older than their ticks explain."""
    return frozenset(
        row.host_id
        for row in read.hosts(connection)
        if now_ts - row.newest_ts > STALE_TICKS * read.noted_every_s(connection, row.interval_s)
    )
