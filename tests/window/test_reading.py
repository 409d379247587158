import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.store.connect.open import open_store
from pertoken.store.schema.rows import DeploymentSample, EpochRow
from pertoken.store.write.writer import Writer
from pertoken.window.like_for_like import HourlyOutcomes
from pertoken.window.reading import Window, weekly_plug_w, weekly_power_w
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store, tick
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU

MONDAY = 1_789_948_800
"""2026-09-21 00:00 UTC."""


def test_power_is_the_measured_energy_over_its_time_by_week(tmp_path: Path) -> None:
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=1, usd_per_hour=None, minutes=240, end_ts=MONDAY + 7200)
    with open_store(where).read() as connection:
        devices = Window(connection, 0, MONDAY + 7200).inventory.devices
        (gpu,) = (device_id for device_id, row in devices.items() if row.kind == "gpu")
        weekly = weekly_power_w(connection, [gpu])[gpu]
        assert weekly_power_w(connection, []) == {}
    assert [start for start, _ in weekly] == [MONDAY - 7 * 86_400, MONDAY]
    assert weekly[0][1] == pytest.approx(weekly[1][1], rel=0.05) and weekly[0][1] > 50


def test_hours_whose_energy_at_the_plug_is_not_known_are_in_no_mean(tmp_path: Path) -> None:
    serving = replace(LOW_BATCH_70B, plug_w=900.0)
    where = seed(tmp_path / "db", serving, gpus=1, usd_per_hour=None, minutes=240, end_ts=MONDAY + 7200)
    with closing(sqlite3.connect(where.file("telemetry"))) as database, database:
        (host_id,) = database.execute("SELECT host_id FROM host").fetchone()
        database.execute("UPDATE host_1h SET plug_mj = NULL WHERE ts >= ?", (MONDAY,))
    with open_store(where).read() as connection:
        ((start_ts, power_w),) = weekly_plug_w(connection, [host_id])[host_id]
    assert start_ts == MONDAY - 7 * 86_400 and power_w == pytest.approx(900)


def test_buckets_shorter_than_a_minute_are_ticks_added_up_as_minutes_are(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    known = {"engines": (ENGINE,), "deployments": (DEPLOYMENT,), "devices": (GPU,)}
    epochs = (EpochRow(8, 8, MONDAY - 60, None, "1", "{}", (5,)),)
    with Writer(where) as writer:
        for n, ts in enumerate(range(MONDAY + 10, MONDAY + 130, 10)):
            served = {"prompt_tokens": 900, "generated_tokens": 100 + n, "cached_tokens": 9 * n}
            sample = DeploymentSample(8, ts, 10_000, 10_000, True, 4000 + n, busy_provenance=0, **served)
            writer.commit(tick(ts, sample, epochs=epochs, **known))
        writer.roll_up()
    with open_store(where).read() as connection:
        window = Window(connection, MONDAY, MONDAY + 120)
        minutes, halves = window.outcomes(8, 60), window.outcomes(8, 30)
    assert isinstance(minutes, HourlyOutcomes) and isinstance(halves, HourlyOutcomes)
    assert minutes.ts.tolist() == [MONDAY, MONDAY + 60]
    assert halves.ts.tolist() == [MONDAY, MONDAY + 30, MONDAY + 60, MONDAY + 90]
    tokens = halves.tokens_per_s * 30
    seconds = halves.device_s_per_token * tokens
    assert minutes.tokens_per_s * 60 == pytest.approx(tokens.reshape(2, 2).sum(axis=1))
    assert minutes.device_s_per_token == pytest.approx((seconds / tokens).reshape(2, 2).mean(axis=1), rel=1e-3)
    assert minutes.cached_share == pytest.approx(
        [sum(9 * n for n in range(6)) / 5400, sum(9 * n for n in range(6, 12)) / 5400]
    )
