"""The outcome of a change for one service: knobs, moves, replicas."""

from collections.abc import Sequence
from dataclasses import replace

from pertoken.provenance import Provenance, worst
from pertoken.savings import demand_change, energy, routing, timetable
from pertoken.savings.context import Context, Money
from pertoken.savings.hosts import NoPrice, device_price, refuse_partitions
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.price_relation import price_relation
from pertoken.savings.replicas import resized
from pertoken.savings.sizing import objectives
from pertoken.savings.speed import Speed, speed
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.knobs import knobs
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH

Pair = tuple[Deployment, Deployment]


def outcome(before: Fleet, now: Service, to: Service, context: Context) -> Outcome:
    """Return what a change of one service does. `now` and `to` differ in fields or in deployments."""
    here = {each.deployment_id: each for each in now.deployments}
    there = {each.deployment_id: each for each in to.deployments}
    added = [each for key, each in there.items() if key not in here]
    removed = [each for key, each in here.items() if key not in there]
    pairs = [(here[key], there[key]) for key in here if key in there]
    try:
        if removed:
            return Outcome(unpriced="what several deployments do on one engine is not forecast: measure it in a trial")
        if added:
            return routing.outcome(before, now, pairs, added, context)
        if to.schedule != now.schedule:
            return timetable.outcome(before, now, to.schedule, context)
        if to.demand != now.demand:
            return demand_change.outcome(before, now, to, context)
        return _changed(before, now, to, pairs, context)
    except NoPrice as missing:
        return Outcome(kept=same(to.deployments), unpriced=str(missing))


def _changed(before: Fleet, now: Service, to: Service, pairs: Sequence[Pair], context: Context) -> Outcome:
    different = [(old, new) for old, new in pairs if old != new]
    if different and all(replace(old, serves=new.serves) == new for old, new in different):
        return Outcome(unpriced="another share of the demand changes no bill by itself: price what it frees")
    if any(old.restart != new.restart for old, new in different):
        return Outcome(unpriced="a restart changes no bill: it ends the time in which nothing is served")
    if reason := _device_knobs(before, different):
        return Outcome(unpriced=reason)
    if different and all(set(old.knob_changes(new)) == {"power_cap_w"} for old, new in different):
        return energy.outcome(before, now, different, context)
    speeds = {old.deployment_id: _speed(old, new, now, context) for old, new in pairs}
    refused = next((each for each in speeds.values() if each is not None and not each.known), None)
    if refused is not None:
        return Outcome(
            ratio=refused.ratio,
            slo=refused.slo,
            latency=refused.latency,
            unpriced=refused.unpriced,
            infeasible=refused.infeasible,
        )
    if to.replicas is not None and to.replicas != len(now.deployments):
        sized = resized(before, now, to, [new for _, new in pairs], speeds, context)
        if sized.infeasible is None or not different:
            return sized
        faster = _sped_up(before, pairs, speeds, context)
        return faster if len(pairs) == 1 else replace(faster, against=(*faster.against, sized.infeasible))
    return _sped_up(before, pairs, speeds, context)


def _speed(old: Deployment, new: Deployment, service: Service, context: Context) -> Speed | None:
    """The forecast of a deployment whose speed may change; None for one that runs as before, or only is paid for
    otherwise."""
    if not old.knob_changes(new) and old.accelerator == new.accelerator:
        return None
    seen = context.evidence(old.deployment_id)
    return speed(old, new, seen, objectives(service, context), context, len(service.deployments))


def _device_knobs(before: Fleet, different: Sequence[Pair]) -> str | None:
    """Why a change that acts on whole devices cannot be priced for one of their holders."""
    for old, new in different:
        if not any(knobs()[name].scope == "device" for name in old.knob_changes(new)):
            continue
        for other in before.deployments:
            if other.deployment_id != old.deployment_id and set(other.device_ids) & set(old.device_ids):
                return f"its devices also serve {other.name}: clocks and power caps act on both"
    return None


def _sped_up(before: Fleet, pairs: Sequence[Pair], speeds: dict[int, Speed | None], context: Context) -> Outcome:
    """Every replica stays: devices it no longer needs, and busy time that its devices save."""
    staying, origins = [], []
    new_cost = [0.0, 0.0, 0.0]
    capacity = [0.0, 0.0, 0.0]
    has_capacity = False
    assumptions: list[str] = []
    against: list[str] = []
    for old, new in pairs:
        found = speeds[old.deployment_id]
        if old == new:
            staying.append(old)
            continue
        refuse_partitions(before, old)
        prices = [device_price(before, each, context) for each in old.device_ids]
        if not prices:
            return Outcome(unpriced=f"the devices of {old.name} were not seen")
        after, price_factor = new.n_devices or len(prices), (1.0, 1.0, 1.0)
        if new.placement != old.placement:
            relation = price_relation(old.placement, new.placement, context.market, context.today)
            if isinstance(relation, str):
                return Outcome(infeasible=f"prices cannot be compared: {relation}")
            mean = sum(prices) / len(prices)
            for end in range(3):
                new_cost[end] += mean * after * relation.ratio[end]
            price_factor = relation.ratio
            assumptions.append(relation.note)
            if old.placement.purchase is None:
                assumptions.append("what is paid now is an on-demand price")
            if new.placement.purchase == "spot":
                against.append("spot devices are taken back at 30 s to 2 min notice; work lost by that is not counted")
            origins.append(Provenance.LISTED)
        else:
            if reason := _other_devices(before, old, new):
                return Outcome(unpriced=reason)
            shared = _sharing(before, old)
            if shared and after != len(prices):
                return Outcome(
                    unpriced=f"its devices also serve {shared}: a device that is shared cannot be given back for one"
                )
            staying.append(_on_fewer(old, new, after, context))
            if after > len(prices):
                mean = sum(prices) / len(prices)
                for end in range(3):
                    new_cost[end] += mean * (after - len(prices))
        if found is not None and found.ratio is not None:
            origins.append(found.provenance or Provenance.FORECAST)
            assumptions += found.assumptions
            against += found.against
            if found.load is not None:
                has_capacity = True
                moved = new.placement != old.placement
                _add_capacity(capacity, found, prices, after, price_factor if moved else None)
    first = next((each for each in speeds.values() if each is not None), None)
    money: Money | None = None
    if has_capacity:
        low, likely, high = (round(each * HOURS_PER_MONTH) for each in capacity)
        money = low, likely, high
    return Outcome(
        kept=same(tuple(staying)),
        new_nano_usd_per_hour=(new_cost[0], new_cost[1], new_cost[2]),
        capacity=money,
        ratio=first.ratio if first else None,
        slo=first.slo if first else "unknown",
        latency=first.latency if first else None,
        provenance=worst([Provenance.REPORTED, *origins]),
        assumptions=tuple(dict.fromkeys(assumptions)),
        against=tuple(dict.fromkeys([*against, *_low_end(pairs, speeds)])),
    )


def _add_capacity(
    capacity: list[float],
    found: Speed,
    prices: Sequence[int],
    after: int,
    price_factor: tuple[float, float, float] | None,
) -> None:
    """Add the busy dollars that a faster deployment frees, nano-USD per hour, at the slow, likely and fast end.

    Of a move (`price_factor`: price there over here) a share of the busy bill: 1 - (bill after / before) / ratio, the
    least speed meeting the highest price. Otherwise of the devices that it keeps: those it frees count by themselves.
    """
    assert found.load is not None and found.ratio is not None
    busy = sum(prices) * found.load.busy
    fewer = after / len(prices)
    for end, ratio in enumerate(found.ratio):
        if price_factor is not None:
            capacity[end] += busy * max(0.0, 1 - price_factor[2 - end] * fewer / ratio)
        else:
            capacity[end] += busy * min(1.0, fewer) * max(0.0, 1 - fewer / ratio)


def _on_fewer(old: Deployment, new: Deployment, after: int, context: Context) -> Deployment:
    """The deployment after the change on as many of its devices as it needs, the cheapest going last."""
    if after >= len(old.device_ids) or new.device_ids != old.device_ids:
        return new
    dearest_first = sorted(old.device_ids, key=lambda each: (-(context.nano_usd_per_hour.get(each) or 0), each))
    going = set(dearest_first[: len(old.device_ids) - after])
    return replace(new, device_ids=tuple(each for each in old.device_ids if each not in going))


def _other_devices(before: Fleet, old: Deployment, new: Deployment) -> str | None:
    """Why a deployment that moves to other devices of the fleet cannot be taken to run there as it does here."""
    if new.device_ids == old.device_ids:
        return None
    for each in (before.device(device_id) for device_id in new.device_ids):
        if each.accelerator != old.accelerator:
            return f"{each.name} is another accelerator: name it by on(Placement(accelerator=...)) to have it forecast"
    for other in before.deployments:
        if other.deployment_id != old.deployment_id and set(other.device_ids) & set(new.device_ids):
            return f"two engines on one device are not forecast: {other.name} runs there; measure it in a trial"
    return None


def _sharing(before: Fleet, deployment: Deployment) -> str | None:
    """Name another deployment on the same devices."""
    held = set(deployment.device_ids)
    others = (each for each in before.deployments if each.deployment_id != deployment.deployment_id)
    return next((each.name for each in others if held & set(each.device_ids)), None)


def _low_end(pairs: Sequence[Pair], speeds: dict[int, Speed | None]) -> list[str]:
    for old, _ in pairs:
        found = speeds.get(old.deployment_id)
        if found and found.at_most and found.load and found.at_most[0] < found.load.load.generated_tok_s:
            return ["at the low end of its forecast it would not hold the p95 demand"]
    return []
