"""Columns and names of constraints that the tables of every group share, and the builder of telemetry's tables."""

from typing import Any

from sqlalchemy import BigInteger, Column, MetaData, Table, Text

NAMING = {
    "pk": "pk_%(table_name)s",
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
}
TELEMETRY = MetaData(schema="telemetry", naming_convention=NAMING)


def telemetry_table(name: str, *columns: Column[Any]) -> Table:
    """Build a table of telemetry, which SQLite keeps in the order of its key."""
    return Table(name, TELEMETRY, *columns, sqlite_with_rowid=False)


def integer(name: str, *, required: bool = False, key: bool = False) -> Column[int]:
    """Build a column of 64-bit integers."""
    return Column(name, BigInteger, primary_key=key, autoincrement=False, nullable=not (required or key))


def text(name: str, *, required: bool = False, key: bool = False) -> Column[str]:
    """Build a column of text."""
    return Column(name, Text, primary_key=key, nullable=not (required or key))
