"""Time in which nothing was recorded is filed under the buckets it was in, exactly."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import func, select

from pertoken.agent.rows.assemble import DAY, MAX_SPLIT_S, parts, spread
from pertoken.agent.rows.tick_state import OBSERVED_TICKS
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.provenance import Provenance
from pertoken.store import repository
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.integrity.verify import verify
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample, DeviceSample, DeviceShare, HostSample, SampleValue
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.units import NANO_USD, SHARE
from tests.agent.values import moment, tick_state
from tests.agent.world import BEGIN_S, World
from tests.values import new_store

MakeWorld = Callable[..., World]
USD_PER_HOUR = 36
MINUTE_NANO_USD = USD_PER_HOUR * NANO_USD // 60
"""A window begins with a whole minute."""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeWorld]:
    worlds: list[World] = []

    def made(**more: Any) -> World:
        where = new_store(tmp_path)
        with AdviceRepository(where).writing() as connection:
            price = {"nano_usd_per_device_hour": USD_PER_HOUR * NANO_USD, "from_ts": 0, "set_ts": 1}
            repository.add_price(connection, selector="H100", set_by="x", note=None, **price)
        worlds.append(World(tmp_path, monkeypatch, interval_s=10, **more))
        return worlds[-1]

    yield made
    for world in worlds:
        world.stop()


def paid(world: World, window_s: int) -> int:
    """Return what the GPU cost in the window that ends now."""
    assert world.agent is not None
    world.agent._upkeep.roll_up(hours=True)
    report = fleet_report(open_store(locate(str(world.folder))), window_s, world.true_ms // 1000)
    bill = report.bill
    assert bill is not None
    assert bill.paid == bill.busy + bill.idle + bill.other + bill.unallocated
    return bill.paid


def durations(world: World, table: Any) -> int:
    return int(world.ask(select(func.coalesce(func.sum(table.c.duration_ms), 0)))[0][0])


def assert_filed_where_it_was(world: World) -> None:
    """No minute of an owner holds more than itself, the ticks that straddle its ends and what begins an absence."""
    for table in (t.host_rollup, t.device_rollup, t.deployment_rollup):
        assert all(row.duration_ms <= 2 * 60_000 + 10_000 for row in world.rows(table[MINUTE])), table[MINUTE].name
    for row in (*world.rows(t.device_sample), *world.rows(t.host_sample), *world.rows(t.deployment_sample)):
        assert 0 <= row.observed_ms <= min(row.duration_ms, 1000 * OBSERVED_TICKS * 10)
    assert [fault for fault in verify(locate(str(world.folder))) if fault is not None] == []


@pytest.mark.parametrize("how", ["stopped", "killed", "suspended"])
def test_an_absence_is_paid_in_the_hours_it_was_in(make: MakeWorld, how: str) -> None:
    world = make()
    world.begin()
    world.serve()
    world.run(600, work=5)
    match how:
        case "stopped":
            world.stop()
        case "killed":
            world.abandon()
    agent, world.agent = world.agent, None
    world.run(3 * HOUR, work=5)
    world.agent = agent
    if how != "suspended":
        world.begin()
    world.run(600, work=5)
    assert paid(world, HOUR) == pytest.approx(USD_PER_HOUR * NANO_USD, abs=MINUTE_NANO_USD)
    lived_ms = world.true_ms - 1000 * BEGIN_S
    assert durations(world, t.host_sample) == pytest.approx(lived_ms, abs=20_000)
    assert paid(world, 12 * HOUR) == pytest.approx(USD_PER_HOUR * NANO_USD * lived_ms / 3_600_000, abs=MINUTE_NANO_USD)
    assert_filed_where_it_was(world)
    assert world.engine is not None
    tokens = sum(row.generated_tokens or 0 for row in world.rows(t.deployment_sample))
    assert tokens == world.engine.counts["generated_tokens"]
    owners = world.ask(
        select(t.device_sample.c.device_id, func.sum(t.device_sample.c.duration_ms)).group_by("device_id")
    )
    assert len({duration for _, duration in owners}) == 1


def test_a_device_that_was_away_is_paid_in_the_hours_it_was_away(make: MakeWorld) -> None:
    world = make()
    world.begin()
    world.run(600)
    devices, world.devices = world.devices, ()
    world.run(1.5 * HOUR)
    world.devices = devices
    world.run(600)
    assert paid(world, HOUR) == pytest.approx(USD_PER_HOUR * NANO_USD, abs=MINUTE_NANO_USD)
    lived = (world.true_ms / 1000 - BEGIN_S) / HOUR
    assert paid(world, 12 * HOUR) == pytest.approx(USD_PER_HOUR * NANO_USD * lived, abs=MINUTE_NANO_USD)
    assert_filed_where_it_was(world)


def test_an_absence_of_months_makes_a_bounded_number_of_rows_and_keeps_all_of_its_time(make: MakeWorld) -> None:
    world = make()
    world.begin()
    world.run(60)
    world.stop()
    world.run(200 * DAY)
    world.begin()
    world.run(60)
    assert world.agent is not None
    world.agent._upkeep.roll_up(hours=True)
    stored = world.ask(select(func.sum(t.host_rollup[HOUR].c.duration_ms)))
    assert stored[0][0] == pytest.approx(world.true_ms - 1000 * BEGIN_S, abs=20_000)
    assert len(world.rows(t.host_sample)) < 2 * DAY // MINUTE + MAX_SPLIT_S // HOUR
    assert paid(world, HOUR) == pytest.approx(USD_PER_HOUR * NANO_USD, abs=MINUTE_NANO_USD)
    assert [fault for fault in verify(locate(str(world.folder))) if fault is not None] == []


def test_a_clock_set_back_over_recorded_time_splits_nothing_into_seconds_that_are_taken(make: MakeWorld) -> None:
    world = make()
    world.begin()
    world.run(HOUR)
    world.stop()
    world.step_s = -HOUR
    world.run(1200)
    world.begin()
    world.run(1200)
    assert durations(world, t.host_sample) == pytest.approx(world.true_ms - 1000 * BEGIN_S, abs=20_000)
    assert [fault for fault in verify(locate(str(world.folder))) if fault is not None] == []


@given(
    ts=st.integers(BEGIN_S, BEGIN_S + 2 * DAY),
    duration_ms=st.one_of(st.integers(1, 7 * 10**6), st.integers(1, 10**12)),
    after_s=st.integers(-50, 400),
)
@example(BEGIN_S, 3_600_000, 0)
def test_parts_add_up_and_lie_in_one_bucket_each(ts: int, duration_ms: int, after_s: int) -> None:
    after_ts = ts - duration_ms // 1000 + after_s
    segments = parts(ts, duration_ms, after_ts)
    assert sum(segment.duration_ms for segment in segments) == duration_ms
    assert all(segment.duration_ms > 0 for segment in segments)
    assert segments[-1].ts == ts
    assert all(after_ts < segment.ts < ts for segment in segments[:-1])
    assert len(segments) < 2 * DAY // MINUTE + MAX_SPLIT_S // HOUR
    for segment in segments[2:]:
        interval_s = MINUTE if segment.ts > ts - DAY else HOUR
        assert (segment.ts - 1) // interval_s == (1000 * segment.ts - segment.duration_ms) // (1000 * interval_s)


ADDED_UP = (
    *("duration_ms", "observed_ms", "busy_ms", "generated_tokens"),
    *("energy_counter_mj", "energy_integral_mj"),
)


@given(
    duration_ms=st.integers(20_001, 10**8),
    observed_ms=st.integers(0, 20_000),
    busy=st.floats(0, 1),
    busy_unknown=st.booleans(),
)
def test_observed_and_busy_time_add_up_and_fit_into_each_part(
    duration_ms: int, observed_ms: int, busy: float, busy_unknown: bool
) -> None:
    now = moment(1000)
    busy_ms = None if busy_unknown else int(duration_ms * busy)
    samples: list[SampleValue] = [
        HostSample(1, now.ts, duration_ms, observed_ms, load_1e2=7),
        DeviceSample(2, now.ts, duration_ms, observed_ms, power_mw=5, energy_counter_mj=9, energy_integral_mj=10**9),
        DeploymentSample(3, now.ts, duration_ms, observed_ms, False, busy_ms, generated_tokens=11),
        DeviceShare(2, 3, now.ts, duration_ms, SHARE, busy_ms or 0, Provenance.REPORTED),
    ]
    rows = spread(samples, tick_state(), now, {})
    sums: Counter[tuple[type, str]] = Counter()
    for row in rows:
        for name in ADDED_UP:
            sums[type(row), name] += getattr(row, name, None) or 0
        assert isinstance(row, HostSample | DeviceSample | DeploymentSample | DeviceShare)
        assert 0 <= getattr(row, "observed_ms", 0) <= row.duration_ms
        assert 0 <= (getattr(row, "busy_ms", 0) or 0) <= row.duration_ms
    for sample in samples:
        for name in ADDED_UP:
            assert sums[type(sample), name] == (getattr(sample, name, None) or 0)
    served = [row for row in rows if isinstance(row, DeploymentSample)]
    shares = [row for row in rows if isinstance(row, DeviceShare)]
    assert [(row.ts, row.duration_ms, row.busy_ms or 0) for row in served] == [
        (row.ts, row.duration_ms, row.busy_ms) for row in shares
    ]
    assert [row.complete for row in served].count(False) == 1


@given(duration_ms=st.integers(20_001, 40 * 86_400_000), energy_mj=st.integers(0, 2**53))
def test_energy_of_an_absence_is_spread_over_its_minutes_and_hours(duration_ms: int, energy_mj: int) -> None:
    now = moment(1000)
    sample = DeviceSample(2, now.ts, duration_ms, 10_000, energy_counter_mj=energy_mj, power_mw=5)
    total_mj = 0
    for row in spread([sample], tick_state(), now, {}):
        assert isinstance(row, DeviceSample)
        assert row.energy_counter_mj is not None
        total_mj += row.energy_counter_mj
        assert abs(row.energy_counter_mj - energy_mj * row.duration_ms / duration_ms) <= 1 + energy_mj / 10**12
        assert row.energy_integral_mj is None
    assert total_mj == energy_mj
