"""Statements that only PostgreSQL needs: DDL, roles and rights, settings and its catalogs, which Core has no words for.

Statements come from code alone, never from a person or a row; values are bound.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text


def commands(connection: Connection, *statements: str) -> None:
    """Run statements as they are written, in the caller's transaction."""
    for statement in statements:
        connection.exec_driver_sql(statement.replace("%", "%%"))  # which stands for a value otherwise


def set_local(connection: Connection, **settings: str) -> None:
    """Set what holds until the end of the transaction: a pooler may hand the next one to another session."""
    commands(connection, "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in settings.items()))


def catalog(connection: Connection, query: str, **values: Any) -> Sequence[Any]:
    """Ask the server's own catalogs and functions; `:name` stands for a value."""
    return connection.execute(text(query), values).all()
