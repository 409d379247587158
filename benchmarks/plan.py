"""One plan out of all advice on 100 deployments, and how near plans come to the best ones of small fleets.

`python -m benchmarks.plan [--deployments N] [--fleets F] [--runs R] [--out FILE]`

The fleet of `benchmarks.advise` with 100 deployments: all rules run over a week of it, and the plan is composed from
all that they propose, in this process and with nothing forecast before. Random fleets of one to three services, with
up to ten proposals of all rules on each: the plan against every combination of the proposals, each priced as one change
of the whole fleet; once as it is, and once with every group searched as if it were too large for every combination.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path
from random import Random

from benchmarks.advise import MINUTE, SETTINGS, make
from benchmarks.report import Row, Target, report
from pertoken.advisor.changes.commands import Addresses
from pertoken.advisor.plan import choose, compose
from pertoken.advisor.plan.choose import Chooser, Chosen, Rank
from pertoken.advisor.plan.levers import conflicts, levers
from pertoken.advisor.plan.plan import Plan, PlanLimits
from pertoken.advisor.plan.states import LeverStates
from pertoken.advisor.present import Present
from pertoken.advisor.rules.discovery import Permission, find_rules, source_of
from pertoken.advisor.run import advice_of, advise
from pertoken.advisor.worker.child import PluginSource
from pertoken.catalog.market import load_market
from pertoken.config import Settings, load
from pertoken.costs.prices.stored import market_of
from pertoken.proof.recommendation import Recommendation
from pertoken.savings.context import Context, Forecasts
from pertoken.state.deployment import Placement
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.testing.builders import Load, deployment, fleet, regime, service_of

US = "pertoken"
SEED = 18
WEEK_S = 7 * 86_400
MAX_LEVERS = 10
"""Proposals of a random fleet: every combination of more would take too long."""
USD_PER_HOUR = 6.88
AT_AWS = Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5", 8, "on_demand")
LOADS = (
    Load(0.12, 1600, 400, 0.15, 0.028, 0.7, kv_use=0.08, preemptions=0, power_w=400),
    Load(3.0, 900, 300, 0.1, 0.012, 0.75, kv_use=0.12, preemptions=0, power_w=420),
    Load(0.05, 900, 300, 0.1, 0.012, 0.1, kv_use=0.02, preemptions=0, power_w=140),
)
MODELS = ("Llama-3.1-8B", "Qwen3-8B", "Qwen3-32B")


@dataclass(frozen=True)
class Case:
    """A random fleet and what was proposed for it."""

    present: Present
    rows: tuple[Recommendation, ...]

    @property
    def cold(self) -> Present:
        """The same with nothing forecast."""
        return replace(self.present, context=replace(self.present.context, forecasts=Forecasts()))


def installed(settings: Settings) -> list[PluginSource]:
    """Return the sources of all installed rules."""
    return [
        source_of(plugin, settings) for plugin in find_rules(settings, ()) if plugin.permission is Permission.ALLOWED
    ]


def large(folder: Path, deployments: int) -> Case:
    """Return the fleet of the advice benchmark with all advice on it."""
    now = int(time.time()) // MINUTE * MINUTE
    make(folder, deployments, 7, now)
    file = folder / "settings.toml"
    file.write_text(SETTINGS)
    settings = load(str(file), db=str(folder))
    store = open_store(locate(settings.db, settings.advice))
    advice = advise(store, installed(settings), market_of(store, None, None), settings, WEEK_S, now)
    assert advice.gathered is not None
    return Case(advice.gathered, advice.recommendations)


def small(random: Random) -> Iterator[Case]:
    """Yield random fleets with some of the advice on each."""
    sources, market = installed(Settings()), load_market()
    while True:
        services, measured, device = [], {}, 10
        for number in range(random.randint(1, 3)):
            load_, name, replicas = random.choice(LOADS), f"service-{number}", random.randint(1, 4)
            like = deployment(random.choice(MODELS), placement=AT_AWS)
            made = service_of(load_, replicas, like, name)
            placed = []
            for host_deployment in made.deployments:
                placed.append(replace(host_deployment, device_ids=(device,)))
                device += 1 if device % 10 < random.choice((1, 2, 4)) else 10 - device % 10
            services.append(replace(made, deployments=tuple(placed)))
            measured[name] = load_.evidence
        drawn = regime(fleet(*services, idle_hosts=random.randint(0, 1)), measured, market=market)
        context = Context(
            market=market,
            now_ts=1_790_000_000,
            deployments={
                deployment.deployment_id: drawn.of("deployment", deployment.deployment_id)
                for deployment in drawn.fleet.deployments
            },
            services={service.name: drawn.of("service", service.name) for service in drawn.fleet.services},
            devices={device.device_id: drawn.of("device", device.device_id) for device in drawn.fleet.devices},
            nano_usd_per_hour={device.device_id: round(USD_PER_HOUR * 1e9) for device in drawn.fleet.devices},
        )
        homes = {
            deployment.deployment_id: host.name
            for host in drawn.fleet.hosts
            for deployment in drawn.fleet.deployments_on(host)
        }
        present = Present(
            fleet=drawn.fleet,
            context=context,
            hosts={host.host_id: drawn.of("host", host.host_id) for host in drawn.fleet.hosts},
            names={device.device_id: device.name for device in drawn.fleet.devices}
            | {host.host_id: host.name for host in drawn.fleet.hosts}
            | {deployment.deployment_id: deployment.name for deployment in drawn.fleet.deployments},
            addresses=Addresses(homes, {}),
            window_s=WEEK_S,
        )
        rows = [
            recommendation
            for recommendation in advice_of(sources, present)[0]
            if recommendation.variants and recommendation.variants[0].unpriced is None
        ]
        chosen: list[Recommendation] = []
        for row in random.sample(rows, len(rows)):
            if sum(len(one.variants) for one in (*chosen, row)) <= MAX_LEVERS:
                chosen.append(row)
        if chosen:
            yield Case(present, tuple(chosen))


def best(case: Case) -> Rank:
    """Return what the best of all combinations saves: each that can be reached is priced, without groups."""
    kept, _ = levers(case.present, case.rows, PlanLimits())
    problem = Chooser(LeverStates(kept, case.present.fleet, case.present.context), conflicts(kept)).problem
    reached, best_set = {Chosen()}, (0, 0)
    for size in range(1, len(kept) + 1):
        some = [
            Chosen(combination)
            for combination in combinations(range(len(kept)), size)
            if any((left := Chosen(combination) - {at}) in reached and problem.follows(left, at) for at in combination)
        ]
        for chosen, worth in zip(some, problem.worth(some), strict=True):
            if worth is not None:
                reached.add(chosen)
                best_set = max(best_set, worth.rank)
    return best_set


def share(plan: Plan, optimum: Rank) -> float:
    """Return what a plan saves over what is possible: of the bill, or of capacity where nothing leaves the bill."""
    end = 0 if optimum[0] > 0 else 1
    return 1.0 if optimum[end] <= 0 else min(1.0, (plan.bankable[1], plan.capacity[1])[end] / optimum[end])


def shares(cases: Sequence[Case]) -> tuple[list[float], list[float]]:
    """Return the share of the optimum of each plan, and of each plan without the exact search."""
    exact, heuristic = [], []
    limit = choose.MAX_EXACT
    for case in cases:
        optimum = best(case)
        exact.append(share(compose.compose(case.cold, case.rows), optimum))
        choose.MAX_EXACT = 0
        heuristic.append(share(compose.compose(case.cold, case.rows), optimum))
        choose.MAX_EXACT = limit
    return exact, heuristic


def timed(case: Case, *, sensitivity: bool = False) -> tuple[float, float, Plan]:
    """Return the seconds and CPU seconds that a plan takes, nothing being forecast before, and the plan."""
    present = case.cold
    began, used = time.perf_counter(), time.process_time()
    plan = compose.compose(present, case.rows, sensitivity=sensitivity)
    return time.perf_counter() - began, time.process_time() - used, plan


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description=__doc__.splitlines()[0])
    parser.add_argument("--deployments", type=int, default=100)
    parser.add_argument("--fleets", type=int, default=30)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        case = large(Path(name), asked.deployments)
        seconds, cpu_s, plans = zip(*(timed(case) for _ in range(asked.runs)), strict=True)
        _, whole_s, plan = timed(case, sensitivity=True)
    proposed = [row for row in case.rows if row.variants]
    random = Random(SEED)
    exact, heuristic = shares(list(islice(small(random), asked.fleets)))
    n = asked.deployments
    how = f"all rules over 7 days, one SQLite file, median of {asked.runs}"
    fleets = f"worst of {asked.fleets} random fleets of 1 to 3 services, seed {SEED}"
    rows = [
        Row(US, f"seconds_{n}", statistics.median(seconds), "s", how),
        Row(US, f"cpu_seconds_{n}", statistics.median(cpu_s), "s", how),
        Row(US, f"cpu_seconds_with_sensitivity_{n}", whole_s, "s", "each assumption at both ends beside, once"),
        Row(US, f"recommendations_{n}", len(proposed), "rows", "proposed by all rules"),
        Row(
            US,
            f"variants_{n}",
            sum(len(recommendation.variants) for recommendation in proposed),
            "variants",
            "of these",
        ),
        Row(US, f"steps_{n}", len(plan.steps), "steps", "of the plan"),
        Row(US, "optimum_share", min(exact, default=None), "ratio", fleets),
        Row(
            US,
            "optimum_share_by_block",
            min(heuristic, default=None),
            "ratio",
            f"{fleets}, no group searched as a whole",
        ),
    ]
    assert len(set(plans)) == 1
    targets = [
        Target("plan.seconds_100", statistics.median(seconds), 5.0, "<="),
        Target("plan.optimum_share", min(exact, default=None), 0.99, ">="),
    ]
    text = report("plan", rows, targets)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
