"""Comparing a host's roll-ups with what the server holds: a count and a checksum for each table and stretch of time.

A row's checksum is the first 60 bits of the SHA-256 of its values, and a stretch's is the sum of them, so that the
order of rows does not matter and both sides can compute it where the rows are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import Table

from pertoken.store.schema.rollup_tables import HOUR, MINUTE
from pertoken.store.sync.read import Local, LocalState, Row
from pertoken.store.sync.write import Session
from pertoken.store.write.outbox import ROLLED

DAY = 86_400
_SETTLE_S = 2 * MINUTE
"""How long after its end an hour may still be recomputed by the rows of its last minute."""

Sum = tuple[int, int]
"""(rows, checksum)"""


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Rows of one table over a stretch of time in which the two sides differ."""

    table: Table
    owner: str
    start: int
    rows: list[Row]
    local_sum: Sum
    server_sum: Sum


def differing(local: Local, session: Session, state: LocalState, ages: dict[str, int], day: int) -> Iterator[Stretch]:
    """Yield stretches of the day that begins at `day` (Unix s) in which the server does not hold what this host does.

    Minutes are compared by the hour, hours by the day, and only what is over and still kept at the server. The oldest
    hour here may be half deleted: then the server holds more of it, which is no loss.
    """
    closed = closed_until(state)
    for source in ROLLED:
        table, owner = source.tables[0]
        oldest = state.oldest_ts.get(table.name)
        if oldest is None:
            continue
        kept_from = state.newest_ts - ages["1m" if source.bucket_s == MINUTE else "1h"] + HOUR
        start = max(day, oldest // HOUR * HOUR, -(-kept_from // HOUR) * HOUR)
        end = min(day + DAY, closed)
        if start >= end:
            continue
        span = HOUR if source.bucket_s == MINUTE else DAY
        owners = state.owners[owner]
        ours: dict[int, list[Row]] = {}
        ts = [column.name for column in table.columns].index("ts")
        for row in local.between(table, owner, owners, start, end):
            ours.setdefault(int(row[ts] or 0) // span * span, []).append(row)
        theirs = session.sums(table, owners, start, end, span)
        for at, rows in sorted(ours.items()):
            local_sum = checksum(session.named(table, rows))
            if theirs.get(at) != local_sum:
                yield Stretch(table, owner, at, rows, local_sum, theirs.get(at, (0, 0)))


def closed_until(state: LocalState) -> int:
    """Return the end of the last hour that is compared: later ones may still be recomputed."""
    return (state.newest_ts - _SETTLE_S) // HOUR * HOUR


def checksum(rows: Sequence[Row]) -> Sum:
    """Return count and checksum of rows as SQLite gives them."""
    total = 0
    for row in rows:
        text = ",".join(["~" if value is None else str(value) for value in row])
        total += int.from_bytes(sha256(text.encode()).digest()[:8]) >> 4
    return len(rows), total
