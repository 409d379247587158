"""Series beyond their summary: quantiles, hours of the week, long windows."""

import sqlite3
from pathlib import Path

import pytest

from pertoken.advisor.present import present
from pertoken.catalog.market import load_market
from pertoken.evidence import Evidence, NotMeasured, Series
from pertoken.provenance import Provenance
from pertoken.store.connect.open import open_store
from pertoken.store.schema.rows import DeploymentSample, DeviceSample, EpochRow
from pertoken.store.write.writer import Writer
from tests.values import new_store, tick
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU

DAY = 86_400
MONDAY = 1_789_948_800
"""2026-09-21 00:00 UTC."""
HOUR = 3600


def recorded(folder: Path, requests: dict[int, int], window_s: int, now_ts: int) -> Evidence:
    """Return the evidence of a deployment. `requests`: the number that ended in the minute from each instant."""
    where = new_store(folder)
    epoch = EpochRow(9, 8, min(requests), None, "1", "{}", (5,))
    known = {"engines": (ENGINE,), "deployments": (DEPLOYMENT,), "epochs": (epoch,), "devices": (GPU,)}
    with Writer(where) as writer:
        for ts, n in sorted(requests.items()):
            end = ts + 60
            sample = DeploymentSample(9, end, 60_000, 60_000, True, 0, requests_finished=n, busy_provenance=0)
            writer.commit(tick(end, sample, DeviceSample(5, end, 60_000, 60_000), **known))
        writer.roll_up()
    return seen_of(folder, window_s, now_ts)


def seen_of(folder: Path, window_s: int, now_ts: int) -> Evidence:
    (seen,) = present(open_store(new_store(folder)), load_market(), window_s, now_ts).context.deployments.values()
    return seen


def test_quantiles_from_the_10th_to_the_99th_percentile_are_of_the_minutes(tmp_path: Path) -> None:
    seen = recorded(tmp_path, {MONDAY + 60 * n: 60 * (n + 1) for n in range(100)}, DAY, MONDAY + 100 * 60)
    series = seen.requests_s
    assert [series.p10, series.p25, series.p50, series.p75, series.p90, series.p95, series.p99, series.max] == [
        *(10, 25, 50, 75, 90, 95, 99, 100)
    ]


def test_the_mean_of_each_hour_of_the_week_is_none_where_nothing_was_observed(tmp_path: Path) -> None:
    minutes = {MONDAY + 9 * HOUR + 60 * n: 60 * (n % 2 + 1) for n in range(60)}  # 1.5 a second on Monday at nine
    minutes |= {MONDAY + DAY + 60 * n: 0 for n in range(30)}  # none from Tuesday midnight on
    seen = recorded(tmp_path, minutes, 2 * DAY, MONDAY + DAY + 30 * 60)
    hours = seen.hours.requests_s
    assert len(hours) == 168
    assert {n: hour for n, hour in enumerate(hours) if hour is not None} == {9: 1.5, 24: 0.0}
    assert seen.read == ("requests_s",)


def test_hours_of_the_same_slot_in_several_weeks_are_one_mean(tmp_path: Path) -> None:
    minutes = {MONDAY + 7 * DAY * week + 60 * n: 60 * (week + 1) for week in range(4) for n in range(60)}
    seen = recorded(tmp_path, minutes, 28 * DAY, MONDAY + 22 * DAY)
    assert seen.hours.requests_s[0] == 2.5
    assert seen.requests_s.n == 240


def test_a_window_of_28_days_is_read_by_the_hour_where_minutes_are_deleted_and_reports_it(tmp_path: Path) -> None:
    minutes = {MONDAY + 7 * DAY * week + 60 * n: 60 * (week + 1) for week in range(4) for n in range(60)}
    now = MONDAY + 21 * DAY + HOUR
    seen = recorded(tmp_path, minutes, 28 * DAY, now)
    assert (seen.requests_s.by_hour, seen.requests_s.origin) == (False, "counter")
    with sqlite3.connect(tmp_path / "telemetry.db") as db:
        for name in ("deployment", "device", "host"):
            db.execute(f"DELETE FROM {name}_1m WHERE ts < ?", (MONDAY + 21 * DAY,))
            db.execute(f"DELETE FROM {name}_sample")
    seen = seen_of(tmp_path, 28 * DAY, now)
    assert seen.requests_s.mean == 2.5
    assert seen.hours.requests_s[0] == 2.5
    assert (seen.requests_s.by_hour, seen.requests_s.origin) == (True, "counter, by the hour")


def test_a_series_that_is_missing_has_no_hours_either(tmp_path: Path) -> None:
    seen = recorded(tmp_path, {MONDAY + 60 * n: 60 for n in range(10)}, DAY, MONDAY + 600)
    with pytest.raises(NotMeasured):
        _ = seen.hours.kv_use
    with pytest.raises(NotMeasured, match="by hour of the week"):
        _ = seen.hours.observed_h
    with pytest.raises(AttributeError):
        _ = seen.hours.no_such_series


def test_quantiles_of_a_histogram_are_linear_within_its_buckets() -> None:
    lengths = Series(150, 130, 200, 200, 10, Provenance.COUNTER, ((100.0, 5.0), (200.0, 5.0), (float("inf"), 0.0)))
    assert (lengths.p10, lengths.p50, lengths.p75, lengths.p90) == (20, 130, 150, 180)
    beyond = Series(150, 130, 200, 200, 10, Provenance.COUNTER, ((100.0, 5.0), (float("inf"), 5.0)))
    assert beyond.p99 == 100


def test_quantiles_of_a_summary_alone_lie_between_those_it_knows() -> None:
    alone = Series(mean=4, p50=3, p95=12, max=17, n=9, provenance=Provenance.COUNTER)
    assert (alone.p10, alone.p25) == (3, 3)
    assert alone.p99 == pytest.approx(16)
    assert 3 < alone.p75 < alone.p90 < 12


def test_hours_can_be_given_by_hand() -> None:
    known = (1.0, *(None,) * 167)
    seen = Evidence({"busy": Series(1, 1, 1, 1, 1, Provenance.COUNTER)}, hours={"busy": known})
    assert seen.hours.busy == known == seen.fresh().hours.busy
