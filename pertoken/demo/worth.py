"""What mending a problem would truly save, by the simulator alone: the answer that advice is compared with.

Dollars mean what they mean everywhere. Bankable: hosts that go, cost less, or are off. Capacity: devices that become
free, and busy time that becomes free because the same requests get more tokens per second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pertoken.catalog.market import Market
from pertoken.costs.prices.owned import Ownership, device_hour
from pertoken.demo.fleet import DrawnEngine, DrawnHost, Problem
from pertoken.demo.scenes import Place, places
from pertoken.demo.simulator.arrivals import HOUR_S, WEEK_H, Floats, weekly
from pertoken.demo.simulator.course import Course, course
from pertoken.demo.simulator.physics import Engine, engine, while_any
from pertoken.state.deployment import Deployment
from pertoken.state.placement import Placement
from pertoken.units import HOURS_PER_MONTH, NANO_USD

WEEK_TS = np.arange(WEEK_H) * HOUR_S
FULL = 0.9
"""Of a full batch in the busiest hour, up to which fewer or slower devices are said to hold a load."""
MAX_HOSTS = 8
"""Hosts that a service is tried on."""
LEAD_H = 1
"""Hours before each silent stretch ends in which a server starts again."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What mending is worth a month."""

    usd: float
    share: float
    """Of what is spent on the target."""
    bankable: bool


def worth(problem: Problem, hosts: Sequence[DrawnHost], engines: Sequence[DrawnEngine], market: Market) -> Worth:
    """Return what the fix of a problem's scene saves; `hosts` and `engines` are its own."""
    fix, spend = problem.scene.fix, sum(usd_per_hour(each.place, market) for each in hosts)
    per_hour = spend / len(hosts)
    saved, bankable = 0.0, True
    if "release" in fix:
        saved = per_hour if _holds(engines, len(hosts) - 1, market) else 0.0
    elif "spot" in fix:
        spot = _listed(hosts[0].place, "spot", market)
        saved = (len(hosts) - 1) * max(0.0, per_hour - spot) if spot is not None else 0.0
    elif "place" in fix:
        there = places()[fix["place"]]
        moved = [replace(each, runs=on(each.runs, there)) for each in engines]
        saved = spend - len(hosts) * usd_per_hour(there, market) if _holds(moved, len(moved), market) else 0.0
    elif "nights" in fix:
        saved = spend * _off_share(engines[0])
    else:
        bankable = False
        changes = [_changed(each, fix, problem.severity) for each in engines]
        saved = sum(capacity(old, new, per_hour, market) for old, new in zip(engines, changes, strict=True))
        if "restart" in fix:
            saved = spend
    return Worth(saved * HOURS_PER_MONTH, saved / spend, bankable)


def of_knobs(engines: Sequence[DrawnEngine], per_hour: float, knobs: Mapping[str, Any], market: Market) -> float:
    """Return the capacity that a change of knobs truly frees, dollars a month: of whatever advice proposes."""
    return HOURS_PER_MONTH * sum(
        capacity(each, replace(each, runs=resized(each.runs, knobs)), per_hour, market) for each in engines
    )


def of_move(engines: Sequence[DrawnEngine], hosts: Sequence[DrawnHost], accelerator: str, market: Market) -> float:
    """Return what moving a service truly saves, dollars a month: to the fewest of the cheapest hosts that hold it."""
    here = hosts[0].place
    offers = [
        each
        for each in market.offers(accelerator, here.purchase or "on_demand")
        if each.provider == here.provider and each.n_devices == 1
    ]
    if not offers:
        return 0.0
    offer = min(offers, key=lambda each: each.nano_usd_per_hour)
    there = replace(here, accelerator=accelerator, devices=1, instance_type=offer.instance_type, region=offer.region)
    moved = [replace(each, runs=resized(on(each.runs, there), {"tp": 1})) for each in engines]
    needed = next((n for n in range(1, MAX_HOSTS) if _holds(moved, n, market)), MAX_HOSTS)
    spend = sum(usd_per_hour(each.place, market) for each in hosts)
    return HOURS_PER_MONTH * (spend - needed * offer.nano_usd_per_hour / NANO_USD)


def capacity(old: DrawnEngine, new: DrawnEngine, per_hour: float, market: Market) -> float:
    """Return dollars an hour of devices and of busy time that become free on a host that stays."""
    before, during = _week(old, market)
    after, _ = _week(new, market)
    had, needs = old.runs.n_devices or 1, new.runs.n_devices or 1
    running = np.minimum(before.slots, while_any(np.maximum(during.running, 1e-9)))
    then = np.minimum(running + during.waiting, after.slots)
    ratio = (then / after.token_s(then)) / (running / before.token_s(running))
    free = max(0.0, 1 - needs / had)
    more = max(1.0, needs / had)
    kept = during.busy * np.maximum(0.0, 1 - more / ratio)
    return per_hour * (free + (1 - free) * float(kept.mean()))


def usd_per_hour(place: Place, market: Market) -> float:
    """Return what a host costs. Raises ValueError for one without a price."""
    if place.owned:
        accelerator = market.accelerator(place.accelerator)
        power_w = 0.55 * (accelerator.tdp_w or 300.0) if accelerator else None
        terms = Ownership(capex_usd=place.capex_usd or 0.0, nameplate_kw=place.nameplate_kw)
        return place.devices * device_hour(terms, place.devices, power_w).nano_usd / NANO_USD
    found = _listed(place, str(place.purchase), market)
    if found is None:
        raise ValueError(f"fleet.toml: the catalog has no {place.purchase} price of {place.instance_type}")
    return found


def on(runs: Deployment, place: Place) -> Deployment:
    """Return a deployment elsewhere."""
    there = Placement(
        place.provider, place.region, place.instance_type, place.accelerator, place.devices, place.purchase or "owned"
    )
    return replace(runs, placement=there)


def resized(runs: Deployment, knobs: Mapping[str, Any]) -> Deployment:
    """Return a deployment with other knobs, on as many devices as it then takes."""
    found = replace(runs, **knobs)
    return replace(found, device_ids=tuple(range(found.n_devices or 1)))


def _changed(of: DrawnEngine, fix: Mapping[str, Any], severity: float | None) -> DrawnEngine:
    """Return an engine with a fix of knobs, version or requests."""
    found = of
    if "knobs" in fix:
        found = replace(found, runs=resized(found.runs, fix["knobs"]))
    if "version" in fix:
        found = replace(found, runs=replace(found.runs, engine_version=fix["version"]))
    if "shorter" in fix and severity is not None:
        found = replace(found, asked=replace(found.asked, prompt_len=found.asked.prompt_len * (1 - severity)))
    return found


def _week(of: DrawnEngine, market: Market) -> tuple[Engine, Course]:
    """Return an engine and what it does in a week of expected requests."""
    asked, each = of.asked, np.ones(WEEK_H)
    one = engine(of.runs, of.truth, market, asked.prompt_len * each, asked.generated_len * each, asked.cached * each)
    return one, course(one, WEEK_TS, HOUR_S, _requests(of))


def _requests(of: DrawnEngine) -> Floats:
    return np.asarray(of.asked.per_s * HOUR_S * weekly(of.asked.shape, WEEK_TS + HOUR_S // 2))


def _holds(engines: Sequence[DrawnEngine], hosts: int, market: Market) -> bool:
    """Return whether so many alike engines would hold what is asked of all of them in the busiest hour."""
    if not engines:
        return True
    one, _ = _week(engines[0], market)
    peak_s = one.slots / one.token_s(one.slots) / one.c.generated_len
    asked = sum(_requests(each) for each in engines) / HOUR_S
    return hosts > 0 and bool((asked <= FULL * hosts * peak_s).all())


def _off_share(of: DrawnEngine) -> float:
    """Return the share of the week in which nobody calls, but for the time to start again."""
    silent = weekly(of.asked.shape, WEEK_TS + HOUR_S // 2) == 0
    later = [np.roll(silent, -ahead) for ahead in range(1, LEAD_H + 1)]
    return float(np.logical_and.reduce([silent, *later]).mean())


def _listed(place: Place, purchase: str, market: Market) -> float | None:
    """Return the list price of a host by the hour; None where there is none."""
    found = [
        each.nano_usd_per_device_hour * each.n_devices / NANO_USD
        for each in market.all_offers
        if (each.provider, each.instance_type, each.region, each.purchase)
        == (place.provider, place.instance_type, place.region, purchase)
    ]
    return found[-1] if found else None
