"""Comparison of rows with what was stored: every difference is reported, with its owner and time."""

from pathlib import Path

import pytest

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.sqlite import driver
from pertoken.store.integrity.checksums import CHECKSUMMED, high_water_mark_file, row_crc
from pertoken.store.integrity.verify import StoredDifference, verify
from pertoken.store.write.retention import Ages, purging
from pertoken.store.write.writer import Writer
from tests.store.filled import START, everything, fill
from tests.store.flips import flips
from tests.store.integrity.faults import change, faults
from tests.values import new_store

ALONE = ("dirty", "engine", "deployment", "histogram_set", "event", "spool")


def test_the_sum_of_a_row_is_the_same_wherever_and_whenever_it_is_made() -> None:
    row = (-(2**62), 1_790_000_000, None, 0, 2**40, "ttft_s", "modèle – 中", None)
    assert row_crc(row) == 2_866_266_728
    assert row_crc((*row, None, None)) == row_crc(row)
    assert row_crc((*row[:2], 0, *row[3:])) != row_crc(row)


def test_every_table_has_rows_and_all_of_them_add_up(whole: StoreLocation) -> None:
    tables = everything(whole.file("telemetry"))
    assert [name for name, rows in tables.items() if not rows] == []
    assert faults(whole) == []


@pytest.mark.parametrize("name", CHECKSUMMED)
def test_a_row_that_goes_is_missed_in_every_table(where: StoreLocation, name: str) -> None:
    keys = ", ".join(CHECKSUMMED[name].keys)
    change(where, f"DELETE FROM {name} WHERE ({keys}) = (SELECT {keys} FROM {name} ORDER BY {keys} DESC LIMIT 1)")
    (fault,) = [fault for fault in faults(where) if fault.table == name]
    assert fault.text.endswith("were stored")
    # The owner is named where anything else is stored of that owner.
    assert (fault.owner_id is None) is (name in ALONE)
    assert (fault.start is not None) is bool(CHECKSUMMED[name].interval_s)


def test_a_changed_value_is_reported_with_its_owner_and_hour(where: StoreLocation) -> None:
    change(where, f"UPDATE device_1m SET power_mw_sum = power_mw_sum + 1 WHERE device_id = 2 AND ts = {START + 3600}")
    (fault,) = faults(where)
    assert fault == StoredDifference("device_1m", "rows are not as they were stored", 2, START + 3600, START + 7200)
    assert str(fault).startswith("device_1m of 2, 20")


def test_a_foreign_row_is_reported(where: StoreLocation) -> None:
    change(where, f"INSERT INTO engine_counter_sample VALUES (999, {START}, 'x', 1)")
    (fault,) = faults(where)
    assert (fault.table, fault.owner_id) == ("engine_counter_sample", 999)
    present, stored = (int(word) for word in fault.text.split() if word.isdigit())
    assert present == stored + 1


def test_damage_to_rows_of_several_owners_in_one_hour_is_reported_without_an_owner(where: StoreLocation) -> None:
    hour = f"ts >= {START + 3600} AND ts < {START + 7200}"
    change(where, f"UPDATE device_1m SET power_mw_sum = power_mw_sum + device_id WHERE {hour}")
    assert faults(where) == [
        StoredDifference("device_1m", "rows are not as they were stored", None, START + 3600, START + 7200)
    ]


@pytest.mark.parametrize(
    "changed", ["row_count = row_count + 1", "crc_sum = crc_sum + 8", "owner_sum = owner_sum + 8", "ts = ts + 1"]
)
def test_a_changed_checksum_is_distinguished_from_changed_rows(where: StoreLocation, changed: str) -> None:
    change(where, f"UPDATE seal SET {changed} WHERE name = 'device_1m' AND ts = {START + 3600}")
    assert "seal" in {fault.table for fault in faults(where)}


def test_a_checksum_of_an_unknown_table_is_reported(where: StoreLocation) -> None:
    change(where, f"UPDATE seal SET name = 'devicf_1m' WHERE name = 'device_1m' AND ts = {START + 3600}")
    assert {fault.table for fault in faults(where)} == {"seal", "device_1m"}


def test_damage_is_still_reported_after_more_writes(where: StoreLocation) -> None:
    change(where, "UPDATE device SET uuid = 'GPU-?' WHERE device_id = 1")
    change(where, "UPDATE counter_state SET value = value + 1 WHERE owner_id = 1")
    with Writer(where) as writer:
        fill(writer, range(401, 460))
        writer.roll_up()
    assert {fault.table for fault in faults(where)} == {"device", "counter_state"}


def test_rows_of_two_owners_with_opposite_changes_of_checksum_still_add_up(where: StoreLocation) -> None:
    def rows(value: int) -> list[tuple[int, int, str, int]]:
        return [(epoch, START, "m", value) for epoch in (1, 2)]

    assert sum(map(row_crc, rows(1))) == sum(map(row_crc, rows(14_375)))
    with Writer(where) as writer:
        assert writer._batches is not None
        for value in (1, 14_375):
            with writer._batches.transaction(START):
                driver(writer._connection).executemany(
                    "INSERT INTO telemetry.engine_counter_sample VALUES (?, ?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET delta = excluded.delta",
                    rows(value),
                )
    assert [fault for fault in faults(where) if fault.table == "seal"] == []


def test_a_pass_beside_a_writer_that_rolls_up_and_deletes_finds_nothing_wrong(where: StoreLocation) -> None:
    with Writer(where) as writer:
        deleting = purging(writer, Ages(3600, 1_000_000, 1_000_000), START + 3 * 3600)
        n = 400
        for fault in verify(where):
            assert fault is None
            fill(writer, range(n + 1, n + 3), roll_up_every=1)
            n += 2
            next(deleting, None)
    assert faults(where) == []


def test_a_database_of_an_older_schema_is_sealed_as_it_is_found(where: StoreLocation) -> None:
    change(where, "DELETE FROM seal")
    change(where, "DELETE FROM batch")
    high_water_mark_file(where.file("telemetry")).unlink()
    with Writer(where) as writer:
        assert writer.lost is None
        writer.ship(False)  # a batch of its own, before the first tick's
        fill(writer, range(401, 403))
    assert faults(where) == []


def test_an_empty_database_is_whole(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    assert faults(where) == []
    with Writer(where):
        pass
    assert faults(where) == []


def test_flipped_bits_are_reported_with_their_file(tmp_path: Path) -> None:
    flipped = list(flips(tmp_path, 40, seed=7))
    assert [flip for flip in flipped if flip.changed and not flip.detected] == []
    assert {flip.file for flip in flipped if flip.changed} == {"telemetry.db", "telemetry.db-wal"}
