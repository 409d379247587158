"""The one way past SQLAlchemy when writing: many rows by the driver, by a Core statement or by COPY.

SQLAlchemy turns each row into a dictionary and each dictionary into parameters. CPU time of a commit of 80 rows is 3.0
times that of bare sqlite3 so, and 1.8 times by this module; `store.commit_ratio` is 2.4 and 1.6 (`benchmarks.store`).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Executable, Table
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DatabaseError

from pertoken.store.connect.sqlite import driver

Values = tuple[Any, ...]


def run_many(connection: Connection, statement: Executable, names: tuple[str, ...], rows: Sequence[Values]) -> int:
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
    server: Any = connection.connection.driver_connection
    try:
        with server.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except connection.dialect.loaded_dbapi.Error as error:
        raise DatabaseError(None, None, error, hide_parameters=True) from error


@lru_cache(maxsize=128)
def _compiled(statement: Any, names: tuple[str, ...]) -> tuple[str, Callable[[Values], Values] | None]:
    """Return the statement's text, and how a row becomes its parameters (None: as it is)."""
    compiled = statement.compile(dialect=sqlite.dialect())
    positions, constants = tuple(compiled.positiontup), compiled.params
    if positions == names:
        return str(compiled), None
    at = {name: i for i, name in enumerate(names)}

    def arrange(row: Values) -> Values:
        return tuple([row[at[name]] if name in at else constants[name] for name in positions])

    return str(compiled), arrange
