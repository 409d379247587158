"""A stretch of a database as one file: an SQLite archive (sqlar) with the rows of a window, to be replayed elsewhere.

`sqlite3 FILE -A -x` unpacks one without pertoken. https://sqlite.org/sqlar.html
"""

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from shutil import disk_usage
from typing import Any

from sqlalchemy import Connection, Select, Table, or_, select

from pertoken.errors import BadInput, BadRecording
from pertoken.store.connect.location import GROUPS, StoreLocation
from pertoken.store.connect.open import Store
from pertoken.store.export.anonymous import NAMES, Anonymizer, column_name, is_id
from pertoken.store.export.untrusted import MAX_TS, check_database, check_json, opened
from pertoken.store.query.segments import between
from pertoken.store.schema import advice as a
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rollup_tables import HOUR

FORMAT = 1
HEADER = "recording.json"
MAX_UNPACKED_BYTES = 4 * 2**30
"""Largest database that is unpacked: the last hours of a large fleet have some hundred megabytes."""
MAX_HEADER_BYTES = 2**16
MAX_SPAN_S = 10 * 366 * 86400
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
        span = recording.start_ts // HOUR * HOUR, recording.end_ts
        for group in GROUPS:
            if (database := folder / f"{group}.db").exists():
                times = span if group == "telemetry" else (0, MAX_TS)
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
    """Return what a header states. Raises BadRecording."""
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
    if not 0 <= start < end <= MAX_TS or end - start > MAX_SPAN_S:
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


def _rows(connection: Connection, table: Table, recording: Recording) -> Select[Any]:
    query, of = select(table), table.c
    if table.metadata is not t.metadata:
        return query
    if table is t.event:
        return query.where(of.last_ts >= recording.start_ts, of.ts <= recording.end_ts)
    if table is t.epoch:
        return query.where(or_(of.end_ts.is_(None), of.end_ts > recording.start_ts), of.start_ts < recording.end_ts)
    if "ts" not in table.primary_key.columns:
        return query
    start = recording.start_ts // HOUR * HOUR if table.name.endswith("_1h") else recording.start_ts
    return query.where(between(connection.dialect.name, table, start, recording.end_ts + 1))


def _chunks(connection: Connection, query: Select[Any]) -> Iterator[list[tuple[Any, ...]]]:
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


def _sealed(row: tuple[Any, ...], resealed: Callable[[str], str]) -> tuple[Any, ...]:
    values = dict(zip(a.receipt.columns.keys(), row, strict=True))
    body = resealed(values["body"])
    return tuple({**values, "body": body, "hash": sha256(body.encode()).hexdigest()}.values())
