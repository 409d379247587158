"""Outcome of a schedule: hours of the week in which a service has fewer replicas, none, or sleeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pertoken.evidence import NotMeasured
from pertoken.provenance import Provenance
from pertoken.savings.changes.replicas import alike, busiest, shared_by
from pertoken.savings.context import Context, Money
from pertoken.savings.hosts import Freed, freed, whole_devices
from pertoken.savings.load import measured_latency
from pertoken.savings.outcome import Kept, Outcome, same
from pertoken.savings.sizing import Sizes, kept, objectives, redundancy, sizes, total_arrivals
from pertoken.savings.slo import Verdict, unchanged
from pertoken.savings.speed import Speed
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import HOURS_OF_WEEK, Schedule, Service
from pertoken.units import HOURS_PER_MONTH, counted

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class _ReplicasByHour:
    """Numbers of replicas that the demand needs in the scheduled hours, by the scheduled number."""

    needed: Mapping[int, Sizes]
    judged: tuple[Speed, ...] = ()
    """Latency in the busiest hour of each number."""
    assumptions: tuple[str, ...] = ()
    doubtful: str | None = None


def outcome(before: Fleet, now: Service, schedule: Schedule, context: Context, running: Kept | None = None) -> Outcome:
    """Return the savings of a schedule; with `running`, those in addition to a change that keeps only these replicas.

    Hours off release whole hosts (bankable), hours asleep free devices (capacity). Hours with a number of replicas
    release the hosts of the other replicas, if that number serves the demand within the objectives. A schedule is
    refused if requests came in an hour off or asleep. Hours that were not recorded save nothing; without any other hour
    it is unpriced. Raises NoPrice.
    """
    demand = now.demand.requests_by_hour_of_week
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
    if silent and now.min_replicas > 1:
        return Outcome(infeasible=f"{now.min_replicas} replicas are the minimum set for {now.name}")
    fixed = {hour: count for hour, count in counts.items() if count}
    replicas = _replicas(now, fixed, context) if fixed else _ReplicasByHour({})
    if isinstance(replicas, Outcome):
        return replicas
    priced = _priced(before, now, schedule, fixed, replicas, running or same(now.deployments), context)
    return replace(priced, against=(*priced.against, *_not_counted(unrecorded)))


def _not_counted(unrecorded: Sequence[int]) -> tuple[str, ...]:
    """Return a sentence on scheduled hours that were not recorded; none where all were."""
    if not unrecorded:
        return ()
    more = f" and {counted(len(unrecorded) - 1, 'more hour')}" if len(unrecorded) > 1 else ""
    return (f"nothing was recorded on {_named(unrecorded[0])}{more} of the schedule: no saving is counted for it",)


def _replicas(now: Service, fixed: Mapping[int, int], context: Context) -> _ReplicasByHour | Outcome:
    """Return the replicas needed in the busiest hour of each scheduled number, or the refusal of too small a number."""
    present = len(now.deployments)
    if max(fixed.values()) > present:
        return Outcome(unpriced=f"{now.name} has {present} replicas: schedule a number from 0 to {present}")
    if not alike(now.deployments):
        return Outcome(unpriced=f"the replicas of {now.name} differ: make them alike first")
    try:
        arrivals, source = total_arrivals(now, context)
    except NotMeasured as missing:
        return Outcome(unpriced=missing.sentence)
    busiest_load = busiest(now, lambda _: None, context)
    if isinstance(busiest_load, str):
        return Outcome(unpriced=busiest_load)
    load, speed = busiest_load
    rates = [rate for rate in now.demand.requests_by_hour_of_week if rate is not None]
    burst = max(1.0, arrivals.requests_per_s / max(rates)) if max(rates) > 0 else 1.0
    needed: dict[int, Sizes] = {}
    judged: list[Speed] = []
    notes: list[str] = []
    for count in sorted(set(fixed.values())):
        hour = max((hour for hour in fixed if fixed[hour] == count), key=lambda hour: _rate(now, hour))
        # The queue needs a rate above 0: an hour without requests counts as one with a single request.
        hourly = replace(arrivals, requests_per_s=max(_rate(now, hour) * burst, 1 / 3600))
        size = sizes(now, now.deployments[0], speed, hourly, context, load)
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
    before: Fleet,
    now: Service,
    schedule: Schedule,
    fixed: Mapping[int, int],
    replicas: _ReplicasByHour,
    running: Kept,
    context: Context,
) -> Outcome:
    others = [deployment for deployment in before.deployments if deployment not in now.deployments]
    present = len(now.deployments)
    empty = len(schedule.off) + sum(count == 0 for _, count in schedule.replicas)

    def free(staying: Sequence[Deployment]) -> Freed:
        return freed(before, whole_devices(before, [*others, *staying]), (), context)

    # What runs no longer in any hour is not freed again in the hours off.
    free_always = [free(deployments) for deployments in running]
    all_free, against, hours = free(()), [], [(0, empty)]
    for count, size in replicas.needed.items():
        hours.append((count, sum(scheduled == count for scheduled in fixed.values())))
        if count < present:
            against.append(f"in hours with {counted(count, 'replica')}: {redundancy(now, count, size.needed)}")
        if size.slow > count:
            against.append(
                f"at the slow end of its forecast {size.slow} replicas are needed where {count} are scheduled"
            )
    bankable, timed = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
    for count, n_hours in hours:
        for end in range(3):
            # At the slow end the replicas needed there run.
            needed = max(count, replicas.needed[count].slow) if end == 0 and count in replicas.needed else count
            released = free(kept(before, now.deployments, min(needed, present), context))
            months = n_hours / HOURS_OF_WEEK * HOURS_PER_MONTH
            bankable[end] += (released.bankable - free_always[end].bankable) * months
            timed[end] += (released.capacity - free_always[end].capacity) * months
    if schedule.asleep or empty:
        against.append(_wait_note(now, empty > 0, context))
    months_asleep = len(schedule.asleep) / HOURS_OF_WEEK * HOURS_PER_MONTH
    asleep = [
        (all_free.bankable + all_free.capacity - always.bankable - always.capacity) * months_asleep
        for always in free_always
    ]
    return Outcome(
        kept=same(now.deployments),
        bankable=_money(bankable),
        timed=_money([sum(ends) for ends in zip(timed, asleep, strict=True)]),
        judged=replicas.judged,
        slo=_verdict_of_idle_hours(now, context),
        provenance=Provenance.FORECAST if replicas.needed else Provenance.REPORTED,
        assumptions=(*replicas.assumptions, "a replica starts again before the first request that needs it"),
        against=(*against, *all_free.against),
        doubtful=replicas.doubtful,
    )


def _verdict_of_idle_hours(now: Service, context: Context) -> Verdict:
    """Return the verdict on hours without requests: no latency changes in them."""
    seen = context.services.get(now.name)
    return unchanged({} if seen is None else measured_latency(seen), objectives(now, context))


def _wait_note(now: Service, off: bool, context: Context) -> str:
    """Return a sentence on the wait of requests in hours without replicas, with the TTFT objective."""
    limit_ms = objectives(now, context).ttft_p95_ms
    beside = "" if limit_ms is None else f", and its TTFT objective is {limit_ms:.0f} ms"
    if not off:
        return f"a request that comes in these hours waits for the wake-up, which is not measured here{beside}"
    starts = [
        known.p95
        for deployment in now.deployments
        if (known := context.evidence(deployment.deployment_id).peek("load_s"))
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


def _rate(now: Service, hour: int) -> float:
    return now.demand.requests_by_hour_of_week[hour] or 0.0


def _named(hour: int) -> str:
    return f"{DAYS[hour // 24]} at {hour % 24:02}:00 UTC"
