"""Counters that a screen compares before it reads again."""

import sqlite3
from contextlib import closing
from pathlib import Path

from pertoken.store.connect.open import changes, open_store
from pertoken.store.write.writer import Writer
from tests.values import new_store, set_price, tick


def test_counters_change_with_every_commit_of_either_group_and_with_nothing_else(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    store = open_store(where, keep=True)
    first = changes(store)
    assert first is not None and changes(store) == first
    with Writer(where) as writer:
        writer.commit(tick(1_800_000_000))
    second = changes(store)
    assert second is not None and second.commits != first.commits and second.tables == first.tables
    set_price(where, "H100", 1)
    third = changes(store)
    assert third is not None and third.commits != second.commits


def test_altering_a_table_is_distinguished_from_a_commit(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    store = open_store(where, keep=True)
    first = changes(store)
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        connection.execute("ALTER TABLE host ADD COLUMN another")
    second = changes(store)
    assert first is not None and second is not None and second.tables != first.tables
