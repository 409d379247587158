"""A changed demand: what it frees depends on a number that nobody measured, so that it yields a break-even."""

from dataclasses import replace
from typing import Any

from pertoken.evidence import NotMeasured
from pertoken.forecast.queue.latency import latency
from pertoken.forecast.served import Abstained
from pertoken.savings.context import Context
from pertoken.savings.load import MeasuredLoad
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.sizing import changed_arrivals, changed_load, objectives, sizes, total_arrivals
from pertoken.savings.speed import Speed, speed
from pertoken.state.demand import EDITABLE, Demand, Quantity
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service

STEPS = 50
"""Points between the present and the proposed demand at which replicas are counted."""


def outcome(before: Fleet, now: Service, to: Service, context: Context) -> Outcome:
    """Return the share of busy time that a changed demand frees, and from where on it frees a replica."""
    changed = [name for name in EDITABLE if getattr(now.demand, name) != getattr(to.demand, name)]
    name = changed[0]
    one = now.deployments[0]
    found = speed(one, one, context.evidence(one.deployment_id), objectives(now, context), context)
    if found.load is None or found.calibration is None:
        return Outcome(unpriced=found.unpriced or "nothing was measured of its load")
    try:
        arrivals, said = total_arrivals(now, context)
        share = _freed_share(now, to.demand, found, context)
    except NotMeasured as missing:
        return Outcome(unpriced=f"{missing.series} was not measured: {missing.remedy}")
    except Abstained as reason:
        return Outcome(unpriced=str(reason))
    proposed = _shown(to.demand, name)
    if share <= 0:
        return Outcome(infeasible=f"{proposed} frees no busy time: it takes {-share:.0%} more of it")
    frees = f"at {proposed} it frees {share:.0%} of its busy time"
    releases = "no replica is released"
    for step in range(STEPS + 1):
        demand = _between(now.demand, to.demand, changed, step / STEPS)
        load = changed_load(found.load, now.demand, demand)
        counted = sizes(now, one, found, changed_arrivals(arrivals, now.demand, demand), context, load)
        if not isinstance(counted, str) and counted.likely < len(now.deployments):
            from_here = f"a replica is released from {_shown(demand, name)} on"
            releases = from_here if step else "the demand as it is needs fewer replicas already"
            break
    source = getattr(to.demand, name).source
    return Outcome(
        kept=same(before.deployments),
        slo=found.slo,
        latency=found.latency,
        assumptions=(*said, *found.assumptions, *([f"{proposed}: {source}"] if source else [])),
        break_even=f"{frees}; {releases}",
        unpriced=f"{proposed} is a proposal, not a measurement: try it, or confirm the number",
    )


def _freed_share(now: Service, demand: Demand, found: Speed, context: Context) -> float:
    """1 - work after / work before at the same requests: utilization of a full batch. Raises Abstained, NotMeasured."""
    assert found.load is not None
    one = now.deployments[0]
    arrivals, _ = total_arrivals(now, context)
    each = replace(arrivals, requests_per_s=arrivals.requests_per_s / len(now.deployments))

    def work(load: MeasuredLoad, target: Demand) -> float:
        return latency(
            one, load.load, changed_arrivals(each, now.demand, target), context.market, found.calibration
        ).utilization

    here, there = work(found.load, now.demand), work(changed_load(found.load, now.demand, demand), demand)
    return 1 - there / here if here > 0 else 0.0


def _between(before: Demand, after: Demand, names: list[str], share: float) -> Demand:
    changed: dict[str, Any] = {}
    for name in names:
        new = getattr(after, name)
        old = getattr(before, name) or Quantity(0.0, new.provenance)
        changed[name] = Quantity(old.value + share * (new.value - old.value), new.provenance, new.source)
    return replace(before, **changed)


def _shown(demand: Demand, name: str) -> str:
    return f"{name.replace('_', ' ')} {getattr(demand, name).value:.3g}"
