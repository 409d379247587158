"""Outcome where every replica of a service stays: devices that it no longer needs, and busy time that it saves."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pertoken.catalog.market import Market
from pertoken.evidence import NotMeasured
from pertoken.forecast.calibration import as_measured
from pertoken.forecast.candidates import Candidates
from pertoken.forecast.efficiency import Steady, efficiency, steady
from pertoken.forecast.host import Calibration
from pertoken.forecast.latency import Latency
from pertoken.forecast.power import (
    CandidateWatts,
    busy_w,
    clock_bound,
    full_w,
    idle_w,
    log_sd,
    products_share,
    under_cap,
)
from pertoken.forecast.served import Abstained, Load, resolve
from pertoken.forecast.serving import Z_80, Range
from pertoken.provenance import Provenance, worst
from pertoken.savings.context import NOTHING, Context, Money
from pertoken.savings.hosts import device_price, refuse_partitions
from pertoken.savings.load import MeasuredLoad, measured_latency
from pertoken.savings.outcome import (
    BusyCost,
    Outcome,
    busy_cost,
    interruptions,
    not_placed,
    same,
    to_confirm,
    unpriced,
)
from pertoken.savings.placing import NotPlaced, Placed, place
from pertoken.savings.sizing import objectives
from pertoken.savings.slo import NOT_WORSE, Verdict, judged, times, unchanged, with_figures, worst_of
from pertoken.savings.speed import Speed, calibrated, doubt
from pertoken.state.deployment import Deployment, Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service, Slo
from pertoken.units import HOURS_PER_MONTH


class DeviceWatts(NamedTuple):
    """Power draw of one device."""

    idle: float
    busy: float
    """While its engine works."""
    limit: float
    """Its default power limit (TDP)."""


class Capped(NamedTuple):
    """One device under a power cap."""

    busy_w: float
    slowdown: float
    """Step time over that without the cap, 1 or more."""


def capped(
    deployment: Deployment, load: Load, market: Market, calibration: Calibration, watts: DeviceWatts, cap_w: float
) -> Capped:
    """Return the effect of a power cap on a busy device and its step time. Raises Abstained as `resolve` does."""
    bound = clock_bound(*_state(deployment, load, market, calibration))
    slowed = under_cap(_device(watts), np.array([watts.busy]), bound, np.array([cap_w]))
    return Capped(float(slowed.power_w[0]), float(slowed.slowdown[0]))


def modelled_busy_w(
    deployment: Deployment, load: Load, market: Market, calibration: Calibration, watts: DeviceWatts
) -> float:
    """Return the watts of a busy device by the model of power alone. Raises Abstained as `resolve` does."""
    candidate, state = _state(deployment, load, market, calibration)
    device = _device(watts, full_w(deployment.accelerator or "", watts.limit))
    return float(busy_w(device, products_share(candidate, state.running, state.token_s))[0])


def _state(deployment: Deployment, load: Load, market: Market, calibration: Calibration) -> tuple[Candidates, Steady]:
    candidate = resolve([deployment], [load], market)
    running = np.array([max(1.0, load.running)])
    state = steady(candidate, efficiency(), running, calibration.shift)
    return candidate, as_measured(state, candidate, [calibration.errors_for(deployment)])


def _device(watts: DeviceWatts, full_w: float = 0.0) -> CandidateWatts:
    return CandidateWatts(np.array([watts.idle]), np.array([watts.limit]), np.array([full_w]))


NOT_OWNED = "rented devices cost the same at any power: a cap saves whoever pays for the electricity"


def power_cap_outcome(
    present: Fleet, service: Service, pairs: Sequence[tuple[Deployment, Deployment]], context: Context
) -> Outcome:
    """Return the outcome of power caps: energy dollars on owned hardware, $0 on rented."""
    kept = same(service.deployments)
    if not _owned(present, pairs):
        return Outcome(kept=kept, bankable=NOTHING, provenance=Provenance.REPORTED, against=(NOT_OWNED,))
    if context.energy is None:
        return Outcome(kept=kept, unpriced="what a kilowatt-hour costs is not set: set `energy.usd_per_kwh`")
    total, max_slowdown, doubtful = [0.0, 0.0, 0.0], 1.0, None
    assumptions: list[str] = []
    for old, new in pairs:
        try:
            saved_w, slowdown, notes, doubtful_here = _saved_w(old, new, context)
        except (NotMeasured, Abstained, ValueError) as reason:
            return replace(unpriced(reason), kept=kept)
        max_slowdown = max(max_slowdown, slowdown)
        assumptions += notes
        doubtful = doubtful or doubtful_here
        half_width = math.exp(Z_80 * log_sd(True))
        for end, watts in enumerate((saved_w / half_width, saved_w, saved_w * half_width)):
            total[end] += watts
    busiest = max((context.evidence(old.deployment_id).busy.mean for old, _ in pairs), default=0.0)
    if busiest * max_slowdown > 1:
        return Outcome(
            kept=kept, infeasible=f"steps would take {max_slowdown:.2f} times as long: it is too busy for that"
        )
    verdict = _verdict(service, pairs, max_slowdown, context)
    if verdict[0] == "fail" and max_slowdown > NOT_WORSE:
        return Outcome(kept=kept, slo=verdict, infeasible=verdict[1])
    low, likely, high = (_dollars(watts, context) for watts in total)
    return Outcome(
        kept=kept,
        bankable=(low, likely, high),
        ratio=(1 / max_slowdown, 1 / max_slowdown, 1 / max_slowdown),
        slo=verdict,
        provenance=Provenance.FORECAST,
        assumptions=tuple(dict.fromkeys(assumptions)),
        against=(f"steps take up to {max_slowdown:.2f} times as long",) if max_slowdown > 1.005 else (),
        doubtful=doubtful,
    )


def of_speeds(
    present: Fleet, pairs: Sequence[tuple[Deployment, Deployment]], speeds: Mapping[int, Speed | None], context: Context
) -> tuple[Money, tuple[str, ...]] | None:
    """Return the energy dollars that changes of speed save on owned hardware, and the assumptions.

    None for rented hardware, without a price of energy, and where power was not measured or cannot be forecast. The
    change of speed is then priced without energy.
    """
    changed = [(old, new) for old, new in pairs if speeds.get(old.deployment_id) is not None]
    if context.energy is None or not changed or not _owned(present, changed):
        return None
    total, notes = [0.0, 0.0, 0.0], []
    for old, new in changed:
        speed = speeds[old.deployment_id]
        if speed is None or speed.ratio is None or new.placement != old.placement:
            return None
        try:
            saved, note = _saved_by_speed(old, new, speed.ratio, context)
        except (NotMeasured, Abstained, ValueError):
            return None
        notes.append(note)
        for end, watts in enumerate(saved):
            total[end] += watts
    low, likely, high = (max(0, _dollars(watts, context)) for watts in total)
    return (low, likely, high), tuple(dict.fromkeys(notes))


def _owned(present: Fleet, pairs: Sequence[tuple[Deployment, Deployment]]) -> bool:
    owned = {device_id for host in present.hosts if host.placement.purchase == "owned" for device_id in host.device_ids}
    return all(set(old.device_ids) <= owned for old, _ in pairs)


def _verdict(
    service: Service, pairs: Sequence[tuple[Deployment, Deployment]], slowdown: float, context: Context
) -> Verdict:
    """Return the verdict on latencies that take `slowdown` times as long as measured."""
    slo = objectives(service, context)
    verdicts = []
    for old, _ in pairs:
        measured = measured_latency(context.evidence(old.deployment_id))
        if slowdown <= NOT_WORSE:
            verdicts.append(unchanged(measured, slo))
        else:
            longer = {name: times(figure, (slowdown,) * 3) for name, figure in measured.items()}
            verdicts.append(judged(with_figures(Latency(), longer), measured, slo))
    return worst_of(verdicts)


@dataclass(frozen=True, slots=True)
class _MeasuredPower:
    """Measured power of each device of a deployment."""

    load: MeasuredLoad
    busy: float
    """Share of the time."""
    idle_w: float
    busy_w: float
    limit_w: float
    note: str

    @property
    def device(self) -> DeviceWatts:
        return DeviceWatts(self.idle_w, self.busy_w, self.limit_w)

    def mean_w(self, busy: float, busy_w: float) -> float:
        return self.idle_w * (1 - busy) + busy_w * busy


def _measured_power(old: Deployment, context: Context) -> _MeasuredPower:
    """Return the watts of one device while busy and idle. Raises NotMeasured or Abstained."""
    seen, devices = context.evidence(old.deployment_id), len(old.device_ids)
    accelerator = context.market.accelerator(old.accelerator)
    if accelerator is None or accelerator.tdp_w is None:
        raise Abstained("the power limit of its device is not in the catalog")
    if not devices:
        raise Abstained("its devices were not seen")
    load = context.forecasts.load(seen)
    idle, mean = idle_w(accelerator.name, accelerator.tdp_w), seen.power_w.mean / devices
    busy = max(load.busy, 1e-3)
    busy_w = min(accelerator.tdp_w, max(idle, (mean - idle * (1 - busy)) / busy))
    note = f"{busy_w:.0f} W per device while busy, from {mean:.0f} W on average and {idle:.0f} W idle"
    return _MeasuredPower(load, busy, idle, busy_w, accelerator.tdp_w, note)


def _saved_w(old: Deployment, new: Deployment, context: Context) -> tuple[float, float, list[str], str | None]:
    """Return the mean watts saved over all devices of a deployment, the factor on step time, notes, and why the
    forecast is doubtful.

    Raises NotMeasured, Abstained or ValueError for unknown values.
    """
    power = _measured_power(old, context)
    calibration, cap_w = calibrated(old, power.load, context), float(new.power_cap_w or power.limit_w)
    capped_w, slowdown = capped(old, power.load.load, context.market, calibration, power.device, cap_w)
    longer = min(1.0, power.busy * slowdown)
    saved_w = power.mean_w(power.busy, power.busy_w) - power.mean_w(longer, capped_w)
    return max(0.0, saved_w) * len(old.device_ids), slowdown, [power.note], doubt(calibration)


def _saved_by_speed(
    old: Deployment, new: Deployment, ratio: Sequence[float], context: Context
) -> tuple[list[float], str]:
    """Return the watts saved at the slow, likely and fast end of a change of speed, and a note.

    Devices that are no longer needed stay on and idle. The model of power scales the measured busy watts.
    Raises NotMeasured, Abstained or ValueError for unknown values.
    """
    power = _measured_power(old, context)
    calibration = calibrated(old, power.load, context)
    modelled = [
        modelled_busy_w(deployment, power.load.load, context.market, calibration, power.device)
        for deployment in (old, new)
    ]
    likely_w = min(power.limit_w, max(power.idle_w, power.busy_w * modelled[1] / modelled[0]))
    devices, spread = len(old.device_ids), math.exp(Z_80 * log_sd(False))
    used = new.n_devices or devices
    saved = []
    for end, watts in zip(ratio, (likely_w * spread, likely_w, likely_w / spread), strict=True):
        busy = min(1.0, power.busy / end)
        after = used * power.mean_w(busy, min(power.limit_w, max(power.idle_w, watts)))
        after += max(0, devices - used) * power.idle_w
        saved.append(devices * power.mean_w(power.busy, power.busy_w) - after)
    return saved, f"{power.note}; about {likely_w:.0f} W while busy after the change, for less of the time"


def _dollars(watts: float, context: Context) -> int:
    assert context.energy is not None
    return round(watts / 1000 * HOURS_PER_MONTH * context.energy.pue * context.energy.nano_usd_per_kwh)


Pair = tuple[Deployment, Deployment]


def sped_up(
    present: Fleet, pairs: Sequence[Pair], speeds: Mapping[int, Speed | None], slo: Slo, context: Context
) -> Outcome:
    """Return the outcome where every replica stays, with a forecast of each in `speeds`. Raises NoPrice."""
    staying, provenances = [], []
    capacity = [0.0, 0.0, 0.0]
    added_cost = 0.0
    has_capacity = False
    assumptions: list[str] = []
    against: list[str] = []
    forecasts: list[Speed] = []
    verdicts: list[Verdict] = []
    moved = _moved(present, pairs, context)
    if isinstance(moved, NotPlaced):
        return not_placed(moved)
    for instances in moved.placed:
        assumptions += instances.lines(context)
        against += instances.against
        provenances += [Provenance.LISTED] if instances.listed else []
    for old, new in pairs:
        forecast = speeds[old.deployment_id]
        if old == new:
            staying.append(old)
            continue
        refuse_partitions(present, old)
        prices = [device_price(present, device_id, context) for device_id in old.device_ids]
        if not prices:
            return Outcome(unpriced=f"the devices of {old.name} were not seen")
        after = new.n_devices or len(prices)
        stays: Deployment | None = None
        if new.placement != old.placement:
            if old.placement.purchase is None:
                assumptions.append("what is paid now is an on-demand price")
            if new.placement.purchase == "spot":
                taken_back = interruptions(new.placement, context.evidence(old.deployment_id).peek("load_s"))
                assumptions += [taken_back.assumption] if taken_back.assumption else []
                against.append(taken_back.against)
        else:
            if reason := _other_devices(present, old, new):
                return Outcome(unpriced=reason)
            stays = _on_fewer(present, old, new, after, context)
            staying.append(stays)
            added_cost += sum(prices) / len(prices) * max(0, after - len(prices))
        if forecast is None:
            measured = measured_latency(context.evidence(old.deployment_id))
            verdicts.append(unchanged(measured, slo))
        if forecast is not None and forecast.ratio is not None:
            provenances.append(forecast.provenance or Provenance.FORECAST)
            assumptions += forecast.assumptions
            forecasts.append(forecast)
            if forecast.load is not None:
                has_capacity = True
                try:
                    if stays is None:
                        cost = busy_cost(present, old, old.device_ids, context)
                        _add_moved(capacity, cost, forecast.ratio, moved.of[old.deployment_id], sum(prices))
                    else:
                        cost = _add_kept(capacity, present, old, stays, after, forecast.ratio, context)
                except NotMeasured as missing:
                    return Outcome(unpriced=str(missing))
                provenances.append(cost.provenance)
                assumptions += cost.assumptions
    first = next((forecast for forecast in speeds.values() if forecast is not None), None)
    low_cost, likely_cost, high_cost = (usd + added_cost for usd in moved.nano_usd_per_hour)
    low, likely, high = (round(value * HOURS_PER_MONTH) for value in capacity)
    watts = of_speeds(present, pairs, speeds, context)
    if watts is not None:
        assumptions += watts[1]
    return Outcome(
        kept=same(tuple(staying)),
        new_nano_usd_per_hour=(low_cost, likely_cost, high_cost),
        placed=moved.placed,
        to_confirm=to_confirm(moved.placed),
        bankable=watts[0] if watts is not None else None,
        capacity=(low, likely, high) if has_capacity else None,
        ratio=first.ratio if first else None,
        judged=tuple(forecasts),
        slo=worst_of(verdicts),
        latency=first.latency if first else None,
        provenance=worst([Provenance.REPORTED, *provenances]),
        assumptions=tuple(dict.fromkeys(assumptions)),
        against=tuple(dict.fromkeys([*against, *_low_end(pairs, speeds)])),
        doubtful=next((forecast.doubtful for forecast in forecasts if forecast.doubtful), None),
    )


def _add_moved(
    capacity: list[float], cost: BusyCost, ratios: Sequence[float], paid_after: Sequence[float], paid_before: float
) -> None:
    """Add the share of its busy cost that a deployment saves by moving, at the slow, likely and fast end.

    The share is 1 - (bill after / before) / ratio. The slow end combines the lowest speed with the highest price.
    """
    for end, ratio in enumerate(ratios):
        factor = paid_after[2 - end] / paid_before if paid_before else 1.0
        capacity[end] += cost.nano_usd_per_hour * max(0.0, 1 - factor / ratio)


@dataclass(frozen=True, slots=True)
class _Moved:
    placed: tuple[Placed, ...]
    of: Mapping[int, Range]
    """Nano-USD per hour of each deployment's part of the instances, by its id: lowest, likely, highest."""

    @property
    def nano_usd_per_hour(self) -> Range:
        low, likely, high = (sum(costs[end] for costs in self.of.values()) for end in range(3))
        return low, likely, high


def _moved(present: Fleet, pairs: Sequence[Pair], context: Context) -> _Moved | NotPlaced:
    """Place all deployments that move, like ones together on the same instances. Raises NoPrice."""
    groups: defaultdict[tuple[Placement, Placement, int], list[Pair]] = defaultdict(list)
    for old, new in pairs:
        if new.placement != old.placement and old.device_ids:
            refuse_partitions(present, old)
            groups[old.placement, new.placement, new.n_devices or len(old.device_ids)].append((old, new))
    all_placed, costs = [], {}
    for (_, proposed, ranks), alike in groups.items():
        count = len(alike)
        placed = place(present, alike[0][0], proposed, (count, count, count), ranks, context)
        if isinstance(placed, NotPlaced):
            return placed
        all_placed.append(placed)
        for old, _ in alike:
            factor: Range = (1.0, 1.0, 1.0)
            if proposed.purchase == "spot":
                factor = interruptions(proposed, context.evidence(old.deployment_id).peek("load_s")).factor
            low, likely, high = (
                usd / count * times for usd, times in zip(placed.nano_usd_per_hour, factor, strict=True)
            )
            costs[old.deployment_id] = low, likely, high
    return _Moved(tuple(all_placed), costs)


def _add_kept(
    capacity: list[float],
    present: Fleet,
    old: Deployment,
    stays: Deployment,
    after: int,
    ratios: Sequence[float],
    context: Context,
) -> BusyCost:
    """Add the busy time that becomes free on devices that stay in use, at the slow, likely and fast end.

    A released device without other deployments is free as a whole; `hosts.freed` counts it. On a shared device only
    the busy time of the deployment becomes free.
    """
    kept_ids = [device_id for device_id in old.device_ids if device_id in stays.device_ids]
    leaving_ids = [device_id for device_id in old.device_ids if device_id not in stays.device_ids]
    shared_ids = [device_id for device_id in leaving_ids if len(present.deployments_by_device[device_id]) > 1]
    released = busy_cost(present, old, shared_ids, context)
    kept = busy_cost(present, old, kept_ids, context)
    growth = max(1.0, after / len(old.device_ids))  # added devices are paid for and are busy too
    for end, ratio in enumerate(ratios):
        capacity[end] += released.nano_usd_per_hour + kept.nano_usd_per_hour * max(0.0, 1 - growth / ratio)
    return BusyCost(0.0, max(released.provenance, kept.provenance), (*kept.assumptions, *released.assumptions))


def _on_fewer(present: Fleet, old: Deployment, new: Deployment, after: int, context: Context) -> Deployment:
    """Return the deployment on `after` of its devices.

    Devices that it does not share are released first, because only these become free as a whole; the dearest first.
    """
    if after >= len(old.device_ids) or new.device_ids != old.device_ids:
        return new
    in_order = sorted(
        old.device_ids,
        key=lambda device_id: (
            len(present.deployments_by_device[device_id]) > 1,
            -(context.nano_usd_per_hour.get(device_id) or 0),
            device_id,
        ),
    )
    released = set(in_order[: len(old.device_ids) - after])
    return replace(new, device_ids=tuple(device_id for device_id in old.device_ids if device_id not in released))


def _other_devices(present: Fleet, old: Deployment, new: Deployment) -> str | None:
    """Return the reason why a move to other devices of the fleet is not forecast, None if they are like the present."""
    if new.device_ids == old.device_ids:
        return None
    if any(device_id < 0 for device_id in new.device_ids):
        return f"{old.name} would run in a slice of a device, which is not forecast: try it for a day of its load"
    for device in (present.device(device_id) for device_id in new.device_ids):
        if device.accelerator != old.accelerator:
            return (
                f"{device.name} is another accelerator: name it by on(Placement(accelerator=...)) to have it forecast"
            )
    return None


def _low_end(pairs: Sequence[Pair], speeds: Mapping[int, Speed | None]) -> list[str]:
    for old, _ in pairs:
        forecast = speeds.get(old.deployment_id)
        if forecast and forecast.at_most and forecast.load and forecast.at_most[0] < forecast.load.load.generated_tok_s:
            return ["at the low end of its forecast it would not hold the p95 demand"]
    return []
