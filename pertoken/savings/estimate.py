"""Saving of a proposal: the net change of the bill, apart from dollars of work that the bill could do in addition.

Net: the bill falls while demand stays, because whole hosts are released or cost less; it may rise instead. Capacity:
devices or busy time become free for more work. A device gives one or the other, never both, so that a total never
exceeds what is paid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from pertoken.catalog.offers import RESERVED_YEARS
from pertoken.forecast.serving import Range
from pertoken.provenance import Provenance, worst
from pertoken.savings.changes import purchases, sharing
from pertoken.savings.context import Context, Money
from pertoken.savings.hosts import Freed, NoPrice, freed, host_price, whole_devices
from pertoken.savings.outcome import Outcome
from pertoken.savings.placing import Moving, Placed, device_error, moving, price_error, repaid
from pertoken.savings.saving import Saving
from pertoken.savings.services import outcome, questions
from pertoken.savings.slo import NO_OBJECTIVE, Latencies, Verdict, worst_of
from pertoken.savings.speed import Speed
from pertoken.state.deployment import Deployment, InvalidEdit
from pertoken.state.diff import Diff, diff
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
    """Saving of a proposal with its risks, or the reason why none can be stated."""

    saving: Saving | None = None
    """None where it has no price, or where a person has to confirm something first."""
    if_confirmed: Saving | None = None
    """Saving once a person has confirmed `to_confirm`; it is in no total and in no plan."""
    to_confirm: str | None = None
    throughput_ratio: Range | None = None
    """Generated tokens/s of the changed deployments, after over before, on their new devices."""
    other_slo: Verdict = (NO_OBJECTIVE, None)
    """Verdict on latencies that are not in `judged`."""
    judged: tuple[Speed, ...] = ()
    """Forecasts whose latency is judged when `slo` or `against` is read: most proposals are refused before."""
    latency: Latencies | None = None
    """Latency before and after; None where nothing was forecast."""
    provenance: Provenance | None = None
    assumptions: tuple[str, ...] = ()
    other_against: tuple[str, ...] = ()
    """Arguments against it beside the latencies in `judged`."""
    released: tuple[str, ...] = ()
    """Names of the hosts that pricing gives back, chosen by it or by the proposal."""
    resized: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Replicas before and after of each resized service, by its name."""
    stopped: tuple[int, ...] = ()
    """Ids of the deployments that pricing stops where the number of replicas falls."""
    added: tuple[tuple[str, int], ...] = ()
    """Services that get more replicas by pricing, and how many."""
    placed: tuple[Placed, ...] = ()
    """Instances that pricing orders."""
    moving: Moving = field(default_factory=Moving)
    """Costs of a change of provider or region beside its instances."""
    break_even: str | None = None
    """From which value of an unmeasured number the proposal pays; no money in it until somebody confirms it."""
    unpriced: str | None = None
    """Why there is no money in it, and the remedy."""
    infeasible: str | None = None
    """Why it must not be proposed: it would not start, not hold the demand, or miss the SLO; or nobody offers it."""
    refusal_code: str = "infeasible"
    """Code of a refusal for `infeasible`."""

    @property
    def replicas(self) -> tuple[int, int] | None:
        """Replicas before and after of the first resized service."""
        return next(iter(self.resized.values()), None)

    @property
    def net(self) -> Money | None:
        """Net change of the bill; None without a saving."""
        return None if self.saving is None else self.saving.net

    @property
    def capacity(self) -> Money | None:
        """Additional work for the bill; None without a saving."""
        return None if self.saving is None else self.saving.capacity

    @property
    def moving_lines(self) -> tuple[str, ...]:
        """Costs of a change of provider or region, and in which time its net saving repays them."""
        saving = self.saving or self.if_confirmed
        payback = None if saving is None else repaid(self.moving.once, saving.net)
        return self.moving.lines if payback is None else (*self.moving.lines, payback)

    @property
    def ordered(self) -> tuple[Placed, ...]:
        """Instances that are started; instances of a commitment run already."""
        return tuple(placed for placed in self.placed if placed.offer.purchase not in RESERVED_YEARS)

    @property
    def uncounted(self) -> str | None:
        """Why no total and no plan can hold it; None where one can."""
        return self.infeasible or self.unpriced or self.to_confirm or self.break_even

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on the latencies, a word of `VERDICTS`, with its sentence."""
        return worst_of((self.other_slo, *(speed.verdict for speed in self.judged)))

    @property
    def slo(self) -> str:
        """`pass`, `near_miss`, `fail`, or `unknown` where no SLO is set, or a latency is not known."""
        word, _ = self.verdict
        return "unknown" if word == NO_OBJECTIVE else word

    @property
    def against(self) -> tuple[str, ...]:
        """Arguments against it: latencies beyond their SLO first."""
        sentences = [self.other_slo[1]]
        for speed in self.judged:
            sentences += [speed.verdict[1], speed.overload]
        return tuple(dict.fromkeys([*filter(None, sentences), *self.other_against]))


class Outcomes:
    """Outcomes that many states of a fleet have in common, by the identity of what they are of; it keeps that alive."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[object, Outcome]] = {}

    def of_service(self, present: Fleet, service: Service, to: Service, context: Context) -> Outcome:
        """Return the outcome of a change of one service."""
        return self._once((service, to), lambda: outcome(present, service, to, context))

    def of_company(self, present: Fleet, deployments: tuple[Deployment, ...], context: Context) -> Outcome:
        """Return the outcome of deployments that come to share a device."""
        return self._once(deployments, lambda: sharing.sharing_outcome(present, deployments, context))

    def _once(self, subjects: tuple[object, ...], compute: Callable[[], Outcome]) -> Outcome:
        key = tuple(map(id, subjects))
        if key not in self._known:
            self._known[key] = subjects, compute()
        return self._known[key][1]


def estimate(
    present: Fleet,
    after: Fleet,
    context: Context,
    difference: Diff | None = None,
    known_outcomes: Outcomes | None = None,
) -> Estimate:
    """Price going from `present` to `after`, per month of 730 h; `difference` is theirs, where it is known already.

    `known_outcomes` remembers outcomes from one estimate to the next, of the same `present` and `context`.

    Raises InvalidEdit (a ValueError) if nothing differs, or no edit leads from one to the other.
    """
    difference, known_outcomes = difference or diff(present, after), known_outcomes or Outcomes()
    if not difference:
        raise InvalidEdit("the proposal equals the present")
    unlike = {service.name: service for service in services_unlike(after, present)}
    merges = sharing.merges(present, after, difference)
    merged = {service.name for merge in merges for service in merge.services}
    outcomes = [_merged(present, merge, context) for merge in merges]
    changed = [
        (service, known_outcomes.of_service(present, service, unlike[service.name], context))
        for service in present.services
        if service.name in unlike and service.name not in merged and service != unlike[service.name]
    ]
    outcomes += [outcome for _, outcome in changed]
    outcomes += [
        purchases.commitment_outcome(present, commitment, context)
        for commitment in after.commitments
        if commitment not in present.commitments
    ]
    slices = any(change.field == "partitions" for change in difference.changes)
    if slices and all(held >= 0 for deployment in deployments_unlike(after, present) for held in deployment.device_ids):
        outcomes.append(Outcome(unpriced="dividing a device alone changes no bill: price what then runs on it"))
    companies = sharing.newly_shared(present, after, deployments_unlike(after, present))
    outcomes += [known_outcomes.of_company(present, company, context) for company in companies]
    refused = next((outcome for outcome in outcomes if outcome.infeasible is not None), None)
    if refused is not None:
        return _without_money(refused)
    placed = [instances for outcome in outcomes for instances in outcome.placed]
    started = {service.name: outcome.new_nano_usd_per_hour[LIKELY] for service, outcome in changed}
    relocated = moving(present, after, placed, started, context)
    if any(outcome.unpriced for outcome in outcomes):
        return replace(_joined(outcomes, None), moving=relocated)
    try:
        money = _money(present, after, difference, outcomes, relocated, context)
    except NoPrice as missing:
        return Estimate(unpriced=str(missing))
    priced = _marked(_joined(outcomes, money), present, after, difference, context)
    priced = replace(
        priced,
        stopped=tuple(key for service, outcome in changed for key in _stopped(service, outcome)),
        resized={service.name: outcome.replicas for service, outcome in changed if outcome.replicas is not None},
        added=tuple((service.name, more) for service, outcome in changed if (more := _more_replicas(outcome)) > 0),
        moving=relocated,
    )
    unconfirmed = "; ".join(dict.fromkeys(outcome.unconfirmed for outcome in outcomes if outcome.unconfirmed))
    doubtful = "; ".join(dict.fromkeys(outcome.doubtful for outcome in outcomes if outcome.doubtful))
    offers = "; ".join(dict.fromkeys(outcome.to_confirm for outcome in outcomes if outcome.to_confirm))
    return _held_back(priced, unconfirmed, doubtful, offers) if unconfirmed or doubtful or offers else priced


def _merged(present: Fleet, merge: sharing.Merge, context: Context) -> Outcome:
    try:
        return sharing.merge_outcome(present, merge, context)
    except NoPrice as missing:
        return Outcome(unpriced=str(missing))


def spend(fleet: Fleet, context: Context) -> tuple[int, tuple[str, ...]]:
    """Return the bill of all hosts with a price, nano-USD per month of 730 h, and the names of those without one."""
    total, unpriced = 0, []
    for host in fleet.hosts:
        try:
            total += host_price(fleet, host, context) * HOURS_PER_MONTH
        except NoPrice:
            unpriced.append(host.name)
    return total, tuple(unpriced)


def _held_back(priced: Estimate, unconfirmed: str, doubtful: str, offers: str) -> Estimate:
    """Return an estimate whose saving counts only once a person has confirmed it.

    `unconfirmed`: what a person has to confirm of its outputs; `doubtful`: why the forecast is; `offers`: what to
    confirm of an offer. A worthless one is returned as it is: there is nothing to confirm.
    """
    saving = priced.saving
    if saving is None or saving.worthless:
        return priced
    conditions = ["its outputs are as good"] * bool(unconfirmed) + ["the forecast holds"] * bool(doubtful)
    conditions += ["its offer can be ordered"] * bool(offers)
    provided = " and ".join(conditions)
    if saving.net[LIKELY] > 0:
        pays = f"it saves {_monthly(saving.net)} of the bill if {provided}"
        if unconfirmed:
            days = ONE_OFF_NANO_USD / saving.net[LIKELY] * HOURS_PER_MONTH / 24
            pays += (
                f": {format_usd(ONE_OFF_NANO_USD)} spent once on evaluation and training is repaid in {days:.0f} days"
            )
    else:
        pays = f"it frees capacity worth {_monthly(saving.capacity)} if {provided}, and the bill does not fall"
    return replace(
        priced,
        saving=None,
        if_confirmed=saving,
        to_confirm="; ".join(filter(None, (offers, unconfirmed, doubtful))),
        break_even=priced.break_even or pays,
        provenance=Provenance.ASSUMED,
    )


def _monthly(money: Money) -> str:
    low, likely, high = map(format_usd, money)
    return f"{likely} a month" + (f" ({low} to {high})" if low != high else "")


def _marked(priced: Estimate, present: Fleet, after: Fleet, difference: Diff, context: Context) -> Estimate:
    """Return an estimate that names the list prices its dollars rest on, where nobody set what is really paid."""
    if not context.listed:
        return priced
    names = _changed_services(present, after)
    devices = {
        device for service in present.services if service.name in names for device in present.used_by[service.name]
    }
    devices |= {device for host in difference.released for device in host.device_ids}
    committed = {(e.provider, e.instance_type) for e in after.commitments if e not in present.commitments}
    for host in present.hosts if committed else ():
        if (host.placement.provider, host.placement.instance_type) in committed:
            devices.update(host.device_ids)
    notes = dict.fromkeys(context.listed[device] for device in sorted(devices) if device in context.listed)
    if not notes:
        return priced
    return replace(
        priced,
        provenance=Provenance.LISTED if priced.provenance is None else worst([priced.provenance, Provenance.LISTED]),
        assumptions=(*priced.assumptions, *(f"nobody set what is paid: dollars are by the {note}" for note in notes)),
    )


def prepare(present: Fleet, proposed: Iterable[Fleet], context: Context) -> None:
    """Forecast what several proposals change side by side, ahead of `estimate` of each: it takes a part of the time."""
    services = {service.name: service for service in present.services}
    service_questions = [
        questions(services[service.name], service, context)
        for after in proposed
        for service in services_unlike(after, present)
        if service.name in services
    ]
    context.forecasts.prepare(service_questions, context.market)


def failing(judged: Sequence[Estimate], context: Context) -> list[bool]:
    """Return for each estimate whether the likely figures of one of its latencies miss an objective clearly."""
    latencies = [[speed.latency for speed in priced.judged if speed.latency is not None] for priced in judged]
    fails = iter(context.forecasts.failing([*chain.from_iterable(latencies)], context.market))
    return [any([next(fails) for _ in of_estimate]) for of_estimate in latencies]


def prepare_shown(shown: Iterable[Estimate], context: Context) -> None:
    """Forecast the latencies of several estimates side by side, ahead of whoever shows them."""
    shown_estimates = list(shown)
    judged = (speed.latency for priced in shown_estimates for speed in priced.judged)
    context.forecasts.judge(filter(None, judged), context.market)
    context.forecasts.show(filter(None, (priced.latency for priced in shown_estimates)), context.market)


@dataclass(frozen=True, slots=True)
class _Totals:
    saving: Saving
    released: tuple[str, ...]
    against: tuple[str, ...]


def _money(
    present: Fleet, after: Fleet, difference: Diff, outcomes: Sequence[Outcome], relocated: Moving, context: Context
) -> _Totals:
    """Dollars of whole hosts at each end, beside what outcomes state themselves. Raises NoPrice."""
    changed = _changed_services(present, after)
    untouched = frozenset[int]().union(*(used for name, used in present.used_by.items() if name not in changed))
    net, capacity, staying = [0, 0, 0], [0, 0, 0], [0, 0, 0]
    released: Freed | None = None
    for end in (LOW, HIGH, LIKELY):  # the likely end last: its hosts are the ones that are named
        running = whole_devices(present, [deployment for outcome in outcomes for deployment in outcome.kept[end]])
        released = freed(present, untouched | running, difference.released, context)
        # The lowest saving meets the highest price elsewhere.
        elsewhere = sum(outcome.new_nano_usd_per_hour[HIGH - end] for outcome in outcomes)
        elsewhere += relocated.nano_usd_per_hour[HIGH - end]
        net[end] = round((released.bankable - elsewhere) * HOURS_PER_MONTH)
        capacity[end] = staying[end] = released.capacity * HOURS_PER_MONTH
        for part in outcomes:
            net[end] += part.bankable[end] if part.bankable else 0
            capacity[end] += part.capacity[end] if part.capacity else 0
            staying[end] += part.capacity[end] if part.capacity and part.kept[end] else 0
    assert released is not None
    placed = [instances for outcome in outcomes if any(outcome.new_nano_usd_per_hour) for instances in outcome.placed]
    share = _listed_share(present, changed, context)
    beside = [sum(outcome.bankable[end] for outcome in outcomes if outcome.bankable) for end in (LIKELY, HIGH)]
    of_prices = price_error(released.released, placed, context) * HOURS_PER_MONTH
    error = round(of_prices + share * max(0, beside[0]))
    paid = released.bankable * HOURS_PER_MONTH + beside[1]
    if context.destination_end is not None:
        net[LIKELY] = min(round(net[LIKELY] + (LIKELY - context.destination_end) * of_prices), paid)
    net[LOW] -= error
    net[HIGH] = max(net[HIGH], min(net[HIGH] + error, paid))
    timed = [sum(outcome.timed[end] for outcome in outcomes if outcome.timed) for end in (LOW, LIKELY, HIGH)]
    for dollars in (capacity, staying, timed):
        dollars[LOW] = round(dollars[LOW] * (1 - share))
    against = list(released.against)
    if net[LIKELY] < 0:
        against.append(f"the bill would rise by {format_usd(-net[LIKELY])} a month while demand stays as it is")
    # A device is either given back or free: what moves away from a host that is released serves nothing more there.
    free = staying if net[LIKELY] > 0 and released.released else capacity
    return _Totals(
        saving=Saving(
            (net[LOW], net[LIKELY], net[HIGH]),
            (free[LOW] + timed[LOW], free[LIKELY] + timed[LIKELY], free[HIGH] + timed[HIGH]),
        ),
        released=tuple(host.name for host in released.released),
        against=tuple(against),
    )


def _listed_share(present: Fleet, changed: frozenset[str], context: Context) -> float:
    """Return the error of the list prices of the devices that changed services use, over their prices."""
    used = (present.used_by[name] for name in changed if name in present.used_by)
    return device_error(frozenset[int]().union(*used), context)


def _more_replicas(outcome: Outcome) -> int:
    replicas_before, after = outcome.replicas or (0, 0)
    return after - replicas_before


def _stopped(service: Service, outcome: Outcome) -> tuple[int, ...]:
    """Return which deployments a smaller number of replicas stops: the last by id of those that keep no devices."""
    replicas_before, after = outcome.replicas or (0, 0)
    staying = {deployment.deployment_id for deployment in outcome.kept[LIKELY]}
    leaving = sorted(
        deployment.deployment_id for deployment in service.deployments if deployment.deployment_id not in staying
    )
    return tuple(leaving[len(leaving) - max(0, replicas_before - after) :])


def _changed_services(present: Fleet, after: Fleet) -> frozenset[str]:
    """Return the names of the services that differ."""
    return frozenset(
        service.name for service in services_unlike(after, present) if service != present.service(service.name)
    )


def _without_money(outcome: Outcome) -> Estimate:
    return Estimate(
        throughput_ratio=outcome.ratio,
        other_slo=outcome.slo,
        judged=outcome.judged,
        latency=outcome.latency,
        infeasible=outcome.infeasible,
        refusal_code=outcome.refusal_code,
    )


def _joined(outcomes: Sequence[Outcome], money: _Totals | None) -> Estimate:
    unpriced = "; ".join(dict.fromkeys(outcome.unpriced for outcome in outcomes if outcome.unpriced)) or None
    latencies = [outcome.latency for outcome in outcomes if outcome.latency is not None]
    ratios = [outcome.ratio for outcome in outcomes if outcome.ratio is not None]
    origins = [outcome.provenance for outcome in outcomes if outcome.provenance is not None]
    released = money.released if money else ()
    if released:
        origins.append(Provenance.REPORTED)
    return Estimate(
        saving=money.saving if money else None,
        throughput_ratio=ratios[0] if len(ratios) == 1 else None,
        latency=latencies[0] if len(latencies) == 1 else None,
        other_slo=worst_of(outcome.slo for outcome in outcomes),
        judged=tuple(speed for outcome in outcomes for speed in outcome.judged),
        provenance=worst(origins) if origins else None,
        assumptions=tuple(
            dict.fromkeys(
                [*(assumption for outcome in outcomes for assumption in outcome.assumptions), *whole_hosts(released)]
            )
        ),
        other_against=tuple(
            dict.fromkeys(
                [*(reason for outcome in outcomes for reason in outcome.against), *(money.against if money else ())]
            )
        ),
        released=released,
        placed=tuple(instances for outcome in outcomes for instances in outcome.placed),
        break_even="; ".join(outcome.break_even for outcome in outcomes if outcome.break_even) or None,
        unpriced=unpriced,
    )


def whole_hosts(released: tuple[str, ...]) -> tuple[str, ...]:
    """Return the assumption that hosts can be given back; none where there are no hosts."""
    more = f" and {len(released) - MAX_NAMED} more" if len(released) > MAX_NAMED else ""
    return (f"{', '.join(released[:MAX_NAMED])}{more} can be given back whole",) if released else ()
