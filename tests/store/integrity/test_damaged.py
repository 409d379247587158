"""Damaged databases are renamed and kept."""

from pathlib import Path

from pertoken.store.connect.location import locate
from pertoken.store.integrity.verify import quarantine_database, quarantined_databases
from tests.store.filled import START


def test_a_second_damaged_database_of_the_same_second_gets_a_name_of_its_own(tmp_path: Path) -> None:
    where = locate(str(tmp_path))
    for _ in range(2):
        where.file("telemetry").write_bytes(b"x")
        quarantine_database(where, START)
    assert len(quarantined_databases(where)) == 2
