import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from pertoken.errors import BadInput, StoreError
from pertoken.store.connect.location import AgentLock, locate
from pertoken.store.connect.open import open_store, reading
from pertoken.store.write.writer import Writer
from tests.values import new_store, tick


def test_a_second_agent_on_a_folder_is_refused_and_names_the_first(tmp_path: Path) -> None:
    first, second = AgentLock(tmp_path), AgentLock(tmp_path)
    assert first.owner() is None
    first.acquire()
    assert second.owner() == os.getpid()
    with pytest.raises(StoreError, match=rf"an agent \(pid {os.getpid()}\) already writes"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "telemetry.db").touch()
    with pytest.raises(BadInput, match="name the folder"):
        locate(str(tmp_path / "telemetry.db"))


def test_readers_cannot_write(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with (
        reading(where, "telemetry").connect() as connection,
        connection.begin(),
        pytest.raises(OperationalError, match="readonly"),
    ):
        connection.execute(text("DELETE FROM host"))


def test_a_clean_stop_leaves_one_file_that_needs_no_writer_beside_it(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with Writer(where) as writer:
        writer.commit(tick(10))
        assert (tmp_path / "telemetry.db-wal").exists()
    assert not (tmp_path / "telemetry.db-wal").exists()
    with open_store(where).read() as connection:
        assert connection.execute(text("PRAGMA telemetry.journal_mode")).scalar() == "delete"


def test_a_stop_beside_an_open_reader_is_clean_too(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    reads = (
        "import sqlite3, sys\n"
        f"connection = sqlite3.connect('file:{tmp_path}/telemetry.db?mode=ro', uri=True)\n"
        "connection.execute('SELECT * FROM host').fetchall()\nprint(flush=True)\nsys.stdin.read()\n"
    )
    with Writer(where) as writer:
        writer.commit(tick(10))
        reader = subprocess.Popen([sys.executable, "-c", reads], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert reader.stdin is not None and reader.stdout is not None
        reader.stdout.readline()
    reader.communicate()
    with Writer(where) as writer:
        assert writer.last.ts == 10
        writer.commit(tick(20))
    assert not (tmp_path / "telemetry.db-wal").exists()


def test_a_tick_that_fails_is_not_stored_in_part(tmp_path: Path) -> None:
    with Writer(new_store(tmp_path)) as writer:
        writer.commit(tick(10))
        with pytest.raises(StoreError, match="UNIQUE"):
            writer.commit(tick(10))
        writer.commit(tick(20))
        assert writer.roll_up() == 2


def test_a_folder_without_a_database_is_refused_with_the_command_that_starts_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="start one with `pertoken agent --db"):
        open_store(locate(str(tmp_path)))
