"""Statements that write many rows, compiled once: a tick gives SQLite the same text each time, and plain tuples.

Having SQLAlchemy prepare each row's parameters anew costs several times what SQLite takes to store it.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection

from pertoken.provenance import Provenance


class Statement:
    """An INSERT of values whose attributes are its columns (two at least), for the kind of database of `connection`."""

    def __init__(self, connection: Connection, insert: Any, columns: Iterable[str]) -> None:
        self._insert, self._columns = insert, tuple(columns)
        self._text: str | None = None
        if connection.dialect.positional:
            compiled = insert.compile(
                dialect=connection.dialect,
                column_keys=self._columns,
                schema_translate_map=connection.get_execution_options().get("schema_translate_map"),
                render_schema_translate=True,
            )
            self._text = str(compiled)
            self._tuple: Callable[[Any], tuple[Any, ...]] = attrgetter(*compiled.positiontup)

    def run(self, connection: Connection, values: Iterable[Any]) -> None:
        """Store a row for each value, in the transaction begun. Raises the driver's own errors."""
        if self._text is None:
            connection.execute(self._insert, [self._mapping(value) for value in values])
        else:
            connection.connection.cursor().executemany(self._text, [self._tuple(value) for value in values])

    def _mapping(self, value: Any) -> dict[str, Any]:
        found = {name: getattr(value, name) for name in self._columns}
        return {name: int(each) if isinstance(each, Provenance) else each for name, each in found.items()}
