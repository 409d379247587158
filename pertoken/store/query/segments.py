"""A window as buckets: whole hours where possible, minutes at its edges."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlalchemy import BigInteger, Select, Table, and_, case, cast, func, literal_column, select

from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rollup_tables import HOUR, MINUTE, busy_provenance

MAX_SUM = 2**61
"""Largest sum; four of them still fit into 64 bits."""


def whole(total: Any) -> Any:
    """Return a sum as 64 bits: PostgreSQL sums them as numeric, which would come back as Decimal.

    A larger one, of values that nothing can have, is `MAX_SUM`: one host's rows end no statement over all hosts.
    """
    limit: Any = literal_column(str(MAX_SUM))
    return cast(case((total > limit, limit), else_=total), BigInteger)


@dataclass(frozen=True, slots=True)
class Segment:
    """Buckets of one length with start <= ts < end."""

    seconds: int
    start: int
    end: int
    part: tuple[int, int] | None = None
    """Minutes [first, last) of its one hour that the segment stands for, where the hour's own minutes were deleted.

    The hour's sums are scaled to them by time (`scaled`), so that parts which cover the hour add up to its sums.
    """

    @property
    def begin(self) -> int:
        """Start of the time it stands for."""
        return self.start if self.part is None else self.start + self.part[0] * MINUTE

    @property
    def until(self) -> int:
        """End of the time it stands for."""
        return self.end if self.part is None else self.start + self.part[1] * MINUTE


Segments = Sequence[Segment]
"""Buckets that are read and summed together."""


def segments(
    start: int, end: int, *, under_way: bool = False, without_minutes: Collection[int] = ()
) -> tuple[Segment, ...]:
    """Cover [start, end) with whole hours where possible and minutes elsewhere, without overlap.

    `under_way`: the hour that `end` lies in is kept up to date and holds nothing later, so that it is read whole.
    `without_minutes`: starts of hours whose minutes were deleted; they are read as parts of their hour.
    """
    start, end = _outwards(start, end)
    first = min(end, -(-start // HOUR) * HOUR)
    last = -(-end // HOUR) * HOUR if under_way and end > first else max(first, end // HOUR * HOUR)
    pieces = _minutes(start, first, without_minutes), Segment(HOUR, first, last), _minutes(last, end, without_minutes)
    return tuple(piece for piece in pieces if piece.start < piece.end)


def _minutes(start: int, end: int, without_minutes: Collection[int]) -> Segment:
    """Return minutes [start, end) of one hour, or the part of the hour that stands for them."""
    hour = start // HOUR * HOUR
    if start < end and hour in without_minutes:
        return Segment(HOUR, hour, hour + HOUR, ((start - hour) // MINUTE, (end - hour) // MINUTE))
    return Segment(MINUTE, start, end)


def stretches(
    start: int,
    end: int,
    changes: Iterable[int],
    *,
    under_way: bool = False,
    without_minutes: Collection[int] = (),
) -> tuple[Segments, ...]:
    """Return [start, end) cut at instants at which something changed (a price), each piece covered by `segments`.

    A change counts from the minute that begins after it.
    """
    pieces = pairwise(_cuts(start, end, changes))
    end = _outwards(start, end)[1]
    return tuple(segments(a, b, under_way=under_way and b == end, without_minutes=without_minutes) for a, b in pieces)


def divided_hours(start: int, end: int, changes: Iterable[int] = (), *, under_way: bool = False) -> list[int]:
    """Return starts of the hours that `stretches` reads by the minute: one of its pieces begins or ends within them."""
    cuts = _cuts(start, end, changes)
    return sorted({cut // HOUR * HOUR for cut in (cuts[:-1] if under_way else cuts) if cut % HOUR})


def _cuts(start: int, end: int, changes: Iterable[int]) -> list[int]:
    start, end = _outwards(start, end)
    return sorted({start, end} | {cut for ts in changes if start < (cut := -(-ts // MINUTE) * MINUTE) < end})


def _outwards(start: int, end: int) -> tuple[int, int]:
    """Return the whole minutes that cover [start, end)."""
    return start // MINUTE * MINUTE, -(-end // MINUTE) * MINUTE


def scaled(value: Any, first: Any, last: Any) -> Any:
    """Return the part of an hour's sum (a number, or an SQL column) that minutes [first, last) of it stand for.

    Parts that cover the hour add up to the sum exactly.
    """
    minutes = HOUR // MINUTE
    return value * last // minutes - value * first // minutes


def column(table: Table, name: str) -> Any:
    """Return a column of a roll-up, with what NULL stands for in it: in the count of a gauge's samples all samples, in
    `busy_provenance` what `rollup.busy_provenance` explains."""
    if name == "busy_provenance":
        return busy_provenance(table.c).label(name)
    of = table.c[name]
    counted = name.endswith("_n") and of.nullable
    return func.coalesce(of, table.c.samples).label(name) if counted else of


def between(dialect: str, table: Table, start: Any, end: Any, owners: Select[Any] | None = None) -> Any:
    """Return rows with start <= ts < end, of some `owners` only where they are given."""
    inside = and_(table.c.ts >= start, table.c.ts < end)
    owner = next(iter(table.primary_key))
    if owners is not None:
        return and_(owner.in_(owners), inside)
    if dialect != "sqlite":
        return inside
    # SQLite has no index but the key, which begins with the owner: by owner it reads the window and not all of history.
    everyone = {"device_id": t.device, "epoch_id": t.epoch, "host_id": t.host}[owner.name]
    return and_(owner.in_(select(everyone.c[owner.name])), inside)
