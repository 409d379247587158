"""Plans of whole fleets: totals, order, conflicts, and that groups lose nothing against looking at everything."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pertoken.advisor.plan.choose import Chosen
from pertoken.advisor.plan.compose import bounded, compose, step_after
from pertoken.advisor.plan.levers import groups, levers
from pertoken.advisor.plan.plan import PlanLimits
from pertoken.advisor.plan.states import LeverStates
from pertoken.advisor.present import Present
from pertoken.evidence import Evidence
from pertoken.proof.recommendation import Recommendation, State
from pertoken.rule import propose
from pertoken.savings.saving import Saving
from pertoken.savings.sensitivity import under_load
from pertoken.state.fleet import Device, Fleet
from pertoken.state.service import Schedule, Slo, asleep, off
from pertoken.units import HOURS_PER_MONTH, NANO_USD
from tests.advisor.plan.fleets import (
    NIGHTS,
    P5,
    Asked,
    advice,
    everything,
    exhaustive,
    move,
    nights,
    planned,
    present,
    quantize,
    quantize_kv,
    rank,
    reasons,
    release,
    response_cache,
    rules,
    scale,
    small,
    spot,
)
from tests.examples import examples
from tests.savings.fleets import AWS, AWS_H100, host

HOST = 2 * AWS_H100 * HOURS_PER_MONTH
"""A month of one host of two devices."""
SHAPES = (((2, 0),), ((3, 0), (1, 3)), ((1, 0), (1, 1)), ((2, 0), (1, 2), (1, 3)), ((4, 0), (1, 5)))


@cache
def known(shape: int) -> tuple[Present, tuple[Recommendation, ...]]:
    state = present(small(*SHAPES[shape]))
    return state, tuple(row for row in advice(state, everything(state.fleet)) if row.variants)


Case = tuple[int, tuple[int, ...]]
"""A shape, and which of all levers on it."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shape = draw(st.integers(0, len(SHAPES) - 1))
    chosen = draw(st.sets(st.integers(0, len(known(shape)[1]) - 1), min_size=1, max_size=6))
    return shape, tuple(sorted(chosen))


def of(case: Case) -> tuple[Present, tuple[Recommendation, ...]]:
    state, rows = known(case[0])
    return state, tuple(rows[at] for at in case[1])


# -- properties ----------------------------------------------------------------------------------------------------


@example((3, (0, 1, 2, 11)))  # hours off of one service beside fewer replicas of another
@given(cases())
@settings(max_examples=8, deadline=None)
def test_a_plan_by_groups_is_as_good_as_looking_at_every_combination(case: Case) -> None:
    state, rows = of(case)
    plan = compose(state, rows)
    assert plan.exact
    assert rank(plan) == pytest.approx(exhaustive(state, rows).rank, abs=len(rows))  # nano-dollars, rounded by group


@given(cases())
@settings(max_examples=8, deadline=None)
def test_a_total_is_never_above_the_spend_and_equals_its_steps(case: Case) -> None:
    plan = compose(*of(case))
    for end in range(3):
        assert plan.bankable[end] >= 0 and plan.capacity[end] >= 0
        assert plan.bankable[end] + plan.capacity[end] <= plan.spend
    assert plan.bankable[0] <= plan.bankable[1] <= plan.bankable[2]
    assert plan.capacity[0] <= plan.capacity[1] <= plan.capacity[2]
    assert plan.spend_after == (plan.steps[-1].spend_after if plan.steps else plan.spend)
    assert sum(step.bankable[1] for step in plan.steps) == plan.bankable[1]
    befores = [plan.spend, *(step.spend_after for step in plan.steps)]
    assert [step.spend_before for step in plan.steps] == befores[:-1]


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=5, deadline=None)
def test_a_plan_does_not_depend_on_the_order_in_which_rules_were_loaded(case: Case, random: Random) -> None:
    state, rows = of(case)
    shuffled = random.sample(rows, len(rows))
    assert compose(state, shuffled) == compose(state, rows)


@given(cases())
@settings(max_examples=5, deadline=None)
def test_one_more_rule_never_lowers_a_plan(case: Case) -> None:
    state, rows = of(case)
    whole = rank(compose(state, rows))
    for rule_id in sorted({row.rule_id for row in rows}):
        less = rank(compose(state, rows, PlanLimits(exclude=(rule_id,))))
        assert whole >= (less[0] - len(rows), less[1])


LIMITS_MS = st.sampled_from([None, 10.0, 20.0, 100.0, 300.0, 1500.0])
TRAFFIC = (0.5, 1.0, 2.0)


@example(SHAPES[1], Slo(), 14.0, 20.0, 0.012, "")  # twice the requests would be twice the batch at the measured TPOT
@given(
    st.sampled_from(SHAPES[:2]),
    st.builds(Slo, ttft_p50_ms=LIMITS_MS, ttft_p95_ms=LIMITS_MS, tpot_p95_ms=LIMITS_MS),
    st.floats(0.3, 20.0),
    st.sampled_from([0.03, 0.2, 1.0, 20.0]),
    st.sampled_from([0.007, 0.012, 0.03]),
    st.sampled_from(["", "ttft_s", "tpot_s"]),
)
@settings(max_examples=examples(20), deadline=None)
def test_no_step_fails_or_is_unknown_where_an_objective_is_set_and_more_load_saves_no_more(
    shape: tuple[tuple[int, int], ...], slo: Slo, times: float, ttft_s: float, tpot_s: float, unmeasured: str
) -> None:
    fleet, busy = small(*shape, slo=slo), min(1.0, 0.3 * times)
    state = present(
        fleet,
        generated_tok_s=40 * times,
        prompt_tok_s=160 * times,
        requests_s=0.1 * times,
        busy=busy,
        running=max(1.0, times),
        busy_generated_tok_s=max(200.0, 40 * times / busy),
        ttft_s=ttft_s,
        tpot_s=tpot_s,
    )
    saved = []
    for traffic in TRAFFIC:
        loaded = _under_load(state, traffic, unmeasured)
        asked = [made(service) for service in fleet.services for made in (scale, quantize, spot)]
        plan = compose(loaded, [row for row in advice(loaded, asked) if row.variants])
        assert all(step.slo in ("pass", "near_miss") or slo == Slo() for step in plan.steps)
        saved.append(plan.bankable[1])
    assert saved == sorted(saved, reverse=True)


def _under_load(state: Present, traffic: float, unmeasured: str) -> Present:
    """Return a state at a multiple of its load, without one series."""

    def seen(measured: Evidence) -> Evidence:
        return under_load(Evidence({name: one for name, one in measured.items() if name != unmeasured}), traffic)

    known = state.context
    context = replace(
        known,
        forecasts=known.forecasts.uncached(),
        deployments={key: seen(measured) for key, measured in known.deployments.items()},
        services={name: seen(measured) for name, measured in known.services.items()},
    )
    return replace(state, context=context)


def test_in_a_group_too_large_for_every_combination_no_rule_lowers_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pertoken.advisor.plan.choose.MAX_EXACT", 4)
    monkeypatch.setattr("pertoken.advisor.plan.choose.MAX_BLOCK", 2)
    state, rows = known(1)
    rows = rows[:5]
    kept, _ = levers(state, rows, PlanLimits())
    assert max(map(len, groups(state.fleet, kept))) > 4
    whole = compose(state, rows)
    assert not whole.exact
    for rule_id in sorted({row.rule_id for row in rows}):
        assert rank(whole) >= rank(compose(state, rows, PlanLimits(exclude=(rule_id,))))


# -- accepted steps ----------------------------------------------------------------------------------------------------


def taken(row: Recommendation, at_ts: int = 0, state: State = State.ACCEPTED) -> Recommendation:
    return replace(row, state=state, variant=row.variants[0].key, estimate=row.variants[0], updated_ts=at_ts)


@given(case=cases(), number=st.integers(0, 5))
@settings(max_examples=examples(15), deadline=None)
def test_accepting_a_step_keeps_the_plan_and_ticks_the_step(case: Case, number: int) -> None:
    state, rows = of(case)
    plan = compose(state, rows)
    if not plan.steps:
        return
    step = plan.steps[number % len(plan.steps)]
    row = next(row for row in rows if row.recommendation_id == step.recommendation_id)
    variant = next(variant for variant in row.variants if variant.key == step.variant_key)
    accepted = replace(taken(row), variant=variant.key, estimate=variant)
    again = compose(state, [accepted, *(other for other in rows if other is not row)])
    assert (again.bankable, again.capacity) == (plan.bankable, plan.capacity)
    assert {step.variant_key for step in again.steps} == {step.variant_key for step in plan.steps}
    assert [step.recommendation_id for step in again.steps if step.accepted] == [row.recommendation_id]


def test_other_steps_start_from_an_accepted_one_and_nothing_is_counted_twice() -> None:
    state = present(small((4, 0)))
    service = state.fleet.services[0]
    fewer, moved = advice(state, [scale(service), spot(service)])
    plan = compose(
        state, [taken(fewer), moved], PlanLimits(exclude=("scale-replicas",), order=(moved.recommendation_id,))
    )
    first, second = plan.steps
    assert (first.rule_id, first.accepted, second.rule_id, second.accepted) == (
        "scale-replicas",
        True,
        "use-spot",
        False,
    ), "neither a limit nor an order moves what was decided"
    assert second.bankable[1] < moved.variants[0].saving.net[1]  # type: ignore[union-attr]
    assert plan.bankable[1] == first.bankable[1] + second.bankable[1] <= plan.spend


def test_a_proposal_that_an_accepted_change_excludes_names_it() -> None:
    state = present(small((1, 0)))
    service = state.fleet.services[0]
    spotted, moved = advice(state, [spot(service), move(service)])
    plan = compose(state, [taken(moved), spotted])
    assert rules(plan) == ["change-provider"] and plan.steps[0].accepted
    assert "conflicts with step 1 (change-provider)" in reasons(plan)["use-spot"]


def test_an_accepted_change_that_raises_the_bill_stays_in_the_plan_with_its_dollars() -> None:
    state = present(small((1, 0), (1, 1), placement=AWS))
    row, _ = advice(state, [move(service) for service in state.fleet.services])
    plan = compose(state, [taken(row)])
    assert not compose(state, [row]).steps and [step.accepted for step in plan.steps] == [True]
    assert plan.bankable[1] == plan.steps[0].bankable[1] < 0


def test_accepted_changes_that_contradict_each_other_are_the_earlier_one_with_a_reason_for_the_other() -> None:
    state = present(small((1, 0)))
    service = state.fleet.services[0]
    spotted, moved = advice(state, [spot(service), move(service)])
    for first, second in ((spotted, moved), (moved, spotted)):
        plan = compose(state, [taken(second, 2), taken(first, 1)])
        assert rules(plan) == [first.rule_id] and second.rule_id in reasons(plan)


def test_a_change_that_runs_already_is_no_step_and_its_bill_is_that_of_the_present() -> None:
    state = present(small((4, 0)))
    (row,) = advice(state, [quantize(state.fleet.services[0])])
    after = levers(state, [row], PlanLimits())[0][0].change.after
    plan = compose(replace(state, fleet=after), [taken(row, state=State.VERIFYING)])
    assert not plan.steps and reasons(plan) == {"quantize-weights": "it runs already"}


# -- steps on the state before them --------------------------------------------------------------------------------


def test_a_second_step_is_priced_on_what_the_first_one_left() -> None:
    state = present(small((4, 0)))
    service = state.fleet.services[0]
    alone = planned(state, spot(service)).bankable[1]
    plan = planned(state, scale(service), spot(service))
    first, second = plan.steps
    assert (first.spend_before, second.spend_before) == (2 * HOST, first.spend_after)
    assert plan.bankable[1] < alone + planned(state, scale(service)).bankable[1]
    assert plan.bankable[1] > alone
    assert {first.replicas, second.replicas} == {None, (4, 1)}


def test_commands_of_a_step_leave_out_replicas_and_hosts_that_are_gone() -> None:
    state = present(small((4, 0)))
    service = state.fleet.services[0]
    kept, _ = levers(state, advice(state, [quantize_kv(service), scale(service)]), PlanLimits())
    states = LeverStates(kept, state.fleet, state.context)
    assert [lever.row.rule_id for lever in kept] == ["quantize-kv", "scale-replicas"]
    assert None not in states.worth([Chosen({1}), Chosen({0, 1})])
    first = step_after(states, state, Chosen(), 1, 0)
    second = step_after(states, state, Chosen({1}), 0, 0)
    assert (first.replicas, second.replicas) == ((4, 1), None)
    assert first.released and not second.released
    assert not any(name in line for name in first.released for line in second.commands)
    assert "replicas" in first.title and "replicas" not in second.title


def test_a_step_names_and_orders_the_instances_that_it_alone_needs() -> None:
    state = present(small((2, 0), (2, 2), placement=P5))
    one, other = state.fleet.services
    (first, second) = planned(state, spot(one), spot(other)).steps
    for step in (first, second):
        (ordered,) = [line for line in step.commands if "run-instances" in line]
        assert "spot" in ordered and f"--instance-type {P5.instance_type} --count 1 " in ordered
        assert f"1 × {P5.instance_type} spot at aws" in step.title


def test_services_on_one_host_release_it_together() -> None:
    state = present(small((1, 0), (1, 1), placement=AWS))
    one, other = state.fleet.services
    plan = planned(state, move(one), move(other))
    assert [step.released for step in plan.steps] == [(), ("gpu-1",)]
    assert plan.steps[0].bankable[1] < 0 < plan.bankable[1]
    alone = planned(state, move(one))
    assert not alone.steps
    assert "the bill would rise by" in reasons(alone)["change-provider"]


def test_a_deployment_that_leaves_a_released_host_saves_no_busy_time_there() -> None:
    state = present(small((4, 0), (1, 5)))
    one, other = state.fleet.services
    rows = advice(state, [quantize(one), quantize(other), spot(other)])
    plan = compose(state, rows)
    assert rank(plan) == exhaustive(state, rows).rank
    assert plan.capacity[1] == HOST // 2  # the device that `chat-1` leaves free


def test_a_step_that_needs_another_rule_comes_after_it_or_not_at_all() -> None:
    state = present(small((4, 0)))
    service = state.fleet.services[0]
    needs: Asked = ("use-spot", service, [propose(spot(service)[2][0].state, requires=("scale-replicas",))])  # type: ignore[attr-defined]
    assert rules(planned(state, needs, scale(service))) == ["scale-replicas", "use-spot"]
    alone = planned(state, needs)
    assert not alone.steps
    assert [entry.reason for entry in alone.left_out] == ["scale-replicas has to come before it, and is not a step"]


# -- conflicts -----------------------------------------------------------------------------------------------------


def test_hours_off_are_not_priced_beside_another_change_of_their_hosts() -> None:
    hours = tuple(0.0 if hour < 6 else 0.2 for hour in range(168))
    fleet = small((2, 0))
    service = replace(fleet.services[0], demand=replace(fleet.services[0].demand, requests_by_hour_of_week=hours))
    state = present(replace(fleet, services=(service,)))
    night: Asked = ("scale-to-zero", service, [service.scheduled(off(range(6)))])
    plan = planned(state, night, spot(service))
    assert len(plan.steps) == 1
    assert "hours off and another change of the devices" in plan.left_out[0].reason


@pytest.mark.parametrize("schedule", [off(NIGHTS), asleep(NIGHTS)], ids=["off", "asleep"])
def test_hours_off_beside_another_number_of_replicas_save_more_than_either(schedule: Schedule) -> None:
    state = present(small((4, 0)))
    service = state.fleet.services[0]
    timed: Asked = ("scale-to-zero", service, [service.scheduled(schedule)])
    fewer: Asked = ("scale-replicas", service, [service.scaled_to(2)])
    plan = planned(state, timed, fewer)
    assert sorted(rules(plan)) == ["scale-replicas", "scale-to-zero"]
    assert rank(plan) > max(rank(planned(state, asked)) for asked in (timed, fewer))
    assert rank(plan) == exhaustive(state, advice(state, (timed, fewer))).rank


def test_a_schedule_of_numbers_beside_another_number_of_replicas_is_a_conflict_that_is_named() -> None:
    schedule = Schedule(replicas=tuple((hour, 2) for hour in NIGHTS))
    state = present(small((4, 0)))
    service = state.fleet.services[0]
    timed: Asked = ("scale-to-zero", service, [service.scheduled(schedule)])
    fewer: Asked = ("scale-replicas", service, [service.scaled_to(2)])
    best = max((planned(state, one) for one in (timed, fewer)), key=rank)
    assert rank(planned(state, timed)) > (0, 0) < rank(planned(state, fewer))
    for both in ((timed, fewer), (fewer, timed)):
        plan = planned(state, *both)
        assert rules(plan) == rules(best) == ["scale-replicas"] and rank(plan) == rank(best)
        assert "a schedule with numbers of replicas" in reasons(plan)["scale-to-zero"]


def test_hours_off_a_cache_and_a_faster_model_are_steps_of_one_plan() -> None:
    state = present(small((1, 0)))
    service = state.fleet.services[0]
    alone = [planned(state, asked(service)) for asked in (quantize_kv, nights, response_cache)]
    plan = planned(state, quantize_kv(service), nights(service), response_cache(service))
    assert sorted(rules(plan)) == ["quantize-kv", "response-cache", "scale-to-zero"]
    assert plan.bankable == alone[1].bankable and plan.bankable[1] > 0
    assert (
        max(variant.capacity[1] for variant in alone) < plan.capacity[1] < sum(variant.capacity[1] for variant in alone)
    )


# -- limits and what is left out -----------------------------------------------------------------------------------


def test_an_idle_host_is_given_back_and_counted_once() -> None:
    fleet = small((2, 0))
    idle = host(7, placement=P5)
    state = present(Fleet(fleet.services, (*fleet.hosts, idle), (*fleet.devices, *_devices(idle.device_ids))))
    plan = planned(state, release(state.fleet, 7))
    assert (plan.spend, plan.bankable) == (2 * HOST, (HOST, HOST, HOST))
    assert plan.steps[0].released == ("gpu-7",)


def _devices(ids: Sequence[int]) -> list[Device]:
    like = small((1, 0)).devices[0]
    return [replace(like, device_id=device_id, host_id=7) for device_id in ids]


def test_a_step_that_would_miss_an_objective_is_no_part_of_a_plan() -> None:
    state = present(small((4, 0), slo=Slo(ttft_p95_ms=400, tpot_p95_ms=30)))
    service = state.fleet.services[0]
    strict = replace(service, slo=Slo(tpot_p95_ms=0.01))
    rows = advice(state, [scale(service), quantize(service)])
    assert compose(state, rows).steps
    tight = replace(state, fleet=replace(state.fleet, services=(strict,)))
    plan = compose(tight, rows)
    assert not plan.steps
    assert all("SLO" in reason or "replicas" in reason for reason in reasons(plan).values())


def test_a_step_whose_latency_is_unknown_is_no_part_of_a_plan_where_an_objective_is_set() -> None:
    """Without an objective nothing has to be known."""
    fleet = small((4, 0), slo=Slo(ttft_p50_ms=400, tpot_p95_ms=30))
    measured = present(fleet)
    dark = {key: Evidence({name: one for name, one in seen.items() if name != "ttft_s"})
            for key, seen in measured.context.deployments.items()}  # fmt: skip
    state = replace(measured, context=replace(measured.context, deployments=dark))
    rows = advice(measured, [scale(fleet.services[0])])
    assert compose(measured, rows).steps
    plan = compose(state, rows)
    assert not plan.steps
    assert all("TTFT p50 was not measured" in reason for reason in reasons(plan).values())
    free = replace(state.fleet.services[0], slo=Slo())
    state = replace(state, fleet=replace(state.fleet, services=(free,)))
    assert compose(state, advice(state, [scale(free)])).steps


def test_a_host_without_a_price_is_named_and_not_counted() -> None:
    state = present(small((2, 0)), price=None)
    plan = compose(state, advice(state, [scale(state.fleet.services[0])]))
    assert (plan.spend, plan.unpriced_hosts, plan.steps) == (0, ("gpu-1",), ())


def test_nothing_at_all_is_an_empty_plan() -> None:
    plan = compose(present(small((1, 0))), ())
    assert (plan.spend, plan.spend_after, plan.steps, plan.left_out) == (HOST, HOST, (), ())


@pytest.mark.parametrize(
    ("bankable", "capacity", "bounded_to"),
    [
        ((1, 2, 3), (1, 2, 3), ((1, 2, 3), (1, 2, 3))),
        ((1, 5, 12), (0, 9, 9), ((1, 5, 10), (0, 0, 0))),
        ((-3, 4, 6), (2, 9, 9), ((-3, 4, 6), (2, 4, 4))),
    ],
)
def test_money_beyond_the_spend_is_cut(
    bankable: tuple[int, int, int], capacity: tuple[int, int, int], bounded_to: object
) -> None:
    assert bounded(Saving(bankable, capacity), spend=10) == bounded_to


def test_a_merge_and_a_move_of_the_engine_it_makes_are_steps_of_one_plan() -> None:
    state = present(small((1, 0), (1, 2)))
    fleet = state.fleet
    merge: Asked = ("consolidate", None, [fleet.merge(fleet.deployments, fleet.deployments[0])])
    both = planned(state, merge, spot(fleet.services[1]))
    assert rules(both) == ["consolidate", "use-spot"]
    assert both.bankable[1] == 2 * HOST - round(5.0 * NANO_USD * HOURS_PER_MONTH)
    assert "p5.48xlarge spot" in both.steps[1].title and both.steps[1].spend_before == HOST
    assert all(both.bankable[1] > planned(state, alone).bankable[1] for alone in (merge, spot(fleet.services[1])))


def test_fewer_replicas_and_hours_off_are_steps_of_one_plan() -> None:
    state = present(small((4, 0)))
    (service,) = state.fleet.services
    plan = planned(state, scale(service), nights(service))
    assert rules(plan) == ["scale-replicas", "scale-to-zero"]
    assert plan.bankable == (HOST + HOST // 4,) * 3
    assert plan.capacity == (HOST // 2 * 3 // 4,) * 3


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_a_row_saves_to_the_cent_what_a_plan_of_that_row_alone_saves(shape: int) -> None:
    state, rows = known(shape)
    for row in rows:
        saving = row.variants[0].saving
        assert saving is not None
        plan = compose(state, [replace(row, variants=row.variants[:1])])
        assert saving.net[2] <= plan.spend
        if saving.pays_more:
            assert not plan.steps
        elif plan.steps:
            assert (plan.bankable, plan.capacity[1]) == (saving.net, saving.capacity[1])
        else:
            assert saving.rank <= (0, 0)
