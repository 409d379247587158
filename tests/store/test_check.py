"""Contents of a database, and its faults."""

from pathlib import Path
from typing import Any

from pertoken.store.check import contents, faults
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from tests.store.filled import filled
from tests.values import new_store, set_price


def faults_in(where: StoreLocation) -> list[str]:
    return [fault for fault in faults(where) if fault is not None]


def test_a_folder_without_telemetry_is_a_fault(tmp_path: Path) -> None:
    (line,) = faults_in(locate(str(tmp_path)))
    assert line.endswith("holds no telemetry.db")


def test_contents_are_counted_by_table_in_both_groups(tmp_path: Path) -> None:
    new_store(tmp_path)
    filled(tmp_path, 3)
    set_price(locate(str(tmp_path)), "H100", 1)
    store = open_store(locate(str(tmp_path)))
    held: dict[str, Any] = contents(store)
    assert held["telemetry rows"]["host_sample"] == 3 and held["advice rows"]["price"] == 1
    assert held["bytes"] > 0 and held["from"] < held["to"]
    assert faults_in(store.location) == []


def test_damaged_pages_of_advice_are_found(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    file = where.file("advice")
    body = bytearray(file.read_bytes())
    body[4096:8192] = b"\xff" * 4096
    file.write_bytes(body)
    assert faults_in(where)
