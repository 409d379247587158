"""`python -m benchmarks.best_plan [--fleets 200] [--seed 43]`: plans of random fleets against an exhaustive search.

`--first 100 --lines PATH` compares the fleets from number 100 on and appends each to a file of JSON lines; a run that
finds a fleet in the file does not compare it again. So a long run is stopped, resumed, and divided over processes.

A fleet has one to three services on shared or separate instances, with or without objectives. Its plan is composed of
what all rules propose. The search knows no rules: it tries formats of weights and KV cache, accelerators and instances
that the own provider lists in the own region, spot, merges and numbers of replicas, each with every other, and prices
them by the same forecast. Both keep the objectives.
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, islice, pairwise, product
from pathlib import Path
from random import Random

from benchmarks.plan import installed
from benchmarks.report import Row, Target, report
from pertoken.advisor.changes.commands import Addresses
from pertoken.advisor.plan.compose import compose
from pertoken.advisor.plan.plan import Plan
from pertoken.advisor.plan.what_if import WhatIf
from pertoken.advisor.present import Present
from pertoken.advisor.run import advice_of
from pertoken.advisor.worker.child import PluginSource
from pertoken.config import Settings
from pertoken.forecast.served import Abstained
from pertoken.savings.context import Context
from pertoken.savings.estimate import Estimate, Outcomes, estimate, prepare, spend
from pertoken.savings.slo import has_objective
from pertoken.state.deployment import InvalidEdit, Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service, Slo
from pertoken.testing.builders import Load, Regime, deployment, fleet, regime, service_of
from pertoken.units import HOURS_PER_MONTH, NANO_USD

US = "pertoken"
SEED = 43
FLEETS = 200
NOW_TS = 1_790_000_000
WEEK_S = 7 * 86_400
LIKELY = 1
TRAFFIC = (0.5, 1.0, 2.0)
MIN_SHARE = 0.9
FORMATS: tuple[dict[str, str], ...] = (
    {},
    {"weight_dtype": "fp8"},
    {"kv_dtype": "fp8"},
    {"weight_dtype": "fp8", "kv_dtype": "fp8"},
    {"weight_dtype": "int4"},
)
"""Formats of weights and KV cache."""
CENT = NANO_USD // 100
SERVED = (("Llama-3.1-8B", 1, 0.009), ("Qwen3-8B", 1, 0.009), ("Qwen3-32B", 1, 0.026), ("Llama-3.3-70B", 2, 0.03))
"""Models with their ranks and the seconds of a token of a small batch on H100."""
SHARED = Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5", 8, "on_demand")
SEPARATE = (
    Placement("aws", "us-east-1", "p5.4xlarge", "H100 SXM5", 1, "on_demand"),
    SHARED,
    Placement("aws", "us-east-1", "p4d.24xlarge", "A100 40GB SXM4", 8, "on_demand"),
    Placement("gcp", "us-east4", "a3-highgpu-8g", "H100 SXM5", 8, "on_demand"),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """The plans of one fleet at several loads, and the best that the search finds at the present load."""

    number: int
    planned_net: int
    """Likely net of the plan at the present load, nano-USD a month."""
    best_net: int
    steps: int
    """Steps of the plans of all loads."""
    failing_steps: int
    unknown_steps: int
    """Steps of unknown latency that change a service with an objective."""
    is_monotone: bool
    """Whether more load never saves more."""

    @property
    def share(self) -> float:
        """Likely net of the plan over the best; 1 where there is nothing to save."""
        return 1.0 if self.best_net < CENT else min(1.0, self.planned_net / self.best_net)


# -- fleets --------------------------------------------------------------------------------------------------------


def random_fleets(random: Random) -> Iterator[Present]:
    """Yield fleets with evidence and prices."""
    while True:
        is_shared = random.random() < 0.4
        services, loads, first = [], {}, 10
        for number in range(1, random.randint(2 if is_shared else 1, 3) + 1):
            name, ranks, tpot_s = random.choice(SERVED)
            placement = SHARED if is_shared else random.choice(SEPARATE)
            ranks = min(ranks, placement.devices_per_instance or 1) if name != "Llama-3.3-70B" else ranks
            if ranks > (placement.devices_per_instance or 1):
                name, ranks, tpot_s = SERVED[0]
            load = _load(random, tpot_s)
            replicas = random.randint(1, 2 if is_shared else 4)
            like = deployment(name, placement=placement, tp=ranks)
            service = service_of(load, replicas, like, f"service-{number}", slo=_slo(random, load))
            placed = []
            for replica in service.deployments:
                if not is_shared or first % 10 + ranks > 8:
                    first = (first // 10 + 1) * 10
                placed.append(replace(replica, device_ids=tuple(range(first, first + ranks))))
                first += ranks
            services.append(replace(service, deployments=tuple(placed)))
            loads[service.name] = load.evidence
        yield _present(regime(_on_whole_hosts(fleet(*services, idle_hosts=random.randint(0, 1))), loads))


def _on_whole_hosts(used: Fleet) -> Fleet:
    """Return a fleet whose hosts have all devices of their instance, and not those in use alone."""
    hosts, devices = [], []
    for host in used.hosts:
        known = {device.device_id: device for device in used.devices_on(host)}
        count = host.placement.devices_per_instance or len(known)
        ids = tuple(range(10 * host.host_id, 10 * host.host_id + count))
        hosts.append(replace(host, device_ids=ids))
        like = next(iter(known.values()))
        devices += [replace(like, device_id=key, name=f"{like.accelerator} #{key % 10}") for key in ids]
    return Fleet(used.services, tuple(hosts), tuple(devices))


def _load(random: Random, tpot_s: float) -> Load:
    requests_s, prompt_len = random.choice((0.02, 0.1, 0.5, 2.0)), random.choice((400, 900, 1600))
    generated_len, ttft_s = random.choice((150, 300)), random.choice((0.05, 0.1, 0.2))
    offered = requests_s * (ttft_s + generated_len * tpot_s)
    return Load(
        requests_s, prompt_len, generated_len, ttft_s, tpot_s, busy=min(0.9, offered / (1 + offered)), preemptions=0
    )


def _slo(random: Random, load: Load) -> Slo:
    if random.random() < 0.4:
        return Slo()
    room = random.choice((2.0, 4.0, 10.0))
    return Slo(ttft_p95_ms=1600 * room * load.ttft_s, tpot_p95_ms=1600 * room * load.tpot_s)


def _present(drawn: Regime) -> Present:
    price_by_placement = {
        host.placement: drawn.market.offers_at(host.placement)[0].nano_usd_per_device_hour for host in drawn.fleet.hosts
    }
    context = Context(
        market=drawn.market,
        now_ts=NOW_TS,
        deployments={one.deployment_id: drawn.of("deployment", one.deployment_id) for one in drawn.fleet.deployments},
        services={service.name: drawn.of("service", service.name) for service in drawn.fleet.services},
        devices={device.device_id: drawn.of("device", device.device_id) for device in drawn.fleet.devices},
        nano_usd_per_hour={
            device.device_id: price_by_placement[drawn.fleet.host(device.host_id).placement]
            for device in drawn.fleet.devices
        },
    )
    host_by_deployment = {
        one.deployment_id: host.name for host in drawn.fleet.hosts for one in drawn.fleet.deployments_on(host)
    }
    return Present(
        fleet=drawn.fleet,
        context=context,
        hosts={host.host_id: drawn.of("host", host.host_id) for host in drawn.fleet.hosts},
        names={device.device_id: device.name for device in drawn.fleet.devices}
        | {host.host_id: host.name for host in drawn.fleet.hosts}
        | {one.deployment_id: one.name for one in drawn.fleet.deployments},
        addresses=Addresses(host_by_deployment, {}),
        window_s=WEEK_S,
    )


# -- exhaustive search ---------------------------------------------------------------------------------------------


def best_net(present: Present) -> int:
    """Return the largest likely net saving, nano-USD per month, of all combinations of changes; 0 if none saves.

    Of the changes of one service that leave the same devices in use only the cheapest takes part: the bill is the sum
    of what is bought elsewhere and of the hosts that something still runs on.
    """
    base, outcomes = present.fleet, Outcomes()
    options = {service.name: list(_options(service, present)) for service in base.services}
    alone = [base.edit(option) for changed in options.values() for option in changed]
    prepare(base, alone, present.context)
    cheapest = [
        (service, *_cheapest(base, options[service.name], present.context, outcomes)) for service in base.services
    ]
    best = 0
    for merged in (base, *_merged(base)):
        unmerged = [(service, *changed) for service, *changed in cheapest if service in merged.services]
        for combination in product(*unmerged):
            after = merged
            for service in combination:
                after = after.edit(service)
            best = max(best, _net(base, _without_idle(after), present.context, outcomes) or 0)
    return best


def _options(service: Service, present: Present) -> Iterator[Service]:
    """Yield every change of one service: formats, places and numbers of replicas, each with every other."""
    for layout, knobs in product((service, *_layouts(service, present)), FORMATS):
        changed = layout.but(**knobs) if knobs else layout
        yield from (option for option in (changed, changed.resized()) if option != service)


def _layouts(service: Service, present: Present) -> Iterator[Service]:
    """Yield the service on each accelerator and instance listed where it runs, if one costs less than all hosts."""
    first, market = service.deployments[0], present.context.market
    bill = spend(present.fleet, present.context)[0] / HOURS_PER_MONTH
    for accelerator in market.accelerators:
        place = replace(first.placement, accelerator=accelerator.name, instance_type=None)
        offers = [offer for offer in market.offers_at(place) if offer.nano_usd_per_hour < bill]
        if accelerator.name == first.accelerator:
            for offer in offers:
                to = Placement(instance_type=offer.instance_type, devices_per_instance=offer.n_devices)
                if offer.n_devices >= len(first.device_ids) and offer.instance_type != first.placement.instance_type:
                    yield service.on(to)
        elif offers:
            for ranks in (1, 2, 4, 8):
                if any(offer.n_devices >= ranks for offer in offers):
                    yield service.on(Placement(accelerator=accelerator.name)).but(tp=ranks)
    if len(service.deployments) > 1 and market.offers_at(first.placement, "spot"):
        yield service.on(Placement(purchase="spot"), all_but=1)


def _cheapest(base: Fleet, options: Sequence[Service], context: Context, outcomes: Outcomes) -> list[Service]:
    """Return the option that saves most of those that keep the same deployments on their devices."""
    options_by_kept: dict[object, list[tuple[int, Service, Estimate]]] = defaultdict(list)
    for option in options:
        priced = _priced(base, base.edit(option), context, outcomes)
        if priced is not None and priced.net is not None:
            kept = frozenset(one.deployment_id for one in option.deployments if one.device_ids) - set(priced.stopped)
            options_by_kept[kept].append((priced.net[LIKELY], option, priced))
    cheapest = []
    for candidates in options_by_kept.values():
        by_net = sorted(candidates, key=lambda candidate: candidate[0], reverse=True)
        kept_option = next((option for _, option, priced in by_net if _keeps_objectives(priced)), None)
        cheapest += [kept_option] if kept_option is not None else []
    return cheapest


def _merged(base: Fleet) -> Iterator[Fleet]:
    """Yield the fleet with the only replicas of two services of one model merged into one engine."""
    singles = [service.deployments[0] for service in base.services if len(service.deployments) == 1]
    for pair in combinations(singles, 2):
        if pair[0].model == pair[1].model:
            yield from (base.merge(pair, into) for into in pair)


def _without_idle(after: Fleet) -> Fleet:
    for host in after.hosts:
        if not after.deployments_on(host):
            after = after.release(host.host_id)
    return after


def _net(base: Fleet, after: Fleet, context: Context, outcomes: Outcomes) -> int | None:
    """Return the likely net saving of a change that keeps all objectives; None for any other one."""
    priced = _priced(base, after, context, outcomes)
    return None if priced is None or priced.net is None or not _keeps_objectives(priced) else priced.net[LIKELY]


def _priced(base: Fleet, after: Fleet, context: Context, outcomes: Outcomes) -> Estimate | None:
    """Return the estimate of a change, None for one that is impossible or needs a person's confirmation."""
    try:
        priced = estimate(base, after, context, known_outcomes=outcomes)
    except InvalidEdit:
        return None
    return None if priced.uncounted else priced


def _keeps_objectives(priced: Estimate) -> bool:
    try:
        word, _ = priced.verdict
    except Abstained:
        return False
    return word not in ("fail", "unknown")


# -- report --------------------------------------------------------------------------------------------------------


def compared(number: int, present: Present, sources: Iterable[PluginSource], loads: Iterable[float]) -> Compared:
    """Compose the plan of a fleet at multiples of its load, the present one among them, and search for the best."""
    plans: dict[float, Plan] = {}
    unknown = 0
    bound = {f"service:{service.name}" for service in present.fleet.services if has_objective(service.slo)}
    for traffic in sorted({1.0, *loads}):
        loaded = WhatIf(traffic).present(present)
        rows = advice_of(sources, loaded)[0]
        plans[traffic] = compose(loaded, rows)
        touched = {variant.key: variant.touches for row in rows for variant in row.variants}
        unknown += sum(
            step.slo == "unknown" and bool(bound & {*touched[step.variant_key]}) for step in plans[traffic].steps
        )
    steps = [step for plan in plans.values() for step in plan.steps]
    nets = [plan.bankable[LIKELY] for plan in plans.values()]
    return Compared(
        number=number,
        planned_net=plans[1.0].bankable[LIKELY],
        best_net=best_net(present),
        steps=len(steps),
        failing_steps=sum(step.slo == "fail" for step in steps),
        unknown_steps=unknown,
        is_monotone=all(later <= earlier + CENT for earlier, later in pairwise(nets)),
    )


def main() -> None:
    """Print the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.best_plan", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="number of the first fleet")
    parser.add_argument("--fleets", type=int, default=FLEETS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--traffic", type=float, nargs="*", default=TRAFFIC, help="multiples of the load")
    parser.add_argument("--lines", type=Path, help="file of the fleets compared so far")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    done: dict[int, Compared] = {}
    if options.lines and options.lines.exists():
        lines = options.lines.read_text(encoding="utf-8").splitlines()
        done = {result.number: result for result in (Compared(**json.loads(line)) for line in lines)}
    sources = installed(Settings())
    end = options.first + options.fleets
    for number, present in islice(enumerate(random_fleets(Random(options.seed))), options.first, end):
        if number not in done:
            done[number] = compared(number, present, sources, options.traffic)
            if options.lines:
                with options.lines.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(asdict(done[number])) + "\n")
    results = [done[number] for number in range(options.first, end)]
    printed = summary(results, f"{options.fleets} random fleets of 1 to 3 services, seed {options.seed}")
    print(printed)
    if options.out:
        options.out.write_text(printed + "\n", encoding="utf-8")


def summary(results: Sequence[Compared], how: str) -> str:
    """Return the report on compared fleets, as JSON."""
    shares = [result.share for result in results]
    below = [result.number for result in results if result.share < MIN_SHARE]
    rows = [
        Row(US, "share.worst", min(shares), "ratio", f"{how}; below {MIN_SHARE:g}: {below or 'none'}"),
        Row(US, "share.mean", statistics.mean(shares), "ratio", how),
        Row(US, "saving", sum(result.best_net >= CENT for result in results), "fleets", "the search saves something"),
        Row(US, "steps", sum(result.steps for result in results), "steps", how),
    ]
    targets = [
        Target("best_plan.share", min(shares), MIN_SHARE, ">="),
        Target("best_plan.failing_steps", sum(result.failing_steps for result in results), 0, "<="),
        Target("best_plan.unknown_steps", sum(result.unknown_steps for result in results), 0, "<="),
        Target("best_plan.not_monotone", sum(not result.is_monotone for result in results), 0, "<="),
    ]
    return report("best_plan", rows, targets)


if __name__ == "__main__":
    main()
