"""Outcome of a changed demand.

It depends on a number that is not measured, so it is a break-even. If a person supplied the number, the outcome is
priced as capacity: a smaller demand alone releases no host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pertoken.arrivals import Arrivals
from pertoken.evidence import NotMeasured
from pertoken.forecast.host import Calibration
from pertoken.forecast.latency import LatencyQuery, utilizations
from pertoken.forecast.served import Abstained
from pertoken.provenance import Provenance
from pertoken.savings.changes.replicas import alike, busiest, shared_by
from pertoken.savings.context import Context, Money
from pertoken.savings.hosts import Freed, NoPrice, freed, whole_devices
from pertoken.savings.load import measured_latency
from pertoken.savings.outcome import Kept, Outcome, busy_cost, same, unpriced
from pertoken.savings.sizing import (
    Sizes,
    arriving_share,
    changed_arrivals,
    changed_load,
    kept,
    objectives,
    one_fewer_serves,
    redundancy,
    sizes,
    total_arrivals,
)
from pertoken.savings.slo import Verdict, unchanged
from pertoken.savings.speed import Speed, speed
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import EDITABLE, HOURS_OF_WEEK, Demand, Schedule, Service
from pertoken.units import HOURS_PER_MONTH, counted

STEPS = 50
"""Points between the present and the proposed demand at which the number of replicas is computed."""
STRIDE = 5
"""Every such point is computed first, then those before the first of them that releases a replica."""
NONE_RELEASED = "no replica is released"


def demand_outcome(present: Fleet, service: Service, to: Service, context: Context) -> Outcome:
    """Return the share of busy time that a changed demand frees, and the point from which it frees a replica."""
    changed = [name for name in EDITABLE if getattr(service.demand, name) != getattr(to.demand, name)]
    first = service.deployments[0]
    predicted = speed(first, first, objectives(service, context), context)
    if predicted.load is None or predicted.calibration is None:
        if changed == ["response_cache_share"]:  # cached requests never reach the engine, so no forecast is needed
            share = 1 - arriving_share(service.demand, to.demand)
            return _freed(present, service, to, changed, share, Outcome(), context)
        return Outcome(unpriced=predicted.unpriced or predicted.infeasible or "nothing was measured of its load")
    try:
        arrivals, source = total_arrivals(service, context)
        share = _freed_share(service, to.demand, predicted, context)
    except (NotMeasured, Abstained) as reason:
        return unpriced(reason)
    predicted = _under(service, to.demand, predicted, arrivals)
    releases = _releases(service, to.demand, changed, predicted, arrivals, context)
    forecast = Outcome(
        judged=(predicted,),
        latency=predicted.latency,
        assumptions=(*source, *predicted.assumptions),
        break_even=releases,
        doubtful=predicted.doubtful,
    )
    return _freed(present, service, to, changed, share, forecast, context)


def _under(service: Service, demand: Demand, forecast: Speed, arrivals: Arrivals) -> Speed:
    """Return the forecast of a replica under a changed demand."""
    latency, load = forecast.latency, forecast.load
    if latency is None or latency.present is None or latency.proposed is None or load is None:
        return forecast
    count = len(service.deployments)
    changed = changed_arrivals(arrivals, service.demand, demand)
    rate = float(changed.requests_per_s) * latency.present.load_share / count
    proposed = replace(
        latency.proposed,
        load=changed_load(load, service.demand, demand).load,
        arrivals=replace(changed, requests_per_s=rate),
    )
    return replace(forecast, latency=replace(latency, proposed=proposed, counts=(count, count)))


def _releases(
    service: Service, after: Demand, changed: Sequence[str], forecast: Speed, arrivals: Arrivals, context: Context
) -> str:
    """Return the point between the present and the proposed demand from which a replica is released, as a phrase."""
    assert forecast.load is not None
    if len(service.deployments) <= max(1, service.min_replicas) + service.spare_replicas:
        return NONE_RELEASED
    load = forecast.load

    def first_release(steps: Sequence[int]) -> int | None:
        demands = [_between(service.demand, after, changed, step / STEPS) for step in steps]
        loads = [
            (changed_arrivals(arrivals, service.demand, demand), changed_load(load, service.demand, demand))
            for demand in demands
        ]
        released = one_fewer_serves(service, service.deployments[0], forecast, loads, context)
        return next((step for step, enough in zip(steps, released, strict=True) if enough), None)

    first = first_release(range(0, STEPS + 1, STRIDE))
    if first is None:
        return NONE_RELEASED
    if first == 0:
        return "the demand as it is needs fewer replicas already"
    step = first_release(range(first - STRIDE + 1, first)) or first
    return f"a replica is released from {_shown(_between(service.demand, after, changed, step / STEPS), changed[0])} on"


def _freed(
    present: Fleet,
    service: Service,
    to: Service,
    changed: Sequence[str],
    share: float,
    priced: Outcome,
    context: Context,
) -> Outcome:
    """Return the outcome of a freed share of busy time: money if a person supplied the number, else a break-even."""
    proposed, source = _shown(to.demand, changed[0]), getattr(to.demand, changed[0]).source
    if share <= 0:
        return Outcome(infeasible=f"{proposed} frees no busy time: it takes {-share:.0%} more of it")
    frees = f"at {proposed} it frees {share:.0%} of its busy time" + (
        f"; {priced.break_even}" if priced.break_even else ""
    )
    priced = replace(
        priced,
        kept=same(service.deployments),
        provenance=Provenance.ASSUMED,
        assumptions=(*priced.assumptions, *([f"{proposed}: {source}"] if source else [])),
        break_even=frees,
    )
    if not all(getattr(to.demand, field).confirmed for field in changed):
        return replace(priced, unpriced=f"{proposed} is a proposal, not a measurement: try it, or confirm the number")
    try:
        capacity = _freed_money(present, service, share, context)
    except (NotMeasured, NoPrice) as missing:
        return replace(priced, unpriced=str(missing))
    return replace(priced, capacity=capacity, assumptions=(*priced.assumptions, frees), break_even=None)


def _freed_money(present: Fleet, service: Service, share: float, context: Context) -> Money:
    """Return the cost of a share of the busy time of a service per month. Raises NotMeasured, NoPrice."""
    costs = [busy_cost(present, deployment, deployment.device_ids, context) for deployment in service.deployments]
    monthly = round(sum(cost.nano_usd_per_hour for cost in costs) * share * HOURS_PER_MONTH)
    return monthly, monthly, monthly


def _freed_share(service: Service, demand: Demand, forecast: Speed, context: Context) -> float:
    """Return 1 - work after / work before of the same requests, by the utilization of a full batch.

    Raises Abstained, NotMeasured.
    """
    assert forecast.load is not None
    first = service.deployments[0]
    arrivals, _ = total_arrivals(service, context)
    per_replica = replace(arrivals, requests_per_s=arrivals.requests_per_s / len(service.deployments))

    ends = [
        LatencyQuery(
            first,
            load.load,
            changed_arrivals(per_replica, service.demand, target),
            forecast.calibration or Calibration(),
        )
        for load, target in (
            (forecast.load, service.demand),
            (changed_load(forecast.load, service.demand, demand), demand),
        )
    ]
    utilization_before, utilization_after = map(_utilization, utilizations(ends, context.market))
    return 1 - utilization_after / utilization_before if utilization_before > 0 else 0.0


def _utilization(utilization: float | Abstained) -> float:
    if isinstance(utilization, Abstained):
        raise utilization
    return utilization


def _between(present_demand: Demand, after: Demand, names: Sequence[str], share: float) -> Demand:
    demand = present_demand
    for name in names:
        new, old = getattr(after, name), getattr(present_demand, name)
        start = 0.0 if old is None else old.value
        quantity = replace(new, value=start + share * (new.value - start))
        demand = replace(demand, **{name: quantity})
    return demand


def _shown(demand: Demand, name: str) -> str:
    value = getattr(demand, name).value
    return f"{name.replace('_', ' ')} {f'{value:,.0f}' if value >= 100 else f'{value:.3g}'}"


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class _ReplicasByHour:
    """Numbers of replicas that the demand needs in the scheduled hours, by the scheduled number."""

    needed: Mapping[int, Sizes]
    judged: tuple[Speed, ...] = ()
    """Latency in the busiest hour of each number."""
    assumptions: tuple[str, ...] = ()
    doubtful: str | None = None


def schedule_outcome(
    present: Fleet, service: Service, schedule: Schedule, context: Context, running: Kept | None = None
) -> Outcome:
    """Return the savings of a schedule; with `running`, those in addition to a change that keeps only these replicas.

    Hours off release whole hosts (bankable), hours asleep free devices (capacity). Hours with a number of replicas
    release the hosts of the other replicas, if that number serves the demand within the objectives. A schedule is
    refused if requests came in an hour off or asleep. Hours that were not recorded save nothing; without any other hour
    it is unpriced. Raises NoPrice.
    """
    demand = service.demand.requests_by_hour_of_week
    scheduled = sorted(schedule.off | schedule.asleep | {hour for hour, _ in schedule.replicas})
    unrecorded = [hour for hour in scheduled if demand[hour] is None]
    if unrecorded and len(unrecorded) == len(scheduled):
        return Outcome(unpriced=f"nothing was recorded on {_named(unrecorded[0])}: record a whole week first")
    schedule = Schedule(
        schedule.off.difference(unrecorded),
        schedule.asleep.difference(unrecorded),
        tuple((hour, count) for hour, count in schedule.replicas if hour not in unrecorded),
    )
    counts = dict(schedule.replicas)
    silent = schedule.off | schedule.asleep | {hour for hour, count in counts.items() if count == 0}
    for hour in sorted(silent):
        if rate := demand[hour]:
            return Outcome(infeasible=f"{rate:.2g} requests/s came on {_named(hour)}: it is not idle then")
    if silent and service.min_replicas > 1:
        return Outcome(infeasible=f"{service.min_replicas} replicas are the minimum set for {service.name}")
    fixed = {hour: count for hour, count in counts.items() if count}
    replicas = _replicas(service, fixed, context) if fixed else _ReplicasByHour({})
    if isinstance(replicas, Outcome):
        return replicas
    priced = _priced(present, service, schedule, fixed, replicas, running or same(service.deployments), context)
    return replace(priced, against=(*priced.against, *_not_counted(unrecorded)))


def _not_counted(unrecorded: Sequence[int]) -> tuple[str, ...]:
    """Return a sentence on scheduled hours that were not recorded; none where all were."""
    if not unrecorded:
        return ()
    more = f" and {counted(len(unrecorded) - 1, 'more hour')}" if len(unrecorded) > 1 else ""
    return (f"nothing was recorded on {_named(unrecorded[0])}{more} of the schedule: no saving is counted for it",)


def _replicas(service: Service, fixed: Mapping[int, int], context: Context) -> _ReplicasByHour | Outcome:
    """Return the replicas needed in the busiest hour of each scheduled number, or the refusal of too small a number."""
    present = len(service.deployments)
    if max(fixed.values()) > present:
        return Outcome(unpriced=f"{service.name} has {present} replicas: schedule a number from 0 to {present}")
    if not alike(service.deployments):
        return Outcome(unpriced=f"the replicas of {service.name} differ: make them alike first")
    try:
        arrivals, source = total_arrivals(service, context)
    except NotMeasured as missing:
        return Outcome(unpriced=missing.sentence)
    busiest_load = busiest(service, lambda _: None, context)
    if isinstance(busiest_load, str):
        return Outcome(unpriced=busiest_load)
    load, speed = busiest_load
    rates = [rate for rate in service.demand.requests_by_hour_of_week if rate is not None]
    burst = max(1.0, arrivals.requests_per_s / max(rates)) if max(rates) > 0 else 1.0
    needed: dict[int, Sizes] = {}
    judged: list[Speed] = []
    notes: list[str] = []
    for count in sorted(set(fixed.values())):
        hour = max((hour for hour in fixed if fixed[hour] == count), key=lambda hour: _rate(service, hour))
        # The queue needs a rate above 0: an hour without requests counts as one with a single request.
        hourly = replace(arrivals, requests_per_s=max(_rate(service, hour) * burst, 1 / 3600))
        size = sizes(service, service.deployments[0], speed, hourly, context, load)
        if isinstance(size, str):
            return Outcome(infeasible=f"on {_named(hour)}: {size}")
        if size.likely > count:
            why = "; ".join(size.assumptions) or "its demand within the SLO takes them"
            return Outcome(infeasible=f"{count} replicas do not do on {_named(hour)}: {size.likely} are needed ({why})")
        needed[count] = size
        judged.append(shared_by(count, speed, hourly))
        notes += size.assumptions
    if burst > 1:
        notes.append(f"in each hour p95 demand is {burst:.1f} times its mean, as in the busiest hour")
    assumptions = tuple(dict.fromkeys((*source, *speed.assumptions, *notes)))
    return _ReplicasByHour(needed, tuple(judged), assumptions, speed.doubtful)


def _priced(
    present_fleet: Fleet,
    service: Service,
    schedule: Schedule,
    fixed: Mapping[int, int],
    replicas: _ReplicasByHour,
    running: Kept,
    context: Context,
) -> Outcome:
    others = [deployment for deployment in present_fleet.deployments if deployment not in service.deployments]
    present = len(service.deployments)
    empty = len(schedule.off) + sum(count == 0 for _, count in schedule.replicas)

    def free(staying: Sequence[Deployment]) -> Freed:
        return freed(present_fleet, whole_devices(present_fleet, [*others, *staying]), (), context)

    # What runs no longer in any hour is not freed again in the hours off.
    free_always = [free(deployments) for deployments in running]
    all_free, against, hours = free(()), [], [(0, empty)]
    for count, size in replicas.needed.items():
        hours.append((count, sum(scheduled == count for scheduled in fixed.values())))
        if count < present:
            against.append(f"in hours with {counted(count, 'replica')}: {redundancy(service, count, size.needed)}")
        if size.slow > count:
            against.append(
                f"at the slow end of its forecast {size.slow} replicas are needed where {count} are scheduled"
            )
    bankable, timed = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
    for count, n_hours in hours:
        for end in range(3):
            # At the slow end the replicas needed there run.
            needed = max(count, replicas.needed[count].slow) if end == 0 and count in replicas.needed else count
            released = free(kept(present_fleet, service.deployments, min(needed, present), context))
            months = n_hours / HOURS_OF_WEEK * HOURS_PER_MONTH
            bankable[end] += (released.bankable - free_always[end].bankable) * months
            timed[end] += (released.capacity - free_always[end].capacity) * months
    if schedule.asleep or empty:
        against.append(_wait_note(service, empty > 0, context))
    months_asleep = len(schedule.asleep) / HOURS_OF_WEEK * HOURS_PER_MONTH
    asleep = [
        (all_free.bankable + all_free.capacity - always.bankable - always.capacity) * months_asleep
        for always in free_always
    ]
    return Outcome(
        kept=same(service.deployments),
        bankable=_money(bankable),
        timed=_money([sum(ends) for ends in zip(timed, asleep, strict=True)]),
        judged=replicas.judged,
        slo=_verdict_of_idle_hours(service, context),
        provenance=Provenance.FORECAST if replicas.needed else Provenance.REPORTED,
        assumptions=(*replicas.assumptions, "a replica starts again before the first request that needs it"),
        against=(*against, *all_free.against),
        doubtful=replicas.doubtful,
    )


def _verdict_of_idle_hours(service: Service, context: Context) -> Verdict:
    """Return the verdict on hours without requests: no latency changes in them."""
    seen = context.services.get(service.name)
    return unchanged({} if seen is None else measured_latency(seen), objectives(service, context))


def _wait_note(service: Service, off: bool, context: Context) -> str:
    """Return a sentence on the wait of requests in hours without replicas, with the TTFT objective."""
    limit_ms = objectives(service, context).ttft_p95_ms
    beside = "" if limit_ms is None else f", and its TTFT objective is {limit_ms:.0f} ms"
    if not off:
        return f"a request that comes in these hours waits for the wake-up, which is not measured here{beside}"
    starts = [
        load_s.p95
        for deployment in service.deployments
        if (load_s := context.evidence(deployment.deployment_id).peek("load_s"))
    ]
    if not starts:
        return (
            "a request that comes in these hours waits for a start (weights to load, kernels to compile: minutes), "
            f"which was not measured here{beside}"
        )
    return f"a request that comes in these hours waits for a start, {max(starts):.0f} s as measured (p95){beside}"


def _money(nano_usd: Sequence[float]) -> Money:
    low, likely, high = (round(amount) for amount in nano_usd)
    return low, likely, high


def _rate(service: Service, hour: int) -> float:
    return service.demand.requests_by_hour_of_week[hour] or 0.0


def _named(hour: int) -> str:
    return f"{DAYS[hour // 24]} at {hour % 24:02}:00 UTC"
