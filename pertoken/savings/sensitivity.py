"""Sensitivity of an estimate: its value with each assumption at its low and at its high end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pertoken.evidence import Distribution, Evidence, HoursOfWeek, Series
from pertoken.forecast.formats import defaults
from pertoken.provenance import Provenance
from pertoken.savings.context import Context
from pertoken.savings.estimate import HIGH, LOW, Estimate, estimate, prepare
from pertoken.savings.saving import Saving
from pertoken.state.deployment import Deployment, Expectation, InvalidEdit
from pertoken.state.fleet import Fleet, deployments_unlike, services_unlike
from pertoken.state.service import EDITABLE, LIMITS, Demand, Quantity, Service

OF_DEMAND = ("requests_s", "prompt_tok_s", "computed_tok_s", "generated_tok_s", "preemptions")
"""Series that are in proportion to the load."""
OF_BATCH = ("running", "busy_generated_tok_s")
"""Series of busy time: they rise once there is no idle time left."""


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Observations times a factor, up to a limit."""

    of: Distribution
    factor: float
    limit: float

    def quantile(self, q: float) -> float:
        return min(self.limit, self.of.quantile(q) * self.factor)

    def hours(self) -> HoursOfWeek:
        return tuple(None if hour is None else min(self.limit, hour * self.factor) for hour in self.of.hours())


def under_load(seen: Evidence, traffic: float) -> Evidence:
    """Return evidence at `traffic` times the load.

    Requests and tokens are in proportion. So is busy time until it takes all the time; from there on more requests run
    at once. Latencies and lengths stay as measured: what the load does to latencies is for the forecast, which stays
    calibrated on the measured load.
    """
    series_by_name = dict(seen.items())
    busy = series_by_name["busy"].mean if "busy" in series_by_name else 0.0
    batch = max(1.0, busy * traffic)
    changed = {name: _times(series_by_name[name], traffic) for name in OF_DEMAND if name in series_by_name}
    changed |= {name: _times(series_by_name[name], batch) for name in OF_BATCH if name in series_by_name}
    if "busy" in series_by_name:
        changed["busy"] = _times(series_by_name["busy"], traffic, limit=1.0)
    return seen.at_load(changed)


def _times(series: Series, factor: float, limit: float = float("inf")) -> Series:
    if factor == 1:
        return series
    mean, p50, p95, largest = (
        min(limit, value * factor) for value in (series.mean, series.p50, series.p95, series.max)
    )
    of = None if series.distribution is None else _Scaled(series.distribution, factor, limit)
    return replace(series, mean=mean, p50=p50, p95=p95, max=largest, distribution=of)


K = TypeVar("K")
LOAD = (0.8, 1.25)
"""Times the measured load. A judgement: weeks of one service differ by about that much."""
PAID_OF_LIST = 0.7
"""Least part of a list price that is paid. A judgement: discounts for volume or terms reach about 30 %."""
UNSEEN = (0.5, 2.0)
"""Times an assumed length or limit."""
MEMORY = (0.8, 0.95)
"""`gpu_memory_utilization` where it was not seen."""
OF_PROPOSED = (0.5, 1.5)
"""Part of a proposed change of demand that comes true."""
ENERGY = (0.75, 1.25)
"""Times the price of a kilowatt-hour."""
DESTINATION = "devices elsewhere cost what is likely"


@dataclass(frozen=True, slots=True)
class At:
    """The likely estimate with one assumption at one end, nano-USD per month."""

    value: str
    """The assumed value, in words."""
    bankable: int
    capacity: int
    refused: str | None = None
    """Why nothing would be saved."""
    without: tuple[str, ...] = ()
    """Why each step that is not counted at this end drops out of a plan; the other steps are in the dollars."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Effect of one assumption on the result."""

    assumption: str
    low: At
    high: At
    swing: tuple[int, int]
    """Largest change of the likely bankable and capacity dollars, either way, nano-USD per month."""
    ends: tuple[float, float] | None = None
    """Numbers that it was set to; None where it is no number that can be set."""


@dataclass(frozen=True)
class _Case:
    before: Fleet
    after: Fleet
    context: Context

    @property
    def changed(self) -> frozenset[str]:
        """Names of the services that change."""
        return frozenset(service.name for service in services_unlike(self.after, self.before))

    @property
    def deployments(self) -> frozenset[int]:
        """Ids of the deployments of these services, as they are now."""
        changed = self.changed
        return frozenset(
            deployment.deployment_id
            for service in self.before.services
            if service.name in changed
            for deployment in service.deployments
        )


@dataclass(frozen=True)
class DroppableSteps:
    """Steps of a plan, so that one of them can drop out where an assumption is at an end."""

    groups: tuple[tuple[int, ...], ...]
    """Steps in order, by groups whose savings add up."""
    extended: Callable[[frozenset[int], int], Fleet | None]
    """Returns the fleet after some steps and one more; None where this one cannot follow them."""


Edit = Callable[[_Case, float], _Case]


@dataclass(frozen=True)
class _Assumption:
    name: str
    ends: tuple[float, float]
    words: Callable[[float], str]
    edit: Edit
    is_number: bool = True
    """Whether a person can set it to another value."""


def sensitivities(
    present: Fleet, after: Fleet, context: Context, steps: DroppableSteps | None = None
) -> tuple[Sensitivity, ...]:
    """Return the effect of each assumption on the estimate from `present` to `after`, the largest first.

    With `steps` a step that is refused or doubtful at one end drops out of that end alone. Empty where the change has
    no price. Raises InvalidEdit as `estimate` does.
    """
    base = estimate(present, after, context)
    if base.uncounted is not None:
        return ()
    case = _Case(present, after, context)
    results = [_forecast(base), *(_of(assumption, case, base, steps) for assumption in _assumptions(case))]
    moved = [result for result in results if result.swing != (0, 0)]
    return tuple(sorted(moved, key=lambda result: (-result.swing[0], -result.swing[1], result.assumption)))


def _forecast(base: Estimate) -> Sensitivity:
    """Return the effect of the interval of the estimate itself: speed, latency and prices elsewhere."""
    saving = base.saving or Saving()
    ends = [At(word, saving.net[end], saving.capacity[end]) for end, word in ((0, "low end"), (2, "high end"))]
    return _between("the forecast and prices elsewhere hold", ends[0], ends[1], base)


def _of(assumed: _Assumption, case: _Case, base: Estimate, steps: DroppableSteps | None) -> Sensitivity:
    low, high = (_at(assumed, case, end, steps) for end in assumed.ends)
    return replace(_between(assumed.name, low, high, base), ends=assumed.ends if assumed.is_number else None)


def estimate_with(present: Fleet, after: Fleet, context: Context, values: Mapping[str, float]) -> Estimate:
    """Return the estimate with some of its assumptions, by their names, set to other numbers.

    Raises InvalidEdit as `estimate` does; a name that the estimate does not assume changes nothing.
    """
    case = _Case(present, after, context)
    for assumed in _assumptions(case):
        if assumed.is_number and assumed.name in values:
            case = assumed.edit(case, values[assumed.name])
    fresh = replace(case.context, forecasts=case.context.forecasts.uncached())
    prepare(case.before, [case.after], fresh)
    return estimate(case.before, case.after, fresh)


def _at(assumed: _Assumption, case: _Case, end: float, steps: DroppableSteps | None) -> At:
    words, priced = assumed.words(end), _varied(assumed, case, end)
    if priced.saving is not None:
        return At(words, *priced.saving.rank)
    kept = [_kept_steps(assumed, case, end, group, steps) for group in steps.groups] if steps is not None else []
    counted = [saving.rank for saving, _ in kept if saving is not None]
    if not counted:
        return At(words, 0, 0, priced.uncounted)
    net, capacity = map(sum, zip(*counted, strict=True))
    return At(words, net, capacity, without=tuple(reason for _, reasons in kept for reason in reasons))


def _kept_steps(
    assumed: _Assumption, case: _Case, end: float, group: Sequence[int], steps: DroppableSteps
) -> tuple[Saving | None, Sequence[str]]:
    """Return the saving of those steps of a group that count at one end, and why each of the others does not."""
    chosen, reasons = frozenset[int](), []
    saving: Saving | None = None
    for step in group:
        after = steps.extended(chosen, step)
        priced = None if after is None else _varied(assumed, replace(case, after=after), end)
        if priced is None or priced.saving is None:
            reasons.append((priced and priced.uncounted) or "it needs a step that drops out")
        else:
            chosen, saving = chosen | {step}, priced.saving
    return saving, reasons


def _varied(assumed: _Assumption, case: _Case, end: float) -> Estimate:
    """Return the estimate of a case with one assumption at one end."""
    assumed_case = assumed.edit(case, end)
    context = replace(assumed_case.context, forecasts=assumed_case.context.forecasts.uncached())
    try:
        prepare(assumed_case.before, [assumed_case.after], context)
        return estimate(assumed_case.before, assumed_case.after, context)
    except InvalidEdit as error:  # the assumed value is the proposed one
        return Estimate(unpriced=str(error))


def _between(name: str, low: At, high: At, base: Estimate) -> Sensitivity:
    bankable, capacity = (base.saving or Saving()).rank
    swing = (
        max(abs(end.bankable - bankable) for end in (low, high)),
        max(abs(end.capacity - capacity) for end in (low, high)),
    )
    return Sensitivity(name, low, high, swing)


# -- what is assumed -----------------------------------------------------------------------------------------------
def _assumptions(case: _Case) -> Iterator[_Assumption]:
    deployments, changed = case.deployments, case.changed
    if changed:
        yield _Assumption("the load stays as measured", LOAD, lambda x: f"{x:g} times the load", _with_load)
    if any(_is_placed_elsewhere(case.before, deployment) for deployment in deployments_unlike(case.after, case.before)):
        yield _Assumption(DESTINATION, (LOW, HIGH), _end, _with_destination, is_number=False)
    if case.context.listed:
        yield _Assumption("the list price is paid", (PAID_OF_LIST, 1.0), lambda x: f"{x:.0%} of it", _paid)
    for name in ("generated_len", "prompt_len"):
        if any(_unknown(case.context.evidence(deployment_id), name) for deployment_id in deployments):
            typical: float = getattr(defaults(), name)
            words = "tokens generated per request" if name == "generated_len" else "tokens per prompt"
            yield _Assumption(
                f"{typical:.0f} {words}",
                (UNSEEN[0] * typical, UNSEEN[1] * typical),
                "{:.0f}".format,
                _with_length(name),
            )
    present = [case.before.deployment(deployment_id) for deployment_id in sorted(deployments)]
    if any(deployment.gpu_memory_utilization is None for deployment in present):
        share = defaults().gpu_memory_utilization
        yield _Assumption(
            f"gpu_memory_utilization is {share:g}", MEMORY, "{:g}".format, _with_knob("gpu_memory_utilization", float)
        )
    if any(deployment.max_num_seqs is None for deployment in present):
        limit = defaults().max_num_seqs
        ends = (UNSEEN[0] * limit, UNSEEN[1] * limit)
        yield _Assumption(f"max_num_seqs is {limit}", ends, "{:.0f}".format, _with_knob("max_num_seqs", int))
    for source in sorted({e.expected.source for e in case.after.deployments if e.expected is not None}):
        yield _Assumption(f"the rule's expectation: {source}", (0.0, 1.0), _end, _expected(source))
    for service in services_unlike(case.after, case.before):
        for name in _proposed(case.before.service_of.get(service.name), service):
            what = f"{name.replace('_', ' ')} of {service.name} as proposed"
            yield _Assumption(what, OF_PROPOSED, lambda x: f"{x:.0%} of the change", _demanding(service.name, name))
    owned = any(host.placement.purchase == "owned" for host in case.before.hosts)
    if case.context.energy is not None and owned:
        usd = case.context.energy.nano_usd_per_kwh / 1e9
        yield _Assumption("the price of energy", ENERGY, lambda x: f"${usd * x:.3g}/kWh", _with_energy)


def _end(assumed: float) -> str:
    return "its high end" if assumed else "its low end"


def _unknown(seen: Evidence, name: str) -> bool:
    if name == "prompt_len" and seen.peek("prompt_tok_s") is not None:
        return False
    return seen.peek(name) is None and seen.peek("generated_tok_s") is not None


def _proposed(service: Service | None, to: Service) -> Iterator[str]:
    for name in EDITABLE:
        after: Quantity | None = getattr(to.demand, name)
        changed = service is not None and after is not None and after != getattr(service.demand, name)
        if changed and after is not None and after.provenance is Provenance.ASSUMED:
            yield name


# -- edits ---------------------------------------------------------------------------------------------------------
def _measured(case: _Case, edit: Callable[[Evidence], Evidence]) -> _Case:
    """Return a case with other evidence of the services that change."""

    def edited(rows_by_key: Mapping[K, Evidence], keys: frozenset[K]) -> Mapping[K, Evidence]:
        return {key: edit(evidence) if key in keys else evidence for key, evidence in rows_by_key.items()}

    context = case.context
    deployments = edited(context.deployments, case.deployments)
    services = edited(context.services, case.changed)
    return replace(case, context=replace(context, deployments=deployments, services=services))


def _with_load(case: _Case, factor: float) -> _Case:
    return _measured(case, lambda seen: under_load(seen, factor))


def _with_length(name: str) -> Edit:
    def edit(case: _Case, tokens: float) -> _Case:
        series = Series(tokens, tokens, tokens, tokens, 1, Provenance.ASSUMED)
        return _measured(
            case, lambda seen: Evidence({**dict(seen.items()), name: series}) if _unknown(seen, name) else seen
        )

    return edit


def _paid(case: _Case, factor: float) -> _Case:
    listed = case.context.listed
    prices = {
        key: round(price * factor) if price is not None and key in listed else price
        for key, price in case.context.nano_usd_per_hour.items()
    }
    return replace(case, context=replace(case.context, nano_usd_per_hour=prices))


def _is_placed_elsewhere(present_fleet: Fleet, deployment: Deployment) -> bool:
    present = present_fleet.deployment_of.get(deployment.deployment_id)
    return present is not None and present.placement != deployment.placement


def _with_destination(case: _Case, end: float) -> _Case:
    return replace(case, context=replace(case.context, destination_end=int(end)))


def _with_energy(case: _Case, factor: float) -> _Case:
    energy = case.context.energy
    assert energy is not None
    changed = replace(energy, nano_usd_per_kwh=round(energy.nano_usd_per_kwh * factor))
    return replace(case, context=replace(case.context, energy=changed))


def _edited(fleet: Fleet, names: frozenset[str], edit: Callable[[Deployment], Deployment]) -> Fleet:
    """Return a fleet with the deployments of some services edited."""
    services = (
        replace(service, deployments=tuple(map(edit, service.deployments))) if service.name in names else service
        for service in fleet.services
    )
    return replace(fleet, services=tuple(services))


def _with_knob(name: str, kind: type[int] | type[float]) -> Edit:
    def edit(case: _Case, value: float) -> _Case:
        def seen(deployment: Deployment) -> Deployment:
            return deployment.but(**{name: kind(value)}) if getattr(deployment, name) is None else deployment

        changed = case.changed
        return replace(case, before=_edited(case.before, changed, seen), after=_edited(case.after, changed, seen))

    return edit


def _expected(source: str) -> Edit:
    def edit(case: _Case, assumed: float) -> _Case:
        def certain(deployment: Deployment) -> Deployment:
            expectation = deployment.expected
            if expectation is None or expectation.source != source:
                return deployment
            ratio = expectation.high if assumed else expectation.low
            return replace(deployment, expected=Expectation(ratio, ratio, ratio, source))

        return replace(case, after=_edited(case.after, case.changed, certain))

    return edit


def _demanding(service: str, name: str) -> Edit:
    def edit(case: _Case, part: float) -> _Case:
        before: Demand = case.before.service(service).demand
        now, to = getattr(before, name), getattr(case.after.service(service).demand, name)
        start = now.value if now is not None else 0.0
        low, high = LIMITS.get(name, (0.0, 1.0))
        value = min(high, max(low, start + part * (to.value - start)))
        services = (
            replace(sibling, demand=replace(sibling.demand, **{name: replace(to, value=value)}))
            if sibling.name == service
            else sibling
            for sibling in case.after.services
        )
        return replace(case, after=replace(case.after, services=tuple(services)))

    return edit
