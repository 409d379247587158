"""Outcome of a change for one service: knobs, moves, replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter
from typing import Literal, get_args

from pertoken.by_identity import by_identity
from pertoken.evidence import NotMeasured
from pertoken.forecast.served import Abstained, Load, accepted_len
from pertoken.forecast.serving import running_tok_s
from pertoken.provenance import Provenance, worst
from pertoken.savings.changes import demand, purchases, replicas
from pertoken.savings.changes.kept_replicas import Pair, power_cap_outcome, sped_up
from pertoken.savings.changes.replicas import alike, busiest_first, resized
from pertoken.savings.context import Context, ForecastQuestion, Money, ReplicaQuestion, ServiceQuestions
from pertoken.savings.hosts import NoPrice, device_price
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.sizing import all_stay, objectives, total_arrivals
from pertoken.savings.slo import NO_OBJECTIVE, has_objective, worst_of
from pertoken.savings.speed import Speed, calibrated, speed
from pertoken.state.deployment import Deployment, knobs
from pertoken.state.fleet import Fleet
from pertoken.state.service import Schedule, Service, Slo
from pertoken.units import format_usd

FIXED = "a schedule with numbers of replicas and deployments or replicas change at once: propose one, then the other"
OTHER_DEVICES = (
    "hours off and another change of the devices that it uses or pays for are made at once: apply one, then the other"
)
_FASTEST = 2


Part = Literal["deployments", "demand", "schedule"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Parts of a service that may change."""


def conflict(schedule: Schedule, deployments: Outcome, deployments_now: Sequence[Deployment]) -> str | None:
    """Return the reason why a schedule and a change of deployments cannot be priced together, None if they can."""
    if schedule.replicas:
        return FIXED
    present = {deployment.deployment_id: deployment.device_ids for deployment in deployments_now}
    staying = all(
        present.get(deployment.deployment_id) == deployment.device_ids
        for kept in deployments.kept
        for deployment in kept
    )
    paid = any(deployments.new_nano_usd_per_hour) or deployments.bankable is not None
    return None if staying and all(deployments.kept) and not paid else OTHER_DEVICES


def join_parts(changes: Mapping[Part, Outcome], schedule: Schedule, deployments_now: Sequence[Deployment]) -> Outcome:
    """Return one outcome of changes that are made together. If one is refused, all are.

    `schedule`: the proposed one. `deployments_now`: the present deployments.
    """
    deployments, demand, hours = map(changes.get, PARTS)
    parts = [outcome for outcome in (deployments, demand, hours) if outcome is not None]
    first = next(
        (outcome for outcome in parts if outcome.infeasible is not None or outcome.unpriced is not None), parts[0]
    )
    if len(parts) == 1 or first.infeasible is not None or first.unpriced is not None:
        return first
    if (
        deployments is not None
        and hours is not None
        and (why := conflict(schedule, deployments, deployments_now)) is not None
    ):
        return Outcome(unpriced=why)
    if demand is not None and deployments is not None and deployments.ratio is not None:
        demand = replace(demand, capacity=_remaining(demand.capacity, deployments.ratio))
    capacities = [
        outcome.capacity
        for outcome in (deployments, demand, hours)
        if outcome is not None and outcome.capacity is not None
    ]
    banked = [outcome.bankable for outcome in parts if outcome.bankable is not None]
    return replace(
        first,
        bankable=_sum(banked),
        capacity=_sum(capacities),
        timed=hours.timed if hours is not None else None,
        slo=worst_of(outcome.slo for outcome in parts),
        judged=tuple(speed for outcome in parts if outcome is not hours for speed in outcome.judged),
        provenance=worst([outcome.provenance for outcome in parts if outcome.provenance is not None]),
        assumptions=tuple(dict.fromkeys(line for outcome in parts for line in outcome.assumptions)),
        against=tuple(dict.fromkeys(line for outcome in parts for line in outcome.against)),
        doubtful=next((outcome.doubtful for outcome in parts if outcome.doubtful), None),
        unconfirmed="; ".join(filter(None, (outcome.unconfirmed for outcome in parts))) or None,
    )


def _remaining(money: Money | None, ratio: Sequence[float]) -> Money | None:
    """Return the worth of freed busy time after deployments became faster; the low end has the highest speed."""
    if money is None:
        return None
    low, likely, high = (round(amounts / max(1.0, ratio[_FASTEST - end])) for end, amounts in enumerate(money))
    return low, likely, high


def _sum(monies: Sequence[Money]) -> Money | None:
    if not monies:
        return None
    low, likely, high = (sum(usd[end] for usd in monies) for end in range(3))
    return low, likely, high


BISECTIONS = 10
"""Halvings of the share: to a tenth of a percent."""
TOGETHER = 5
"""Of these that are computed side by side."""
SHOWN_SHARE = 0.5
"""Share at which the gain is shown: an example, not an expectation."""
OFFLOAD_KEEPS = 0.92
"""Of the tokens/s, with KV offload and nothing found: the middle of published pairs without reuse (0.86 to 0.97)."""
_SPECULATION = {"num_speculative_tokens", "speculative_method", "draft_model"}


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A share that decides the worth of a change, and its name for people."""

    field: Literal["acceptance", "cached_share"]
    """Of the load."""
    counted: str
    """Noun phrase of the tokens that it is a share of."""
    drafted: int = 0
    on_top: bool = False
    """Whether it is a share of the tokens outside the measured field."""
    kept: float = 1.0
    """Share of the changed deployment's tokens/s that its own overhead leaves."""

    def shown(self, share: float) -> str:
        """Return a share in words, for drafts with the tokens that a step then yields."""
        steps = f", {accepted_len(share, self.drafted):.2f} tokens per step" if self.drafted else ""
        return f"{share:.0%} of {self.counted}{steps}"

    def under(self, load: Load, share: float) -> Load:
        """Return a load at a value of the share."""
        if self.field == "acceptance":
            return replace(load, acceptance=share)
        cached = load.cached_share if self.on_top else 0.0
        return replace(load, cached_share=cached + (1 - cached) * share)


def break_even(old: Deployment, new: Deployment, context: Context) -> str | None:
    """Return from which share on a change pays, as the model has it; None where it depends on no such share, or the
    deployment cannot be forecast."""
    share = _unmeasured(old, new)
    if share is None:
        return None
    try:
        load = context.forecasts.load(context.evidence(old.deployment_id))
        calibration = calibrated(old, load, context).for_change(new)

        def speeds(*points: tuple[Deployment, float]) -> list[float | None]:
            """Return the tokens/s of deployments, each at a value of the share."""
            queries = [(deployment, share.under(load.load, value), calibration) for deployment, value in points]
            rates = running_tok_s(queries, context.market)
            return [
                _kept(rate, share.kept if deployment is new else 1.0)
                for (deployment, _), rate in zip(points, rates, strict=True)
            ]

        present, at_none, at_shown, at_all = speeds((old, 0.0), (new, 0.0), (new, SHOWN_SHARE), (new, 1.0))
        if present is None or at_none is None or at_shown is None or at_all is None:
            return None
        gain = f"{at_shown / present:.2f} times the tokens/s at {share.shown(SHOWN_SHARE)}"
        if at_none >= present * (1 - 1e-9):
            return f"pays from any share of {share.counted} on: {gain}"
        if at_all <= present:
            return f"does not pay here, not even at {share.shown(1.0)}"
        low, high = 0.0, 1.0
        for _ in range(BISECTIONS // TOGETHER):
            inner = [low + (high - low) * step / 2**TOGETHER for step in range(1, 2**TOGETHER)]
            speed_at = dict(zip(inner, speeds(*((new, value) for value in inner)), strict=True))
            for _ in range(TOGETHER):
                middle = (low + high) / 2
                low, high = (low, middle) if (speed_at[middle] or 0.0) > present else (middle, high)
    except (NotMeasured, Abstained, ValueError):
        return None
    return f"pays above {share.shown(high)}: {gain}"


def _kept(tok_s: float | Abstained | None, share: float) -> float | None:
    """Return the share of tokens/s that is kept. Raises Abstained."""
    if isinstance(tok_s, Abstained):
        raise tok_s
    return None if tok_s is None else share * tok_s


def _unmeasured(old: Deployment, new: Deployment) -> Unmeasured | None:
    changes = set(old.knob_changes(new))
    if changes and changes <= _SPECULATION and new.num_speculative_tokens and not old.num_speculative_tokens:
        return Unmeasured("acceptance", "drafted tokens accepted", new.num_speculative_tokens)
    if changes == {"enable_prefix_caching"} and new.enable_prefix_caching:
        return Unmeasured("cached_share", "prompt tokens found in the cache")
    if changes == {"kv_offload_bytes"} and new.kv_offload_bytes and not old.kv_offload_bytes:
        counted = "prompt tokens that the device computes again found in host memory"
        return Unmeasured("cached_share", counted, on_top=True, kept=OFFLOAD_KEEPS)
    return None


def outcome(present: Fleet, service: Service, to: Service, context: Context) -> Outcome:
    """Return the outcome of a change of one service. `service` and `to` differ in fields or in deployments."""
    before_by_id = {deployment.deployment_id: deployment for deployment in service.deployments}
    after_by_id = {deployment.deployment_id: deployment for deployment in to.deployments}
    added = [deployment for key, deployment in after_by_id.items() if key not in before_by_id]
    removed = [deployment for key, deployment in before_by_id.items() if key not in after_by_id]
    pairs = [(before_by_id[key], after_by_id[key]) for key in before_by_id if key in after_by_id]
    try:
        if removed:
            return Outcome(unpriced="what several deployments do on one engine is not forecast: measure it in a trial")
        if added:
            return replicas.routing_outcome(present, service, pairs, added, context)
        parts = {change: _PARTS[change](present, service, to, pairs, context) for change in _changes(service, to)}
        kept = parts["deployments"].kept if {"deployments", "schedule"} <= parts.keys() else None
        if kept is not None and conflict(to.schedule, parts["deployments"], service.deployments) is None:
            parts["schedule"] = demand.schedule_outcome(present, service, to.schedule, context, kept)
        joined = join_parts(parts, to.schedule, service.deployments)
        joined = replace(joined, placed=tuple(replace(placed, service=service.name) for placed in joined.placed))
        return _with_verdict(joined, objectives(service, context))
    except NoPrice as missing:
        return Outcome(kept=same(to.deployments), unpriced=str(missing))


def _with_verdict(priced: Outcome, slo: Slo) -> Outcome:
    """Return an outcome whose latency counts as unknown where an objective is set and nothing judged it."""
    if priced.judged or priced.slo[0] != NO_OBJECTIVE or not has_objective(slo):
        return priced
    return replace(priced, slo=("unknown", "what it does to the latency is not forecast"))


def _changes(service: Service, to: Service) -> list[Part]:
    """Return the parts of a service that differ."""
    schedule, demand = to.schedule != service.schedule, to.demand != service.demand
    deployments = to.deployments != service.deployments or to.replicas != service.replicas or not (schedule or demand)
    changed = {"deployments": deployments, "demand": demand, "schedule": schedule}
    return [part for part in PARTS if changed[part]]


def _deployments(present: Fleet, service: Service, to: Service, pairs: Sequence[Pair], context: Context) -> Outcome:
    if to.demand is not service.demand or to.schedule is not service.schedule:
        to = replace(to, demand=service.demand, schedule=service.schedule)
    changed, unconfirmed = _changed(present, service, to, pairs, context), _other_model(service, pairs)
    return changed if unconfirmed is None else replace(changed, unconfirmed=unconfirmed)


def _demand(present: Fleet, service: Service, to: Service, pairs: Sequence[Pair], context: Context) -> Outcome:
    if any(new.placement.purchase == "per_token" for _, new in pairs):
        return Outcome(unpriced="an API is paid by the token: apply one, then propose the other")
    return demand.demand_outcome(present, service, to, context)


def _schedule(present: Fleet, service: Service, to: Service, pairs: Sequence[Pair], context: Context) -> Outcome:
    return demand.schedule_outcome(present, service, to.schedule, context)


_PARTS: Mapping[Part, Callable[[Fleet, Service, Service, Sequence[Pair], Context], Outcome]] = {
    "deployments": _deployments,
    "demand": _demand,
    "schedule": _schedule,
}
"""Functions that price one part of a service while the other parts stay unchanged."""


def _changed(present: Fleet, service: Service, to: Service, pairs: Sequence[Pair], context: Context) -> Outcome:
    different = [(old, new) for old, new in pairs if old != new]
    if any(old.serves != new.serves for old, new in different):
        return Outcome(unpriced="another share of the demand alone changes no bill: price what it frees")
    if any(old.restart != new.restart for old, new in different):
        return Outcome(
            unpriced=_restart(present, [old for old, new in different if old.restart != new.restart], context)
        )
    if reason := _device_knobs(present, different):
        return Outcome(unpriced=reason)
    if any(new.placement.purchase == "per_token" for _, new in different):
        return purchases.api_outcome(present, service, to, pairs, context)
    if different and all(set(old.knob_changes(new)) == {"power_cap_w"} for old, new in different):
        return power_cap_outcome(present, service, different, context)
    after_of, slo = {old.deployment_id: new for old, new in pairs}, objectives(service, context)
    speeds: dict[int, Speed | None] = {}

    def forecast(old: Deployment) -> Speed | None:
        key = old.deployment_id
        if key not in speeds:
            speeds[key] = _speed(old, after_of[key], service, context)
        return speeds[key]

    if to.replicas is None or to.replicas == len(service.deployments):
        return _refused(pairs, forecast, context) or sped_up(present, pairs, speeds, slo, context)
    replicas = [new for _, new in pairs]
    if not alike(replicas):
        return Outcome(
            unpriced=f"the replicas of {service.name} differ: make them alike first, or size one kind at a time"
        )
    # Replicas that are alike share the demand again, so the busiest one stands for all of them.
    first = busiest_first(service, context)[0]
    refused = _refused([(first, after_of[first.deployment_id])], forecast, context)
    if refused is not None:
        return refused
    sized = resized(present, service, to, replicas, forecast, context)
    if isinstance(sized, Outcome):
        return sized
    if not different:
        return Outcome(infeasible=sized.reason)
    stay = _refused(pairs, forecast, context) or sped_up(present, pairs, speeds, slo, context)
    return stay if len(pairs) == 1 else replace(stay, against=(*stay.against, sized.reason))


def _refused(pairs: Iterable[Pair], forecast: Callable[[Deployment], Speed | None], context: Context) -> Outcome | None:
    """Forecast deployments after their changes; return the outcome of the first that cannot be priced, None without."""
    for old, new in pairs:
        speed_after = forecast(old)
        if speed_after is not None and not speed_after.known:
            pays = break_even(old, new, context) if speed_after.unpriced is not None else None
            return Outcome(
                ratio=speed_after.ratio,
                judged=(speed_after,),
                latency=speed_after.latency,
                provenance=Provenance.ASSUMED if pays is not None else None,
                break_even=pays,
                unpriced=speed_after.unpriced,
                infeasible=speed_after.infeasible,
            )
    return None


def _other_model(service: Service, pairs: Sequence[Pair]) -> str | None:
    """Return the reason why savings of another model enter no total yet: its quality is not confirmed."""
    names = dict.fromkeys(new.model.name for old, new in pairs if new.model != old.model)
    unknown = [name for name in names if not service.passed("model", name)]
    if not unknown:
        return None
    passed = ", ".join(f'"model={name}"' for name in unknown)
    return (
        f"whether the outputs of {' and '.join(unknown)} are as good is not measured: evaluate them on your own "
        f'tasks, then add {passed} to `quality_passed` of [services."{service.name}"]'
    )


def _restart(present: Fleet, restarted: Sequence[Deployment], context: Context) -> str:
    """Return a sentence on the worth of a restart, with the bill of the time without service if prices are known."""
    text = "a restart changes no bill: it ends the time in which nothing is served"
    try:
        hourly = sum(
            device_price(present, device, context) for deployment in restarted for device in deployment.device_ids
        )
    except NoPrice:
        return text
    return f"{text}, at {format_usd(hourly)} an hour" if hourly else text


def _speed(old: Deployment, new: Deployment, service: Service, context: Context) -> Speed | None:
    """Return the forecast of a deployment, None if its speed cannot change."""
    if not changes_speed(old, new):
        return None
    return speed(old, new, objectives(service, context), context, len(service.deployments))


def questions(service: Service, to: Service, context: Context) -> ServiceQuestions:
    """Return the forecasts that pricing a change of a service needs.

    They are the deployments with a possible change of speed, and the number of replicas that serve the demand.
    """
    present = {deployment.deployment_id: deployment for deployment in service.deployments}
    slo = objectives(service, context)
    changed = ((present.get(new.deployment_id), new) for new in to.deployments)
    changes = [
        # A move to an API is compared with the present deployment.
        ForecastQuestion(
            old, old if new.placement.purchase == "per_token" else new, context.evidence(old.deployment_id), slo
        )
        for old, new in changed
        if old is not None and (changes_speed(old, new) or new.placement.purchase == "per_token")
    ]
    if not changes and to.demand != service.demand:  # a changed demand is judged by its first deployment
        first = service.deployments[0]
        return ServiceQuestions((ForecastQuestion(first, first, context.evidence(first.deployment_id), slo),))
    if to.replicas is None or to.replicas == len(service.deployments) or not to.deployments:
        return ServiceQuestions(tuple(changes))
    if not alike(to.deployments):
        return ServiceQuestions(())
    ordered = busiest_first(service, context)
    if changes:
        places = {deployment.deployment_id: order for order, deployment in enumerate(ordered)}
        changes.sort(key=lambda question: places[question.now.deployment_id])
    else:
        changes = [ForecastQuestion(ordered[0], ordered[0], context.evidence(ordered[0].deployment_id), slo)]
    try:
        arrivals, _ = total_arrivals(service, context)
    except NotMeasured:
        return ServiceQuestions(tuple(changes[:1]))
    stay = partial(all_stay, service, to)
    return ServiceQuestions(tuple(changes), ReplicaQuestion(to.deployments[0], arrivals, stay))


@by_identity
def changes_speed(old: Deployment, new: Deployment) -> bool:
    """Return whether the speed of a deployment may change. A change of price alone does not affect it."""
    if old is new or new.placement.purchase == "per_token":
        return False
    return bool(old.knob_changes(new)) or old.accelerator != new.accelerator


def _device_knobs(present: Fleet, different: Sequence[Pair]) -> str | None:
    """Return the reason why a change of whole devices cannot be priced: another deployment uses them too."""
    for old, new in different:
        if _device_wide()(old) == _device_wide()(new):
            continue
        for deployment in present.deployments:
            if deployment.deployment_id != old.deployment_id and set(deployment.device_ids) & set(old.device_ids):
                return f"its devices also serve {deployment.name}: clocks and power caps act on both"
    return None


@cache
def _device_wide() -> Callable[[Deployment], tuple[object, ...]]:
    """Return a getter of the knobs of whole devices."""
    return attrgetter(*(name for name, knob in knobs().items() if knob.scope == "device"))
