import sqlite3
from pathlib import Path

import pytest

from pertoken.errors import StoreError
from pertoken.migrations import drift, upgrade
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import REVISIONS, create, open_store, revision, writing


def schema(where: StoreLocation) -> dict[str, object]:
    """Return columns, keys and indexes of every table, as SQLite itself reports them."""
    with sqlite3.connect(where.file("telemetry")) as connection:
        tables = sorted(name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
        definitions: dict[str, object] = {}
        for table in tables:
            (kind,) = connection.execute("SELECT wr FROM pragma_table_list WHERE name = ?", (table,)).fetchone()
            columns = connection.execute("SELECT * FROM pragma_table_info(?)", (table,)).fetchall()
            indexes = connection.execute("SELECT * FROM pragma_index_list(?)", (table,)).fetchall()
            definitions[table] = kind, columns, sorted(index[1:] for index in indexes)
    connection.close()
    return definitions


def new(folder: Path) -> StoreLocation:
    folder.mkdir()
    return locate(str(folder))


def test_a_new_file_equals_the_result_of_the_migrations(tmp_path: Path) -> None:
    created, migrated = new(tmp_path / "created"), new(tmp_path / "migrated")
    create(created)
    upgrade(migrated, "telemetry")
    assert schema(created) == schema(migrated)
    assert drift(created, "telemetry") is None
    assert revision(writing(created, "telemetry"), "telemetry") == REVISIONS["telemetry"][-1]
    assert upgrade(created, "telemetry") == (REVISIONS["telemetry"][-1], REVISIONS["telemetry"][-1])
    open_store(created)


def test_existing_parts_are_not_created_again(tmp_path: Path) -> None:
    where = new(tmp_path / "db")
    create(where)
    with pytest.raises(StoreError, match="already exists"):
        create(where)
    open_store(where)
