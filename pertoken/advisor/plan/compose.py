"""Composition of one plan: the best subset of recommendations, its order, and each step priced after the previous."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pertoken.advisor.changes.commands import commands
from pertoken.advisor.changes.title import PricingChoices, title
from pertoken.advisor.plan.choose import Chooser, Chosen, PlanChoice, PlanSearch
from pertoken.advisor.plan.levers import Conflicts, conflicts, levers
from pertoken.advisor.plan.plan import Headroom, LeftOut, Money, Plan, PlanLimits, PlanStep
from pertoken.advisor.plan.states import LeverStates, PowerBudget, joined, record_line
from pertoken.advisor.present import Present
from pertoken.forecast.tiers import split_tier
from pertoken.proof.recommendation import UNDER_WAY, Recommendation, State
from pertoken.savings.estimate import Estimate, whole_hosts
from pertoken.savings.estimate import spend as spend_of
from pertoken.savings.saving import Saving
from pertoken.savings.sensitivity import DroppableSteps, Sensitivity, sensitivities
from pertoken.savings.slo import FIGURES, Latencies
from pertoken.state.diff import diff
from pertoken.state.fleet import Fleet
from pertoken.units import HOURS_PER_MONTH, MTOK


def in_order(groups: Sequence[Sequence[int]], wanted: Sequence[int], problem: PlanSearch) -> tuple[int, ...]:
    """Return the levers of all groups: the wanted ones first in that order, then the others in search order.

    A lever that cannot be applied yet waits until it can. If no such order applies all levers, the search order stays.
    """
    ordered = tuple(index for group in groups for index in group)
    if not wanted:
        return ordered
    group_of = {index: number for number, group in enumerate(groups) for index in group}
    made = [Chosen()] * len(groups)
    remaining = [
        *(index for index in wanted if index in group_of),
        *(index for index in ordered if index not in wanted),
    ]
    order: list[int] = []
    while remaining:
        index = next(
            (candidate for candidate in remaining if _can_follow(problem, made[group_of[candidate]], candidate)), None
        )
        if index is None:
            return ordered
        remaining.remove(index)
        order.append(index)
        made[group_of[index]] |= {index}
    return tuple(order)


def _can_follow(problem: PlanSearch, made: Chosen, index: int) -> bool:
    return problem.follows(made, index) and problem.worth([made | {index}])[0] is not None


def step_after(states: LeverStates, gathered: Present, applied: Chosen, index: int, spend: int) -> PlanStep:
    """Return a lever as the step after the levers of `applied`; `spend`: the likely bill before it."""
    lever, chosen = states.levers[index], applied | {index}
    earlier, combined = states.worth([applied, chosen])
    assert earlier is not None and combined is not None
    bankable = _less(combined.net, earlier.net)
    price, applied_price = states.price(chosen), states.price(applied) if applied else Estimate()
    present = _left(states.composed(applied), applied_price)
    proposed = _left(states.composed(chosen), applied_price)
    # Start from the running replicas: pricing decided whether the step changes their number.
    named = {touched.removeprefix("service:") for touched in lever.touches}
    present = replace(present, services=tuple(replace(service, replicas=None) for service in present.services))
    services = (service if service.name in named else replace(service, replicas=None) for service in proposed.services)
    proposed = replace(proposed, services=tuple(services))
    resized = {
        service.name: (len(service.deployments), len(service.deployments) - gone)
        for service in present.services
        if (gone := _stopped(service.name, price, states.base) - _stopped(service.name, applied_price, states.base))
    }
    released = tuple(host for host in price.released if host not in applied_price.released)
    placed = list(price.ordered)
    for instances in applied_price.ordered:
        if instances in placed:
            placed.remove(instances)
    decided = PricingChoices(resized, released, priced=True, placed=tuple(placed))
    difference = diff(present, proposed)
    running = {deployment.deployment_id for deployment in present.deployments if deployment.device_ids}
    hosts = {key: name for key, name in gathered.addresses.hosts.items() if key in running}
    step = commands(difference, present, replace(gathered.addresses, hosts=hosts), decided)
    record = lever.variant.record
    return PlanStep(
        rule_id=lever.row.rule_id,
        recommendation_id=lever.row.recommendation_id,
        variant_key=lever.variant.key,
        title=title(difference, present, decided),
        where=lever.row.target,
        risk=lever.variant.risk,
        effort=lever.effort,
        spend_before=spend,
        spend_after=spend - bankable[LIKELY],
        bankable=bankable,
        capacity=_less(combined.capacity, earlier.capacity),
        slo=price.slo,
        headroom=_headroom(price.latency),
        replicas=next(iter(resized.values()), None),
        released=released,
        commands=step.apply,
        undo=step.undo,
        tier=lever.variant.tier,
        assumptions=(
            *(
                assumption
                for assumption in split_tier(price.assumptions)[1]
                if assumption not in (*applied_price.assumptions, *whole_hosts(price.released))
            ),
            *(() if record is None else (record_line(lever.row.rule_id, record),)),
        ),
        against=(
            *(objective for objective in price.against if objective not in applied_price.against),
            *(line for line in price.moving.lines if line not in applied_price.moving.lines),
        ),
    )


def _stopped(service: str, price: Estimate, base: Fleet) -> int:
    """Return the number of replicas of a service that pricing stopped; which ones may differ between states."""
    return sum(service in base.listed_by.get(deployment_id, ()) for deployment_id in price.stopped)


def _left(fleet: Fleet, price: Estimate) -> Fleet:
    """Return a fleet without the replicas that pricing stopped and the hosts that it released."""
    gone = {host.host_id for host in fleet.hosts if host.name in price.released}
    services = tuple(
        replace(
            service,
            deployments=tuple(replica for replica in service.deployments if replica.deployment_id not in price.stopped),
        )
        if any(replica.deployment_id in price.stopped for replica in service.deployments)
        else service
        for service in fleet.services
    )
    if not gone:
        return replace(fleet, services=services)
    hosts = tuple(host for host in fleet.hosts if host.host_id not in gone)
    return Fleet(
        services, hosts, tuple(device for device in fleet.devices if device.host_id not in gone), fleet.commitments
    )


LOW, LIKELY, HIGH = range(3)


def compose(
    gathered: Present,
    recommendations: Iterable[Recommendation],
    limits: PlanLimits | None = None,
    *,
    sensitivity: bool = False,
) -> Plan:
    """Return the plan that saves most: bankable dollars first, then capacity.

    Accepted changes that do not run yet are its first steps, whatever the limits, and the others start from them. The
    result does not depend on the order of the recommendations. With `sensitivity` the whole plan is priced again with
    each of its assumptions at its low and its high end. Raises BadInput for invalid limits.
    """
    limits, rows = limits or PlanLimits(), tuple(recommendations)
    taken = [
        replace(row, state=State.OPEN, variants=(row.estimate,))
        for row in sorted(rows, key=lambda row: (row.updated_ts, row.recommendation_id))
        if row.state in UNDER_WAY and row.estimate is not None
    ]
    accepted, not_applicable = levers(gathered, taken, PlanLimits())
    proposed, left_out = levers(gathered, rows, limits)
    kept = tuple(sorted((*accepted, *proposed), key=lambda lever: lever.key))
    position = {lever.row.recommendation_id: index for index, lever in enumerate(kept) if lever in accepted}
    clashes = conflicts(kept)
    states = LeverStates(kept, gathered.fleet, gathered.context)
    watts = limits.max_power_w
    power = None if watts is None else PowerBudget(watts, gathered.fleet, gathered.context.market)
    chooser = Chooser(
        states, clashes, power, [position[row.recommendation_id] for row in taken if row.recommendation_id in position]
    )
    choice = chooser.choice()
    wanted = [index for key in limits.order for index, lever in enumerate(kept) if lever.row.recommendation_id == key]
    order = in_order(choice.groups, [*chooser.accepted, *wanted], chooser.problem)
    spend, unpriced = spend_of(gathered.fleet, gathered.context)
    steps = _steps(order, choice, states, clashes, gathered, spend, chooser.accepted)
    group_savings = states.worth([Chosen(group) for group in choice.groups])
    bankable, capacity = bounded(joined(saving for saving in group_savings if saving is not None), spend)
    return Plan(
        spend=spend,
        bankable=bankable,
        capacity=capacity,
        steps=tuple(steps),
        left_out=_left_out((*left_out, *not_applicable), order, choice, chooser, states, clashes),
        unpriced_hosts=unpriced,
        sensitivity=_sensitivity(choice, chooser, states, gathered) if sensitivity else (),
        exact=choice.exact,
        mtok_per_month=_mtok_per_month(gathered) if not unpriced else None,
    )


def bounded(saving: Saving, spend: int) -> tuple[Money, Money]:
    """Return bankable and capacity dollars, limited so that their sum never exceeds the spend, at each end."""
    low, likely, high = (min(dollars, spend) for dollars in saving.net)
    free = [
        max(0, min(dollars, spend - gone)) for dollars, gone in zip(saving.capacity, (low, likely, high), strict=True)
    ]
    middle = min(free[LIKELY], free[HIGH])
    return (low, likely, high), (min(free[LOW], middle), middle, free[HIGH])


def _mtok_per_month(gathered: Present) -> float | None:
    """Return the Mtok that all services serve in a month at the measured load; None if one is not known."""
    tok_s = 0.0
    for service in gathered.fleet.services:
        seen = gathered.context.services.get(service.name)
        prompt, generated = (None, None) if seen is None else map(seen.peek, ("prompt_tok_s", "generated_tok_s"))
        if prompt is None or generated is None or not generated.mean:
            return None
        tok_s += prompt.mean + generated.mean
    return tok_s * HOURS_PER_MONTH * 3600 / MTOK if tok_s else None


def _sensitivity(
    choice: PlanChoice, chooser: Chooser, states: LeverStates, gathered: Present
) -> tuple[Sensitivity, ...]:
    combination = Chosen(index for group in choice.groups for index in group)
    if not combination:
        return ()

    def extended(chosen: Chosen, step: int) -> Fleet | None:
        return states.composed(chosen | {step}) if chooser.problem.follows(chosen, step) else None

    steps = DroppableSteps(choice.groups, extended)
    ranges = sensitivities(gathered.fleet, states.composed(combination), gathered.context, steps)
    by = states.correction(combination)
    return ranges if by is None else tuple(by.sensitivity(sensitivity) for sensitivity in ranges)


def _steps(
    order: Sequence[int],
    choice: PlanChoice,
    states: LeverStates,
    clashes: Conflicts,
    gathered: Present,
    spend: int,
    accepted: Sequence[int],
) -> list[PlanStep]:
    """Return the steps in order. Each is priced on the earlier steps of its group; savings of groups add up."""
    group_of = {index: group for group in choice.groups for index in group}
    applied = dict.fromkeys(choice.groups, Chosen())
    steps = []
    for index in order:
        group = group_of[index]
        step = step_after(states, gathered, applied[group], index, spend)
        steps.append(replace(step, accepted=index in accepted, conflicts=_excluded(index, states, clashes)))
        spend = step.spend_after
        applied[group] |= {index}
    return steps


def _headroom(latencies: Latencies | None) -> Headroom | None:
    """Return the objective with the least headroom in the forecast; None without an objective or a forecast."""
    after = None if latencies is None else latencies.after
    if latencies is None or after is None:
        return None
    headrooms = [
        Headroom(figure, getattr(after, field)[LIKELY], getattr(after, field)[HIGH], limit)
        for figure, field in FIGURES.items()
        if (limit := getattr(latencies.slo, field)) is not None
    ]
    return min(headrooms, key=lambda headroom: headroom.share, default=None)


def _excluded(index: int, states: LeverStates, clashes: Conflicts) -> tuple[str, ...]:
    """Return the proposals that conflict with a lever, each with the reason, once per recommendation."""
    reasons: dict[int, str] = {}
    for conflicting in sorted(conflicting for first, conflicting in clashes if first == index):
        lever = states.levers[conflicting]
        if lever.key[:3] != states.levers[index].key[:3]:
            text = f"{lever.row.rule_id}, {lever.variant.title}: {clashes[index, conflicting]}"
            reasons.setdefault(lever.row.recommendation_id, text)
    return tuple(reasons.values())


def _less(after: Money, previous: Money) -> Money:
    low, likely, high = (amount - previous_amount for amount, previous_amount in zip(after, previous, strict=True))
    return low, likely, high


def _left_out(
    unpriced: Sequence[LeftOut],
    order: Sequence[int],
    choice: PlanChoice,
    chooser: Chooser,
    states: LeverStates,
    clashes: Conflicts,
) -> tuple[LeftOut, ...]:
    """Return one line for each recommendation without a step, with the reason of the variant closest to the plan."""
    numbers = {index: number for number, index in enumerate(order, 1)}
    done = {states.levers[index].row.recommendation_id for index in numbers}
    left_out: dict[int, LeftOut] = {}
    by_row: dict[int, list[int]] = defaultdict(list)
    for index, lever in enumerate(states.levers):
        by_row[lever.row.recommendation_id].append(index)
    for row, positions in by_row.items():
        index = min(
            positions, key=lambda position: states.levers[position].row.variants.index(states.levers[position].variant)
        )
        if row not in done:
            left_out[row] = states.levers[index].left_out(_reason(index, numbers, choice, chooser, states, clashes))
    for position in unpriced:
        if position.recommendation_id not in done:
            left_out.setdefault(position.recommendation_id, position)
    return tuple(sorted(left_out.values(), key=lambda entry: (entry.rule_id, entry.where, entry.title)))


def _reason(
    index: int, numbers: dict[int, int], choice: PlanChoice, chooser: Chooser, states: LeverStates, clashes: Conflicts
) -> str:
    """Return why a lever is not a step of the plan."""
    for planned, number in numbers.items():
        if (index, planned) in clashes:
            return f"conflicts with step {number} ({states.levers[planned].row.rule_id}): {clashes[index, planned]}"
    touches = states.levers[index].touches
    meeting = (group for group in choice.groups if any(states.levers[planned].touches & touches for planned in group))
    beside = Chosen(next(meeting, ()))
    for chosen in (Chosen(), beside):
        if (rule_id := chooser.missing(chosen, index)) is not None and chosen is beside:
            return f"{rule_id} has to come before it, and is not a step"
        if states.extend(chosen, index):
            states.worth([chosen | {index}])
        reason = states.refusal(chosen | {index}) or chooser.over_power(chosen | {index}, choice.groups)
        if reason is not None:
            return reason if not chosen else f"together with the steps above: {reason}"
    return "it saves nothing in addition to the steps above" if beside else "it saves nothing"
