"""Rows of one table in and out of the store, in slices, so that memory does not grow with the table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, Text, and_, func, select, tuple_

from pertoken.errors import BadInput, StoreError
from pertoken.store.connect.open import Store
from pertoken.store.integrity.checksums import CHECKSUMMED
from pertoken.store.schema import telemetry as t
from pertoken.store.write.writer import Writer

SLICE_ROWS = 5000
TABLES = tuple(sorted(CHECKSUMMED.keys() - {t.outbox.name, t.spool.name}))
"""Tables that can be exported: all but those about the file itself (batches, checksums, what is to be shipped)."""


@dataclass(frozen=True, slots=True)
class Window:
    """Rows with start <= ts < end (Unix seconds); None: open."""

    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column as it is written to a file: `kind` is `int`, `text` or `bool`."""

    name: str
    kind: str
    required: bool


def columns(table: str) -> tuple[Column, ...]:
    """Return columns of a table in their order. Raises BadInput for a name that is none."""
    if table not in TABLES:
        raise BadInput(f"{table!r} is not a table that can be exported: there are {', '.join(TABLES)}")
    result = []
    for column in CHECKSUMMED[table].table.columns:
        kind = "bool" if isinstance(column.type, Boolean) else "text" if isinstance(column.type, Text) else "int"
        result.append(Column(column.name, kind, not column.nullable))
    return tuple(result)


def count(store: Store, table: str, window: Window) -> int:
    """Return how many rows a window holds."""
    with store.read() as connection:
        query = select(func.count()).select_from(CHECKSUMMED[table].table).where(*_inside(table, window))
        return int(connection.execute(query).scalar_one())


def slices(store: Store, table: str, window: Window) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows of a window in the order of the key, each slice a short read of its own.

    Raises StoreError if it cannot be read, BadInput for a window over a table without time.
    """
    source = CHECKSUMMED[table].table
    keys = list(source.primary_key)
    at = [list(source.columns).index(key) for key in keys]
    last: tuple[Any, ...] | None = None
    while True:
        behind = [] if last is None else [tuple_(*keys) > tuple_(*last)]
        query = select(source).where(and_(True, *_inside(table, window), *behind)).order_by(*keys).limit(SLICE_ROWS)
        with store.read() as connection:
            rows = [tuple(row) for row in connection.execute(query)]
        if rows:
            yield rows
        if len(rows) < SLICE_ROWS:
            return
        last = tuple(rows[-1][position] for position in at)


def put(writer: Writer, table: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """Store rows as they are; those that are there already with the same values stay. Returns how many were new.

    Raises StoreError, with none of them stored, if a row is there with other values.
    """
    try:
        return writer.restore(CHECKSUMMED[table], [tuple(map(_stored, row)) for row in rows])
    except ValueError as error:
        raise StoreError(f"{writer.location}: {table}: {error}") from None


def _stored(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def _inside(table: str, window: Window) -> list[Any]:
    if window == Window():
        return []
    ts = CHECKSUMMED[table].table.c.get("ts")
    if ts is None or table in (t.counter_state.name, t.dirty.name, t.quarantine.name):
        raise BadInput(f"{table} has no time to choose by: leave --from and --to out")
    return [*([] if window.start is None else [ts >= window.start]), *([] if window.end is None else [ts < window.end])]
