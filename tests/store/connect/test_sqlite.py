"""Calls that only SQLite needs."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection

from pertoken.store.connect import sqlite
from pertoken.store.connect.open import writing
from tests.values import new_store


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    """A writer of telemetry."""
    with writing(new_store(tmp_path), "telemetry").connect() as connection:
        yield connection


def test_a_file_is_attached_under_the_name_of_its_group_and_a_reader_cannot_write(tmp_path: Path) -> None:
    file = new_store(tmp_path).file("telemetry")
    with closing(sqlite.connect(file, "telemetry", "ro")) as reader:
        assert reader.execute("SELECT count(*) FROM telemetry.host").fetchone() == (0,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("DELETE FROM telemetry.host")
    with pytest.raises(sqlite3.OperationalError), closing(sqlite.connect(tmp_path / "none.db", "telemetry", "ro")):
        pass


def test_a_commit_of_telemetry_waits_for_the_disk(connection: Connection) -> None:
    raw = sqlite.driver(connection)
    assert raw.execute("PRAGMA telemetry.journal_mode").fetchone() == ("wal",)
    assert raw.execute("PRAGMA telemetry.synchronous").fetchone() == (2,)


def test_the_size_of_the_data_file_is_limited_in_whole_pages(connection: Connection) -> None:
    sqlite.limit_size(connection, 4_000_000)
    raw = sqlite.driver(connection)
    (pages,), (page_bytes,) = (
        raw.execute(f"PRAGMA telemetry.{name}").fetchone() for name in ("max_page_count", "page_size")
    )
    assert pages == 4_000_000 // page_bytes


def test_triggers_of_a_connection_call_its_functions_and_are_not_stored(connection: Connection) -> None:
    seen: list[tuple[int, ...]] = []
    sqlite.add_triggers(
        connection,
        "telemetry",
        "dirty",
        {"noted": lambda *values: seen.append(values)},
        {"INSERT": "SELECT noted(NEW.owner_id, NEW.ts);"},
    )
    raw = sqlite.driver(connection)
    raw.execute("INSERT INTO telemetry.dirty (rollup, owner_id, ts) VALUES ('host_1m', 7, 60)")
    assert seen == [(7, 60)]
    assert raw.execute("SELECT count(*) FROM telemetry.sqlite_master WHERE type = 'trigger'").fetchone() == (0,)


def test_pages_of_a_new_database_are_whole_and_its_columns_known(connection: Connection) -> None:
    assert list(sqlite.check_pages(connection, "telemetry")) == []
    assert list(sqlite.check_pages(connection, "telemetry", "outbox")) == []
    assert sqlite.columns(connection, "telemetry")["dirty"] == {"rollup", "owner_id", "ts"}


def test_a_reader_distrusts_the_schema_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "telemetry.db"
    sqlite.connect(file, "telemetry", "rwc").close()
    with closing(sqlite.connect(file, "telemetry", "ro")) as connection:
        assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
        assert connection.execute("PRAGMA cell_size_check").fetchone() == (1,)
