"""Roll-ups from random histories equal what the ticks sum to, however late or often they are made."""

import random
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from pertoken.provenance import Provenance
from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample, DeviceSample, DeviceShare, EngineCounterSample, HistogramSample
from pertoken.store.write.writer import Writer, bucket
from tests.values import HOST, new_store, tick


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    return new_store(tmp_path)


def rows(writer: Writer, table: Any) -> list[Any]:
    with writer._connection.begin():
        return list(writer._connection.execute(select(table).order_by(*table.primary_key)).all())


def device(ts: int, **values: int | None) -> DeviceSample:
    return DeviceSample(5, ts, 10_000, 10_000, **values)


def test_a_row_belongs_to_the_minute_it_covers() -> None:
    assert [bucket(ts, 60) for ts in (1, 59, 60, 61, 120)] == [0, 0, 0, 60, 60]


def test_sums_and_counts_leave_unmeasured_values_out(where: StoreLocation) -> None:
    with Writer(where) as writer:
        writer.commit(tick(10, device(10, util_1e4=5000, power_mw=None)))
        writer.commit(tick(20, device(20, util_1e4=7000, power_mw=300_000, throttle_reasons=4)))
        writer.commit(tick(30, device(30, throttle_reasons=1)))
        writer.roll_up()
        (minute,) = rows(writer, t.device_rollup[60])
    assert (minute.ts, minute.samples, minute.duration_ms) == (0, 3, 30_000)
    assert (minute.util_1e4_sum, minute.util_1e4_n) == (12_000, 2)
    assert (minute.power_mw_sum, minute.power_mw_n) == (300_000, 1)
    assert (minute.energy_counter_mj, minute.throttled_n) == (None, 1)


def test_only_reasons_beside_being_idle_count_as_throttled(where: StoreLocation) -> None:
    reasons = (None, 0, 1, 4, 5, 0x100, 0x101)
    with Writer(where) as writer:
        for n, reason in enumerate(reasons):
            writer.commit(tick(n + 1, device(n + 1, throttle_reasons=reason)))
        writer.roll_up()
        for seconds in (60, 3600):
            (row,) = rows(writer, t.device_rollup[seconds])
            assert (row.samples, row.throttled_n) == (7, 4)


@pytest.mark.parametrize("bit", range(9))
def test_each_reason_of_the_driver_but_being_idle_counts_as_throttled(where: StoreLocation, bit: int) -> None:
    with Writer(where) as writer:
        writer.commit(tick(10, device(10, throttle_reasons=1 << bit)))
        writer.roll_up()
        (minute,) = rows(writer, t.device_rollup[60])
    assert minute.throttled_n == (0 if bit == 0 else 1)


def test_rolling_up_twice_changes_nothing_and_a_late_row_raises_the_revision(where: StoreLocation) -> None:
    with Writer(where) as writer:
        writer.commit(tick(10, device(10, util_1e4=1)))
        writer.roll_up()
        first = rows(writer, t.device_rollup[60])
        assert writer.roll_up() == 0
        assert rows(writer, t.device_rollup[60]) == first
        writer.commit(tick(50, device(50, util_1e4=2)))
        writer.commit(tick(40, device(40, util_1e4=4)))
        writer.roll_up()
        (minute,) = rows(writer, t.device_rollup[60])
        assert (minute.util_1e4_sum, minute.revision) == (7, 2)
        (hour,) = rows(writer, t.device_rollup[3600])
        assert (hour.util_1e4_sum, hour.revision) == (7, 2)


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_roll_up_to_their_exact_totals(where: StoreLocation, seed: int) -> None:
    chance = random.Random(seed)
    epochs, ticks = [11, 12], [10 * n for n in range(1, 900)]
    tokens: dict[tuple[int, int], int] = {}
    held: dict[tuple[int, int], int] = {}
    chosen = [ts for ts in ticks if chance.random() < 0.2]
    chance.shuffle(chosen)
    with Writer(where) as writer:
        for ts in chosen:
            samples: list[object] = []
            for epoch in epochs:
                if chance.random() < 0.3:
                    continue
                larger = chance.choice([None, 0, chance.randrange(10**6)])
                share = chance.randrange(500_000)
                samples += [
                    DeploymentSample(epoch, ts, 10_000, 10_000, chance.random() < 0.9, generated_tokens=larger),
                    DeviceShare(5, epoch, ts, 10_000, share, 5_000, Provenance.REPORTED),
                    HistogramSample(epoch, "ttft_s", ts, 99, chance.randrange(3), 1),
                    EngineCounterSample(epoch, chance.choice(["gflop_per_gpu", "spec_drafts"]), ts, 10**9),
                ]
                hour = bucket(ts, 3600), epoch
                tokens[hour] = tokens.get(hour, 0) + (larger or 0)
                held[hour] = held.get(hour, 0) + share * 10_000
            writer.commit(tick(ts, *samples))
            if chance.random() < 0.1:
                writer.roll_up()
        writer.roll_up()
        for table in (t.deployment_rollup[60], t.deployment_rollup[3600]):
            totals: dict[tuple[int, int], int] = {}
            for row in rows(writer, table):
                key = row.ts // 3600 * 3600, row.epoch_id
                totals[key] = totals.get(key, 0) + (row.generated_tokens or 0)
            assert totals == tokens
        assert {(row.ts, row.epoch_id): row.held_ns for row in rows(writer, t.share_rollup[3600])} == held
        with writer._connection.begin():
            ask = writer._connection.execute
            for ticks_of, hours_of, column in (
                (t.histogram_sample, t.histogram_rollup[3600], "count"),
                (t.engine_counter_sample, t.engine_counter_rollup[3600], "delta"),
            ):
                raw = ask(select(func.sum(ticks_of.c[column]))).scalar()
                assert raw == ask(select(func.sum(hours_of.c[column]))).scalar() != 0
            assert ask(select(func.count()).select_from(t.dirty)).scalar() == 0


def test_host_rows_are_rolled_up_too(where: StoreLocation) -> None:
    with Writer(where) as writer:
        writer.commit(tick(10))
        writer.roll_up()
        (minute,) = rows(writer, t.host_rollup[60])
    assert (minute.host_id, minute.cpu_util_1e4_sum) == (HOST, 2500)


def test_hours_wait_with_their_marks_while_only_minutes_are_made(where: StoreLocation) -> None:
    with Writer(where) as writer:
        writer.commit(tick(10, device(10, util_1e4=5000)))
        writer.roll_up(hours=False)
        assert [row.samples for row in rows(writer, t.device_rollup[60])] == [1]
        assert rows(writer, t.device_rollup[3600]) == []
        writer.commit(tick(20, device(20, util_1e4=5000)))
        writer.roll_up()
        assert [row.samples for row in rows(writer, t.device_rollup[3600])] == [2]
        assert rows(writer, t.dirty) == []


def served(ts: int, busy_ms: int | None, provenance: Provenance | None, epoch_id: int = 11) -> DeploymentSample:
    known = None if provenance is None else int(provenance)
    return DeploymentSample(epoch_id, ts, 10_000, 10_000, True, busy_ms, busy_provenance=known)


MEASURED, BOUND, BEFORE = Provenance.COUNTER, Provenance.BOUND, None


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([(4_000, MEASURED), (0, MEASURED)], (4_000, MEASURED)),
        ([(4_000, MEASURED), (1_000, BOUND), (0, MEASURED)], (5_000, BOUND)),
        # Rows from before busy time had a provenance: a whole tick if anything ran in it.
        ([(10_000, BEFORE), (0, BEFORE)], (10_000, BOUND)),
        ([(10_000, BEFORE), (4_000, MEASURED)], (14_000, BOUND)),
        ([(0, BEFORE)], (0, None)),
        # An engine that worked but exposes no time worked for at most as long as it was observed.
        ([(0, MEASURED), (None, BOUND)], (10_000, BOUND)),
        ([(None, BOUND), (None, BOUND)], (None, BOUND)),
    ],
    ids=["measured", "one bound", "all before", "some before", "idle before", "one unknown", "all unknown"],
)
def test_busy_time_of_a_bucket_is_as_uncertain_as_the_worst_of_it(
    where: StoreLocation,
    samples: list[tuple[int | None, Provenance | None]],
    expected: tuple[int | None, Provenance | None],
) -> None:
    with Writer(where) as writer:
        for n, (busy_ms, provenance) in enumerate(samples):
            writer.commit(tick(60 * n + 10, served(60 * n + 10, busy_ms, provenance)))
            writer.commit(tick(1810 + 10 * n, served(1810 + 10 * n, busy_ms, provenance, epoch_id=12)))
        writer.roll_up()
        hours = rows(writer, t.deployment_rollup[3600])
        minute = rows(writer, t.deployment_rollup[60])[-1]
    assert [(row.busy_ms, row.busy_provenance) for row in hours] == [expected, expected]
    assert (minute.epoch_id, minute.busy_ms, minute.busy_provenance) == (12, *expected)
