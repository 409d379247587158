"""A window as buckets: whole hours where possible, minutes at its edges."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlalchemy import Table, and_, func, select

from pertoken.store import telemetry as t
from pertoken.store.rollup import HOUR, MINUTE, busy_provenance


@dataclass(frozen=True, slots=True)
class Segment:
    """Buckets of one length with start <= ts < end."""

    seconds: int
    start: int
    end: int


Segments = Sequence[Segment]
"""Buckets that are read and summed together."""


def segments(start: int, end: int, *, under_way: bool = False) -> tuple[Segment, ...]:
    """Cover [start, end) with whole hours where possible and minutes elsewhere, without overlap.

    `under_way`: the hour that `end` lies in is kept up to date and holds nothing later, so that it is read whole.
    """
    start, end = start // MINUTE * MINUTE, -(-end // MINUTE) * MINUTE
    first = min(end, -(-start // HOUR) * HOUR)
    last = -(-end // HOUR) * HOUR if under_way and end > first else max(first, end // HOUR * HOUR)
    found = Segment(MINUTE, start, first), Segment(HOUR, first, last), Segment(MINUTE, last, end)
    return tuple(each for each in found if each.start < each.end)


def stretches(start: int, end: int, changes: Collection[int], *, under_way: bool = False) -> tuple[Segments, ...]:
    """[start, end) cut at instants at which something changed (a price), each piece covered by `segments`.

    A change counts from the minute that begins after it.
    """
    start, end = start // MINUTE * MINUTE, -(-end // MINUTE) * MINUTE
    inside = {cut for ts in changes if start < (cut := -(-ts // MINUTE) * MINUTE) < end}
    cuts = sorted({start, end} | inside)
    return tuple(segments(a, b, under_way=under_way and b == end) for a, b in pairwise(cuts))


def column(table: Table, name: str) -> Any:
    """A column of a roll-up, with what NULL stands for in it: in the count of a gauge's samples all samples, in
    `busy_provenance` what `rollup.busy_provenance` explains."""
    if name == "busy_provenance":
        return busy_provenance(table.c).label(name)
    of = table.c[name]
    counted = name.endswith("_n") and of.nullable
    return func.coalesce(of, table.c.samples).label(name) if counted else of


def between(dialect: str, table: Table, start: Any, end: Any) -> Any:
    """Rows with start <= ts < end."""
    inside = and_(table.c.ts >= start, table.c.ts < end)
    if dialect != "sqlite":
        return inside
    # SQLite has no index but the key, which begins with the owner: by owner it reads the window and not all of history.
    owner = next(iter(table.primary_key))
    owners = {"device_id": t.device, "epoch_id": t.epoch, "host_id": t.host}[owner.name]
    return and_(owner.in_(select(owners.c[owner.name])), inside)
