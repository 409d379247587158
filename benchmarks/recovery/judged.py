"""Advice on one generated fleet, compared with what was planted in it."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pertoken.catalog.market import Market, load_market
from pertoken.demo.fleet import (
    DrawnEngine,
    DrawnFleet,
    DrawnHost,
    Knobs,
    SceneProblem,
    capacity,
    holds,
    on,
    resized,
    usd_per_hour,
    worth,
)
from pertoken.demo.making import SETTINGS_FILE, make
from pertoken.store.connect.location import locate
from pertoken.units import HOURS_PER_MONTH, NANO_USD

FIRST = 2
"""Places in the list of a target's advice at which one counts as found."""
MAX_HOSTS = 8
"""Maximum number of hosts to try for a service."""
EXACT = 0.01
"""Of a figure, by which an interval without width may be off: months and list prices are rounded."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One problem and what the advice made of it."""

    seed: int
    kind: str
    target: str
    place: int | None
    """Of the first of its rules among the advice on its target, from 1; None where none proposes anything."""
    rule: str | None
    truth_usd: float | None
    """True saving of the change that is proposed; None where the advice promises no dollars."""
    interval_usd: tuple[float, float, float] | None

    @property
    def recovered(self) -> bool:
        """Whether one of its rules is first or second."""
        return self.place is not None and self.place <= FIRST

    @property
    def inside(self) -> bool | None:
        """Whether the true saving lies in the interval; None where there is none."""
        if self.truth_usd is None or self.interval_usd is None:
            return None
        low, _, high = self.interval_usd
        slack = EXACT * max(abs(low), abs(high))
        return low - slack <= self.truth_usd <= high + slack


@dataclass(frozen=True, slots=True)
class Result:
    """One fleet."""

    problems: tuple[Judged, ...]
    healthy: Mapping[str, float]
    """Bankable dollars a month that are proposed on each healthy service."""
    made_s: float
    advised_s: float


def judge(seed: int, hosts: int, days: float, folder: Path) -> Result:
    """Make a fleet, run all rules on it by the command line, and compare."""
    began = time.monotonic()
    made = make(locate(str(folder)), seed, hosts, days, int(time.time()))
    after = time.monotonic()
    command = [sys.executable, "-m", "pertoken", "advise", "--json", "--db", str(folder)]
    done = subprocess.run(
        [*command, "--config", str(folder / SETTINGS_FILE)], capture_output=True, text=True, check=True
    )
    advised_s = time.monotonic() - after
    by_target: dict[str, list[Mapping[str, Any]]] = {}
    for row in json.loads(done.stdout)["recommendations"]:
        if row["state"] == "OPEN":
            by_target.setdefault(row["target"], []).append(row)
    problems = tuple(
        _judged(seed, problem, made.fleet, by_target.get(problem.target, [])) for problem in made.fleet.problems
    )
    healthy = {name: sum(map(_bankable, by_target.get(name, []))) for name in made.fleet.healthy}
    return Result(problems, healthy, after - began, advised_s)


def _judged(seed: int, problem: SceneProblem, fleet: DrawnFleet, rows: Sequence[Mapping[str, Any]]) -> Judged:
    places = [at for at, row in enumerate(rows, 1) if row["rule_id"] in problem.scene.rules]
    if not places:
        return Judged(seed, problem.scene.kind, problem.target, None, None, None, None)
    row = rows[places[0] - 1]
    best = row["variants"][0]
    saving = best["saving"] or best["if_confirmed"]
    money = None if saving is None else saving["net"] if saving["net"][1] > 0 else saving["capacity"]
    interval = None if money is None else (money[0] / NANO_USD, money[1] / NANO_USD, money[2] / NANO_USD)
    truth = None if interval is None else _truth(problem, fleet, best)
    return Judged(seed, problem.scene.kind, problem.target, places[0], row["rule_id"], truth, interval)


def _truth(problem: SceneProblem, fleet: DrawnFleet, variant: Mapping[str, Any]) -> float:
    """Return what the proposed change truly saves: by its knobs where it is of knobs, else what the fix is worth."""
    market, engines = load_market(), fleet.of_service(problem.service)
    hosts = [fleet.host(name) for name in problem.hosts]
    knobs = {edit["field"]: edit["after"] for edit in variant["edits"] if edit["kind"] == "deployment"}
    if knobs and all(hasattr(engines[0].runs, name) for name in knobs) and "engine_version" not in knobs:
        return of_knobs(engines, usd_per_hour(hosts[0].host_type, market), knobs, market)
    accelerator = next((edit["after"] for edit in variant["edits"] if edit["field"] == "placement.accelerator"), None)
    if accelerator is not None:
        return of_move(engines, hosts, str(accelerator), market)
    return worth(problem, hosts, engines, market).usd


def of_knobs(engines: Sequence[DrawnEngine], per_hour: float, knobs: Knobs, market: Market) -> float:
    """Return the capacity dollars per month that a proposed change of knobs truly frees."""
    return HOURS_PER_MONTH * sum(
        capacity(engine, replace(engine, runs=resized(engine.runs, knobs)), per_hour, market) for engine in engines
    )


def of_move(engines: Sequence[DrawnEngine], hosts: Sequence[DrawnHost], accelerator: str, market: Market) -> float:
    """Return the dollars per month saved by moving a service to the fewest and cheapest hosts that hold its load."""
    source = hosts[0].host_type
    offers = [
        offer
        for offer in market.offers(accelerator, source.purchase or "on_demand")
        if offer.provider == source.provider and offer.n_devices == 1
    ]
    if not offers:
        return 0.0
    offer = min(offers, key=lambda candidate: candidate.nano_usd_per_hour)
    destination = replace(
        source, accelerator=accelerator, devices=1, instance_type=offer.instance_type, region=offer.region
    )
    moved = [replace(engine, runs=resized(on(engine.runs, destination), {"tp": 1})) for engine in engines]
    needed = next((n for n in range(1, MAX_HOSTS) if holds(moved, n, market)), MAX_HOSTS)
    spend = sum(usd_per_hour(host.host_type, market) for host in hosts)
    return HOURS_PER_MONTH * (spend - needed * offer.nano_usd_per_hour / NANO_USD)


def _bankable(row: Mapping[str, Any]) -> float:
    best = row["variants"][0] if row["variants"] else {}
    return max(0.0, float(best["saving"]["net"][1]) / NANO_USD) if best.get("saving") else 0.0
