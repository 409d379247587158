"""A stretch of a database as one file: an SQLite archive (sqlar) with the rows of a window, to be replayed elsewhere.

`sqlite3 FILE -A -x` unpacks one without pertoken. https://sqlite.org/sqlar.html
"""

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, Table, or_, select

from pertoken.errors import BadInput
from pertoken.store.connect.location import GROUPS, StoreLocation
from pertoken.store.connect.open import Store
from pertoken.store.export.anonymous import Pseudonyms
from pertoken.store.query.segments import between
from pertoken.store.schema import advice as a
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rollup_tables import HOUR

FORMAT = 1
HEADER = "recording.json"
MAX_UNPACKED_BYTES = 16 * 2**30
"""Largest database that is unpacked: the last hours of a large fleet have some hundred megabytes."""
CHUNK_ROWS = 5000
_LEFT_OUT = ("outbox", "spool", "dirty", "quarantine", "batch", "seal", "counter_state", "configuration")
"""Tables about the file, the agent itself, and the settings of its advisor."""
_ARCHIVE = "CREATE TABLE sqlar(name TEXT PRIMARY KEY, mode INT, mtime INT, sz INT, data BLOB)"
_PROGRAMS = ("advisor", "agent", "detector", "verifier")
_LOCAL = ("127.0.0.1", "localhost")
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
    is_public: Callable[[str], bool],
    progress: Progress = lambda _: None,
) -> None:
    """Copy the rows of a window into the empty database at `location`, without names where that is asked for.

    `is_public`: whether a name of a model is published, so that it identifies nobody. Raises StoreError.
    """
    names = Pseudonyms() if recording.anonymized else None
    if names is not None:
        _learn(store, names, is_public)
    for group in GROUPS:
        if group == "advice" and store.advice is None:
            continue
        with store.read(group) as connection, closing(sqlite3.connect(location.file(group))) as file:
            file.executescript("PRAGMA journal_mode=DELETE; PRAGMA synchronous=OFF;")
            for table in tables(group):
                progress(table.name)
                marks = ",".join("?" * len(table.columns))
                insert = f"INSERT INTO {table.name} VALUES ({marks})"
                for rows in _chunks(connection, _rows(connection, table, recording)):
                    values = rows if names is None else [_without_names(table, row, names) for row in rows]
                    file.executemany(insert, values)
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
    """Unpack an archive into a folder, which is then a database. Raises BadInput if it is no recording."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as archive:
            values = json.loads(_content(archive, HEADER) or b"")
            if values["format"] != FORMAT:
                raise BadInput(f"{file}: was recorded by a newer pertoken (format {values['format']})")
            recording = Recording(**values)
            for group in GROUPS:
                if (content := _content(archive, f"{group}.db")) is not None:
                    (folder / f"{group}.db").write_bytes(content)
    except (sqlite3.Error, zlib.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"{file}: is no recording of `pertoken record` ({error})") from None
    return recording


def _content(archive: sqlite3.Connection, name: str) -> bytes | None:
    """Return a file of an archive; None if it holds none of that name.

    Raises ValueError where it does not unpack to the size it states, zlib.error where it is broken.
    """
    row = archive.execute("SELECT sz, data FROM sqlar WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    size, packed = row
    if type(size) is not int or type(packed) is not bytes or not 0 <= size <= MAX_UNPACKED_BYTES:
        raise ValueError(f"{name} has no size or contents that a recording has")
    if len(packed) == size:
        return packed
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(packed, size + 1)
    if len(content) != size or not unpacking.eof:
        raise ValueError(f"{name} is not of the size it states")
    return content


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


def _learn(store: Store, names: Pseudonyms, is_public: Callable[[str], bool]) -> None:
    """Collect what identifies the site, so that it is replaced in every text, whatever stands around it."""
    with store.read() as connection:

        def distinct(column: Any) -> list[str]:
            return [value for (value,) in connection.execute(select(column).distinct()) if value]

        for kind, column in (
            ("host", t.host.c.name),
            ("machine", t.host.c.machine_id),
            ("boot", t.host.c.boot_id),
            ("device", t.device.c.uuid),
            ("bus", t.device.c.pci_bus_id),
        ):
            for value in distinct(column):
                names.add(kind, value)
        for url in distinct(t.engine.c.base_url):
            names.add("engine", url)
            address = url.partition("://")[2].partition("/")[0]
            names.add("address", address)
            host = address.rpartition(":")[0]
            if host not in _LOCAL:
                names.add("address", host)
        for path in distinct(t.deployment.c.model_path):
            if not is_public(path):
                names.add("model", path)
        for model in distinct(t.deployment.c.served_model):
            if not is_public(model):
                names.add("model", model)
    if store.advice is None:
        return
    with store.read("advice") as connection:
        targets = select(a.recommendation.c.target_key).where(a.recommendation.c.target_kind == "service").distinct()
        for (name,) in connection.execute(targets):
            if name and not is_public(name):
                names.add("service", name)
        for (who,) in connection.execute(select(a.transition.c.who).distinct()):
            if who not in _PROGRAMS:
                names.add("user", who)


def _without_names(table: Table, row: tuple[Any, ...], names: Pseudonyms) -> tuple[Any, ...]:
    return tuple(
        value
        if not isinstance(value, str)
        else names.metric(value)
        if column.name == "metric" and "{" in value
        else names.text(value)
        for column, value in zip(table.columns, row, strict=True)
    )
