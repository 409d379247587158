"""Outcome where every replica of a service stays: devices that it no longer needs, and busy time that it saves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pertoken.evidence import NotMeasured
from pertoken.provenance import Provenance, worst
from pertoken.savings.changes import energy
from pertoken.savings.changes.interruptions import interruptions
from pertoken.savings.context import Context, Money
from pertoken.savings.hosts import device_price, refuse_partitions
from pertoken.savings.instances import rented_devices
from pertoken.savings.load import measured_latency
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.price_relation import price_relation
from pertoken.savings.shared import BusyCost, DeploymentsByDevice, busy_cost
from pertoken.savings.slo import Verdict, unchanged, worst_of
from pertoken.savings.speed import Speed
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Slo
from pertoken.units import HOURS_PER_MONTH

Pair = tuple[Deployment, Deployment]
_WHOLE_INSTANCES = "instances are rented whole: devices that it does not need are paid for there too"


def sped_up(
    before: Fleet, pairs: Sequence[Pair], speeds: Mapping[int, Speed | None], slo: Slo, context: Context
) -> Outcome:
    """Return the outcome where every replica stays, with a forecast of each in `speeds`. Raises NoPrice."""
    staying, provenances = [], []
    new_cost = [0.0, 0.0, 0.0]
    capacity = [0.0, 0.0, 0.0]
    has_capacity = False
    assumptions: list[str] = []
    against: list[str] = []
    forecasts: list[Speed] = []
    verdicts: list[Verdict] = []
    by_device = before.deployments_by_device
    for old, new in pairs:
        forecast = speeds[old.deployment_id]
        if old == new:
            staying.append(old)
            continue
        refuse_partitions(before, old)
        prices = [device_price(before, device_id, context) for device_id in old.device_ids]
        if not prices:
            return Outcome(unpriced=f"the devices of {old.name} were not seen")
        after, price_factor = new.n_devices or len(prices), (1.0, 1.0, 1.0)
        stays: Deployment | None = None
        if new.placement != old.placement:
            mean = sum(prices) / len(prices)
            relation = price_relation(old.placement, new.placement, context.market, context.today, mean)
            if isinstance(relation, str):
                return Outcome(infeasible=f"prices cannot be compared: {relation}")
            alike = sum(
                deployment.placement == new.placement and deployment.n_devices == new.n_devices
                for _, deployment in pairs
            )
            paid = rented_devices(new.placement, alike, after, context.market) / alike
            price_factor, taken_back = relation.ratio, None
            if new.placement.purchase == "spot":
                taken_back = interruptions(new.placement, context.evidence(old.deployment_id).peek("load_s"))
                low, likely, high = (a * b for a, b in zip(relation.ratio, taken_back.factor, strict=True))
                price_factor = low, likely, high
            for end in range(3):
                new_cost[end] += mean * paid * price_factor[end]
            if paid > after and _WHOLE_INSTANCES not in against:
                against.append(_WHOLE_INSTANCES)
            assumptions.append(relation.note)
            if old.placement.purchase is None:
                assumptions.append("what is paid now is an on-demand price")
            if taken_back is not None:
                assumptions += [taken_back.assumption] if taken_back.assumption else []
                against.append(taken_back.against)
            provenances.append(Provenance.LISTED)
        else:
            if reason := _other_devices(before, old, new):
                return Outcome(unpriced=reason)
            stays = _on_fewer(old, new, after, by_device, context)
            staying.append(stays)
            if after > len(prices):
                mean = sum(prices) / len(prices)
                for end in range(3):
                    new_cost[end] += mean * (after - len(prices))
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
                        _add_moved(capacity, cost, forecast.ratio, price_factor, after / len(prices))
                    else:
                        cost = _add_kept(capacity, before, by_device, old, stays, after, forecast.ratio, context)
                except NotMeasured as missing:
                    return Outcome(unpriced=str(missing))
                provenances.append(cost.provenance)
                assumptions += cost.assumptions
    first = next((forecast for forecast in speeds.values() if forecast is not None), None)
    money: Money | None = None
    if has_capacity:
        low, likely, high = (round(value * HOURS_PER_MONTH) for value in capacity)
        money = low, likely, high
    watts = energy.of_speeds(before, pairs, speeds, context)
    if watts is not None:
        assumptions += watts[1]
    return Outcome(
        kept=same(tuple(staying)),
        new_nano_usd_per_hour=(new_cost[0], new_cost[1], new_cost[2]),
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
    capacity: list[float], cost: BusyCost, ratios: Sequence[float], price_factor: Sequence[float], fewer: float
) -> None:
    """Add the share of its busy cost that a deployment saves by moving, at the slow, likely and fast end.

    The share is 1 - (bill after / before) / ratio. The slow end combines the lowest speed with the highest price.
    """
    for end, ratio in enumerate(ratios):
        capacity[end] += cost.nano_usd_per_hour * max(0.0, 1 - price_factor[2 - end] * fewer / ratio)


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
