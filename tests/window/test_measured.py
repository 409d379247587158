"""Series of energy, clocks, host memory, bursts, how requests end and sleep: known, and never zero where unknown."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pertoken.advisor.present import Present, present
from pertoken.catalog.market import load_market
from pertoken.evidence import Evidence, NotMeasured
from pertoken.metrics import ENDED
from pertoken.provenance import Provenance
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema.rows import (
    DeploymentSample,
    DeviceSample,
    DeviceShare,
    EngineCounterSample,
    EpochRow,
    HistogramSample,
)
from pertoken.store.write.writer import Writer
from tests.values import new_store, tick
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU

START = 1_789_948_800
OTHER_GPU = replace(GPU, device_id=6, uuid="GPU-6", slot=1)


def stored(
    folder: Path, minutes: Sequence[Sequence[Any]], devices: Sequence[Any] = (GPU,), engine: Any = ENGINE, **more: Any
) -> Present:
    """Return the present state after minutes with these samples, which get their times here."""
    where = new_store(folder)
    epoch = EpochRow(9, 8, START, None, "1", "{}", tuple(device.device_id for device in devices))
    known = {"engines": (engine,), "deployments": (DEPLOYMENT,), "epochs": (epoch,), "devices": tuple(devices), **more}
    with Writer(where) as writer:
        for n, samples in enumerate(minutes, 1):
            ts = START + 60 * n
            at = [
                sample._replace(ts=ts) if isinstance(sample, DeviceSample) else replace(sample, ts=ts)
                for sample in samples
            ]
            writer.commit(tick(ts, *at, **known))
        writer.roll_up()
    return present(open_store(where), load_market(), 6 * 3600, START + 60 * len(minutes))


def seen_by(folder: Path, minutes: Sequence[Sequence[Any]], devices: Sequence[Any] = (GPU,), **more: Any) -> Evidence:
    (seen,) = stored(folder, minutes, devices, **more).context.deployments.values()
    return seen


def served(tokens: int = 600, requests: int = 6, **more: int) -> DeploymentSample:
    values = {"prompt_tokens": 0, "generated_tokens": tokens, "requests_finished": requests, **more}
    return DeploymentSample(9, 0, 60_000, 60_000, True, 30_000, busy_provenance=0, **values)


def gpu(device_id: int = 5, **values: int) -> DeviceSample:
    return DeviceSample(device_id, 0, 60_000, 60_000, **values)


def share(part: int, device_id: int = 5) -> DeviceShare:
    return DeviceShare(device_id, 9, 0, 60_000, part, 0, Provenance.REPORTED)


def test_energy_of_a_deployment_is_its_share_of_its_devices_energy(tmp_path: Path) -> None:
    minute = [
        *(gpu(5, energy_counter_mj=36_000_000), gpu(6, energy_counter_mj=18_000_000)),
        *(share(1_000_000, 5), share(500_000, 6)),
    ]
    present = stored(tmp_path, [[served(), *minute]] * 10, (GPU, OTHER_GPU))
    (seen,) = present.context.deployments.values()
    assert seen.energy_w.mean == pytest.approx(600 + 150)
    assert seen.energy_w.provenance is Provenance.COUNTER
    assert seen.j_per_token.mean == pytest.approx(750 * 60 / 600)
    assert present.context.devices[6].energy_w.mean == pytest.approx(300)


def test_energy_of_devices_held_whole_is_all_of_theirs(tmp_path: Path) -> None:
    whole = served(whole_provenance=int(Provenance.REPORTED))
    seen = seen_by(tmp_path, [[whole, gpu(energy_counter_mj=36_000_000)]] * 10)
    assert seen.energy_w.mean == pytest.approx(600)


def test_energy_of_idle_time_is_part_of_what_a_token_takes(tmp_path: Path) -> None:
    busy, idle = [served(600), gpu(energy_counter_mj=30_000_000)], [served(0), gpu(energy_counter_mj=6_000_000)]
    minutes = [[*minute, share(1_000_000)] for minute in [busy, idle] * 5]
    assert seen_by(tmp_path, minutes).j_per_token.mean == pytest.approx((30_000 + 6_000) / 600)


def test_energy_without_a_counter_is_integrated_from_power_and_marked(tmp_path: Path) -> None:
    seen = seen_by(tmp_path, [[served(), gpu(energy_integral_mj=6_000_000), share(1_000_000)]] * 10)
    assert seen.energy_w.mean == pytest.approx(100)
    assert seen.energy_w.provenance is Provenance.INTEGRAL


def test_a_device_held_whole_for_half_a_minute_and_shared_for_the_rest_is_held_for_both(tmp_path: Path) -> None:
    whole = replace(served(whole_provenance=int(Provenance.REPORTED)), duration_ms=30_000, observed_ms=30_000)
    half = replace(share(500_000), duration_ms=30_000)
    seen = seen_by(tmp_path, [[whole, gpu(energy_counter_mj=36_000_000), half]] * 10)
    assert seen.energy_w.mean == pytest.approx(0.75 * 600)


def test_clocks_are_read_and_throttled_is_the_part_of_samples_with_a_reason(tmp_path: Path) -> None:
    slowed, free, idle = (gpu(sm_clock_mhz=1_200, throttle_reasons=literal) for literal in (4, 0, 1))
    seen = seen_by(tmp_path, [[served(), device_sample] for device_sample in (slowed, free, idle, slowed)])
    assert (seen.throttled.mean, seen.sm_clock_mhz.p50) == (0.5, 1_200)


def test_power_and_heat_are_distinguished_as_causes_of_throttling(tmp_path: Path) -> None:
    cap, brake, heat, both, locked, free = (gpu(throttle_reasons=literal) for literal in (4, 0x88, 0x20, 0x44, 2, 0))
    seen = seen_by(tmp_path, [[served(), device_sample] for device_sample in (cap, brake, heat, both, locked, free)])
    shares = [series.mean for series in (seen.throttled, seen.throttled_power, seen.throttled_thermal)]
    assert shares == pytest.approx([5 / 6, 3 / 6, 2 / 6])


def test_reasons_of_slow_clocks_are_unknown_in_rows_of_older_schemas(tmp_path: Path) -> None:
    stored(tmp_path, [[served(), gpu(throttle_reasons=4)]] * 4)
    with closing(sqlite3.connect(tmp_path / "telemetry.db")) as connection, connection:
        for table in ("device_1m", "device_1h"):
            connection.execute(f"UPDATE {table} SET throttled_power_samples = NULL, throttled_thermal_samples = NULL")
    end = START + 60 * 4
    (seen,) = present(open_store(locate(str(tmp_path))), load_market(), 3600, end).context.deployments.values()
    assert seen.throttled.mean == 1.0
    assert not seen.has("throttled_power") and not seen.has("throttled_thermal")


def test_memory_and_cpus_of_hosts_are_what_is_used_and_what_is_free(tmp_path: Path) -> None:
    seen = seen_by(tmp_path, [[served(), gpu()]] * 10)
    assert seen.host_memory_free.mean == 2**36 - 2**30
    assert (seen.host_memory_used.mean, seen.host_cpus_used.mean) == (2**30, 2.0), "a quarter of 8 CPUs"


def test_bursts_are_seen_in_the_dispersion_of_requests_per_minute(tmp_path: Path) -> None:
    even = seen_by(tmp_path / "even", [[served(requests=6), gpu()]] * 120)
    bursts = seen_by(tmp_path / "bursts", [[served(requests=60 if n % 10 == 0 else 0), gpu()] for n in range(120)])
    assert even.arrival_dispersion.mean == 0
    assert even.arrival_dispersion.n == 2
    assert bursts.arrival_dispersion.mean == pytest.approx(60 * 0.9 * 60 / 59)  # Of x in one minute of ten: 0.9 x.


def test_dispersion_is_unknown_of_a_few_minutes(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured, match="minutes"):
        _ = seen_by(tmp_path, [[served(), gpu()]] * 20).arrival_dispersion


def test_requests_are_divided_by_how_they_ended(tmp_path: Path) -> None:
    stop, length, *_ = ENDED
    counts = [EngineCounterSample(9, stop, 0, 3), EngineCounterSample(9, length, 0, 1)]
    seen = seen_by(tmp_path, [[served(), gpu(), *counts]] * 10)
    assert (seen.ended_by_stop.mean, seen.ended_by_length.mean, seen.ended_by_abort.mean) == (0.75, 0.25, 0)
    assert (seen.ended_by_error.mean, seen.ended_by_repetition.mean) == (0, 0)


def test_time_asleep_is_a_part_of_all_observed_time(tmp_path: Path) -> None:
    asleep = EngineCounterSample(9, "asleep_ms", 0, 60_000)
    seen = seen_by(tmp_path, [[served(0, 0), gpu(), *([asleep] if n % 4 == 0 else [])] for n in range(12)])
    assert seen.asleep.mean == pytest.approx(0.25)


def test_load_time_is_the_mean_of_the_starts_and_an_upper_bound(tmp_path: Path) -> None:
    def starts(*seconds: int) -> list[Any]:
        return [EngineCounterSample(9, "loads", 0, len(seconds)), EngineCounterSample(9, "load_s", 0, sum(seconds))]

    minutes = [[served(), gpu(), *(starts(60, 80) if n == 3 else starts(190) if n == 7 else [])] for n in range(10)]
    seen = seen_by(tmp_path, minutes)
    assert (seen.load_s.mean, seen.load_s.max, seen.load_s.n) == (110, 190, 2)
    assert seen.load_s.provenance is Provenance.BOUND


def test_the_time_between_tokens_is_known_of_engines_that_measure_each_token(tmp_path: Path) -> None:
    buckets = [HistogramSample(9, "tpot_s", 0, 1, bucket, n) for bucket, n in enumerate((95, 4, 1))]
    sets: dict[str, Any] = {"bucket_sets": {1: (0.02, 0.5)}}
    vllm, tgi = replace(ENGINE, kind="vllm"), replace(ENGINE, kind="tgi")
    stalls = seen_by(tmp_path / "vllm", [[served(), gpu(), *buckets]] * 4, engine=vllm, **sets)
    means = seen_by(tmp_path / "tgi", [[served(), gpu(), *buckets]] * 4, engine=tgi, **sets)
    assert stalls.itl_s.p50 < 0.02 < stalls.itl_s.p99 == 0.5
    assert means.tpot_s.n == 400 and not means.has("itl_s")


def test_a_series_that_nothing_exposes_is_not_measured_and_has_a_remedy(tmp_path: Path) -> None:
    cpu = replace(GPU, kind="cpu", vendor=None, slot=None)
    seen = seen_by(tmp_path, [[served(), gpu()]] * 40, (cpu,))
    unknown = (
        *("energy_w", "j_per_token", "throttled", "sm_clock_mhz", "temperature_c", "asleep", "ended_by_stop"),
        *("queue_s", "max_tokens", "step_tokens", "kv_reuse_gap_s"),
    )
    for name in unknown:
        with pytest.raises(NotMeasured) as raised:
            getattr(seen, name)
        assert raised.value.remedy
