"""Buckets of a window as columns of text, for whoever makes arrays of them.

An answer is one row: each column as whole numbers joined by commas. Making a Python number of every value takes twice
as long as writing and reading that text (384 hours of 6 columns: 0.45 ms as rows, 0.23 ms as text). A value that is
not known is `NULL`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, Text, bindparam, case, cast, func, literal_column, or_, select

from pertoken.store.query.answers import answer
from pertoken.store.query.segments import Segment, Segments
from pertoken.store.query.sums import Shape, bounds, parts, shape_of
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rollup_tables import HOUR

NULL = -(2**62)
"""What stands for a value that is not known: no sum comes near it (`rollup.MAX_SUM`)."""
SEPARATOR = ","
MAX_LENGTH = 64
"""Buckets of an owner in one answer: of 1,000 devices some 20 MB of text."""
_NULL: Any = literal_column(str(NULL), BigInteger)
_ONE: Any = literal_column("1")
Chunks = Iterator[Sequence[str]]
"""Some rows at a time: one text per column."""


def buckets(connection: Connection, rollup: str, segments: Segments, names: Sequence[str]) -> Chunks:
    """Yield the columns `names` of every row of a roll-up in segments: `device`, `host`, `deployment` or `share`."""
    for each in _divided(segments):
        query = _buckets(connection.dialect.name, rollup, shape_of(each), tuple(names))
        yield from _known(answer(connection, query, bounds(each)))


def several_epochs_hours(connection: Connection, start: int, end: int, names: Sequence[str]) -> Chunks:
    """Yield the columns `names` of the whole hours in [start, end) of deployments that had several epochs since."""
    for each in _divided((Segment(HOUR, start, end),)):
        query = _hours_of_several(connection.dialect.name, tuple(names))
        yield from _known(answer(connection, query, {**bounds(each), "since": start}))


def counter_buckets(connection: Connection, segments: Segments, words: Sequence[str]) -> Chunks:
    """Yield (epoch_id, ts, delta of each word) of every bucket in which an epoch counted one of them."""
    for each in _divided(segments):
        query = _counters(connection.dialect.name, shape_of(each), tuple(words))
        yield from _known(answer(connection, query, bounds(each)))


def _divided(segments: Segments) -> Iterator[tuple[Segment]]:
    for each in segments:
        length = MAX_LENGTH * each.seconds
        for start in range(each.start, each.end, length):
            yield (replace(each, start=start, end=min(start + length, each.end)),)


def _known(answers: Sequence[Sequence[str | None]]) -> Iterator[Sequence[str]]:
    """Leave out the one row of an answer in which nothing was found."""
    yield from (each for each in answers if each[0] is not None)  # type: ignore[misc]  # then none of them is


@cache
def _buckets(dialect: str, rollup: str, shape: Shape, names: tuple[str, ...]) -> Any:
    (rows,) = parts(dialect, rollup, shape, names, unknown=_NULL)
    return _joined(dialect, rows)


@cache
def _hours_of_several(dialect: str, names: tuple[str, ...]) -> Any:
    (rows,) = parts(dialect, "deployment", ((HOUR, False),), names, unknown=_NULL)
    since, epoch = bindparam("since", type_=BigInteger), t.epoch.c
    served = or_(epoch.end_ts.is_(None), epoch.end_ts > since)
    several = select(epoch.deployment_id).where(served).group_by(epoch.deployment_id).having(func.count() > _ONE)
    ids = select(epoch.epoch_id).where(served, epoch.deployment_id.in_(several))
    return _joined(dialect, rows.where(t.deployment_rollup[HOUR].c.epoch_id.in_(ids)))


@cache
def _counters(dialect: str, shape: Shape, words: tuple[str, ...]) -> Select[Any]:
    (found,) = parts(dialect, "engine_counter", shape, ("epoch_id", "ts", "metric", "delta"))
    rows = found.subquery().c
    deltas = (cast(func.sum(case((rows.metric == word, rows.delta))), BigInteger) for word in words)
    labelled = (func.coalesce(each, _NULL).label(f"delta{n}") for n, each in enumerate(deltas))
    counted = or_(*(rows.metric == word for word in words))
    return _joined(dialect, select(rows.epoch_id, rows.ts, *labelled).where(counted).group_by(rows.epoch_id, rows.ts))


def _joined(dialect: str, rows: Select[Any]) -> Select[Any]:
    """Return each column as text. All columns are joined in the same order of rows."""
    of = rows.subquery().c
    separator: Any = literal_column(f"'{SEPARATOR}'")
    if dialect == "sqlite":  # which joins numbers as they are, by commas
        return select(*(func.group_concat(each).label(each.name) for each in of))
    return select(*(func.string_agg(cast(each, Text), separator).label(each.name) for each in of))
