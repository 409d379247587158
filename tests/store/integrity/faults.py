"""Damage and what is found of it."""

import sqlite3
from contextlib import closing

from pertoken.store.connect.location import StoreLocation
from pertoken.store.integrity.verify import StoredDifference, verify


def faults(where: StoreLocation) -> list[StoredDifference]:
    return [fault for fault in verify(where) if fault is not None]


def change(where: StoreLocation, sql: str) -> None:
    """Change a row as a foreign writer or a damaged disk would."""
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        assert connection.execute(sql).rowcount > 0
        connection.commit()
