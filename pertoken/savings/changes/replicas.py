"""Outcome of another number of replicas of a service: the replicas released, and the cost of those that move."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import attrgetter

from pertoken.arrivals import Arrivals
from pertoken.evidence import Evidence, NotMeasured
from pertoken.provenance import Provenance, worst
from pertoken.savings.changes.packing import packed
from pertoken.savings.context import Context
from pertoken.savings.hosts import refuse_partitions
from pertoken.savings.load import MeasuredLoad
from pertoken.savings.outcome import Outcome, not_placed, same
from pertoken.savings.placing import Counts, NotPlaced, place
from pertoken.savings.sizing import kept, objectives, redundancy, sizes, total_arrivals, wanted
from pertoken.savings.speed import Speed, speed
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH, format_usd

ReplicaForecast = Callable[[Deployment], Speed | None]
"""Forecasts a replica of a service after a change; None if its speed cannot change."""


@dataclass(frozen=True, slots=True)
class AllStay:
    """All replicas of a service stay although another number is proposed."""

    reason: str


def resized(
    before: Fleet,
    now: Service,
    to: Service,
    replicas: Sequence[Deployment],
    forecast: ReplicaForecast,
    context: Context,
) -> Outcome | AllStay:
    """Return the outcome of the fewest replicas that serve the demand, or of the proposed number, whole hosts first.

    `replicas` are alike.
    """
    present = len(now.deployments)
    try:
        arrivals, source = total_arrivals(now, context)
        busiest_load = busiest(now, forecast, context)
    except NotMeasured as missing:
        return Outcome(unpriced=missing.sentence)
    if isinstance(busiest_load, str):
        return Outcome(unpriced=busiest_load)
    load, known = busiest_load
    counted = sizes(now, replicas[0], known, arrivals, context, load)
    if isinstance(counted, str):
        return AllStay(counted)
    counts = wanted(to, counted)
    if isinstance(counts, str):
        return AllStay(counts)
    known = shared_by(counts[1], known, arrivals)
    spare = redundancy(now, counts[1], counted.needed)
    if _narrower(now, replicas):
        fitted = _packed(before, now, replicas[0], counts, known, (*source, *counted.assumptions), context)
        return replace(fitted, against=(*fitted.against, spare)) if counts[1] < present else fitted
    for deployment in now.deployments:
        refuse_partitions(before, deployment)
    assumptions = (*source, *known.assumptions, *counted.assumptions)
    if not replicas[0].device_ids:
        moved = _moved(before, now, replicas[0], counts, known, assumptions, context)
        return replace(moved, against=(*moved.against, spare)) if counts[1] < present else moved
    slow, likely, fast = (min(count, present) for count in counts)
    if counts[1] > present:
        return _scaled_up(before, now, counts[1], known, context)
    if likely == present:
        why = "; ".join(["its p95 demand takes them", *counted.assumptions])
        return AllStay(f"all {present} replicas of {now.name} are needed: {why}")
    against = (spare, *(("at the slow end of its forecast all replicas are needed",) if slow == present else ()))
    staying = _present(replicas, now)
    return replace(
        _outcome(known, assumptions, against),
        kept=(
            kept(before, staying, slow, context),
            kept(before, staying, likely, context),
            kept(before, staying, fast, context),
        ),
        replicas=(present, likely),
    )


def _outcome(known: Speed, assumptions: Sequence[str], against: Sequence[str]) -> Outcome:
    """Return what is known of replicas from the forecast of one, without their devices."""
    return Outcome(
        ratio=known.ratio,
        judged=(known,),
        latency=known.latency,
        provenance=worst([Provenance.FORECAST, *([known.provenance] if known.provenance is not None else [])]),
        assumptions=tuple(assumptions),
        against=tuple(against),
        doubtful=known.doubtful,
    )


def shared_by(count: int, known: Speed, arrivals: Arrivals) -> Speed:
    """Return the forecast of a replica where `count` of them share all arrivals of a service."""
    if known.latency is None or known.latency.present is None:
        return known
    return replace(known, latency=known.latency.shared_by(count, arrivals, known.latency.present.load_share))


def _moved(
    before: Fleet,
    now: Service,
    replica: Deployment,
    counts: Counts,
    known: Speed,
    assumptions: Sequence[str],
    context: Context,
) -> Outcome:
    """Return the outcome of replicas on new instances.

    The forecast for other devices may be wrong by a replica: one more is counted at its slow end, and one fewer at its
    fast end where the service may have fewer.
    """
    slow, likely, fast = counts
    fixed = now.min_replicas + now.spare_replicas
    fewest, most = min(fast, max(likely - 1, fixed, 1)), max(slow, likely + 1)
    old = next(one for one in now.deployments if one.deployment_id == replica.deployment_id)
    ranks = replica.n_devices or len(old.device_ids)
    placed = place(before, old, replica.placement, (fewest, likely, most), ranks, context)
    if isinstance(placed, NotPlaced):
        return not_placed(placed)
    present = len(now.deployments)
    return replace(
        _outcome(known, (*placed.lines(context), *assumptions), placed.against),
        new_nano_usd_per_hour=placed.nano_usd_per_hour,
        placed=(placed,),
        to_confirm=placed.to_confirm,
        provenance=worst(
            [
                Provenance.FORECAST,
                *([Provenance.LISTED] if placed.listed else []),
                *([known.provenance] if known.provenance is not None else []),
            ]
        ),
        replicas=(present, likely) if likely != present else None,
    )


def _narrower(now: Service, replicas: Sequence[Deployment]) -> bool:
    """Return whether each replica keeps its devices but needs fewer of them, so that several may share a host."""
    return all(
        new.device_ids == old.device_ids and 0 < (new.n_devices or 0) < len(old.device_ids)
        for old, new in zip(now.deployments, replicas, strict=True)
    )


def _packed(
    before: Fleet,
    now: Service,
    like: Deployment,
    counts: Counts,
    known: Speed,
    assumptions: Sequence[str],
    context: Context,
) -> Outcome:
    """Return the outcome of replicas with fewer devices each on whole hosts. Those without room get new instances."""
    for deployment in now.deployments:
        refuse_partitions(before, deployment)
    fitted = [packed(before, now.deployments, like, count, context) for count in counts]
    present = len(now.deployments)
    slow_end = f"at the slow end of its forecast {counts[0]} replicas are needed"
    on_present_hosts = replace(
        _outcome(known, (*assumptions, *known.assumptions), (slow_end,) if counts[0] > counts[1] else ()),
        kept=(fitted[0].placed, fitted[1].placed, fitted[2].placed),
        replicas=(present, counts[1]) if counts[1] != present else None,
    )
    slow, likely, fast = (packed.missing for packed in fitted)
    if slow == likely == fast == 0:
        return on_present_hosts
    placed = place(before, now.deployments[0], like.placement, (fast, likely, slow), like.n_devices or 1, context)
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


def _present(replicas: Sequence[Deployment], now: Service) -> tuple[Deployment, ...]:
    """Return the replicas after the change, on their present devices."""
    devices = {deployment.deployment_id: deployment.device_ids for deployment in now.deployments}
    return tuple(
        _on_first(replica, devices[replica.deployment_id]) if replica.device_ids else replica for replica in replicas
    )


def _on_first(new: Deployment, device_ids: tuple[int, ...]) -> Deployment:
    needed = new.n_devices or len(device_ids)
    return replace(new, device_ids=device_ids[:needed])


def busiest_first(now: Service, context: Context) -> list[Deployment]:
    """Return the replicas of a service by their busy time, the busiest first and those without a measured load last."""

    def busy(deployment: Deployment) -> float:
        try:
            return context.forecasts.load(context.evidence(deployment.deployment_id)).busy
        except NotMeasured:
            return -1.0

    return sorted(now.deployments, key=busy, reverse=True)


def busiest(now: Service, forecast: ReplicaForecast, context: Context) -> tuple[MeasuredLoad, Speed] | str:
    """Return the load and the forecast of the busiest replica that can be forecast, or the reason why none can.

    A replica of which `forecast` returns None is forecast without a change.
    """
    reasons: dict[int, str] = {}
    for old in busiest_first(now, context):
        known = forecast(old)
        if known is None:
            known = _unchanged(old, now, context.evidence(old.deployment_id), context)
        if known.load is not None and known.known:
            return known.load, known
        if (reason := known.unpriced or known.infeasible) is not None:
            reasons[old.deployment_id] = reason
    last = [reasons[deployment.deployment_id] for deployment in now.deployments if deployment.deployment_id in reasons][
        -1:
    ]
    return last[0] if last else f"nothing was measured of the replicas of {now.name}"


def _unchanged(now: Deployment, service: Service, seen: Evidence, context: Context) -> Speed:
    """Return the forecast of a deployment that does not change."""
    return speed(now, now, seen, objectives(service, context), context, len(service.deployments))


def _scaled_up(before: Fleet, now: Service, count: int, known: Speed, context: Context) -> Outcome:
    first, more = now.deployments[0], count - len(now.deployments)
    placed = place(before, first, first.placement, (more, more, more), len(first.device_ids), context)
    if isinstance(placed, NotPlaced):
        return not_placed(placed)
    usd = format_usd(placed.nano_usd_per_hour[1] * HOURS_PER_MONTH)
    return replace(
        _outcome(known, placed.lines(context), (f"{more} more replicas cost {usd} a month",)),
        kept=same(now.deployments),
        new_nano_usd_per_hour=placed.nano_usd_per_hour,
        placed=(placed,),
        replicas=(len(now.deployments), count),
        provenance=Provenance.FORECAST,
    )
