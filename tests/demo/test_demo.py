"""Demos: what is drawn, what is stored, what it is worth, and what comes later."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import func, select

from benchmarks.recovery.judged import of_move
from pertoken.catalog.market import load_market
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.demo.fleet import (
    HEALTHY,
    MIN_SHARE,
    PlantedChange,
    draw_fleet,
    host_types,
    scenes,
    truth,
    truth_text,
    usd_per_hour,
    worth,
)
from pertoken.demo.live import Live
from pertoken.demo.making import drift, make, simulate
from pertoken.demo.rows import BucketSteps, engine_rows, host_rows
from pertoken.plugins import __file__ as plugins
from pertoken.store.check import faults
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.store.write.writer import Writer
from tests.demo.continued import advance
from tests.demo.made import DAYS, END, HOSTS, demo, kinds

MARKET = load_market()


def test_the_default_fleet_has_24_hosts_twelve_kinds_of_problems_and_healthy_services_whatever_the_seed() -> None:
    for number in range(3):
        fleet = draw_fleet(number, 24, 30, MARKET)
        assert len(fleet.hosts) == 24 and len({host.name for host in fleet.hosts}) == 24
        assert len(kinds(fleet)) >= 12 and len(fleet.healthy) >= 4


def test_the_same_seed_draws_the_same_fleet_and_another_one_another() -> None:
    first, again, other = (truth(draw_fleet(number, 6, 7, MARKET), MARKET) for number in (4, 4, 5))
    assert first == again != other


def test_each_problem_is_worth_at_least_8_percent_of_its_spend() -> None:
    problems = truth(draw_fleet(7, 24, 30, MARKET), MARKET)["problems"]
    assert all(problem["share_of_spend"] >= MIN_SHARE and problem["saves_usd_per_month"] > 0 for problem in problems)
    assert all(0 < problem["share_of_spend"] <= 1 for problem in problems)


def test_the_severity_of_problems_is_drawn_log_uniformly() -> None:
    fleets = [draw_fleet(number, 24, 30, MARKET) for number in range(4)]
    limits = {scene.kind: scene.severity for scene in scenes() if scene.severity is not None}
    for problem in (problem for fleet in fleets for problem in fleet.problems if problem.severity is not None):
        of = limits[problem.scene.kind]
        assert of is not None and of.low - 1 <= (problem.severity or 0) <= of.high + 1


def test_a_service_planted_as_eligible_for_spot_has_no_queue_at_any_hour_and_one_replica_would_not_hold_it() -> None:
    for number in (2, 12, 32, 42, 48):
        fleet = draw_fleet(number, 8, 7, MARKET)
        (problem,) = (problem for problem in fleet.problems if problem.scene.kind == "spot-eligible")
        hours = BucketSteps(np.arange(END // 3600 * 3600 - 7 * 86_400, END, 3600), 3600)
        wander = drift(problem.target, number, int(hours.ts[0]), len(hours.ts))
        rows = engine_rows(fleet, host_rows(fleet, MARKET, 0), 0, END)
        of_spot = [row for row in rows if row.drawn.runs.served_model == problem.target]
        epochs = [epoch for row in of_spot for epoch in simulate(row, hours, wander, number, MARKET)]
        assert len(epochs) == 2
        assert np.sum([epoch.course.waiting for epoch in epochs], axis=0).max() < 1
        released = replace(problem, scene=replace(problem.scene, fix=PlantedChange(release=True)))
        hosts = [fleet.host(name) for name in problem.hosts]
        assert worth(released, hosts, fleet.of_service(problem.service), MARKET).usd == 0


def test_a_problem_that_takes_a_month_to_find_is_not_planted_in_a_week() -> None:
    assert "slower-version" not in set().union(*(kinds(draw_fleet(number, 24, 7, MARKET)) for number in range(3)))
    assert "slower-version" in kinds(draw_fleet(1, 24, 30, MARKET))


def test_the_rules_that_count_are_rules_and_every_place_and_model_is_in_the_catalog() -> None:
    known = {file.stem.replace("_", "-") for file in Path(plugins).parent.rglob("*.py")}
    for scene in scenes():
        assert set(scene.rules) <= known and (scene.rules or scene.kind == HEALTHY)
        assert scene.model is None or MARKET.model(scene.model) is not None
        assert all(usd_per_hour(host_types()[name], MARKET) > 0 for name in scene.host_types)


def test_truth_names_targets_rules_and_dollars() -> None:
    fleet = draw_fleet(2, 8, 7, MARKET)
    printed = json.loads(truth_text(fleet, MARKET))
    assert set(printed) == {"problems", "healthy"} and printed["healthy"] == list(fleet.healthy)
    names = {engine.name for engine in fleet.hosts} | {engine.runs.served_model for engine in fleet.engines}
    for problem in printed["problems"]:
        assert set(problem) >= {"target", "kind", "rules", "saves_usd_per_month", "bankable"}
        assert problem["target"].partition(" on ")[0] in names


def test_an_idle_host_is_worth_its_whole_bill_and_a_wrong_gpu_what_the_cheaper_one_saves() -> None:
    fleet = next(
        fleet
        for number in range(99)
        if {"idle-devices", "wrong-gpu"} <= kinds(fleet := draw_fleet(number, 8, 7, MARKET))
    )
    by_kind = {problem.scene.kind: problem for problem in fleet.problems}
    idle, wrong = by_kind["idle-devices"], by_kind["wrong-gpu"]
    hosts = [fleet.host(idle.hosts[0])]
    assert worth(idle, hosts, (), MARKET).usd == pytest.approx(730 * usd_per_hour(hosts[0].host_type, MARKET))
    wrong_hosts, engines = [fleet.host(wrong.hosts[0])], fleet.of_service(wrong.service)
    true_worth = worth(wrong, wrong_hosts, engines, MARKET)
    assert true_worth.bankable and true_worth.usd == pytest.approx(
        of_move(engines, wrong_hosts, "L40S", MARKET), rel=0.2
    )


def test_written_rows_pass_every_check_and_hours_are_the_sums_of_their_minutes(tmp_path: Path) -> None:
    where, made = demo(tmp_path)
    assert not any(fault is not None for fault in faults(where))
    with open_store(where).read() as connection:
        for tables, columns in (
            (t.deployment_rollup, ("generated_tokens", "busy_ms", "duration_ms", "running_1e2_sum", "samples")),
            (t.device_rollup, ("energy_counter_mj", "power_mw_sum", "observed_ms")),
            (t.histogram_rollup, ("count",)),
        ):
            sums = {}
            for seconds, table in tables.items():
                inside = table.c.ts >= made.interval.minutes_ts
                sums[seconds] = connection.execute(
                    select(*(func.sum(table.c[name]) for name in columns)).where(inside)
                ).one()
            assert sums[HOUR] == sums[MINUTE] and sums[HOUR][0] > 0


def test_the_fleet_is_shown_as_one_that_an_agent_recorded_and_as_a_demo(tmp_path: Path) -> None:
    where, made = demo(tmp_path)
    report = fleet_report(open_store(where), 3600, END + 5)
    assert report.source.startswith("generated demo, ")
    assert len(report.hosts) == HOSTS and not any(host.stale for host in report.hosts)
    assert report.unpriced_n == 0 and report.nano_usd_per_mtok is not None and report.bill_observed == pytest.approx(1)
    assert {engine.model for engine in report.deployments} == {
        engine.runs.served_model for engine in made.fleet.engines
    }
    day = fleet_report(open_store(where), 86_400 * DAYS, END)
    assert day.bill is not None and report.bill is not None and day.bill.paid > 20 * report.bill.paid


def test_two_demos_of_one_seed_hold_the_same_rows(tmp_path: Path) -> None:
    def tokens(place: StoreLocation) -> list[object]:
        with open_store(place).read() as connection:
            return [
                tuple(row) for row in connection.execute(select(t.deployment_rollup[HOUR]).order_by("epoch_id", "ts"))
            ]

    both = [locate(str(tmp_path / name)) for name in ("one", "two")]
    for demo_ in both:
        make(demo_, 3, 2, 1, END)
    assert tokens(both[0]) == tokens(both[1]) != []


def test_more_time_continues_the_demo_with_a_new_epoch_of_the_changed_service(tmp_path: Path) -> None:
    where, made = demo(tmp_path)
    problem = next(problem for problem in made.fleet.problems if problem.scene.kind == "tp-too-wide")
    later = advance(where, made, 5 * 3600, {str(problem.service): {"tp": 1}})
    assert later.interval.end_ts == END + 5 * 3600 and not [fault for fault in faults(where) if fault is not None]
    with open_store(where).read() as connection:
        epochs = connection.execute(select(t.epoch).order_by(t.epoch.c.start_ts)).all()
        ended = [epoch for epoch in epochs if epoch.end_ts is not None]
        assert [(epoch.start_ts, json.loads(epoch.knobs)["tp"]) for epoch in epochs if epoch.start_ts == END] == [
            (END, 1)
        ]
        assert [epoch.end_ts for epoch in ended] == [END]
        hours = connection.execute(select(t.host_rollup[HOUR].c.ts).distinct().order_by("ts")).scalars().all()
        assert set(np.diff(hours)) == {HOUR}
    report = fleet_report(open_store(where), 5 * 3600, END + 5 * 3600)
    assert report.bill_observed == pytest.approx(1) and not any(host.stale for host in report.hosts)


def test_a_demo_continues_tick_by_tick_while_its_screen_is_open(tmp_path: Path) -> None:
    where, made = demo(tmp_path)
    now = END + 25.0
    live = Live(where, made, lambda: now)
    with Writer(where) as writer:
        live.step(writer)
        live.step(writer)
    with open_store(where).read() as connection:
        newest = connection.execute(
            select(func.max(t.host_sample.c.ts), func.count()).where(t.host_sample.c.ts > END)
        ).one()
    assert tuple(newest) == (END + 20, 2 * HOSTS)
    assert live.notice() is None


def test_a_demo_ends_with_its_screens_and_reports_why_it_stopped(tmp_path: Path) -> None:
    where, made = demo(tmp_path)
    live = Live(where, made, lambda: END + 11.0)
    live.start()
    with open_store(where).read() as connection:
        newest = connection.execute(select(func.max(t.host_sample.c.ts))).scalar_one()
    live.stop()
    assert newest == END + 10, "what is due is written before the screens open"
    broken = Live(replace(where, folder=tmp_path / "gone"), made, lambda: END + 11.0)
    broken.start()
    broken.stop()
    assert live.notice() is None and "no longer continued" in str(broken.notice())
