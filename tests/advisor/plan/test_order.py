"""The order of steps that a person wants, and what a person leaves out."""

from dataclasses import replace

from pertoken.advisor.plan.compose import compose
from pertoken.advisor.plan.plan import Plan, PlanLimits
from pertoken.state.service import Slo
from tests.advisor.plan.fleets import advice, present, quantize, quantize_kv, scale, small

GATHERED = present(small((4, 0), (2, 4)))
FIRST, SECOND = GATHERED.fleet.services
ROWS = advice(GATHERED, [scale(FIRST), scale(SECOND), quantize(FIRST)])


def planned(**limits: object) -> Plan:
    return compose(GATHERED, ROWS, replace(PlanLimits(), **limits))  # type: ignore[arg-type]


def ids(plan: Plan) -> tuple[int, ...]:
    return tuple(step.recommendation_id for step in plan.steps)


def test_steps_follow_the_order_that_was_asked_for_and_the_totals_stay() -> None:
    plan = planned()
    assert len(plan.steps) > 1
    turned = planned(order=tuple(reversed(ids(plan))))
    assert ids(turned) == tuple(reversed(ids(plan)))
    assert (turned.bankable, turned.capacity, turned.spend) == (plan.bankable, plan.capacity, plan.spend)
    assert turned.steps[0].spend_before == plan.spend
    assert turned.steps[-1].spend_after == plan.steps[-1].spend_after
    for before, after in zip(turned.steps, turned.steps[1:], strict=False):
        assert before.spend_after == after.spend_before


def test_ids_that_are_no_steps_change_nothing() -> None:
    assert planned(order=(1, 2, 3)) == planned()


def test_a_recommendation_that_a_person_leaves_out_is_listed_with_that_reason() -> None:
    plan = planned()
    gone = plan.steps[0].recommendation_id
    without = planned(without=frozenset({gone}))
    assert gone not in ids(without)
    assert [entry.reason for entry in without.left_out if entry.recommendation_id == gone] == ["you left it out"]


def test_a_step_that_needs_another_waits_for_it() -> None:
    state = present(small((2, 0)))
    before, after = (edit(state.fleet.services[0]) for edit in (quantize, quantize_kv))
    first, then = advice(state, [before, after])
    needing = replace(then, variants=tuple(replace(variant, requires=(first.rule_id,)) for variant in then.variants))
    plan = compose(state, [first, needing], PlanLimits(order=(then.recommendation_id, first.recommendation_id)))
    assert [step.rule_id for step in plan.steps] in ([first.rule_id, then.rule_id], [first.rule_id])


def test_headroom_is_of_the_objective_that_is_nearest_to_its_limit() -> None:
    state = present(small((2, 0), slo=Slo(tpot_p95_ms=1000, ttft_p95_ms=100_000)))
    plan = compose(state, advice(state, [quantize(state.fleet.services[0])]))
    for step in plan.steps:
        known = step.headroom
        assert known is None or (known.limit_ms in (1000, 100_000) and known.share < 1)
