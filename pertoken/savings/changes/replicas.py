"""Outcome of another number of replicas of a service: the replicas released, and the cost of the moved ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import attrgetter

from pertoken.arrivals import Arrivals
from pertoken.evidence import NotMeasured
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import ChangeUnderLoad, Forecast, Range, compare_all
from pertoken.provenance import Provenance, worst
from pertoken.savings.context import Context
from pertoken.savings.hosts import device_price, host_price, refuse_partitions
from pertoken.savings.load import MeasuredLoad
from pertoken.savings.outcome import Outcome, busy_cost, not_placed, same, unpriced
from pertoken.savings.placing import Counts, NotPlaced, place
from pertoken.savings.sizing import kept, objectives, redundancy, sizes, total_arrivals, wanted
from pertoken.savings.slo import has_objective
from pertoken.savings.speed import MAX_UNASKED_SLOWDOWN, Speed, calibrated, doubt, speed
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service, Slo
from pertoken.units import HOURS_PER_MONTH, format_usd


@dataclass(frozen=True, slots=True)
class Packed:
    """Replicas on devices of the fleet, and how many more need devices that it does not have."""

    placed: tuple[Deployment, ...]
    missing: int


def packed(present: Fleet, replicas: Sequence[Deployment], like: Deployment, count: int, context: Context) -> Packed:
    """Place `count` replicas of `like` on the devices that `replicas` run on now, each on one host.

    Hosts that others use too are filled first, since they stay anyway, then the cheapest per device. A device that
    others use too is not counted. Raises NoPrice.
    """
    needed = like.n_devices or 1
    ids = {replica.deployment_id for replica in replicas}
    alone: dict[int, list[int]] = {}
    for device_id in sorted({device_id for one in replicas for device_id in one.device_ids}):
        if {deployment.deployment_id for deployment in present.deployments_by_device[device_id]} <= ids:
            alone.setdefault(present.device(device_id).host_id, []).append(device_id)

    def order(host_id: int) -> tuple[bool, float, int]:
        host = present.host(host_id)
        leaves = {deployment.deployment_id for deployment in present.deployments_on(host)} <= ids
        return leaves, host_price(present, host, context) / len(alone[host_id]), host_id

    slots = [
        tuple(alone[host_id][start : start + needed])
        for host_id in sorted(alone, key=order)
        for start in range(0, len(alone[host_id]) - needed + 1, needed)
    ]
    return Packed(tuple(replace(like, device_ids=slot) for slot in slots[:count]), max(0, count - len(slots)))


ReplicaForecast = Callable[[Deployment], Speed | None]
"""Forecasts a replica of a service after a change; None if its speed cannot change."""


@dataclass(frozen=True, slots=True)
class AllStay:
    """All replicas of a service stay although another number is proposed."""

    reason: str


def resized(
    present_fleet: Fleet,
    service: Service,
    to: Service,
    replicas: Sequence[Deployment],
    forecast: ReplicaForecast,
    context: Context,
) -> Outcome | AllStay:
    """Return the outcome of the fewest replicas that serve the demand, or of the proposed number, whole hosts first.

    `replicas` are alike.
    """
    present = len(service.deployments)
    try:
        arrivals, source = total_arrivals(service, context)
        busiest_load = busiest(service, forecast, context)
    except NotMeasured as missing:
        return Outcome(unpriced=missing.sentence)
    if isinstance(busiest_load, str):
        return Outcome(unpriced=busiest_load)
    load, busiest_speed = busiest_load
    counted = sizes(service, replicas[0], busiest_speed, arrivals, context, load)
    if isinstance(counted, str):
        return AllStay(counted)
    counts = wanted(to, counted)
    if isinstance(counts, str):
        return AllStay(counts)
    busiest_speed = shared_by(counts[1], busiest_speed, arrivals)
    spare = redundancy(service, counts[1], counted.needed)
    if _narrower(service, replicas):
        fitted = _packed(
            present_fleet, service, replicas[0], counts, busiest_speed, (*source, *counted.assumptions), context
        )
        return replace(fitted, against=(*fitted.against, spare)) if counts[1] < present else fitted
    for deployment in service.deployments:
        refuse_partitions(present_fleet, deployment)
    assumptions = (*source, *busiest_speed.assumptions, *counted.assumptions)
    if not replicas[0].device_ids:
        moved = _moved(present_fleet, service, replicas[0], counts, busiest_speed, assumptions, context)
        return replace(moved, against=(*moved.against, spare)) if counts[1] < present else moved
    slow, likely, fast = (min(count, present) for count in counts)
    if counts[1] > present:
        return _scaled_up(present_fleet, service, counts[1], busiest_speed, context)
    if likely == present:
        why = "; ".join(["its p95 demand takes them", *counted.assumptions])
        return AllStay(f"all {present} replicas of {service.name} are needed: {why}")
    against = (spare, *(("at the slow end of its forecast all replicas are needed",) if slow == present else ()))
    staying = _present(replicas, service)
    return replace(
        _outcome(busiest_speed, assumptions, against),
        kept=(
            kept(present_fleet, staying, slow, context),
            kept(present_fleet, staying, likely, context),
            kept(present_fleet, staying, fast, context),
        ),
        replicas=(present, likely),
    )


def _outcome(speed: Speed, assumptions: Sequence[str], against: Sequence[str]) -> Outcome:
    """Return the outcome of replicas by the forecast of one, without their devices."""
    return Outcome(
        ratio=speed.ratio,
        judged=(speed,),
        latency=speed.latency,
        provenance=worst([Provenance.FORECAST, *([speed.provenance] if speed.provenance is not None else [])]),
        assumptions=tuple(assumptions),
        against=tuple(against),
        doubtful=speed.doubtful,
    )


def shared_by(count: int, speed: Speed, arrivals: Arrivals) -> Speed:
    """Return the forecast of a replica where `count` of them share all arrivals of a service."""
    if speed.latency is None or speed.latency.present is None:
        return speed
    return replace(speed, latency=speed.latency.shared_by(count, arrivals, speed.latency.present.load_share))


def _moved(
    present_fleet: Fleet,
    service: Service,
    replica: Deployment,
    counts: Counts,
    speed: Speed,
    assumptions: Sequence[str],
    context: Context,
) -> Outcome:
    """Return the outcome of replicas on new instances.

    The forecast for other devices may be wrong by a replica: one more is counted at its slow end, and one fewer at its
    fast end where the service may have fewer.
    """
    slow, likely, fast = counts
    fixed = service.min_replicas + service.spare_replicas
    fewest, most = min(fast, max(likely - 1, fixed, 1)), max(slow, likely + 1)
    old = next(present for present in service.deployments if present.deployment_id == replica.deployment_id)
    ranks = replica.n_devices or len(old.device_ids)
    placed = place(present_fleet, old, replica.placement, (fewest, likely, most), ranks, context)
    if isinstance(placed, NotPlaced):
        return not_placed(placed)
    present = len(service.deployments)
    return replace(
        _outcome(speed, (*placed.lines(context), *assumptions), placed.against),
        new_nano_usd_per_hour=placed.nano_usd_per_hour,
        placed=(placed,),
        to_confirm=placed.to_confirm,
        provenance=worst(
            [
                Provenance.FORECAST,
                *([Provenance.LISTED] if placed.listed else []),
                *([speed.provenance] if speed.provenance is not None else []),
            ]
        ),
        replicas=(present, likely) if likely != present else None,
    )


def _narrower(service: Service, replicas: Sequence[Deployment]) -> bool:
    """Return whether each replica keeps its devices but needs fewer of them, so that several may share a host."""
    return all(
        new.device_ids == old.device_ids and 0 < (new.n_devices or 0) < len(old.device_ids)
        for old, new in zip(service.deployments, replicas, strict=True)
    )


def _packed(
    present_fleet: Fleet,
    service: Service,
    like: Deployment,
    counts: Counts,
    speed: Speed,
    assumptions: Sequence[str],
    context: Context,
) -> Outcome:
    """Return the outcome of replicas with fewer devices each on whole hosts. Those without room get new instances."""
    for deployment in service.deployments:
        refuse_partitions(present_fleet, deployment)
    fitted = [packed(present_fleet, service.deployments, like, count, context) for count in counts]
    present = len(service.deployments)
    slow_end = f"at the slow end of its forecast {counts[0]} replicas are needed"
    on_present_hosts = replace(
        _outcome(speed, (*assumptions, *speed.assumptions), (slow_end,) if counts[0] > counts[1] else ()),
        kept=(fitted[0].placed, fitted[1].placed, fitted[2].placed),
        replicas=(present, counts[1]) if counts[1] != present else None,
    )
    slow, likely, fast = (packed.missing for packed in fitted)
    if slow == likely == fast == 0:
        return on_present_hosts
    placed = place(
        present_fleet, service.deployments[0], like.placement, (fast, likely, slow), like.n_devices or 1, context
    )
    if isinstance(placed, NotPlaced):
        return not_placed(placed)
    instances = (placed,) if likely else ()
    return replace(on_present_hosts, new_nano_usd_per_hour=placed.nano_usd_per_hour, placed=instances)


def alike(replicas: Sequence[Deployment]) -> bool:
    """Return whether replicas are equal except for their ids, devices and share of the requests."""
    return len(set(map(_shape(), replicas))) == 1


@cache
def _shape() -> Callable[[Deployment], tuple[object, ...]]:
    ignored = ("deployment_id", "epoch_id", "device_ids", "serves", "share_source")
    return attrgetter(*(field.name for field in fields(Deployment) if field.compare and field.name not in ignored))


def _present(replicas: Sequence[Deployment], service: Service) -> tuple[Deployment, ...]:
    """Return the replicas after the change, on their present devices."""
    devices = {deployment.deployment_id: deployment.device_ids for deployment in service.deployments}
    return tuple(
        _on_first(replica, devices[replica.deployment_id]) if replica.device_ids else replica for replica in replicas
    )


def _on_first(new: Deployment, device_ids: tuple[int, ...]) -> Deployment:
    needed = new.n_devices or len(device_ids)
    return replace(new, device_ids=device_ids[:needed])


def busiest_first(service: Service, context: Context) -> list[Deployment]:
    """Return the replicas of a service by their busy time, the busiest first and those without a measured load last."""

    def busy(deployment: Deployment) -> float:
        try:
            return context.forecasts.load(context.evidence(deployment.deployment_id)).busy
        except NotMeasured:
            return -1.0

    return sorted(service.deployments, key=busy, reverse=True)


def busiest(service: Service, forecast: ReplicaForecast, context: Context) -> tuple[MeasuredLoad, Speed] | str:
    """Return the load and the forecast of the busiest replica that can be forecast, or the reason why none can.

    A replica of which `forecast` returns None is forecast without a change.
    """
    reasons: dict[int, str] = {}
    for old in busiest_first(service, context):
        speed_after = forecast(old)
        if speed_after is None:
            speed_after = speed(old, old, objectives(service, context), context, len(service.deployments))
        if speed_after.load is not None and speed_after.known:
            return speed_after.load, speed_after
        if (reason := speed_after.unpriced or speed_after.infeasible) is not None:
            reasons[old.deployment_id] = reason
    last = [
        reasons[deployment.deployment_id] for deployment in service.deployments if deployment.deployment_id in reasons
    ][-1:]
    return last[0] if last else f"nothing was measured of the replicas of {service.name}"


def _scaled_up(present: Fleet, service: Service, count: int, speed: Speed, context: Context) -> Outcome:
    first, more = service.deployments[0], count - len(service.deployments)
    placed = place(present, first, first.placement, (more, more, more), len(first.device_ids), context)
    if isinstance(placed, NotPlaced):
        return not_placed(placed)
    usd = format_usd(placed.nano_usd_per_hour[1] * HOURS_PER_MONTH)
    return replace(
        _outcome(speed, placed.lines(context), (f"{more} more replicas cost {usd} a month",)),
        kept=same(service.deployments),
        new_nano_usd_per_hour=placed.nano_usd_per_hour,
        placed=(placed,),
        replicas=(len(service.deployments), count),
        provenance=Provenance.FORECAST,
    )


def routing_outcome(
    present: Fleet,
    service: Service,
    pairs: Sequence[tuple[Deployment, Deployment]],
    added: Sequence[Deployment],
    context: Context,
) -> Outcome:
    """Return the outcome of new deployments beside the present ones: money or a break-even. Raises NoPrice."""
    if any(new.role in ("prefill", "decode") for new in added):
        return Outcome(unpriced="prefill and decode on devices of their own are not forecast: try them for a week")
    changed = next((old for old, new in pairs if old != new), service.deployments[0])
    to = added[0]
    prices = [device_price(present, device_id, context) for device_id in changed.device_ids]
    if not prices:
        return Outcome(unpriced=f"the devices of {changed.name} were not seen")
    share = dict(to.serves).get(service.name) or 0.0
    forecast = _forecast(changed, to, share * len(service.deployments), objectives(service, context), context)
    if isinstance(forecast, Outcome):
        return forecast
    ratio, served_part, doubtful = forecast
    served = share * served_part
    count, ranks = len(added), to.n_devices or 1
    placed = place(present, changed, replace(to.placement, instance_type=None), (count, count, count), ranks, context)
    if isinstance(placed, NotPlaced):
        return Outcome(ratio=ratio, provenance=Provenance.ASSUMED, unpriced=placed.reason)
    extra = placed.nano_usd_per_hour[1]
    bill = sum(prices) * len(service.deployments)
    if extra >= bill:
        return Outcome(
            ratio=ratio,
            infeasible=f"{to.model.name} needs {placed.name} beside the devices that serve "
            f"{changed.model.name}: no share it could take pays for them",
        )
    if served_part < 1 and served <= extra / bill:
        return Outcome(
            ratio=ratio,
            infeasible=f"{to.model.name} on {placed.name} holds {served:.0%} of the load at most, and "
            f"pays from {extra / bill:.0%} on",
        )
    split = Outcome(
        kept=same(service.deployments),
        ratio=ratio,
        provenance=Provenance.ASSUMED,
        assumptions=placed.lines(context),
        placed=(placed,),
        to_confirm=placed.to_confirm,
        break_even=f"{to.model.name} on {placed.name} pays once it takes {extra / bill:.0%} of "
        f"the load and as much of what serves {changed.model.name} is given back"
        + (f"; it holds up to {served:.0%}" if served_part < 1 else ""),
        against=("outputs of a smaller model must be evaluated on your own tasks first",),
        unpriced=f"the share of requests {to.model.name} could answer is not measured: label a sample, then route",
        doubtful=doubtful,
    )
    if to.share_source is None:
        return split
    if served_part < 1:
        return replace(split, unpriced=f"it holds {served:.0%} of the load, not the {share:.0%} supplied: add replicas")
    return _supplied(present, service, share, replace(split, new_nano_usd_per_hour=(extra, extra, extra)), to, context)


def _supplied(
    present_fleet: Fleet, service: Service, share: float, split: Outcome, to: Deployment, context: Context
) -> Outcome:
    """Return the outcome of a supplied share: replicas that the other requests do not need, else freed busy time."""
    try:
        arrivals, arrivals_source = total_arrivals(service, context)
        busiest_load = busiest(service, lambda _: None, context)
    except NotMeasured as missing:
        return replace(split, unpriced=missing.sentence)
    if isinstance(busiest_load, str):
        return replace(split, unpriced=busiest_load)
    load, speed = busiest_load
    rest = replace(arrivals, requests_per_s=(1 - share) * arrivals.requests_per_s)
    counted = sizes(service, service.deployments[0], speed, rest, context, load)
    if isinstance(counted, str):
        return replace(split, unpriced=counted)
    present = len(service.deployments)
    slow, likely, fast = (min(count, present) for count in (counted.slow, counted.likely, counted.fast))
    judges = has_objective(objectives(service, context))
    source = f"{to.model.name} answers {share:.0%} of the requests as well, {to.share_source}"
    busy = sum(
        busy_cost(present_fleet, deployment, deployment.device_ids, context).nano_usd_per_hour
        for deployment in service.deployments
    )
    freed = round(busy * share * HOURS_PER_MONTH)
    return replace(
        split,
        kept=(
            kept(present_fleet, service.deployments, slow, context),
            kept(present_fleet, service.deployments, likely, context),
            kept(present_fleet, service.deployments, fast, context),
        ),
        capacity=(freed, freed, freed) if likely == present else None,
        judged=(shared_by(likely, speed, rest),),
        replicas=(present, likely) if likely != present else None,
        assumptions=(*split.assumptions, *arrivals_source, *speed.assumptions, *counted.assumptions, source),
        against=(*split.against, redundancy(service, likely, counted.needed)) if likely < present else split.against,
        slo=("unknown", f"the latency of what {to.model.name} answers is not measured") if judges else split.slo,
        doubtful=split.doubtful or speed.doubtful,
        break_even=None,
        unpriced=None,
    )


def _forecast(
    deployment: Deployment, to: Deployment, times: float, slo: Slo, context: Context
) -> tuple[Range, float, str | None] | Outcome:
    """Return tokens/s of a new deployment over those of a present one, the part of the load that it serves, and why
    this is doubtful.

    The load is `times` that of the present one; the part is at most 1. An `Outcome` is the reason of a refusal: the
    new deployment would not start, or its tokens would be too slow.
    """
    try:
        load = context.forecasts.load(context.evidence(deployment.deployment_id))
        calibration = calibrated(deployment, load, context)
        new_load = replace(
            load.load, generated_tok_s=times * load.load.generated_tok_s, running=max(1.0, times * load.load.running)
        )
        (change,) = compare_all([ChangeUnderLoad(deployment, to, new_load, calibration)], context.market)
        if isinstance(change, Abstained):
            raise change
    except (NotMeasured, Abstained, ValueError) as reason:
        return unpriced(reason)
    name = to.model.name
    if isinstance(change, Forecast):
        return Outcome(infeasible=f"{name} would not start: {change.refusal}")
    point = change.after.demand or change.after.saturated
    if point is None:
        return Outcome(ratio=change.ratio, unpriced=f"what {name} serves at most is not forecast")
    tpot_ms, limit_ms = point.tpot_ms[1], slo.tpot_p95_ms or slo.tpot_p50_ms
    tpot_ms *= (load.tpot_ms or change.tpot_ms_now) / change.tpot_ms_now  # as measured, times the change
    if limit_ms is None and tpot_ms > MAX_UNASKED_SLOWDOWN * change.tpot_ms_now:
        slower = tpot_ms / change.tpot_ms_now
        text = f"tokens of {name} would come {slower:.1f} times as slowly, and no SLO allows it: set `slo.tpot_ms`"
        return Outcome(ratio=change.ratio, infeasible=text)
    if limit_ms is not None and tpot_ms > limit_ms:
        text = f"TPOT of {name} would be about {tpot_ms:.0f} ms, with an SLO of {limit_ms:.0f} ms"
        return Outcome(ratio=change.ratio, infeasible=text)
    demand = new_load.generated_tok_s
    part = 1.0 if change.after.demand is not None or demand <= 0 else point.tok_s[1] / demand
    return change.ratio, part, doubt(calibration, change.ratio, verified=calibration.has_seen(deployment, to))
