"""The order of steps that a person wants, and what a person leaves out."""

from dataclasses import replace

from pertoken.advisor.plan.compose import compose
from pertoken.advisor.plan.plan import Limits, Plan
from pertoken.state.service import Slo
from tests.advisor.plan.fleets import advice, present, quantize, quantize_kv, scale, small

THERE = present(small((4, 0), (2, 4)))
FIRST, SECOND = THERE.fleet.services
ROWS = advice(THERE, [scale(FIRST), scale(SECOND), quantize(FIRST)])


def planned(**limits: object) -> Plan:
    return compose(THERE, ROWS, replace(Limits(), **limits))  # type: ignore[arg-type]


def ids(plan: Plan) -> tuple[int, ...]:
    return tuple(each.recommendation_id for each in plan.steps)


def test_steps_follow_the_order_that_was_asked_for_and_the_totals_stay() -> None:
    found = planned()
    assert len(found.steps) > 1
    turned = planned(order=tuple(reversed(ids(found))))
    assert ids(turned) == tuple(reversed(ids(found)))
    assert (turned.bankable, turned.capacity, turned.spend) == (found.bankable, found.capacity, found.spend)
    assert turned.steps[0].spend_before == found.spend
    assert turned.steps[-1].spend_after == found.steps[-1].spend_after
    for before, after in zip(turned.steps, turned.steps[1:], strict=False):
        assert before.spend_after == after.spend_before


def test_ids_that_are_no_steps_change_nothing() -> None:
    assert planned(order=(1, 2, 3)) == planned()


def test_what_a_person_leaves_out_is_no_step_and_listed_with_that_reason() -> None:
    found = planned()
    gone = found.steps[0].recommendation_id
    without = planned(without=frozenset({gone}))
    assert gone not in ids(without)
    assert [each.reason for each in without.left_out if each.recommendation_id == gone] == ["you left it out"]


def test_a_step_that_needs_another_waits_for_it() -> None:
    there = present(small((2, 0)))
    before, after = (each(there.fleet.services[0]) for each in (quantize, quantize_kv))
    first, then = advice(there, [before, after])
    needing = replace(then, variants=tuple(replace(each, requires=(first.rule_id,)) for each in then.variants))
    plan = compose(there, [first, needing], Limits(order=(then.recommendation_id, first.recommendation_id)))
    assert [each.rule_id for each in plan.steps] in ([first.rule_id, then.rule_id], [first.rule_id])


def test_headroom_is_of_the_objective_that_is_nearest_to_its_limit() -> None:
    there = present(small((2, 0), slo=Slo(tpot_p95_ms=1000, ttft_p95_ms=100_000)))
    plan = compose(there, advice(there, [quantize(there.fleet.services[0])]))
    for step in plan.steps:
        known = step.headroom
        assert known is None or (known.limit_ms in (1000, 100_000) and known.share < 1)
