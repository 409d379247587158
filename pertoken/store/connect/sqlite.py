"""Calls that only SQLite needs: opening a file under the name of its group, PRAGMAs, and the state they change.

A file is attached as `telemetry` or `advice` to a connection whose main database is empty memory, so that both dialects
run the same qualified statements (`telemetry.device_1h`) and no statement is rewritten for SQLite. Against the file as
main database, in the same run: `store.commit_ratio` within its noise, CPU time of a commit 1 to 3 % more (a transaction
also begins on the empty database), a connection to read 0.05 ms more, opening a store 1 ms more.

Only one file is written over a connection, so that a commit is atomic as it is for one file. A PRAGMA without a schema
would mean the empty database: name the schema.
"""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from sqlalchemy import Connection, Delete, Insert, Table, Update, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DatabaseError

from pertoken.store.schema.shared import Values

if TYPE_CHECKING:
    import psycopg

BUSY_S = 5
"""How long to wait for a lock: writers of advice take turns in milliseconds, and telemetry has only one."""
LOG_BYTES = 16 * 2**20
"""Size to which the write-ahead log is cut after it was written back."""
UNREADABLE_VALUE = "user-defined function raised exception"
"""SQLite's message where a trigger of `store.integrity.checksums` cannot be given a value: text that is not UTF-8."""
MAX_PAGES = 2**32 - 2
"""As many as SQLite knows."""


def connect(file: Path, group: str, mode: str, *, attached: bool = True) -> sqlite3.Connection:
    """Open the file of one group; `mode` is `ro` or `rwc`. Telemetry is written with WAL and FULL, advice with FULL.

    Without `attached` the file is the main database, which Alembic needs: `ALTER TABLE .. RENAME TO` takes no schema.
    Raises sqlite3.Error.
    """
    uri = f"file:{quote(str(file))}?mode={mode}"
    schema = group if attached else "main"
    connection = sqlite3.connect(
        ":memory:" if attached else uri,
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,  # transactions are begun by `store.connect.open`, so that a read is one snapshot
        check_same_thread=False,
    )
    try:
        if attached:
            connection.execute(f"ATTACH ? AS {group}", (uri,))
        if mode == "ro":
            distrust(connection)
        else:
            if group == "telemetry":
                connection.execute(f"PRAGMA {schema}.journal_mode=WAL")
                connection.execute(f"PRAGMA {schema}.journal_size_limit={LOG_BYTES}")
            connection.execute(f"PRAGMA {schema}.synchronous=FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def distrust(connection: sqlite3.Connection) -> None:
    """Keep functions with side effects out of views and triggers of the file, and check each page as it is read."""
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")


def driver(connection: Connection) -> sqlite3.Connection:
    """Return the driver's own connection to SQLite."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


def limit_size(connection: Connection, max_bytes: int | None) -> None:
    """Keep the data file of telemetry from growing beyond `max_bytes`, and beyond the limit of this process.

    What was committed to the log but lies beyond the limit could never be written back.
    """
    raw = driver(connection)
    (page_bytes,) = raw.execute("PRAGMA telemetry.page_size").fetchone()
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    limits = (max_bytes, None if limit == resource.RLIM_INFINITY else limit)
    pages = min([MAX_PAGES, *(limit // page_bytes for limit in limits if limit is not None)])
    raw.execute(f"PRAGMA telemetry.max_page_count = {pages}")


def checkpoint(connection: Connection) -> None:
    """Write the log of telemetry back into its data file and cut it; less of it while someone reads.

    Must run outside of any transaction. Raises sqlite3.Error.
    """
    driver(connection).execute("PRAGMA telemetry.wal_checkpoint(TRUNCATE)")


def restart_log(connection: Connection) -> bool:
    """Write a log whose file was deleted back into the data file, and begin another; return whether that was possible.

    Must run outside of any transaction. Nothing is lost: SQLite has the deleted file open. Who reads meanwhile is in
    the way of another log. Raises sqlite3.Error.
    """
    raw = driver(connection)
    checkpoint(connection)
    try:
        raw.execute("PRAGMA telemetry.journal_mode=DELETE")
    except sqlite3.OperationalError:
        return False
    raw.execute("PRAGMA telemetry.journal_mode=WAL")
    return True


def log_file(database: Path) -> Path:
    """Return the file of the write-ahead log of a database file."""
    return database.with_name(f"{database.name}-wal")


def leave_wal(connection: Connection) -> None:
    """Turn WAL off, so that others can read the file without a writer beside it.

    Whoever has the file open keeps WAL on; the next clean stop turns it off.
    """
    raw = driver(connection)
    raw.execute("PRAGMA busy_timeout=500")
    with suppress(sqlite3.OperationalError):
        checkpoint(connection)
        raw.execute("PRAGMA telemetry.journal_mode=DELETE")


def check_pages(connection: Connection, group: str, table: str | None = None) -> Iterator[str]:
    """Yield what SQLite finds wrong with the pages of a table (of all without one).

    A table that has indexes is checked with them: what SQLite reads by an index is not read by
    `store.integrity.verify`.
    """
    raw, command, what = driver(connection), "integrity_check", "20"
    if table is not None:
        query = f"SELECT 1 FROM {group}.sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql <> ''"
        command, what = command if raw.execute(query, (table,)).fetchone() else "quick_check", f"'{table}'"
    for (line,) in raw.execute(f"PRAGMA {group}.{command}({what})"):
        if line != "ok":
            yield f"{command}: {line}" if table is not None else line


def add_triggers(
    connection: Connection, group: str, table: str, functions: Mapping[str, Callable[..., None]], on: Mapping[str, str]
) -> None:
    """Run statements after each INSERT, UPDATE or DELETE of a row, given by that word, over this connection alone.

    They may call `functions`, by name and with any number of values.
    """
    raw = driver(connection)
    for name, function in functions.items():
        raw.create_function(name, -1, function)
    for change, body in on.items():
        raw.execute(f"CREATE TEMP TRIGGER {change}_{table} AFTER {change} ON {group}.{table} BEGIN {body} END")


def columns(connection: Connection, group: str) -> dict[str, set[str]]:
    """Return the names of columns by table, as the file's own schema has them."""
    by_table: dict[str, set[str]] = {}
    query = (
        f"SELECT t.name, c.name FROM {group}.sqlite_master t JOIN pragma_table_info(t.name, '{group}') c "
        "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'"
    )
    for table, column in driver(connection).execute(query):
        by_table.setdefault(table, set()).add(column)
    return by_table


def run_many(
    connection: Connection, statement: Insert | Update | Delete, names: tuple[str, ...], rows: Sequence[Values]
) -> int:
    """Run a statement for each row, within the transaction; return how many rows were changed (-1: not known).

    `names` are the statement's parameters, in the order of a row's values. The statement has to be one that is kept,
    as its text is. Raises the driver's own error, or SQLAlchemy's: `store.connect.open.explained` knows both.
    """
    if not rows:
        return 0
    if connection.dialect.name != "sqlite":
        return connection.execute(statement, [dict(zip(names, row, strict=True)) for row in rows]).rowcount
    text, arrange = _compiled(statement, names)
    return driver(connection).executemany(text, rows if arrange is None else map(arrange, rows)).rowcount


def copy_rows(connection: Connection, table: Table, rows: Iterable[Values]) -> None:
    """Add rows, given as the values of all columns, to a table of a server, within the transaction.

    Raises SQLAlchemy's DatabaseError.
    """
    preparer = connection.dialect.identifier_preparer
    columns = ", ".join(preparer.quote(column.name) for column in table.columns)
    statement = f"COPY {preparer.format_table(table)} ({columns}) FROM STDIN"
    server = cast("psycopg.Connection", connection.connection.driver_connection)
    try:
        with server.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except connection.dialect.loaded_dbapi.Error as error:
        raise DatabaseError(None, None, error, hide_parameters=True) from error


@lru_cache(maxsize=128)
def _compiled(
    statement: Insert | Update | Delete, names: tuple[str, ...]
) -> tuple[str, Callable[[Values], Values] | None]:
    """Return the statement's text, and how a row becomes its parameters (None: as it is)."""
    compiled = statement.compile(dialect=sqlite.dialect())
    positions, constants = tuple(compiled.positiontup or ()), compiled.params
    if positions == names:
        return str(compiled), None
    index_by_name = {name: i for i, name in enumerate(names)}

    def arrange(row: Values) -> Values:
        return tuple([row[index_by_name[name]] if name in index_by_name else constants[name] for name in positions])

    return str(compiled), arrange


def commands(connection: Connection, *statements: str) -> None:
    """Run statements as they are written, in the caller's transaction."""
    for statement in statements:
        connection.exec_driver_sql(statement.replace("%", "%%"))  # which stands for a value otherwise


def set_local(connection: Connection, **settings: str) -> None:
    """Set what holds until the end of the transaction: a pooler may hand the next one to another session."""
    commands(connection, "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in settings.items()))


def catalog(connection: Connection, query: str, **values: object) -> Sequence[Any]:
    """Ask the server's own catalogs and functions; `:name` stands for a value."""
    return connection.execute(text(query), values).all()
