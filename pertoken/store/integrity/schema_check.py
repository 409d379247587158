"""Damage to the pages that define a database: its header, its schema, the revision of that schema.

SQLite reports some of it as a wrong statement, a missing column or a read-only file. Such a file is damaged all the
same, and is quarantined like one whose pages cannot be read.
"""

import re

from sqlalchemy import Connection

from pertoken.errors import CorruptStore
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.sqlite import columns
from pertoken.store.schema import telemetry

_MAGIC = b"SQLite format 3\0"
_REVISION = re.compile(r"[0-9]{4}")


def check_header(location: StoreLocation) -> None:
    """Check the header of the telemetry file, as SQLite's file format has it. Raises CorruptStore."""
    file = location.file("telemetry")
    try:
        with file.open("rb") as opened:
            header = opened.read(100)
    except OSError:
        return  # whoever opens it reports why
    if not header:
        return  # made, and not written yet
    page_bytes = int.from_bytes(header[16:18])
    usable = (
        header.startswith(_MAGIC)
        and (page_bytes == 1 or (page_bytes >= 512 and page_bytes.bit_count() == 1))
        and header[18] in (1, 2)  # a rollback journal or a log, to write...
        and header[19] in (1, 2)  # ...and to read
        and header[21:24] == bytes((64, 32, 32))
        and int.from_bytes(header[44:48]) <= 4  # schema format
        and int.from_bytes(header[56:60]) <= 1  # UTF-8; 0 before there is a table
    )
    if not usable:
        raise CorruptStore(f"{file}: its header is damaged")


def check_revision_readable(location: StoreLocation, connection: Connection, revision: str | None) -> None:
    """Check that a revision is one, and is missing only where there are no tables. Raises CorruptStore."""
    if revision is not None and not _REVISION.fullmatch(revision):
        raise CorruptStore(f"{location}: its schema is damaged: it names the revision {revision!r}")
    if revision is None and columns(connection, "telemetry"):
        raise CorruptStore(f"{location}: its schema is damaged: it has tables and names no revision")


def check_schema(location: StoreLocation, connection: Connection) -> None:
    """Check that every table of telemetry is there with all its columns. Raises CorruptStore naming one that is not."""
    stored_columns = columns(connection, "telemetry")
    for table in telemetry.metadata.sorted_tables:
        missing = [column.name for column in table.columns if column.name not in stored_columns.get(table.name, ())]
        if missing:
            what = (
                f"{table.name} has no column {missing[0]}"
                if table.name in stored_columns
                else f"has no table {table.name}"
            )
            raise CorruptStore(f"{location}: its schema is damaged: {what}")


def has_schema(location: StoreLocation, connection: Connection) -> bool:
    """Return whether every table of this version is there, whatever revision the database names."""
    try:
        check_schema(location, connection)
    except CorruptStore:
        return False
    return True
