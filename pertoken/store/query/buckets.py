"""Buckets of a window as rows of integers, in chunks, for whoever lays them out as columns.

One statement for each roll-up. A value that is not known is `NULL`, so that a row is integers only.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, case, cast, func, literal_column, or_, select, union_all

from pertoken.store.query.answers import chunks
from pertoken.store.query.segments import Segments
from pertoken.store.query.sums import Shape, bounds, parts, shape_of

NULL = -(2**62)
"""What stands for a value that is not known: no sum comes near it (`rollup.MAX_SUM`)."""
_NULL: Any = literal_column(str(NULL), BigInteger)
Chunks = Iterator[Sequence[Sequence[int]]]


def buckets(connection: Connection, rollup: str, segments: Segments, names: Sequence[str]) -> Chunks:
    """Yield the columns `names` of every row of a roll-up in segments: `device`, `host`, `deployment` or `share`."""
    query = _buckets(connection.dialect.name, rollup, shape_of(segments), tuple(names))
    return chunks(connection, query, bounds(segments))


def counter_buckets(connection: Connection, segments: Segments, words: Sequence[str]) -> Chunks:
    """Yield (epoch_id, ts, delta of each word) of every bucket in which an epoch counted one of them."""
    query = _counters(connection.dialect.name, shape_of(segments), tuple(words))
    return chunks(connection, query, bounds(segments))


@cache
def _buckets(dialect: str, rollup: str, shape: Shape, names: tuple[str, ...]) -> Any:
    found = parts(dialect, rollup, shape, names, unknown=_NULL)
    return found[0] if len(found) == 1 else union_all(*found)


@cache
def _counters(dialect: str, shape: Shape, words: tuple[str, ...]) -> Select[Any]:
    rows = union_all(*parts(dialect, "engine_counter", shape, ("epoch_id", "ts", "metric", "delta"))).subquery().c
    deltas = (cast(func.sum(case((rows.metric == word, rows.delta))), BigInteger) for word in words)
    labelled = (func.coalesce(each, _NULL).label(f"delta{n}") for n, each in enumerate(deltas))
    counted = or_(*(rows.metric == word for word in words))
    return select(rows.epoch_id, rows.ts, *labelled).where(counted).group_by(rows.epoch_id, rows.ts)
