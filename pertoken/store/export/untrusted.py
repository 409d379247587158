"""SQLite files that somebody else made: opened without running anything in them, and checked before they are read."""

import json
import math
import re
import sqlite3
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, Column, MetaData, Table, Text

from pertoken.errors import BadRecording
from pertoken.store.connect.open import REVISIONS
from pertoken.store.connect.sqlite import distrust
from pertoken.store.export.anonymous import COLUMNS, column_name, is_id
from pertoken.store.schema import advice, telemetry

MAX_CELL_BYTES = 16 * 2**20
"""Longest text: the hours of a receipt have some hundred kilobytes."""
MAX_TS = 2**33
"""Latest time, in the year 2242."""
MAX_NUMBER = 2**60
"""Largest number that is no id: sums of numbers below stay within 64 bits."""
MAX_DEPTH = 32
_GROUPS: Mapping[str, MetaData] = {"telemetry": telemetry.metadata, "advice": advice.metadata}
_INDEXES = frozenset(
    str(index.name) for metadata in _GROUPS.values() for table in metadata.sorted_tables for index in table.indexes
)
_MAGIC = b"SQLite format 3\0"
_JSON = frozenset(COLUMNS["facts"] + COLUMNS["document"])
_EXPRESSION = re.compile(r"\b(?:CHECK|COLLATE)\b", re.IGNORECASE)
"""What SQLite would evaluate while it checks a page or compares a text; no table of a recording has it."""


@contextmanager
def opened(file: Path, max_bytes: int, tables: Collection[str]) -> Iterator[sqlite3.Connection]:
    """Open a SQLite file read-only, whatever lies beside it, that has these tables and nothing else.

    A trigger, a view, a virtual table or an expression is refused, so that reading the file runs nothing.
    Raises BadRecording for a file that has one, is damaged, or is no SQLite file.
    """
    check_file(file, max_bytes)
    uri = f"{file.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            distrust(connection)
            _check_objects(connection, tables)
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise BadRecording(f"SQLite cannot read it: {error}") from None


def check_file(file: Path, max_bytes: int) -> None:
    """Raise BadRecording unless a path is a regular file that begins as SQLite's do and is not too large."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadRecording("it is no regular file")
        with file.open("rb") as stream:
            begin = stream.read(len(_MAGIC))
    except (OSError, ValueError) as error:
        raise BadRecording(f"it cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not begin:
        raise BadRecording("it is empty")
    if begin != _MAGIC:
        raise BadRecording("it is no SQLite file")
    if status.st_size > max_bytes:
        raise BadRecording(f"it has {status.st_size} bytes; at most {max_bytes} are read")


def check_database(file: Path, group: str, tables: list[Table], max_bytes: int, span: tuple[int, int]) -> None:
    """Check the file of one group of tables: its pages, its schema, and the type and range of every value.

    `span`: first and last time of samples. Raises BadRecording naming what is wrong.
    """
    names = {"alembic_version", *(table.name for table in _GROUPS[group].sorted_tables)}
    with opened(file, max_bytes, names) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL_BYTES)
        problem = connection.execute("PRAGMA quick_check(1)").fetchone()
        if problem != ("ok",):
            raise BadRecording(f"its pages are damaged: {problem[0] if problem else 'SQLite has no answer'}")
        _check_revision(connection, group)
        for table in tables:
            _check_columns(connection, table)
            _check_values(connection, table, span)
            _check_texts(connection, table)


def check_json(text: str, depth: int = MAX_DEPTH) -> Any:
    """Return a JSON value whose numbers are finite and have 64 bits, nested at most so deep. Raises ValueError."""
    value = json.loads(text, parse_constant=_no_number, parse_int=_bounded_int, parse_float=_finite)
    _check_depth(value, depth)
    return value


def _check_objects(connection: sqlite3.Connection, tables: Collection[str]) -> None:
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        is_plain = (kind == "table" and name in tables) or (kind == "index" and (sql is None or name in _INDEXES))
        if not is_plain or (sql is not None and _EXPRESSION.search(sql)):
            raise BadRecording(f"it has a {kind} {name!r} that no recording has")
    for schema, name, kind in connection.execute("SELECT schema, name, type FROM pragma_table_list"):
        if schema == "main" and kind != "table":
            raise BadRecording(f"it has a {kind} table {name!r}, which no recording has")
    for name in _INDEXES:
        columns = connection.execute("SELECT cid FROM pragma_index_xinfo(?)", (name,)).fetchall()
        if (-2,) in columns:
            raise BadRecording(f"its index {name} is of an expression")


def _check_revision(connection: sqlite3.Connection, group: str) -> None:
    rows = connection.execute("SELECT version_num FROM alembic_version").fetchmany(2)
    known = REVISIONS[group]
    if len(rows) != 1 or type(rows[0][0]) is not str:
        raise BadRecording("it names no revision of its schema")
    (revision,) = rows[0]
    if revision != known[-1]:
        age = "an older" if revision in known else "a newer"
        raise BadRecording(f"it was recorded by {age} pertoken (schema {revision[:20]!r}; this one reads {known[-1]})")


def _check_columns(connection: sqlite3.Connection, table: Table) -> None:
    query = "SELECT name, type, hidden FROM pragma_table_xinfo(?)"
    stored = [(name, _affinity(kind), hidden) for name, kind, hidden in connection.execute(query, (table.name,))]
    expected = [(column.name, "text" if isinstance(column.type, Text) else "integer", 0) for column in table.columns]
    if sorted(stored) != sorted(expected):
        raise BadRecording(f"its table {table.name} has other columns")


def _affinity(kind: str) -> str:
    return "integer" if kind.upper() in ("BIGINT", "INTEGER", "SMALLINT", "BOOLEAN") else kind.casefold()


def _check_values(connection: sqlite3.Connection, table: Table, span: tuple[int, int]) -> None:
    """Check the types and ranges of a table in one pass over its rows."""
    conditions = [_condition(table, column, span) for column in table.columns]
    sums = ", ".join(f"sum(NOT ({condition}))" for condition in conditions)
    counts = connection.execute(f'SELECT {sums} FROM "{table.name}"').fetchone()
    for column, count in zip(table.columns, counts, strict=True):
        if count:
            rows = "1 row" if count == 1 else f"{count} rows"
            raise BadRecording(f"{rows} of {table.name}: {column.name} is not {_expected(column)}")


def _condition(table: Table, column: Column[Any], span: tuple[int, int]) -> str:
    name = f'"{column.name}"'
    if isinstance(column.type, Text):
        condition = f"typeof({name}) = 'text'"
    else:
        condition = f"typeof({name}) = 'integer'"
        if isinstance(column.type, Boolean):
            condition += f" AND {name} IN (0, 1)"
        elif column.name == "ts" and column.primary_key:
            condition += f" AND {name} BETWEEN {span[0]} AND {span[1]}"
        elif column.name == "ts" or column.name.endswith("_ts"):
            condition += f" AND {name} BETWEEN 0 AND {MAX_TS}"
        elif not is_id(column):
            condition += f" AND {name} BETWEEN {-MAX_NUMBER} AND {MAX_NUMBER}"
    return f"{condition} OR {name} IS NULL" if column.nullable else condition


def _expected(column: Column[Any]) -> str:
    if isinstance(column.type, Text):
        return "text"
    return "a time of the recording" if column.name.endswith("ts") else "a number of the expected size"


def _check_texts(connection: sqlite3.Connection, table: Table) -> None:
    """Check that texts are UTF-8, and JSON where JSON is stored."""
    for column in table.columns:
        if not isinstance(column.type, Text):
            continue
        query = f'SELECT DISTINCT "{column.name}" FROM "{table.name}" WHERE "{column.name}" IS NOT NULL'
        for (text,) in connection.execute(query):
            if column_name(column) not in _JSON:
                continue
            try:
                is_object = isinstance(check_json(text), dict)
            except (ValueError, RecursionError):
                is_object = False
            if not is_object:
                raise BadRecording(f"a row of {table.name}: {column.name} is no JSON object that can be read")


def _check_depth(value: Any, depth: int) -> None:
    if depth < 0:
        raise ValueError("it is nested too deep")
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for member in members:
        _check_depth(member, depth - 1)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _bounded_int(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"a number has more than 64 bits: {text[:20]}...")
    return int(text)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is no finite number")
    return number
