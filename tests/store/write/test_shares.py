"""A device that is held whole needs no row of its own: what is read is the same as if it had one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, select

from pertoken.provenance import Provenance
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.query import read, rollups
from pertoken.store.query.buckets import buckets, deployment_totals, shared_time
from pertoken.store.query.rollups import Segment, allocated_ns
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentRow, DeploymentSample, DeviceRow, DeviceShare, EngineRow, EpochRow
from pertoken.store.write.writer import Writer
from pertoken.units import SHARE
from tests.values import HOST, new_store, tick

EPOCH = EpochRow(11, 1, 0, None, None, "{}", (5, 6))
DEVICES = tuple(DeviceRow(device_id, HOST, "gpu", f"GPU-{device_id}", "nvidia", "H100") for device_id in (4, 5, 6))
SERVING: Any = {
    "engines": (EngineRow(2, HOST, "vllm", "http://127.0.0.1:8000", 8000, 1, 1, None, "process"),),
    "deployments": (DeploymentRow(1, 2, HOST, "m"),),
}
SERVED = DeploymentSample(11, 10, 10_000, 10_000, True, busy_ms=8_000)


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    return new_store(tmp_path)


def share(device_id: int, share_1e6: int = SHARE, ts: int = 10, duration_ms: int = 10_000, busy_ms: int = 8_000) -> Any:
    return DeviceShare(device_id, 11, ts, duration_ms, share_1e6, busy_ms, Provenance.REPORTED)


def summed(connection: Connection, segment: Segment) -> dict[tuple[int, int], tuple[int, int]]:
    """Return (device_id, epoch_id) -> (held_ns, busy_ns)."""
    shared, totals = shared_time(connection, (segment,)), deployment_totals(connection, (segment,))
    allocated = allocated_ns(shared, totals, read.by_epoch(read.epoch_devices(connection, 0)), {EPOCH.epoch_id})
    return {(device_id, epoch_id): ns for device_id, by in allocated.items() for epoch_id, ns in by.items()}


def stored(where: StoreLocation, *samples: object) -> tuple[int, list[tuple[int, ...]]]:
    """Return (rows in `device_share`, who held what as it is read) after one tick."""
    with Writer(where) as writer:
        writer.commit(tick(10, *samples, devices=DEVICES, epochs=(EPOCH,)))
        writer.roll_up()
    store = open_store(where)
    with store.read() as connection:
        n = connection.execute(select(func.count()).select_from(t.device_share)).scalar_one()
        allocated = {}
        epoch_ids = {sample.epoch_id for sample in samples if isinstance(sample, DeploymentSample | DeviceShare)}
        for seconds in (60, 3600):
            segment = Segment(seconds, 0, 3600)
            allocated[seconds] = sorted(tuple(row) for row in rollups.share_buckets(connection, segment, epoch_ids))
            assert summed(connection, segment) == {(row[0], row[2]): row[3:5] for row in allocated[seconds]}
    assert allocated[60] == allocated[3600]
    return n, allocated[60]


def test_wholly_owned_devices_are_stored_in_the_row_of_their_deployment(where: StoreLocation) -> None:
    rows, held = stored(where, SERVED, share(5), share(6))
    assert rows == 0
    assert held == [(device_id, 0, 11, 10_000 * SHARE, 8_000 * SHARE, Provenance.REPORTED) for device_id in (5, 6)]


@pytest.mark.parametrize(
    "samples",
    [
        (SERVED, share(5), share(6, SHARE // 2)),
        (SERVED, share(5)),
        (SERVED, share(5), share(6, busy_ms=7_000)),
        (SERVED, share(5), share(6, duration_ms=9_000, busy_ms=8_000)),
        (replace(SERVED, busy_ms=None), share(5), share(6)),
        (share(5), share(6)),
    ],
    ids=["one in part", "one not held", "one less busy", "one shorter", "busy unknown to the row", "no row"],
)
def test_shares_that_the_row_of_a_deployment_cannot_express_stay_in_rows(
    where: StoreLocation, samples: tuple[object, ...]
) -> None:
    rows, held = stored(where, *samples)
    given = [sample for sample in samples if isinstance(sample, DeviceShare)]
    assert rows == len(given)
    assert held == [
        (
            device_id.device_id,
            0,
            11,
            device_id.share_1e6 * device_id.duration_ms,
            device_id.share_1e6 * device_id.busy_ms,
            device_id.provenance,
        )
        for device_id in given
    ]


def test_a_part_of_a_device_that_is_not_of_the_epoch_stays_in_a_row(where: StoreLocation) -> None:
    """As the GPU of a MIG device does, which the deployment holds whole."""
    rows, held = stored(where, SERVED, share(5), share(6), share(4, SHARE // 7))
    assert rows == 1
    assert [(row[0], row[3]) for row in held] == [
        (4, 10_000 * (SHARE // 7)),
        (5, 10_000 * SHARE),
        (6, 10_000 * SHARE),
    ]


def test_a_deployment_busy_for_longer_than_its_row_is_busy_for_all_of_it(where: StoreLocation) -> None:
    served = replace(SERVED, busy_ms=12_000)
    rows, held = stored(where, served, share(5, busy_ms=10_000), share(6, busy_ms=10_000))
    assert (rows, {row[4] for row in held}) == (0, {10_000 * SHARE})


def test_a_minute_held_whole_for_a_part_of_it_adds_up(where: StoreLocation) -> None:
    with Writer(where) as writer:
        writer.commit(tick(10, SERVED, share(5), share(6), devices=DEVICES, epochs=(EPOCH,), **SERVING))
        parts = (share(5, SHARE // 4, ts=20), share(6, ts=20))
        writer.commit(tick(20, replace(SERVED, ts=20), *parts))
        writer.roll_up()
    with open_store(where).read() as connection:
        allocated = summed(connection, Segment(3600, 0, 3600))
        minute = (Segment(60, 0, 3600),)
        (whole,) = buckets(connection, "deployment", minute, ("epoch_id", "ts", "whole_ms"))
        (shared,) = buckets(connection, "share", minute, ("epoch_id", "ts", "device_id", "held_ns"))
    assert allocated == {(5, 11): (12_500 * SHARE, 10_000 * SHARE), (6, 11): (20_000 * SHARE, 16_000 * SHARE)}
    assert whole[2] == "10000"
    assert set(zip(*(text.split(",") for text in shared[2:]), strict=True)) == {
        ("5", str(2_500 * SHARE)),
        ("6", str(10_000 * SHARE)),
    }


def test_devices_of_an_epoch_are_known_to_the_next_writer(where: StoreLocation) -> None:
    assert stored(where, SERVED, share(5), share(6))[0] == 0
    with Writer(where) as writer:
        writer.commit(tick(20, replace(SERVED, ts=20), share(5, ts=20), share(6, ts=20)))
    with open_store(where).read() as connection:
        assert connection.execute(select(func.count()).select_from(t.device_share)).scalar_one() == 0
