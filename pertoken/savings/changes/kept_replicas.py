"""Outcome where every replica of a service stays: devices that it no longer needs, and busy time that it saves."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pertoken.evidence import NotMeasured
from pertoken.forecast.serving import Range
from pertoken.provenance import Provenance, worst
from pertoken.savings.changes import energy
from pertoken.savings.changes.interruptions import interruptions
from pertoken.savings.context import Context, Money
from pertoken.savings.hosts import device_price, refuse_partitions
from pertoken.savings.load import measured_latency
from pertoken.savings.outcome import Outcome, not_placed, same, to_confirm
from pertoken.savings.placing import NotPlaced, Placed, place
from pertoken.savings.shared import BusyCost, DeploymentsByDevice, busy_cost
from pertoken.savings.slo import Verdict, unchanged, worst_of
from pertoken.savings.speed import Speed
from pertoken.state.deployment import Deployment, Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Slo
from pertoken.units import HOURS_PER_MONTH

Pair = tuple[Deployment, Deployment]


def sped_up(
    before: Fleet, pairs: Sequence[Pair], speeds: Mapping[int, Speed | None], slo: Slo, context: Context
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
    by_device = before.deployments_by_device
    moved = _moved(before, pairs, context)
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
        refuse_partitions(before, old)
        prices = [device_price(before, device_id, context) for device_id in old.device_ids]
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
            if reason := _other_devices(before, old, new):
                return Outcome(unpriced=reason)
            stays = _on_fewer(old, new, after, by_device, context)
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
                        cost = busy_cost(before, by_device, old, old.device_ids, context)
                        _add_moved(capacity, cost, forecast.ratio, moved.of[old.deployment_id], sum(prices))
                    else:
                        cost = _add_kept(capacity, before, by_device, old, stays, after, forecast.ratio, context)
                except NotMeasured as missing:
                    return Outcome(unpriced=str(missing))
                provenances.append(cost.provenance)
                assumptions += cost.assumptions
    first = next((forecast for forecast in speeds.values() if forecast is not None), None)
    low_cost, likely_cost, high_cost = (usd + added_cost for usd in moved.nano_usd_per_hour)
    money: Money | None = None
    if has_capacity:
        low, likely, high = (round(value * HOURS_PER_MONTH) for value in capacity)
        money = low, likely, high
    watts = energy.of_speeds(before, pairs, speeds, context)
    if watts is not None:
        assumptions += watts[1]
    return Outcome(
        kept=same(tuple(staying)),
        new_nano_usd_per_hour=(low_cost, likely_cost, high_cost),
        placed=moved.placed,
        to_confirm=to_confirm(moved.placed),
        bankable=watts[0] if watts is not None else None,
        capacity=money,
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


def _moved(before: Fleet, pairs: Sequence[Pair], context: Context) -> _Moved | NotPlaced:
    """Place all deployments that move, those that are alike together on the same instances. Raises NoPrice."""
    groups: defaultdict[tuple[Placement, Placement, int], list[Pair]] = defaultdict(list)
    for old, new in pairs:
        if new.placement != old.placement and old.device_ids:
            refuse_partitions(before, old)
            groups[old.placement, new.placement, new.n_devices or len(old.device_ids)].append((old, new))
    all_placed, costs = [], {}
    for (_, proposed, ranks), alike in groups.items():
        count = len(alike)
        placed = place(before, alike[0][0], proposed, (count, count, count), ranks, context)
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
    before: Fleet,
    by_device: DeploymentsByDevice,
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
    shared_ids = [
        device_id for device_id in old.device_ids if device_id not in stays.device_ids and len(by_device[device_id]) > 1
    ]
    released = busy_cost(before, by_device, old, shared_ids, context)
    kept = busy_cost(before, by_device, old, kept_ids, context)
    growth = max(1.0, after / len(old.device_ids))  # added devices are paid for and are busy too
    for end, ratio in enumerate(ratios):
        capacity[end] += released.nano_usd_per_hour + kept.nano_usd_per_hour * max(0.0, 1 - growth / ratio)
    return BusyCost(0.0, max(released.provenance, kept.provenance), (*kept.assumptions, *released.assumptions))


def _on_fewer(
    old: Deployment, new: Deployment, after: int, by_device: DeploymentsByDevice, context: Context
) -> Deployment:
    """Return the deployment on `after` of its devices.

    Devices that it does not share are released first, because only these become free as a whole; the dearest first.
    """
    if after >= len(old.device_ids) or new.device_ids != old.device_ids:
        return new
    in_order = sorted(
        old.device_ids,
        key=lambda device_id: (
            len(by_device[device_id]) > 1,
            -(context.nano_usd_per_hour.get(device_id) or 0),
            device_id,
        ),
    )
    released = set(in_order[: len(old.device_ids) - after])
    return replace(new, device_ids=tuple(device_id for device_id in old.device_ids if device_id not in released))


def _other_devices(before: Fleet, old: Deployment, new: Deployment) -> str | None:
    """Return the reason why a move to other devices of the fleet is not forecast, None if they are like the present."""
    if new.device_ids == old.device_ids:
        return None
    if any(device_id < 0 for device_id in new.device_ids):
        return f"{old.name} would run in a slice of a device, which is not forecast: try it for a day of its load"
    for device in (before.device(device_id) for device_id in new.device_ids):
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
