"""Rows into a fleet's server: one transaction for a batch and the cursor that tells it is there.

Nothing is kept in the session from one transaction to the next, so that a pooler may hand each to another one.

The one way past SQLAlchemy at a server, for `COPY` alone, with what runs in its transactions and `sync.check` over the
same connection of psycopg. To insert or replace 19,200 rows of `device_1m` took 0.6 s by `COPY` into a temporary table,
1.6 s from arrays, and 12.5 s by a Core statement for many rows (medians of four in turns, unix socket).
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Boolean, Integer, SmallInteger, Table

from pertoken.errors import StoreError
from pertoken.store.schema import telemetry as t
from pertoken.store.sync.read import Batch, Here, Row

if TYPE_CHECKING:
    import psycopg

STAGED_FROM = 500
"""Rows of one table from which they are copied into a temporary table first; fewer go as arrays, without one."""
_WAIT = "SET LOCAL statement_timeout = '120s'; SET LOCAL lock_timeout = '30s'"
_TYPES: dict[type, str] = {BigInteger: "bigint", Integer: "integer", SmallInteger: "smallint", Boolean: "boolean"}
_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": None})
_SPECIAL = re.compile(r"^$|[\"\\(),\s]")
_FIRST_KEPT = {"first_ts"}
_OWNERS = (t.host, t.device, t.engine, t.deployment, t.epoch, t.epoch_device)
_ORDER = (*_OWNERS, *(table for table in t.metadata.sorted_tables if table not in _OWNERS))
"""Rows whose owner the server does not know yet are refused."""


class Overtaken(StoreError):
    """The cursor is not where it was left: another batch got there, or the server lost some."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the server holds of one database."""

    batch: int
    seq: int
    checked_ts: int | None
    """From here on everything was compared once; None before anything was."""
    ages: dict[str, int]
    """Seconds for which the server keeps `raw`, `1m` and `1h`."""
    schema: str


def stand(connection: "psycopg.Connection[Any]", here: Here) -> Standing:
    """Enter: claim the hosts of a database, make its cursor if there is none, and say where it stands."""
    with connection.transaction():
        connection.execute(_WAIT)
        (schema,) = _one(connection, "SELECT version_num FROM telemetry.alembic_version")
        connection.execute("SELECT fleet.claim(%s::bigint[])", (list(here.host_ids),))
        connection.execute(
            "INSERT INTO fleet.shipped VALUES (%s, %s, 0, 0, 0, 0, 0, extract(epoch FROM now())::bigint) "
            "ON CONFLICT (spool_id) DO NOTHING",
            (here.spool_id, here.host_ids[-1]),
        )
        batch, seq, checked_ts = _one(
            connection, "SELECT batch, seq, checked_ts FROM fleet.shipped WHERE spool_id = %s", (here.spool_id,)
        )
        ages = dict(connection.execute("SELECT resolution, age_s FROM fleet.kept").fetchall())
    return Standing(batch, seq, checked_ts or None, ages, schema)


def send(connection: "psycopg.Connection[Any]", spool_id: int, batch: int, rows: Batch) -> int:
    """Store a batch as the one after `batch`, whole or not at all; returns its number.

    A row of an older revision never replaces a newer. Raises Overtaken if `batch` is not the last one there, StoreError
    if a row was stored with other values than were sent.
    """
    if t.histogram_set in rows.rows:
        rows.rows[t.histogram_set].sort()  # the one table that hosts share: in one order, they never wait in a circle
    lines = {table: [_line(row) for row in found] for table, found in rows.rows.items() if found}
    crc = 0
    for each in lines.values():
        for line in each:
            crc = zlib.crc32(line, crc)
    with connection.transaction():
        connection.execute(_WAIT)
        # First, for the lock: an older batch still under way at the server ends before this one begins.
        moved = connection.execute(
            "UPDATE fleet.shipped SET batch = batch + 1, seq = greatest(seq, %s), rows_n = %s, crc32 = %s, "
            "shipped_ts = extract(epoch FROM now())::bigint WHERE spool_id = %s AND batch = %s",
            (rows.seq, rows.rows_n, crc, spool_id, batch),
        )
        if moved.rowcount != 1:
            raise Overtaken("the server's cursor is elsewhere")
        for table in _ORDER:
            if table in lines:
                put(
                    connection,
                    table,
                    rows.rows[table],
                    lines[table],
                    again=rows.again,
                    checked="ts" in table.primary_key,
                )
    return batch + 1


def note_checked(connection: "psycopg.Connection[Any]", spool_id: int, checked_ts: int) -> None:
    """Note that everything from `checked_ts` on was compared once."""
    with connection.transaction():
        connection.execute("UPDATE fleet.shipped SET checked_ts = %s WHERE spool_id = %s", (checked_ts, spool_id))


@dataclass(frozen=True, slots=True)
class Request:
    """Ticks that somebody asked for at the server, by their time."""

    request_id: int
    start: int
    end: int


def open_requests(connection: "psycopg.Connection[Any]", here: Here) -> list[Request]:
    """Return what is asked for of these hosts and not answered yet, oldest first."""
    query = (
        "SELECT request_id, start_ts, end_ts FROM fleet.raw_request "
        "WHERE done_ts IS NULL AND host_id = ANY (%s::bigint[]) ORDER BY request_id"
    )
    with connection.transaction():
        return [Request(*row) for row in connection.execute(query, (list(here.host_ids),)).fetchall()]


def note_answered(connection: "psycopg.Connection[Any]", request: Request, rows_n: int, note: str | None) -> None:
    """Note that a request was answered, by how many rows, and what of it could not be."""
    with connection.transaction():
        connection.execute(
            "UPDATE fleet.raw_request SET done_ts = extract(epoch FROM now())::bigint, rows_n = %s, note = %s "
            "WHERE request_id = %s",
            (rows_n, note, request.request_id),
        )


def put(
    connection: "psycopg.Connection[Any]",
    table: Table,
    rows: Sequence[Row],
    lines: Sequence[bytes] | None = None,
    *,
    again: bool = False,
    checked: bool = False,
    staged_from: int | None = None,
) -> None:
    """Rows into one table, within the caller's transaction; `lines` are the same as COPY reads them.

    With `checked` the server tells each row as it stored it (those it held already it leaves), which has to be one that
    was sent. Raises StoreError if it is not.
    """
    told = f" RETURNING {_record(table)}" if checked else ""
    if len(rows) < (STAGED_FROM if staged_from is None else staged_from):
        # A temporary table for a few rows of a thousand hosts would cost the server's catalog more than the rows.
        stored = connection.execute(_from_arrays(table, again) + told, _arrays(table, rows))
        _check(table, rows, stored, checked)
        return
    lines = [_line(row) for row in rows] if lines is None else lines
    stage = f"stage_{table.name}"
    connection.execute(f"CREATE TEMP TABLE {stage} (LIKE {table.fullname}) ON COMMIT DROP")
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY {stage} ({_names(table)}) FROM STDIN") as copy:
            for start in range(0, len(lines), 1000):
                copy.write(b"".join(lines[start : start + 1000]))
        if cursor.rowcount != len(lines):
            raise StoreError(f"{table.name}: {cursor.rowcount} of {len(lines)} rows arrived")
    _check(table, rows, connection.execute(_from_stage(table, again, stage) + told), checked)


def _check(table: Table, rows: Sequence[Row], stored: "psycopg.Cursor[Any]", checked: bool) -> None:
    if checked and not {each for (each,) in stored} <= set(map(_told, rows)):
        raise StoreError(f"{table.name}: the server stored other values than were sent")


@cache
def _record(table: Table) -> str:
    columns = (f'{table.name}."{each.name}"' + "::int" * isinstance(each.type, Boolean) for each in table.columns)
    return f"ROW({', '.join(columns)})::text"


def _told(row: Row) -> str:
    """A row as PostgreSQL writes a record."""
    values = ["" if each is None else _quoted(each) if each.__class__ is str else str(each) for each in row]
    return f"({','.join(values)})"


def _quoted(text: str) -> str:
    text = text.replace("\0", "")
    if not _SPECIAL.search(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'


def _arrays(table: Table, rows: Sequence[Row]) -> list[list[Any]]:
    columns: list[list[Any]] = [list(each) for each in zip(*rows, strict=True)]
    for i, column in enumerate(table.columns):
        if isinstance(column.type, Boolean):
            columns[i] = [None if value is None else bool(value) for value in columns[i]]
        elif _type(column.type) == "text":
            columns[i] = [value.replace("\0", "") if isinstance(value, str) else value for value in columns[i]]
    return columns


def _line(row: Row) -> bytes:
    """One row as COPY reads it."""
    fields = [
        "\\N" if value is None else value.translate(_ESCAPED) if value.__class__ is str else str(value) for value in row
    ]
    return ("\t".join(fields) + "\n").encode()


@cache
def _from_arrays(table: Table, again: bool) -> str:
    arrays = ", ".join(f"%s::{_type(column.type)}[]" for column in table.columns)
    return f"INSERT INTO {table.fullname} ({_names(table)}) SELECT * FROM unnest({arrays}) {_conflict(table, again)}"


def _from_stage(table: Table, again: bool, stage: str) -> str:
    return f"INSERT INTO {table.fullname} ({_names(table)}) SELECT {_names(table)} FROM {stage} " + _conflict(
        table, again
    )


def _names(table: Table) -> str:
    return ", ".join(f'"{column.name}"' for column in table.columns)


def _conflict(table: Table, again: bool) -> str:
    keys = [column.name for column in table.primary_key]
    on = f"ON CONFLICT ({', '.join(keys)})"
    rest = [column.name for column in table.columns if column.name not in keys]
    if not rest or table is t.histogram_set or ("ts" in keys and "revision" not in table.c):
        return f"{on} DO NOTHING"  # ticks and definitions never change
    changes = ", ".join(
        f'"{name}" = '
        + (f"least(excluded.{name}, {table.name}.{name})" if name in _FIRST_KEPT else f'excluded."{name}"')
        for name in rest
    )
    newer = ""
    if "revision" in table.c:
        newer = f" WHERE excluded.revision {'>=' if again else '>'} {table.name}.revision"
    return f"{on} DO UPDATE SET {changes}{newer}"


def _type(kind: Any) -> str:
    return next((name for cls, name in _TYPES.items() if type(kind) is cls), "text")


def _one(connection: "psycopg.Connection[Any]", query: str, parameters: Sequence[Any] = ()) -> Any:
    row = connection.execute(query, parameters or None).fetchone()
    if row is None:
        raise StoreError("the server does not show this host's row: is its login still enrolled?")
    return row
