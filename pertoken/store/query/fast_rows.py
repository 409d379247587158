"""Answers as plain tuples: making SQLAlchemy's own rows of a fleet takes longer than finding them."""

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache, partial
from typing import Generic, TypeVar, overload

from sqlalchemy import Connection, Dialect, Executable, Select, SelectBase
from sqlalchemy.exc import DatabaseError

from pertoken.store.connect.sqlite import driver

Row = TypeVar("Row", bound="tuple[object, ...]")
Query = Select[*tuple[object, ...]]
Values = Mapping[str, object]
Names = tuple[str, ...]
_NOTHING: Values = {}


def named_tuples(connection: Connection, query: Executable, row: type[Row]) -> list[Row]:
    """Return all rows as tuples of this type, whose fields are the query's columns."""
    result = connection.execute(query)
    make = _maker(row, tuple(result.keys()))
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


def fetch(
    connection: Connection, query: SelectBase, values: Values = _NOTHING, row: type[Row] | None = None
) -> Sequence[Row]:
    """Return rows of a statement that is kept, with its text: SQLAlchemy names its schemas again each time, which takes
    longer than an answer of a host. They are tuples of the type `row`, or plain ones, whose types the caller states."""
    text, names, constants, columns = _text(connection.dialect, query)
    make = None if row is None else _maker(row, columns)
    if connection.dialect.name == "sqlite":
        rows = driver(connection).execute(text, [values.get(name, constants.get(name)) for name in names]).fetchall()
        return rows if make is None else list(map(make, rows))
    lazy_rows = LazyRows(connection, text, {**constants, **values}, make)
    return lazy_rows if connection.connection.driver_connection.pgconn.pipeline_status else lazy_rows[:]  # type: ignore[union-attr]


class LazyRows(Sequence[Row], Generic[Row]):
    """Rows of a server, taken when somebody looks at them."""

    def __init__(
        self, connection: Connection, text: str, values: Values, make: Callable[[Sequence[object]], Row] | None
    ) -> None:
        self._connection, self._make = connection, make
        self._cursor = connection.connection.cursor()
        with _explained(connection):
            self._cursor.execute(text, values)

    @cached_property
    def _rows(self) -> list[Row]:
        with _explained(self._connection):
            rows = list(self._cursor.fetchall())
            self._cursor.close()
        return rows if self._make is None else list(map(self._make, rows))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)


@contextmanager
def _explained(connection: Connection) -> Iterator[None]:
    """The driver's own errors as SQLAlchemy has them, which `store.connect.open.explained` knows."""
    try:
        yield
    except connection.dialect.loaded_dbapi.Error as error:
        raise DatabaseError(None, None, error, hide_parameters=True) from error


@lru_cache(maxsize=128)
def _text(dialect: Dialect, query: SelectBase) -> tuple[str, Names, Values, Names]:
    """Return the text of a statement, the names of what it binds in their order, values bound already, its columns."""
    compiled = query.compile(dialect=dialect)
    return str(compiled), tuple(compiled.positiontup or ()), compiled.params, tuple(query.selected_columns.keys())


@cache
def _maker(row: type[Row], names: Names) -> Callable[[Sequence[object]], Row]:
    """Return what makes a named tuple of a row: without a call into Python, unlike `_make`, which takes twice as
    long. A type without fields of its own stands for the columns that the query has."""
    fields = getattr(row, "_fields", None)
    if fields is None:
        return partial(tuple.__new__, namedtuple(row.__name__, names, rename=True))  # type: ignore[return-value]
    if len(fields) != len(names):
        raise TypeError(f"{row.__name__} has other fields than its query: {', '.join(names)}")
    return partial(tuple.__new__, row)
