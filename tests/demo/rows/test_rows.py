"""Rows of a demo: as an agent's, by the columns of the store's own tables."""

import numpy as np
import pytest

from pertoken.catalog.market import load_market
from pertoken.demo import rows as buckets
from pertoken.demo.fleet import draw_fleet
from pertoken.demo.rows import OF_ENGINE, PER_MINUTE, engine_rows, histograms, host_rows
from pertoken.demo.simulator import course
from pertoken.store.schema import telemetry as t
from tests.demo.made import END
from tests.demo.simulator.test_simulator import HOURS, running

MARKET = load_market()
SERVED = course(running(), HOURS, 3600, np.full(24, 3600.0))
STEPS = buckets.BucketSteps(HOURS, 3600)


def test_each_observation_is_in_a_bucket_and_the_mean_of_times_is_kept() -> None:
    ones = np.ones(24)
    for histogram in histograms("vllm", SERVED, "conversation", 1000 * ones, 200 * ones):
        n = SERVED.generated_tokens if histogram.metric == "tpot_s" else SERVED.requests
        assert (histogram.counts >= 0).all() and histogram.counts.shape[1] == len(histogram.bounds) + 1
        assert histogram.counts.sum(axis=1) == pytest.approx(n)
        if histogram.metric in ("ttft_s", "e2e_s"):
            mean = SERVED.ttft_s if histogram.metric == "ttft_s" else SERVED.e2e_s
            lower = np.array([0.0, *histogram.bounds])
            upper = np.array([*histogram.bounds, 2 * histogram.bounds[-1]])
            assert ((histogram.counts * lower).sum(axis=1) < mean * n).all()
            assert (mean * n < (histogram.counts * upper).sum(axis=1)).all()


def test_an_engine_has_the_histograms_that_it_exposes() -> None:
    ones = np.ones(24)
    for engine, names in OF_ENGINE.items():
        exposed = histograms(engine, SERVED, "code", 1000 * ones, 200 * ones)
        assert tuple(one.metric for one in exposed) == names


def test_columns_match_the_tables_and_an_hour_is_the_sum_of_its_minutes() -> None:
    table = t.deployment_rollup[3600]
    columns = buckets.deployment_columns(STEPS, SERVED)
    assert set(columns) <= {column.name for column in table.columns}
    rows = list(buckets.table_rows(table, 7, columns))
    assert len(rows) == 24 and all(len(row) == len(table.columns) and row[0] == 7 for row in rows)
    minutes = buckets.BucketSteps(np.arange(120) * 60, 60)
    served = course(running(120), minutes.ts, 60, np.full(120, 60.0))
    by_minute = buckets.deployment_columns(minutes, served)
    by_hour = buckets.hourly(by_minute)
    for name in ("generated_tokens", "busy_ms", "running_1e2_sum"):
        assert np.sum(by_hour[name]) == np.sum(by_minute[name])  # type: ignore[arg-type]
    assert (by_hour["duration_ms"], by_hour["samples"]) == (3_600_000, 360)
    assert (by_hour["busy_provenance"], by_hour["incomplete_n"]) == (by_minute["busy_provenance"], 0)


def test_rows_of_histograms_and_counters_are_in_the_order_of_their_columns() -> None:
    ones = np.ones(24)
    exposed = histograms("vllm", SERVED, "conversation", 1000 * ones, 200 * ones)
    names = ("epoch_id", "ts", "metric", "bucket_set_id", "bucket", "count", "revision")
    assert tuple(t.histogram_rollup[60].columns.keys()) == names
    row = next(buckets.histogram_rows(3, HOURS, exposed))
    assert row[0] == 3 and row[1] in HOURS and row[2] == "ttft_s" and row[5] > 0
    assert tuple(t.engine_counter_rollup[60].columns.keys()) == ("epoch_id", "ts", "metric", "delta", "revision")
    counted = buckets.counter_columns(SERVED, "vllm")
    assert counted["prefix_queries"].sum() == SERVED.prompt_tokens.sum()
    ended = np.sum([deltas for name, deltas in counted.items() if name.startswith("requests_finished")], axis=0)
    assert np.array_equal(ended, SERVED.requests)


def test_ids_are_an_agents_and_devices_older_than_hopper_cannot_show_their_activity() -> None:
    fleet = draw_fleet(1, 24, 30, MARKET)
    hosts = host_rows(fleet, MARKET, END - 86_400)
    engines = engine_rows(fleet, hosts, END - 30 * 86_400, END)
    assert len({host.host_id for host in hosts.values()}) == 24
    assert all((host.row.machine_id or "").startswith("demo:") for host in hosts.values())
    for host in hosts.values():
        assert bool(host.capabilities) == (host.accelerator.arch in ("Ada", "Ampere"))
        assert len(host.devices) == host.drawn.host_type.devices
    for engine in engines:
        held = engine.epochs[-1].device_ids
        assert set(held) <= {device.device_id for device in engine.host.devices}
        assert [epoch.end_ts for epoch in engine.epochs][:-1] == [epoch.start_ts for epoch in engine.epochs][1:]


def test_a_minute_has_60_seconds_of_ticks() -> None:
    assert PER_MINUTE * 10 == 60
