"""Outcome of another number of replicas of a service: the replicas released, and the cost of those that move."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import attrgetter

from pertoken.evidence import Evidence, NotMeasured
from pertoken.provenance import Provenance, worst
from pertoken.savings.changes.packing import packed
from pertoken.savings.context import Context
from pertoken.savings.hosts import device_price, refuse_partitions
from pertoken.savings.instances import rented_devices
from pertoken.savings.load import MeasuredLoad
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.price_relation import price_relation
from pertoken.savings.sizing import kept, objectives, sizes, total_arrivals, wanted
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
    if _narrower(now, replicas):
        return _packed(before, now, replicas[0], counts, known, (*source, *counted.assumptions), context)
    slow, likely, fast = (min(count, present) for count in counts)
    if counts[1] > present:
        return _scaled_up(before, now, counts[1], known, context)
    if likely == present:
        why = "; ".join(["its p95 demand takes them", *counted.assumptions])
        return AllStay(f"all {present} replicas of {now.name} are needed: {why}")
    for deployment in now.deployments:
        refuse_partitions(before, deployment)
    against = []
    if slow == present:
        against.append("at the slow end of its forecast all replicas are needed")
    moved = [replica for replica in replicas if not replica.device_ids]
    cost = _new_cost(before, now, moved, counts=(slow, likely, fast), present=present, context=context)
    if isinstance(cost, str):
        return Outcome(infeasible=f"prices cannot be compared: {cost}")
    staying = _present(replicas, now) if not moved else ()
    return Outcome(
        kept=(
            kept(before, staying, slow, context),
            kept(before, staying, likely, context),
            kept(before, staying, fast, context),
        )
        if not moved
        else same(tuple(replica for replica in replicas if replica.device_ids)),
        new_nano_usd_per_hour=cost,
        ratio=known.ratio,
        judged=(known,),
        latency=known.latency,
        replicas=(present, likely),
        provenance=worst([Provenance.FORECAST, *([known.provenance] if known.provenance is not None else [])]),
        assumptions=(*source, *known.assumptions, *counted.assumptions),
        against=tuple(against),
        doubtful=known.doubtful,
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
    counts: tuple[int, int, int],
    known: Speed,
    assumptions: Sequence[str],
    context: Context,
) -> Outcome:
    """Return the outcome of replicas with fewer devices each on whole hosts. Those without room are paid for."""
    for deployment in now.deployments:
        refuse_partitions(before, deployment)
    fitted = [packed(before, now.deployments, like, count, context) for count in counts]
    device_ids = [device_id for deployment in now.deployments for device_id in deployment.device_ids]
    prices = [device_price(before, device_id, context) for device_id in device_ids]
    replica_price = sum(prices) / max(1, len(prices)) * (like.n_devices or 1)
    low, likely, high = (replica_price * packed.missing for packed in reversed(fitted))
    present = len(now.deployments)
    slow_end = f"at the slow end of its forecast {counts[0]} replicas are needed"
    return Outcome(
        kept=(fitted[0].placed, fitted[1].placed, fitted[2].placed),
        new_nano_usd_per_hour=(low, likely, high),
        ratio=known.ratio,
        judged=(known,),
        latency=known.latency,
        replicas=(present, counts[1]) if counts[1] != present else None,
        provenance=worst([Provenance.FORECAST, *([known.provenance] if known.provenance is not None else [])]),
        assumptions=(*assumptions, *known.assumptions),
        against=(slow_end,) if counts[0] > counts[1] else (),
        doubtful=known.doubtful,
    )


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


def _new_cost(
    before: Fleet,
    now: Service,
    moved: Sequence[Deployment],
    counts: tuple[int, int, int],
    present: int,
    context: Context,
) -> tuple[float, float, float] | str:
    """Return the nano-USD per hour of replicas on new devices (low, likely, high), or the reason why there is none."""
    if not moved:
        return 0.0, 0.0, 0.0
    old = next(deployment for deployment in now.deployments if deployment.deployment_id == moved[0].deployment_id)
    prices = [device_price(before, device_id, context) for device_id in old.device_ids]
    mean = sum(prices) / max(1, len(prices))
    relation = price_relation(old.placement, moved[0].placement, context.market, context.today, mean)
    if isinstance(relation, str):
        return relation
    staying = present - len(moved)
    needed = moved[0].n_devices or len(prices)
    replica_price = mean * needed

    def paid(count: int) -> float:
        new_replicas = max(0, count - staying)
        rented = rented_devices(moved[0].placement, new_replicas, needed, context.market) if new_replicas else 0
        return replica_price * rented / needed

    low, middle, high = relation.ratio
    return low * paid(counts[2]), middle * paid(counts[1]), high * paid(counts[0])


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
        if known.load is not None and known.unpriced is None:
            return known.load, known
        if known.unpriced is not None:
            reasons[old.deployment_id] = known.unpriced
    last = [reasons[deployment.deployment_id] for deployment in now.deployments if deployment.deployment_id in reasons][
        -1:
    ]
    return last[0] if last else f"nothing was measured of the replicas of {now.name}"


def _unchanged(now: Deployment, service: Service, seen: Evidence, context: Context) -> Speed:
    """Return the forecast of a deployment that does not change."""
    return speed(now, now, seen, objectives(service, context), context, len(service.deployments))


def _scaled_up(before: Fleet, now: Service, count: int, known: Speed, context: Context) -> Outcome:
    first = now.deployments[0]
    prices = [device_price(before, device_id, context) for device_id in first.device_ids]
    extra = float(sum(prices) * (count - len(now.deployments)))
    return Outcome(
        kept=same(now.deployments),
        new_nano_usd_per_hour=(extra, extra, extra),
        ratio=known.ratio,
        judged=(known,),
        latency=known.latency,
        replicas=(len(now.deployments), count),
        provenance=Provenance.FORECAST,
        against=(f"{count - len(now.deployments)} more replicas cost {format_usd(extra * HOURS_PER_MONTH)} a month",),
    )
