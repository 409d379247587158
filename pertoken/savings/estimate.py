"""What a proposal would save: dollars that leave the bill, apart from dollars the same bill could serve more with.

Bankable: the bill falls while demand stays, because whole hosts are released or cost less. Capacity: the bill stays,
and devices or busy time become free for more work. A device gives one or the other, never both, so that a total never
exceeds what is paid.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pertoken.forecast.serving import Range
from pertoken.provenance import Provenance, worst
from pertoken.savings.changes import commitments, merging, sharing
from pertoken.savings.context import NOTHING, Context, Money
from pertoken.savings.hosts import Freed, NoPrice, freed, host_price, whole_devices
from pertoken.savings.outcome import Outcome
from pertoken.savings.services import outcome, questions
from pertoken.savings.slo import VERDICTS, Latencies
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Diff, diff
from pertoken.state.errors import InvalidEdit
from pertoken.state.fleet import Fleet, deployments_unlike, services_unlike
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH, NANO_USD, format_usd

LOW, LIKELY, HIGH = range(3)
MAX_NAMED = 4
"""Hosts that an assumption names; all of them are in `released`."""
ONE_OFF_NANO_USD = 10_000 * NANO_USD
"""Example of what evaluating, distilling or training once may cost, to show how long it takes to be repaid."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a proposal would save, why that may be wrong, or why nothing can be stated."""

    bankable: Money | None = None
    capacity: Money | None = None
    throughput_ratio: Range | None = None
    """Generated tokens/s of what changes, after over before, on the devices it then has."""
    slo: str = "unknown"
    """`pass`, `near_miss`, `fail`, or `unknown` where no SLO is set or nothing was forecast."""
    latency: Latencies | None = None
    """Latency before and after; None where nothing was forecast."""
    provenance: Provenance | None = None
    assumptions: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    """Names of the hosts that pricing gives back, chosen by it or by the proposal."""
    replicas: tuple[int, int] | None = None
    """Replicas of the service before and after, where their number changes."""
    stopped: tuple[int, ...] = ()
    """Ids of the deployments that pricing stops where the number of replicas falls."""
    added: tuple[tuple[str, int], ...] = ()
    """Services of which pricing starts more replicas, and how many."""
    bill_rise: int = 0
    """Nano-USD per month by which the bill would rise: `bankable` is 0 then."""
    break_even: str | None = None
    """From which value of an unmeasured number the proposal pays; no money in it until somebody confirms it."""
    unpriced: str | None = None
    """Why there is no money in it, and what would change that."""
    infeasible: str | None = None
    """Why it must not be proposed: it would not start, not hold the demand, or miss the SLO."""


class Outcomes:
    """Outcomes that many states of a fleet have in common, by the identity of what they are of; it keeps that alive."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[object, Outcome]] = {}

    def of_service(self, before: Fleet, now: Service, to: Service, context: Context) -> Outcome:
        """Return the outcome of a change of one service."""
        return self._once((now, to), lambda: outcome(before, now, to, context))

    def of_company(self, before: Fleet, there: tuple[Deployment, ...], context: Context) -> Outcome:
        """Return the outcome of deployments that come to share a device."""
        return self._once(there, lambda: sharing.outcome(before, there, context))

    def _once(self, of: tuple[object, ...], compute: Callable[[], Outcome]) -> Outcome:
        key = tuple(map(id, of))
        if key not in self._known:
            self._known[key] = of, compute()
        return self._known[key][1]


def estimate(
    before: Fleet, after: Fleet, context: Context, difference: Diff | None = None, known: Outcomes | None = None
) -> Estimate:
    """Price going from `before` to `after`, per month of 730 h; `difference` is theirs, where it is known already.

    `known` remembers outcomes from one estimate to the next, of the same `before` and `context`.

    Raises InvalidEdit (a ValueError) if nothing differs, or no edit leads from one to the other.
    """
    difference, known = difference or diff(before, after), known or Outcomes()
    if not difference:
        raise InvalidEdit("the proposal equals the present")
    services = {each.name: each for each in after.services}
    merges = merging.merges(before, after, difference)
    merged = {service.name for each in merges for service in each.services}
    outcomes = [merging.outcome(each, context) for each in merges]
    changed = [
        (each, known.of_service(before, each, services[each.name], context))
        for each in before.services
        if each.name not in merged and each is not services[each.name] and each != services[each.name]
    ]
    outcomes += [each for _, each in changed]
    outcomes += [
        commitments.outcome(before, each, context) for each in after.commitments if each not in before.commitments
    ]
    slices = any(change.field == "partitions" for change in difference.changes)
    if slices and all(held >= 0 for each in deployments_unlike(after, before) for held in each.device_ids):
        outcomes.append(Outcome(unpriced="dividing a device changes no bill by itself: price what then runs on it"))
    companies = sharing.newly_shared(before, after, deployments_unlike(after, before))
    outcomes += [known.of_company(before, each, context) for each in companies]
    refused = next((each for each in outcomes if each.infeasible is not None), None)
    if refused is not None:
        return _without_money(refused)
    if any(each.unpriced for each in outcomes):
        return _joined(outcomes, None)
    try:
        money = _money(before, after, difference, outcomes, context)
    except NoPrice as missing:
        return Estimate(unpriced=str(missing))
    found = _marked(_joined(outcomes, money), before, after, difference, context)
    found = replace(
        found,
        stopped=tuple(key for service, each in changed for key in _stopped(service, each)),
        added=tuple((service.name, more) for service, each in changed if (more := _more_replicas(each)) > 0),
    )
    unconfirmed = "; ".join(dict.fromkeys(each.unconfirmed for each in outcomes if each.unconfirmed))
    return _held_back(found, unconfirmed) if unconfirmed else found


def spend(fleet: Fleet, context: Context) -> tuple[int, tuple[str, ...]]:
    """Return the bill of all hosts with a price, nano-USD per month of 730 h, and the names of those without one."""
    total, unpriced = 0, []
    for host in fleet.hosts:
        try:
            total += host_price(fleet, host, context) * HOURS_PER_MONTH
        except NoPrice:
            unpriced.append(host.name)
    return total, tuple(unpriced)


def _held_back(found: Estimate, why: str) -> Estimate:
    """Return an estimate whose money a person has to confirm: shown as a break-even, and in no total.

    One that saves nothing is returned as it is: there is nothing to confirm.
    """
    bankable, capacity = found.bankable or NOTHING, found.capacity or NOTHING
    if bankable[LIKELY] <= 0 and capacity[LIKELY] <= 0:
        return found
    if bankable[LIKELY] > 0:
        days = ONE_OFF_NANO_USD / bankable[LIKELY] * HOURS_PER_MONTH / 24
        pays = (
            f"it saves {_monthly(bankable)} of the bill if its outputs are as good: {format_usd(ONE_OFF_NANO_USD)} "
            f"spent once on evaluation and training is repaid in {days:.0f} days"
        )
    else:
        pays = f"it frees capacity worth {_monthly(capacity)} if its outputs are as good, and the bill stays"
    return replace(found, bankable=None, capacity=None, break_even=pays, unpriced=why, provenance=Provenance.ASSUMED)


def _monthly(money: Money) -> str:
    low, likely, high = map(format_usd, money)
    return f"{likely} a month" + (f" ({low} to {high})" if low != high else "")


def _marked(found: Estimate, before: Fleet, after: Fleet, difference: Diff, context: Context) -> Estimate:
    """Return an estimate that names the list prices its dollars rest on, where nobody set what is really paid."""
    if not context.listed:
        return found
    changed = [each for each in before.services if _unchanged(each, after) == ()]
    devices = set(whole_devices(before, [each for service in changed for each in service.deployments]))
    devices |= {device for host in difference.released for device in host.device_ids}
    committed = {(e.provider, e.instance_type) for e in after.commitments if e not in before.commitments}
    for host in before.hosts if committed else ():
        if (host.placement.provider, host.placement.instance_type) in committed:
            devices.update(host.device_ids)
    notes = dict.fromkeys(context.listed[each] for each in sorted(devices) if each in context.listed)
    if not notes:
        return found
    return replace(
        found,
        provenance=Provenance.LISTED if found.provenance is None else worst([found.provenance, Provenance.LISTED]),
        assumptions=(*found.assumptions, *(f"nobody set what is paid: dollars are by the {each}" for each in notes)),
    )


def prepare(before: Fleet, proposed: Iterable[Fleet], context: Context) -> None:
    """Forecast what several proposals change side by side, ahead of `estimate` of each: it takes a part of the time."""
    services = {each.name: each for each in before.services}
    asked = [
        questions(services[each.name], each, context)
        for after in proposed
        for each in services_unlike(after, before)
        if each.name in services
    ]
    context.forecasts.prepare(asked, context.market, context.opinion)


def prepare_shown(shown: Iterable[Estimate], context: Context) -> None:
    """Forecast the latencies of several estimates side by side, ahead of whoever shows them."""
    context.forecasts.show([each.latency for each in shown if each.latency is not None], context.market)


@dataclass(frozen=True, slots=True)
class _Totals:
    bankable: Money
    capacity: Money
    released: tuple[str, ...]
    against: tuple[str, ...]
    bill_rise: int


def _money(before: Fleet, after: Fleet, difference: Diff, outcomes: Sequence[Outcome], context: Context) -> _Totals:
    """Dollars of whole hosts at each end, beside what outcomes state themselves. Raises NoPrice."""
    untouched = whole_devices(before, [each for service in before.services for each in _unchanged(service, after)])
    bankable, capacity, staying = [0, 0, 0], [0, 0, 0], [0, 0, 0]
    found: Freed | None = None
    for end in (LOW, HIGH, LIKELY):  # the likely end last: its hosts are the ones that are named
        running = whole_devices(before, [each for outcome in outcomes for each in _kept(outcome, end)])
        found = freed(before, untouched | running, difference.released, context)
        # The lowest saving meets the highest price elsewhere.
        elsewhere = sum(each.new_nano_usd_per_hour[HIGH - end] for each in outcomes)
        bankable[end] = round((found.bankable - elsewhere) * HOURS_PER_MONTH)
        capacity[end] = staying[end] = found.capacity * HOURS_PER_MONTH
        for each in outcomes:
            bankable[end] += each.bankable[end] if each.bankable else 0
            capacity[end] += each.capacity[end] if each.capacity else 0
            staying[end] += each.capacity[end] if each.capacity and each.kept[end] else 0
    assert found is not None
    timed = [sum(each.timed[end] for each in outcomes if each.timed) for end in (LOW, LIKELY, HIGH)]
    against = list(found.against)
    rises = max(0, -bankable[LIKELY])
    if rises:
        against.append(f"the bill would rise by {format_usd(rises)} a month while demand stays as it is")
    if bankable[LIKELY] <= 0:
        bankable = [0, 0, 0]
    # A device is either given back or free: what moves away from a host that is released serves nothing more there.
    free = staying if bankable[LIKELY] > 0 and found.released else capacity
    return _Totals(
        bankable=(max(0, bankable[LOW]), bankable[LIKELY], bankable[HIGH]),
        capacity=(free[LOW] + timed[LOW], free[LIKELY] + timed[LIKELY], free[HIGH] + timed[HIGH]),
        released=tuple(each.name for each in found.released),
        against=tuple(against),
        bill_rise=rises,
    )


def _more_replicas(outcome: Outcome) -> int:
    before, after = outcome.replicas or (0, 0)
    return after - before


def _stopped(service: Service, outcome: Outcome) -> tuple[int, ...]:
    """Return which deployments a smaller number of replicas stops: the last by id of those that keep no devices."""
    before, after = outcome.replicas or (0, 0)
    staying = {each.deployment_id for each in outcome.kept[LIKELY]}
    leaving = sorted(each.deployment_id for each in service.deployments if each.deployment_id not in staying)
    return tuple(leaving[len(leaving) - max(0, before - after) :])


def _kept(outcome: Outcome, end: int) -> tuple[Deployment, ...]:
    return outcome.kept[end]


def _unchanged(service: Service, after: Fleet) -> tuple[Deployment, ...]:
    same = after.service(service.name)
    return service.deployments if service is same or service == same else ()


def _without_money(outcome: Outcome) -> Estimate:
    return Estimate(
        throughput_ratio=outcome.ratio, slo=outcome.slo, latency=outcome.latency, infeasible=outcome.infeasible
    )


def _joined(outcomes: Sequence[Outcome], money: _Totals | None) -> Estimate:
    unpriced = "; ".join(dict.fromkeys(each.unpriced for each in outcomes if each.unpriced)) or None
    latencies = [each.latency for each in outcomes if each.latency is not None]
    ratios = [each.ratio for each in outcomes if each.ratio is not None]
    origins = [each.provenance for each in outcomes if each.provenance is not None]
    released = money.released if money else ()
    if released:
        origins.append(Provenance.REPORTED)
    return Estimate(
        bankable=money.bankable if money else None,
        capacity=money.capacity if money else None,
        throughput_ratio=ratios[0] if len(ratios) == 1 else None,
        latency=latencies[0] if len(latencies) == 1 else None,
        slo=max((each.slo for each in outcomes), key=VERDICTS.index, default="unknown"),
        provenance=worst(origins) if origins else None,
        assumptions=tuple(
            dict.fromkeys([*(said for each in outcomes for said in each.assumptions), *whole_hosts(released)])
        ),
        against=tuple(
            dict.fromkeys([*(said for each in outcomes for said in each.against), *(money.against if money else ())])
        ),
        released=released,
        replicas=next((each.replicas for each in outcomes if each.replicas is not None), None),
        bill_rise=money.bill_rise if money else 0,
        break_even="; ".join(each.break_even for each in outcomes if each.break_even) or None,
        unpriced=unpriced,
    )


def whole_hosts(released: tuple[str, ...]) -> tuple[str, ...]:
    """Return the assumption that hosts can be given back; none where there are no hosts."""
    more = f" and {len(released) - MAX_NAMED} more" if len(released) > MAX_NAMED else ""
    return (f"{', '.join(released[:MAX_NAMED])}{more} can be given back whole",) if released else ()
