"""An interval of a database as one file: an SQLite archive (sqlar) with the rows of a window, to be replayed elsewhere.

`sqlite3 FILE -A -x` unpacks one without pertoken. https://sqlite.org/sqlar.html
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
import stat
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from shutil import disk_usage

from sqlalchemy import Boolean, Column, Connection, MetaData, Table, Text, or_, select

from pertoken.errors import BadInput, BadRecording
from pertoken.store.connect.location import GROUPS, StoreLocation
from pertoken.store.connect.open import REVISIONS, Store
from pertoken.store.connect.sqlite import distrust
from pertoken.store.export.anonymous import COLUMNS, NAMES, Anonymizer, column_name, is_id
from pertoken.store.query.rollups import Query, between
from pertoken.store.schema import advice, telemetry
from pertoken.store.schema import advice as a
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.telemetry import HOUR

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


def check_database(file: Path, group: str, tables: list[Table], max_bytes: int, interval: tuple[int, int]) -> None:
    """Check the file of one group of tables: its pages, its schema, and the type and range of every value.

    `interval`: first and last time of samples. Raises BadRecording naming what is wrong.
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
            _check_values(connection, table, interval)
            _check_texts(connection, table)


def check_json(text: str, depth: int = MAX_DEPTH) -> object:
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
    revisions = REVISIONS[group]
    if len(rows) != 1 or type(rows[0][0]) is not str:
        raise BadRecording("it names no revision of its schema")
    (revision,) = rows[0]
    if revision != revisions[-1]:
        age = "an older" if revision in revisions else "a newer"
        raise BadRecording(
            f"it was recorded by {age} pertoken (schema {revision[:20]!r}; this one reads {revisions[-1]})"
        )


def _check_columns(connection: sqlite3.Connection, table: Table) -> None:
    query = "SELECT name, type, hidden FROM pragma_table_xinfo(?)"
    stored = [(name, _affinity(kind), hidden) for name, kind, hidden in connection.execute(query, (table.name,))]
    expected = [(column.name, "text" if isinstance(column.type, Text) else "integer", 0) for column in table.columns]
    if sorted(stored) != sorted(expected):
        raise BadRecording(f"its table {table.name} has other columns")


def _affinity(kind: str) -> str:
    return "integer" if kind.upper() in ("BIGINT", "INTEGER", "SMALLINT", "BOOLEAN") else kind.casefold()


def _check_values(connection: sqlite3.Connection, table: Table, interval: tuple[int, int]) -> None:
    conditions = [_condition(table, column, interval) for column in table.columns]
    sums = ", ".join(f"sum(NOT ({condition}))" for condition in conditions)
    counts = connection.execute(f'SELECT {sums} FROM "{table.name}"').fetchone()
    for column, count in zip(table.columns, counts, strict=True):
        if count:
            rows = "1 row" if count == 1 else f"{count} rows"
            raise BadRecording(f"{rows} of {table.name}: {column.name} is not {_expected(column)}")


def _condition(table: Table, column: Column[object], interval: tuple[int, int]) -> str:
    name = f'"{column.name}"'
    if isinstance(column.type, Text):
        condition = f"typeof({name}) = 'text'"
    else:
        condition = f"typeof({name}) = 'integer'"
        if isinstance(column.type, Boolean):
            condition += f" AND {name} IN (0, 1)"
        elif column.name == "ts" and column.primary_key:
            condition += f" AND {name} BETWEEN {interval[0]} AND {interval[1]}"
        elif column.name == "ts" or column.name.endswith("_ts"):
            condition += f" AND {name} BETWEEN 0 AND {MAX_TS}"
        elif not is_id(column):
            condition += f" AND {name} BETWEEN {-MAX_NUMBER} AND {MAX_NUMBER}"
    return f"{condition} OR {name} IS NULL" if column.nullable else condition


def _expected(column: Column[object]) -> str:
    if isinstance(column.type, Text):
        return "text"
    return "a time of the recording" if column.name.endswith("ts") else "a number of the expected size"


def _check_texts(connection: sqlite3.Connection, table: Table) -> None:
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


def _check_depth(value: object, depth: int) -> None:
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


FORMAT = 1
HEADER = "recording.json"
MAX_UNPACKED_BYTES = 4 * 2**30
"""Largest database that is unpacked: the last hours of a large fleet have some hundred megabytes."""
MAX_HEADER_BYTES = 2**16
MAX_INTERVAL_S = 10 * 366 * 86400
BLOCK_BYTES = 2**20
CHUNK_ROWS = 5000
_LEFT_OUT = ("outbox", "spool", "dirty", "quarantine", "batch", "seal", "counter_state", "configuration")
"""Tables about the file, the agent itself, and the settings of its advisor."""
_ARCHIVE = "CREATE TABLE sqlar(name TEXT PRIMARY KEY, mode INT, mtime INT, sz INT, data BLOB)"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Recording:
    """Description of a recording: its window, host and kind."""

    start_ts: int
    end_ts: int
    """A whole minute."""
    anonymized: bool
    format: int = FORMAT


def tables(group: str) -> list[Table]:
    """Return the tables of a group whose rows are recorded."""
    metadata = t.metadata if group == "telemetry" else a.metadata
    return [table for table in metadata.sorted_tables if table.name not in _LEFT_OUT]


def copy(
    store: Store,
    location: StoreLocation,
    recording: Recording,
    anonymizer: Anonymizer | None,
    resealed: Callable[[str], str],
    progress: Progress = lambda _: None,
) -> None:
    """Copy the rows of a window into the empty database at `location`, without names if there is an anonymizer.

    `resealed` returns the body of a receipt with the checksums of its present texts. Raises StoreError.
    """
    groups = [group for group in GROUPS if group == "telemetry" or store.advice is not None]
    if anonymizer is not None:
        progress("names")
        for group in groups:
            with store.read(group) as connection:
                _learn(connection, group, anonymizer)
    for group in groups:
        with store.read(group) as connection, closing(sqlite3.connect(location.file(group))) as file:
            file.executescript("PRAGMA journal_mode=DELETE; PRAGMA synchronous=OFF;")
            for table in tables(group):
                progress(table.name)
                marks = ",".join("?" * len(table.columns))
                insert = f"INSERT INTO {table.name} VALUES ({marks})"
                for rows in _chunks(connection, _rows(connection, table, recording)):
                    if anonymizer is not None:
                        rows = [anonymizer.row(table, row) for row in rows]
                        rows = [_sealed(row, resealed) for row in rows] if table is a.receipt else rows
                    file.executemany(insert, rows)
                file.commit()


def pack(location: StoreLocation, recording: Recording, file: Path) -> None:
    """Write the database at `location` into one archive. Raises BadInput if the file exists or cannot be written."""
    if file.exists():
        raise BadInput(f"{file}: exists already; name another file")
    contents = {file.name: file.read_bytes() for file in (location.file(group) for group in GROUPS) if file.exists()}
    contents[HEADER] = json.dumps(asdict(recording)).encode()
    try:
        with closing(sqlite3.connect(file)) as archive:
            archive.execute(_ARCHIVE)
            for name, content in contents.items():
                data = zlib.compress(content, 6)
                row = (name, 0o100644, recording.end_ts, len(content), min(data, content, key=len))
                archive.execute("INSERT INTO sqlar VALUES (?, ?, ?, ?, ?)", row)
            archive.commit()
    except sqlite3.Error as error:
        raise BadInput(f"{file}: cannot be written: {error}") from None


def unpack(file: Path, folder: Path) -> Recording:
    """Unpack an archive that somebody made into a folder, which is then a database, and check all of it.

    Raises BadRecording if it is damaged, too large, or no recording.
    """
    try:
        with opened(file, MAX_UNPACKED_BYTES, {"sqlar"}) as archive:
            header = b"".join(_content(archive, HEADER, MAX_HEADER_BYTES))
            recording = _description(header)
            for name in _names(archive):
                with (folder / name).open("wb") as out:
                    for block in _content(archive, name, min(MAX_UNPACKED_BYTES, disk_usage(folder).free)):
                        out.write(block)
        interval = recording.start_ts // HOUR * HOUR, recording.end_ts
        for group in GROUPS:
            if (database := folder / f"{group}.db").exists():
                times = interval if group == "telemetry" else (0, MAX_TS)
                try:
                    check_database(database, group, tables(group), MAX_UNPACKED_BYTES, times)
                except BadRecording as error:
                    raise BadRecording(f"{database.name} in it: {error}") from None
    except (BadRecording, OSError, ValueError, zlib.error) as error:
        raise BadRecording(f"{file}: is no recording that can be shown: {error}") from None
    return recording


def _names(archive: sqlite3.Connection) -> list[str]:
    stored = [f"{group}.db" for group in GROUPS if _stored(archive, f"{group}.db") is not None]
    if "telemetry.db" not in stored:
        raise BadRecording("it holds no telemetry.db")
    return stored


def _description(header: bytes) -> Recording:
    try:
        values = check_json(header.decode())
    except (ValueError, RecursionError) as error:
        raise BadRecording(f"{HEADER} in it is damaged: {error}") from None
    if not isinstance(values, dict) or type(values.get("format")) is not int:
        raise BadRecording(f"{HEADER} in it names no format")
    if values["format"] != FORMAT:
        raise BadRecording(f"it was recorded by another pertoken (format {values['format']}; this one reads {FORMAT})")
    if values.keys() != {field.name for field in fields(Recording)}:
        raise BadRecording(f"{HEADER} in it has other fields")
    start, end = values["start_ts"], values["end_ts"]
    if type(start) is not int or type(end) is not int or type(values["anonymized"]) is not bool:
        raise BadRecording(f"{HEADER} in it has values of another type")
    if not 0 <= start < end <= MAX_TS or end - start > MAX_INTERVAL_S:
        raise BadRecording(f"{HEADER} in it states no window of time")
    return Recording(**values)


def _stored(archive: sqlite3.Connection, name: str) -> tuple[int, int, int] | None:
    """Return the row, the size and the packed size of a file of an archive; None if it has none of that name."""
    query = "SELECT rowid, sz, typeof(sz), length(data), typeof(data) FROM sqlar WHERE name = ?"
    row = archive.execute(query, (name,)).fetchone()
    if row is None:
        return None
    rowid, size, size_type, packed_size, data_type = row
    if (size_type, data_type) != ("integer", "blob"):
        raise BadRecording(f"{name} in it has no size or no contents")
    return rowid, size, packed_size


def _content(archive: sqlite3.Connection, name: str, max_bytes: int) -> Iterator[bytes]:
    """Yield a file of an archive in blocks; no more than it states, and never more than `max_bytes`."""
    stored = _stored(archive, name)
    if stored is None:
        raise BadRecording(f"it holds no {name}")
    rowid, size, packed_size = stored
    if not 0 <= size <= max_bytes:
        raise BadRecording(f"{name} in it has {size} bytes; at most {max_bytes} are unpacked here")
    with archive.blobopen("sqlar", "data", rowid, readonly=True) as blob:
        blocks = iter(lambda: blob.read(BLOCK_BYTES), b"")
        if packed_size == size:
            yield from blocks
            return
        unpacking, unpacked_size = zlib.decompressobj(), 0
        for packed in blocks:
            while packed and unpacked_size <= size and not unpacking.eof:
                block = unpacking.decompress(packed, BLOCK_BYTES)
                packed, unpacked_size = unpacking.unconsumed_tail, unpacked_size + len(block)
                if unpacked_size <= size:
                    yield block
        while not unpacking.eof and unpacked_size <= size and (block := unpacking.decompress(b"", BLOCK_BYTES)):
            unpacked_size += len(block)
            if unpacked_size <= size:
                yield block
        if unpacked_size != size or not unpacking.eof:
            raise BadRecording(f"{name} in it does not unpack to the size that it states")


def _rows(connection: Connection, table: Table, recording: Recording) -> Query:
    query, columns = select(table), table.c
    if table.metadata is not t.metadata:
        return query
    if table is t.event:
        return query.where(columns.last_ts >= recording.start_ts, columns.ts <= recording.end_ts)
    if table is t.epoch:
        return query.where(
            or_(columns.end_ts.is_(None), columns.end_ts > recording.start_ts), columns.start_ts < recording.end_ts
        )
    if "ts" not in table.primary_key.columns:
        return query
    start = recording.start_ts // HOUR * HOUR if table.name.endswith("_1h") else recording.start_ts
    return query.where(between(connection.dialect.name, table, start, recording.end_ts + 1))


def _chunks(connection: Connection, query: Query) -> Iterator[list[tuple[object, ...]]]:
    result = connection.execute(query)
    while rows := result.fetchmany(CHUNK_ROWS):
        yield [tuple(row) for row in rows]


def _learn(connection: Connection, group: str, anonymizer: Anonymizer) -> None:
    """Collect names and ids before any text is judged, since a text may hold a name of any table."""
    for table in tables(group):
        for column in table.columns:
            if column_name(column) in NAMES or (column.name == "metric" and "ts" in table.primary_key.columns):
                query = select(column).where(column.is_not(None)).distinct()
                labelled = query if column_name(column) in NAMES else query.where(column.contains("{"))
                for (value,) in connection.execute(labelled):
                    anonymizer.learn(column_name(column), value)
            elif is_id(column) and "ts" not in table.primary_key.columns:
                for (number,) in connection.execute(select(column).where(column.is_not(None)).distinct()):
                    anonymizer.names.learn_id(number)
    if group == "telemetry":
        for device_id, uuid in connection.execute(select(t.device.c.device_id, t.device.c.uuid)):
            anonymizer.names.learn_device(device_id, uuid)


def _sealed(row: tuple[object, ...], resealed: Callable[[str], str]) -> tuple[object, ...]:
    values = dict(zip(a.receipt.columns.keys(), row, strict=True))
    body = resealed(str(values["body"]))
    return tuple({**values, "body": body, "hash": sha256(body.encode()).hexdigest()}.values())
