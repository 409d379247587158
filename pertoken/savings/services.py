"""Outcome of a change for one service: knobs, moves, replicas."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from pertoken.by_identity import by_identity
from pertoken.evidence import NotMeasured
from pertoken.provenance import Provenance, worst
from pertoken.savings.changes import demand_change, energy, per_token, routing, timetable, together
from pertoken.savings.changes.interruptions import interruptions
from pertoken.savings.changes.replicas import resized
from pertoken.savings.context import Context, Money
from pertoken.savings.forecasts import Question, Questions, ReplicaQuestion
from pertoken.savings.hosts import NoPrice, device_price, refuse_partitions
from pertoken.savings.instances import rented_devices
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.price_relation import price_relation
from pertoken.savings.shared import BusyCost, DeploymentsByDevice, busy_cost
from pertoken.savings.sizing import objectives, total_arrivals
from pertoken.savings.slo import tail_limits
from pertoken.savings.speed import Speed, speed
from pertoken.savings.unmeasured import break_even
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.knobs import knobs
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH, format_usd

Pair = tuple[Deployment, Deployment]
_WHOLE_INSTANCES = "instances are rented whole: devices that it does not need are paid for there too"


def outcome(before: Fleet, now: Service, to: Service, context: Context) -> Outcome:
    """Return the outcome of a change of one service. `now` and `to` differ in fields or in deployments."""
    before_by_id = {deployment.deployment_id: deployment for deployment in now.deployments}
    after_by_id = {deployment.deployment_id: deployment for deployment in to.deployments}
    added = [deployment for key, deployment in after_by_id.items() if key not in before_by_id]
    removed = [deployment for key, deployment in before_by_id.items() if key not in after_by_id]
    pairs = [(before_by_id[key], after_by_id[key]) for key in before_by_id if key in after_by_id]
    try:
        if removed:
            return Outcome(unpriced="what several deployments do on one engine is not forecast: measure it in a trial")
        if added:
            return routing.outcome(before, now, pairs, added, context)
        parts = {change: _PARTS[change](before, now, to, pairs, context) for change in _changes(now, to)}
        return together.joined(parts, to.schedule, now.deployments)
    except NoPrice as missing:
        return Outcome(kept=same(to.deployments), unpriced=str(missing))


def _changes(now: Service, to: Service) -> list[together.Part]:
    """Return the parts of a service that differ."""
    schedule, demand = to.schedule != now.schedule, to.demand != now.demand
    deployments = to.deployments != now.deployments or to.replicas != now.replicas or not (schedule or demand)
    changed = {"deployments": deployments, "demand": demand, "schedule": schedule}
    return [part for part in together.PARTS if changed[part]]


def _deployments(before: Fleet, now: Service, to: Service, pairs: Sequence[Pair], context: Context) -> Outcome:
    only_deployments = replace(to, demand=now.demand, schedule=now.schedule)
    return replace(_changed(before, now, only_deployments, pairs, context), unconfirmed=_other_model(now, pairs))


def _demand(before: Fleet, now: Service, to: Service, pairs: Sequence[Pair], context: Context) -> Outcome:
    if any(new.placement.purchase == "per_token" for _, new in pairs):
        return Outcome(unpriced="an API is paid by the token: apply one, then propose the other")
    return demand_change.outcome(before, now, to, context)


def _schedule(before: Fleet, now: Service, to: Service, pairs: Sequence[Pair], context: Context) -> Outcome:
    return timetable.outcome(before, now, to.schedule, context)


_PARTS: Mapping[together.Part, Callable[[Fleet, Service, Service, Sequence[Pair], Context], Outcome]] = {
    "deployments": _deployments,
    "demand": _demand,
    "schedule": _schedule,
}
"""Functions that price one part of a service while the other parts stay unchanged."""


def _changed(before: Fleet, now: Service, to: Service, pairs: Sequence[Pair], context: Context) -> Outcome:
    different = [(old, new) for old, new in pairs if old != new]
    if any(old.serves != new.serves for old, new in different):
        return Outcome(unpriced="another share of the demand alone changes no bill: price what it frees")
    if any(old.restart != new.restart for old, new in different):
        return Outcome(
            unpriced=_restart(before, [old for old, new in different if old.restart != new.restart], context)
        )
    if reason := _device_knobs(before, different):
        return Outcome(unpriced=reason)
    if any(new.placement.purchase == "per_token" for _, new in different):
        return per_token.outcome(before, now, to, pairs, context)
    if different and all(set(old.knob_changes(new)) == {"power_cap_w"} for old, new in different):
        return energy.outcome(before, now, different, context)
    speeds: dict[int, Speed | None] = {}
    for old, new in pairs:
        forecast = speeds[old.deployment_id] = _speed(old, new, now, context)
        if forecast is not None and not forecast.known:
            pays = break_even(old, new, context) if forecast.unpriced is not None else None
            return Outcome(
                ratio=forecast.ratio,
                slo=forecast.slo,
                latency=forecast.latency,
                provenance=Provenance.ASSUMED if pays is not None else None,
                break_even=pays,
                unpriced=forecast.unpriced,
                infeasible=forecast.infeasible,
            )
    if to.replicas is not None and to.replicas != len(now.deployments):
        sized = resized(before, now, to, [new for _, new in pairs], speeds, context)
        if sized.infeasible is None or not different:
            return sized
        faster = _sped_up(before, pairs, speeds, context)
        return faster if len(pairs) == 1 else replace(faster, against=(*faster.against, sized.infeasible))
    return _sped_up(before, pairs, speeds, context)


def _other_model(service: Service, pairs: Sequence[Pair]) -> str | None:
    """Return the reason why savings of another model enter no total yet: its quality is not confirmed."""
    names = dict.fromkeys(new.model.name for old, new in pairs if new.model != old.model)
    unknown = [name for name in names if not service.passed("model", name)]
    if not unknown:
        return None
    passed = ", ".join(f'"model={name}"' for name in unknown)
    return (
        f"whether the outputs of {' and '.join(unknown)} are as good is not measured: evaluate them on your own "
        f'tasks, then add {passed} to `quality_passed` of [services."{service.name}"]'
    )


def _restart(before: Fleet, restarted: Sequence[Deployment], context: Context) -> str:
    """Return a sentence on the worth of a restart, with the bill of the time without service if prices are known."""
    text = "a restart changes no bill: it ends the time in which nothing is served"
    try:
        hourly = sum(
            device_price(before, device, context) for deployment in restarted for device in deployment.device_ids
        )
    except NoPrice:
        return text
    return f"{text}, at {format_usd(hourly)} an hour" if hourly else text


def _speed(old: Deployment, new: Deployment, service: Service, context: Context) -> Speed | None:
    """Return the forecast of a deployment, None if its speed cannot change."""
    if not changes_speed(old, new):
        return None
    seen = context.evidence(old.deployment_id)
    return speed(old, new, seen, objectives(service, context), context, len(service.deployments))


def questions(now: Service, to: Service, context: Context) -> Questions:
    """Return the forecasts that pricing a change of a service needs.

    They are the deployments with a possible change of speed, and the number of replicas that serve the demand.
    """
    present = {deployment.deployment_id: deployment for deployment in now.deployments}
    slo = objectives(now, context)
    changed = ((present.get(new.deployment_id), new) for new in to.deployments)
    changes = [
        # A move to an API is compared with the present deployment.
        Question(old, old if new.placement.purchase == "per_token" else new, context.evidence(old.deployment_id), slo)
        for old, new in changed
        if old is not None and (changes_speed(old, new) or new.placement.purchase == "per_token")
    ]
    if not changes and to.demand != now.demand:  # a changed demand is judged by its first deployment
        first = now.deployments[0]
        return Questions((Question(first, first, context.evidence(first.deployment_id), slo),))
    if to.replicas is None or to.replicas == len(now.deployments) or not to.deployments:
        return Questions(tuple(changes))
    if not changes and (busiest := _busiest(now, context)) is not None:
        changes.append(Question(busiest, busiest, context.evidence(busiest.deployment_id), slo))
    try:
        arrivals, _ = total_arrivals(now, context)
    except NotMeasured:
        return Questions(tuple(changes))
    return Questions(tuple(changes), ReplicaQuestion(to.deployments[0], arrivals, tail_limits(slo)))


def _busiest(now: Service, context: Context) -> Deployment | None:
    """Return the busiest deployment with a measured load, None without any."""
    loads = {}
    for deployment in now.deployments:
        with suppress(NotMeasured):
            loads[deployment.deployment_id] = context.forecasts.load(context.evidence(deployment.deployment_id)).busy
    return max(
        (deployment for deployment in now.deployments if deployment.deployment_id in loads),
        key=lambda deployment: loads[deployment.deployment_id],
        default=None,
    )


@by_identity
def changes_speed(old: Deployment, new: Deployment) -> bool:
    """Return whether the speed of a deployment may change. A change of price alone does not affect it."""
    if old is new or new.placement.purchase == "per_token":
        return False
    return bool(old.knob_changes(new)) or old.accelerator != new.accelerator


def _device_knobs(before: Fleet, different: Sequence[Pair]) -> str | None:
    """Return the reason why a change of whole devices cannot be priced: another deployment uses them too."""
    for old, new in different:
        if not _changes_device(old, new):
            continue
        for other in before.deployments:
            if other.deployment_id != old.deployment_id and set(other.device_ids) & set(old.device_ids):
                return f"its devices also serve {other.name}: clocks and power caps act on both"
    return None


@by_identity
def _changes_device(old: Deployment, new: Deployment) -> bool:
    """Return whether a knob of whole devices changes."""
    return any(knobs()[name].scope == "device" for name in old.knob_changes(new))


def _sped_up(before: Fleet, pairs: Sequence[Pair], speeds: dict[int, Speed | None], context: Context) -> Outcome:
    """Return the outcome where every replica stays: devices that it no longer needs, and busy time that it saves."""
    staying, provenances = [], []
    new_cost = [0.0, 0.0, 0.0]
    capacity = [0.0, 0.0, 0.0]
    has_capacity = False
    assumptions: list[str] = []
    against: list[str | Speed] = []
    forecasts: list[Speed] = []
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
        if forecast is not None and forecast.ratio is not None:
            provenances.append(forecast.provenance or Provenance.FORECAST)
            assumptions += forecast.assumptions
            against.append(forecast)
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
    # Latency forecasts take most of the time of a proposal, so they come last: only if nothing else refuses it.
    context.forecasts.judge(
        [forecast.latency for forecast in forecasts if forecast.latency is not None], context.market
    )
    reasons = [line for reason in against for line in (reason.against if isinstance(reason, Speed) else (reason,))]
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
        slo=first.slo if first else "unknown",
        latency=first.latency if first else None,
        provenance=worst([Provenance.REPORTED, *provenances]),
        assumptions=tuple(dict.fromkeys(assumptions)),
        against=tuple(dict.fromkeys([*reasons, *_low_end(pairs, speeds)])),
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


def _low_end(pairs: Sequence[Pair], speeds: dict[int, Speed | None]) -> list[str]:
    for old, _ in pairs:
        forecast = speeds.get(old.deployment_id)
        if forecast and forecast.at_most and forecast.load and forecast.at_most[0] < forecast.load.load.generated_tok_s:
            return ["at the low end of its forecast it would not hold the p95 demand"]
    return []
