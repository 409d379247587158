"""Answers as plain tuples: making SQLAlchemy's own rows of a fleet takes longer than finding them."""

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache, partial
from typing import Any

from sqlalchemy import Connection, Dialect, Executable
from sqlalchemy.exc import DatabaseError

from pertoken.store.connect.sqlite import driver

Rows = Sequence[Any]
_NOTHING: Mapping[str, Any] = {}


def named_tuples(connection: Connection, query: Executable, values: Mapping[str, Any] = _NOTHING) -> list[Any]:
    """Return all rows by the names of their columns, with values as the driver has them."""
    result = connection.execute(query, values)
    make = _maker(tuple(result.keys()))
    assert result.cursor is not None
    rows = list(map(make, result.cursor.fetchall()))
    result.close()
    return rows


@contextmanager
def pipelined(connection: Connection) -> Iterator[None]:
    """Within it `fetch` does not wait for a server, which goes on with what it was asked while Python works.

    Whoever looks at an answer waits for all that was asked until then: look late, and at what was asked first before
    asking for more.
    """
    if connection.dialect.name == "sqlite":
        yield
        return
    import psycopg

    if not psycopg.Pipeline.is_supported():
        yield
        return
    with _explained(connection), connection.connection.driver_connection.pipeline():  # type: ignore[union-attr]
        yield


def fetch(connection: Connection, query: Any, values: Mapping[str, Any] = _NOTHING, *, named: bool = False) -> Rows:
    """Return rows of a statement that is kept, with its text: SQLAlchemy names its schemas again each time, which takes
    longer than an answer of a host. They are plain tuples, or `named` by their columns."""
    text, names, constants, columns = _text(connection.dialect, query)
    make = _maker(columns) if named else None
    if connection.dialect.name == "sqlite":
        rows = driver(connection).execute(text, [values.get(name, constants.get(name)) for name in names]).fetchall()
        return rows if make is None else list(map(make, rows))
    lazy_rows = LazyRows(connection, text, {**constants, **values}, make)
    return lazy_rows if connection.connection.driver_connection.pgconn.pipeline_status else lazy_rows[:]  # type: ignore[union-attr]


class LazyRows(Sequence[Any]):
    """Rows of a server, taken when somebody looks at them."""

    def __init__(self, connection: Connection, text: str, values: Mapping[str, Any], make: Any) -> None:
        self._connection, self._make = connection, make
        self._cursor = connection.connection.cursor()
        with _explained(connection):
            self._cursor.execute(text, values)

    @cached_property
    def _rows(self) -> list[Any]:
        with _explained(self._connection):
            rows = list(self._cursor.fetchall())
            self._cursor.close()
        return rows if self._make is None else list(map(self._make, rows))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        return self._rows[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)


@contextmanager
def _explained(connection: Connection) -> Iterator[None]:
    """The driver's own errors as SQLAlchemy has them, which `store.connect.open.explained` knows."""
    try:
        yield
    except connection.dialect.loaded_dbapi.Error as error:
        raise DatabaseError(None, None, error, hide_parameters=True) from error


@lru_cache(maxsize=128)
def _text(dialect: Dialect, query: Any) -> tuple[str, tuple[str, ...], Mapping[str, Any], tuple[str, ...]]:
    """Return the text of a statement, the names of what it binds in their order, values bound already, its columns."""
    compiled = query.compile(dialect=dialect)
    return str(compiled), tuple(compiled.positiontup or ()), compiled.params, tuple(query.selected_columns.keys())


@cache
def _maker(names: tuple[str, ...]) -> Callable[[Sequence[Any]], Any]:
    """Return what makes a named tuple of a row: without a call into Python, unlike `_make`, which takes twice as
    long."""
    return partial(tuple.__new__, namedtuple("Row", names, rename=True))
