"""True savings of fixing problems, computed by the simulator alone. They are the reference for advice.

Bankable dollars come from hosts that are released, cost less, or are off. Capacity dollars come from devices that
become free, and from busy time that becomes free because the same requests run at more tokens per second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pertoken.catalog.market import Market
from pertoken.costs.prices.stored import Ownership, device_hour
from pertoken.demo.fleet import DrawnEngine, DrawnHost, Problem
from pertoken.demo.scenes import HostType, host_types
from pertoken.demo.simulator.arrivals import HOUR_S, WEEK_H, Floats, weekly
from pertoken.demo.simulator.course import Course, course
from pertoken.demo.simulator.physics import Engine, engine, while_any
from pertoken.state.deployment import Deployment, Placement
from pertoken.units import HOURS_PER_MONTH, NANO_USD

WEEK_TS = np.arange(WEEK_H) * HOUR_S
FULL = 0.9
"""Maximum load in the busiest hour, as a share of a full batch, on fewer or slower devices."""
MAX_HOSTS = 8
"""Maximum number of hosts to try for a service."""
LEAD_H = 1
"""Hours that a server starts before the end of a silent stretch."""


@dataclass(frozen=True, slots=True)
class Worth:
    """True saving of fixing a problem, per month."""

    usd: float
    share: float
    """Saving as a share of the spend on the target."""
    bankable: bool


def worth(problem: Problem, hosts: Sequence[DrawnHost], engines: Sequence[DrawnEngine], market: Market) -> Worth:
    """Return the saving of fixing a problem; `hosts` and `engines` are those of the problem."""
    fix, spend = problem.scene.fix, sum(usd_per_hour(host.host_type, market) for host in hosts)
    per_hour = spend / len(hosts)
    saved, bankable = 0.0, True
    if "release" in fix:
        saved = per_hour if _holds(engines, len(hosts) - 1, market) else 0.0
    elif "spot" in fix:
        spot = _listed(hosts[0].host_type, "spot", market)
        saved = (len(hosts) - 1) * max(0.0, per_hour - spot) if spot is not None else 0.0
    elif "host_type" in fix:
        destination = host_types()[fix["host_type"]]
        moved = [replace(engine, runs=on(engine.runs, destination)) for engine in engines]
        saved = spend - len(hosts) * usd_per_hour(destination, market) if _holds(moved, len(moved), market) else 0.0
    elif "nights" in fix:
        saved = spend * _off_share(engines[0])
    else:
        bankable = False
        changes = [_changed(engine, fix, problem.severity) for engine in engines]
        saved = sum(capacity(old, new, per_hour, market) for old, new in zip(engines, changes, strict=True))
        if "restart" in fix:
            saved = spend
    return Worth(saved * HOURS_PER_MONTH, saved / spend, bankable)


def of_knobs(engines: Sequence[DrawnEngine], per_hour: float, knobs: Mapping[str, Any], market: Market) -> float:
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
    needed = next((n for n in range(1, MAX_HOSTS) if _holds(moved, n, market)), MAX_HOSTS)
    spend = sum(usd_per_hour(host.host_type, market) for host in hosts)
    return HOURS_PER_MONTH * (spend - needed * offer.nano_usd_per_hour / NANO_USD)


def capacity(old: DrawnEngine, new: DrawnEngine, per_hour: float, market: Market) -> float:
    """Return the dollars per hour of devices and busy time that become free on a host that stays."""
    before, during = _week(old, market)
    after, _ = _week(new, market)
    devices_before, devices_after = old.runs.n_devices or 1, new.runs.n_devices or 1
    running = np.minimum(before.slots, while_any(np.maximum(during.running, 1e-9)))
    running_after = np.minimum(running + during.waiting, after.slots)
    ratio = (running_after / after.token_s(running_after)) / (running / before.token_s(running))
    free = max(0.0, 1 - devices_after / devices_before)
    growth = max(1.0, devices_after / devices_before)
    freed_time = during.busy * np.maximum(0.0, 1 - growth / ratio)
    return per_hour * (free + (1 - free) * float(freed_time.mean()))


def usd_per_hour(host_type: HostType, market: Market) -> float:
    """Return the dollars per hour of a host type. Raises ValueError without a price."""
    if host_type.owned:
        accelerator = market.accelerator(host_type.accelerator)
        power_w = 0.55 * (accelerator.tdp_w or 300.0) if accelerator else None
        terms = Ownership(capex_usd=host_type.capex_usd or 0.0, nameplate_kw=host_type.nameplate_kw)
        return host_type.devices * device_hour(terms, host_type.devices, power_w).nano_usd / NANO_USD
    usd = _listed(host_type, str(host_type.purchase), market)
    if usd is None:
        raise ValueError(f"fleet.toml: the catalog has no {host_type.purchase} price of {host_type.instance_type}")
    return usd


def on(runs: Deployment, host_type: HostType) -> Deployment:
    """Return a deployment moved to hosts of another type."""
    placement = Placement(
        host_type.provider,
        host_type.region,
        host_type.instance_type,
        host_type.accelerator,
        host_type.devices,
        host_type.purchase or "owned",
    )
    return replace(runs, placement=placement)


def resized(runs: Deployment, knobs: Mapping[str, Any]) -> Deployment:
    """Return a deployment with other knobs, on the number of devices that they need."""
    changed = replace(runs, **knobs)
    return replace(changed, device_ids=tuple(range(changed.n_devices or 1)))


def _changed(drawn: DrawnEngine, fix: Mapping[str, Any], severity: float | None) -> DrawnEngine:
    """Return an engine after a fix of knobs, version or requests."""
    changed = drawn
    if "knobs" in fix:
        changed = replace(changed, runs=resized(changed.runs, fix["knobs"]))
    if "version" in fix:
        changed = replace(changed, runs=replace(changed.runs, engine_version=fix["version"]))
    if "shorter" in fix and severity is not None:
        changed = replace(
            changed,
            client_load=replace(changed.client_load, prompt_len=changed.client_load.prompt_len * (1 - severity)),
        )
    return changed


def _week(drawn: DrawnEngine, market: Market) -> tuple[Engine, Course]:
    """Return an engine and its operation in a week of expected requests."""
    load, ones = drawn.client_load, np.ones(WEEK_H)
    true_engine = engine(
        drawn.runs, drawn.truth, market, load.prompt_len * ones, load.generated_len * ones, load.cached * ones
    )
    return true_engine, course(true_engine, WEEK_TS, HOUR_S, _requests(drawn))


def _requests(drawn: DrawnEngine) -> Floats:
    return np.asarray(drawn.client_load.per_s * HOUR_S * weekly(drawn.client_load.shape, WEEK_TS + HOUR_S // 2))


def _holds(engines: Sequence[DrawnEngine], hosts: int, market: Market) -> bool:
    """Return whether `hosts` equal engines would hold the summed demand of all engines in the busiest hour."""
    if not engines:
        return True
    true_engine, _ = _week(engines[0], market)
    peak_s = true_engine.slots / true_engine.token_s(true_engine.slots) / true_engine.c.generated_len
    demand_per_s = sum(_requests(drawn) for drawn in engines) / HOUR_S
    return hosts > 0 and bool((demand_per_s <= FULL * hosts * peak_s).all())


def _off_share(drawn: DrawnEngine) -> float:
    """Return the share of the week without requests, less the time to start again."""
    silent = weekly(drawn.client_load.shape, WEEK_TS + HOUR_S // 2) == 0
    later = [np.roll(silent, -ahead) for ahead in range(1, LEAD_H + 1)]
    return float(np.logical_and.reduce([silent, *later]).mean())


def _listed(host_type: HostType, purchase: str, market: Market) -> float | None:
    """Return the list price of a host in dollars per hour, or None."""
    prices = [
        offer.nano_usd_per_device_hour * offer.n_devices / NANO_USD
        for offer in market.all_offers
        if (offer.provider, offer.instance_type, offer.region, offer.purchase)
        == (host_type.provider, host_type.instance_type, host_type.region, purchase)
    ]
    return prices[-1] if prices else None
