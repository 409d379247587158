"""Answers as plain tuples: making SQLAlchemy's own rows of a fleet takes longer than finding them."""

from collections import namedtuple
from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable

_NOTHING: Mapping[str, Any] = {}


def named_tuples(connection: Connection, query: Executable, values: Mapping[str, Any] = _NOTHING) -> list[Any]:
    """All rows by the names of their columns, with values as the driver has them."""
    found = connection.execute(query, values)
    kind = _kind(tuple(found.keys()))
    return list(map(kind._make, _fetched(found)))


def tuples(connection: Connection, query: Executable, values: Mapping[str, Any] = _NOTHING) -> list[Any]:
    """All rows, with values as the driver has them."""
    return _fetched(connection.execute(query, values))


def _fetched(found: CursorResult[Any]) -> list[Any]:
    assert found.cursor is not None
    rows = list(found.cursor.fetchall())
    found.close()
    return rows


@cache
def _kind(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names, rename=True)
