"""Rows of a host's file that hold what nothing can have are left out of a copy, and named as their host's."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pertoken.store.connect.open import left_out, readable, without_impossible_rows
from tests.store.filled import filled
from tests.values import HOST


@pytest.fixture
def file(tmp_path: Path) -> Path:
    where = filled(tmp_path / "db", ticks=60)
    file = Path(where.file("telemetry"))
    for table in ("engine_counter_sample", "engine_counter_1m", "engine_counter_1h"):
        change(file, f"DELETE FROM {table} WHERE metric = 'gflop_per_gpu'")
    return readable(file)


def change(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


def count(file: Path, table: str) -> int:
    with closing(sqlite3.connect(file)) as connection:
        (number,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(number)


@pytest.mark.parametrize(
    ("table", "change_of_row"),
    [
        ("device_1m", f"samples = {2**63 - 1}"),
        ("device_1m", "observed_ms = -1"),
        ("device_sample", f"ts = {2**60}"),
        ("deployment_1m", f"prompt_tokens = {2**54}"),
        ("share_1m", f"held_ns = {-(2**63)}"),
        ("histogram_sample", f"bucket = {2**62}"),
        ("engine_counter_sample", "delta = 9e300"),
    ],
)
def test_an_impossible_row_is_left_out_and_named_by_its_host(file: Path, table: str, change_of_row: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    keys = ", ".join(name for name in columns if name in ("device_id", "epoch_id", "ts", "metric", "bucket"))
    change(file, f"UPDATE {table} SET {change_of_row} WHERE ({keys}) IN (SELECT {keys} FROM {table} LIMIT 1)")
    with without_impossible_rows() as is_repeated:
        copy = readable(file)
        assert is_repeated and copy != file
        assert left_out(copy)[HOST] == {table}
        assert 0 < count(copy, table) < count(file, table)
    assert readable(file) == file and not copy.exists()


def test_bounds_of_a_histogram_that_do_not_rise_are_left_out(file: Path) -> None:
    change(file, "UPDATE histogram_set SET upper_bounds = '0.5,0.1'")
    with without_impossible_rows() as is_repeated:
        assert is_repeated and count(readable(file), "histogram_set") == 0


def test_a_file_without_impossible_rows_is_read_itself(file: Path) -> None:
    with without_impossible_rows() as is_repeated:
        assert readable(file) == file and left_out(file) == {}
    assert not is_repeated


def test_rows_of_an_engine_that_is_not_there_are_left_out(file: Path) -> None:
    change(file, "DELETE FROM engine WHERE engine_id = (SELECT min(engine_id) FROM engine)")
    with without_impossible_rows() as is_repeated:
        assert is_repeated and 0 < count(readable(file), "deployment_sample") < count(file, "deployment_sample")
        assert {"share_1m", "device_share"} <= left_out(readable(file))[HOST]
