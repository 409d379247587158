"""Outcome of a changed demand.

It depends on a number that is not measured, so it is a break-even. If a person supplied the number, the outcome is
priced as capacity: a smaller demand alone releases no host.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pertoken.arrivals import Arrivals
from pertoken.evidence import NotMeasured
from pertoken.forecast.host import Calibration
from pertoken.forecast.latency import LatencyQuery, utilizations
from pertoken.forecast.served import Abstained
from pertoken.provenance import Provenance
from pertoken.savings.context import Context, Money
from pertoken.savings.hosts import NoPrice
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.shared import busy_cost
from pertoken.savings.sizing import (
    arriving_share,
    changed_arrivals,
    changed_load,
    objectives,
    one_fewer_serves,
    total_arrivals,
)
from pertoken.savings.speed import Speed, speed
from pertoken.state.fleet import Fleet
from pertoken.state.service import EDITABLE, Demand, Quantity, Service
from pertoken.units import HOURS_PER_MONTH

STEPS = 50
"""Points between the present and the proposed demand at which the number of replicas is computed."""
STRIDE = 5
"""Every such point is computed first, then those before the first of them that releases a replica."""
NONE_RELEASED = "no replica is released"


def outcome(before: Fleet, now: Service, to: Service, context: Context) -> Outcome:
    """Return the share of busy time that a changed demand frees, and the point from which it frees a replica."""
    changed = [name for name in EDITABLE if getattr(now.demand, name) != getattr(to.demand, name)]
    first = now.deployments[0]
    predicted = speed(first, first, context.evidence(first.deployment_id), objectives(now, context), context)
    if predicted.load is None or predicted.calibration is None:
        if changed == ["response_cache_share"]:  # cached requests never reach the engine, so no forecast is needed
            share = 1 - arriving_share(now.demand, to.demand)
            return _freed(before, now, to, changed, share, Outcome(), context)
        return Outcome(unpriced=predicted.unpriced or predicted.infeasible or "nothing was measured of its load")
    try:
        arrivals, source = total_arrivals(now, context)
        share = _freed_share(now, to.demand, predicted, context)
    except NotMeasured as missing:
        return Outcome(unpriced=missing.sentence)
    except Abstained as reason:
        return Outcome(unpriced=str(reason))
    predicted = _under(now, to.demand, predicted, arrivals)
    releases = _releases(now, to.demand, changed, predicted, arrivals, context)
    forecast = Outcome(
        judged=(predicted,),
        latency=predicted.latency,
        assumptions=(*source, *predicted.assumptions),
        break_even=releases,
        doubtful=predicted.doubtful,
    )
    return _freed(before, now, to, changed, share, forecast, context)


def _under(now: Service, demand: Demand, forecast: Speed, arrivals: Arrivals) -> Speed:
    """Return the forecast of a replica under a changed demand."""
    latency, load = forecast.latency, forecast.load
    if latency is None or latency.present is None or latency.proposed is None or load is None:
        return forecast
    count = len(now.deployments)
    changed = changed_arrivals(arrivals, now.demand, demand)
    rate = float(changed.requests_per_s) * latency.present.load_share / count
    proposed = replace(
        latency.proposed,
        load=changed_load(load, now.demand, demand).load,
        arrivals=replace(changed, requests_per_s=rate),
    )
    return replace(forecast, latency=replace(latency, proposed=proposed, counts=(count, count)))


def _releases(
    now: Service, after: Demand, changed: Sequence[str], forecast: Speed, arrivals: Arrivals, context: Context
) -> str:
    """Return the point between the present and the proposed demand from which a replica is released, as a phrase."""
    assert forecast.load is not None
    if len(now.deployments) <= max(1, now.min_replicas) + now.spare_replicas:
        return NONE_RELEASED
    load = forecast.load

    def first_release(steps: Sequence[int]) -> int | None:
        demands = [_between(now.demand, after, changed, step / STEPS) for step in steps]
        loads = [
            (changed_arrivals(arrivals, now.demand, demand), changed_load(load, now.demand, demand))
            for demand in demands
        ]
        released = one_fewer_serves(now, now.deployments[0], forecast, loads, context)
        return next((step for step, enough in zip(steps, released, strict=True) if enough), None)

    first = first_release(range(0, STEPS + 1, STRIDE))
    if first is None:
        return NONE_RELEASED
    if first == 0:
        return "the demand as it is needs fewer replicas already"
    step = first_release(range(first - STRIDE + 1, first)) or first
    return f"a replica is released from {_shown(_between(now.demand, after, changed, step / STEPS), changed[0])} on"


def _freed(
    before: Fleet, now: Service, to: Service, changed: Sequence[str], share: float, known: Outcome, context: Context
) -> Outcome:
    """Return the outcome of a freed share of busy time: money if a person supplied the number, else a break-even."""
    proposed, source = _shown(to.demand, changed[0]), getattr(to.demand, changed[0]).source
    if share <= 0:
        return Outcome(infeasible=f"{proposed} frees no busy time: it takes {-share:.0%} more of it")
    frees = f"at {proposed} it frees {share:.0%} of its busy time" + (
        f"; {known.break_even}" if known.break_even else ""
    )
    known = replace(
        known,
        kept=same(now.deployments),
        provenance=Provenance.ASSUMED,
        assumptions=(*known.assumptions, *([f"{proposed}: {source}"] if source else [])),
        break_even=frees,
    )
    if not all(getattr(to.demand, field).confirmed for field in changed):
        return replace(known, unpriced=f"{proposed} is a proposal, not a measurement: try it, or confirm the number")
    try:
        capacity = _freed_money(before, now, share, context)
    except (NotMeasured, NoPrice) as missing:
        return replace(known, unpriced=str(missing))
    return replace(known, capacity=capacity, assumptions=(*known.assumptions, frees), break_even=None)


def _freed_money(before: Fleet, now: Service, share: float, context: Context) -> Money:
    """Return the cost of a share of the busy time of a service per month. Raises NotMeasured, NoPrice."""
    by_device = before.deployments_by_device
    costs = [busy_cost(before, by_device, deployment, deployment.device_ids, context) for deployment in now.deployments]
    monthly = round(sum(cost.nano_usd_per_hour for cost in costs) * share * HOURS_PER_MONTH)
    return monthly, monthly, monthly


def _freed_share(now: Service, demand: Demand, forecast: Speed, context: Context) -> float:
    """Return 1 - work after / work before of the same requests, by the utilization of a full batch.

    Raises Abstained, NotMeasured.
    """
    assert forecast.load is not None
    first = now.deployments[0]
    arrivals, _ = total_arrivals(now, context)
    per_replica = replace(arrivals, requests_per_s=arrivals.requests_per_s / len(now.deployments))

    ends = [
        LatencyQuery(
            first, load.load, changed_arrivals(per_replica, now.demand, target), forecast.calibration or Calibration()
        )
        for load, target in ((forecast.load, now.demand), (changed_load(forecast.load, now.demand, demand), demand))
    ]
    utilization_before, utilization_after = map(_utilization, utilizations(ends, context.market))
    return 1 - utilization_after / utilization_before if utilization_before > 0 else 0.0


def _utilization(utilization: float | Abstained) -> float:
    if isinstance(utilization, Abstained):
        raise utilization
    return utilization


def _between(before: Demand, after: Demand, names: Sequence[str], share: float) -> Demand:
    changed: dict[str, Any] = {}
    for name in names:
        new = getattr(after, name)
        old = getattr(before, name) or Quantity(0.0, new.provenance)
        changed[name] = Quantity(old.value + share * (new.value - old.value), new.provenance, new.source)
    return replace(before, **changed)


def _shown(demand: Demand, name: str) -> str:
    value = getattr(demand, name).value
    return f"{name.replace('_', ' ')} {f'{value:,.0f}' if value >= 100 else f'{value:.3g}'}"
