"""Rows that a tick writes, and the repeats that it leaves out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from pertoken.errors import StoreError
from pertoken.store.check import faults
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.integrity.checksums import CHECKSUMMED
from pertoken.store.query import read
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import CounterState, DeviceRow, DeviceSample
from pertoken.store.write.writer import Writer
from tests.values import HOST, new_store, tick

GPU = DeviceRow(5, HOST, "gpu", "GPU-5", "NVIDIA", "NVIDIA H100 80GB HBM3", 0, power_limit_mw=700_000)


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    return new_store(tmp_path)


def rows(writer: Writer, table: Any) -> list[Any]:
    with writer._connection.begin():
        return list(writer._connection.execute(select(table).order_by(*table.primary_key)).all())


def sample(ts: int) -> DeviceSample:
    return DeviceSample(GPU.device_id, ts, 10_000, 10_000)


def test_an_unchanged_state_is_noted_again_only_after_a_minute(where: StoreLocation) -> None:
    with Writer(where) as writer:
        seen = []
        for ts in range(10, 140, 10):
            writer.commit(tick(ts, devices=(GPU,)))
            seen.append(rows(writer, t.device)[0].last_ts)
    assert seen == [10] * 6 + [70] * 6 + [130]


def test_a_change_is_written_at_once_and_so_is_its_return(where: StoreLocation) -> None:
    capped = replace(GPU, power_limit_mw=400_000)
    with Writer(where) as writer:
        messages = []
        for ts, device in ((10, GPU), (20, capped), (30, GPU)):
            writer.commit(tick(ts, devices=(device,)))
            (row,) = rows(writer, t.device)
            messages.append((row.power_limit_mw, row.first_ts, row.last_ts))
    assert messages == [(700_000, 10, 10), (400_000, 10, 20), (700_000, 10, 30)]


def test_an_identity_of_a_tick_that_was_not_stored_comes_with_the_next(where: StoreLocation) -> None:
    with Writer(where) as writer:
        writer.commit(tick(10, sample(10)))
        with pytest.raises(StoreError):
            writer.commit(tick(10, sample(10), devices=(GPU,)))
        assert rows(writer, t.device) == []
        writer.commit(tick(20, devices=(GPU,)))
        assert [row.first_ts for row in rows(writer, t.device)] == [20]


def test_an_owner_that_comes_twice_in_a_tick_costs_its_second_rows_and_neither_the_tick_nor_the_checksums(
    where: StoreLocation,
) -> None:
    renamed = replace(GPU, name="another")
    states = tuple(CounterState(GPU.device_id, "energy", value, None, 10) for value in (5, 7))
    with Writer(where) as writer:
        for ts in (10, 80):
            twice = (sample(ts), sample(ts)._replace(observed_ms=1))
            writer.commit(tick(ts, *twice, devices=(GPU, renamed), counters=states))
        assert [row.observed_ms for row in rows(writer, t.device_sample)] == [10_000, 10_000]
        assert [row.ts for row in rows(writer, t.host_sample)] == [10, 80]
        assert "rows_twice" in [row.kind for row in rows(writer, t.event)]
    assert [fault for fault in faults(where) if fault] == []


def test_the_age_of_a_device_is_that_of_its_newest_row_though_it_was_noted_before(where: StoreLocation) -> None:
    with Writer(where) as writer:
        writer.commit(tick(10, devices=(GPU,)))
        writer.commit(tick(50, sample(50), devices=(GPU,)))
    with open_store(where).read() as connection:
        assert list(read.newest_of_devices(connection, 0)) == [(GPU.device_id, 50)]


def test_a_device_without_rows_is_as_old_as_the_last_note_of_it(where: StoreLocation) -> None:
    with Writer(where) as writer:
        writer.commit(tick(10, devices=(GPU,)))
    with open_store(where).read() as connection:
        assert list(read.newest_of_devices(connection, 0)) == [(GPU.device_id, 10)]


def test_rows_of_a_file_that_was_just_made_are_restored_without_a_look_and_never_twice(where: StoreLocation) -> None:
    hours = CHECKSUMMED["host_1h"]
    values = {"host_id": HOST, "duration_ms": 3_600_000, "observed_ms": 3_600_000, "samples": 360, "revision": 1}
    rows = [tuple({**values, "ts": 3600 * n}.get(name) for name in hours.columns) for n in range(3)]
    with Writer(where) as writer:
        writer.restore_new(hours, rows)
        with pytest.raises(StoreError):
            writer.restore_new(hours, rows[:1])
    assert not any(fault is not None for fault in faults(where))
    with open_store(where).read() as connection:
        assert len(connection.execute(select(t.host_rollup[3600])).all()) == 3
