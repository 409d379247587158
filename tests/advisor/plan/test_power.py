"""Power budgets of plans: what devices may draw at most, and steps that would exceed the budget."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.advisor.plan.compose import compose
from pertoken.advisor.plan.plan import Plan, PlanLimits
from pertoken.advisor.plan.states import PowerBudget
from pertoken.advisor.present import Present
from pertoken.proof.recommendation import Recommendation
from pertoken.savings.estimate import Estimate
from pertoken.state.deployment import Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service, Slo
from tests.advisor.plan.fleets import Asked, advice, present, quantize_kv, scale, small
from tests.deployments import MARKET

CAPPED_W, H100_W, L40S_W = 300, 700, 350
"""Watts: a cap that is set, and the limits of the catalog."""
L40S = Placement(accelerator="L40S", instance_type="g6e.xlarge", devices_per_instance=1)


def capped(*shapes: tuple[int, int]) -> Fleet:
    fleet = small(*shapes, slo=Slo(ttft_p95_ms=5000, tpot_p95_ms=200))
    return replace(
        fleet,
        services=tuple(
            replace(service, deployments=tuple(replace(one, power_cap_w=CAPPED_W) for one in service.deployments))
            for service in fleet.services
        ),
    )


def cheaper(service: Service) -> Asked:
    return "move-accelerator", service, [service.on(L40S)]


def budget(fleet: Fleet, max_w: float) -> PowerBudget:
    return PowerBudget(max_w, fleet, MARKET)


def test_devices_in_use_count_at_their_cap_or_else_at_the_limit_of_the_catalog() -> None:
    assert budget(small((2, 0)), 5000).used_w == 2 * H100_W
    assert budget(capped((2, 0)), 5000).used_w == 2 * CAPPED_W and budget(capped((2, 0)), 5000).headroom_w == 4400


def test_power_that_a_step_adds_is_counted_by_device_and_by_replica() -> None:
    fleet = small((2, 0))
    service, state = fleet.services[0], budget(fleet, 5000)
    b200 = fleet.edit(service.on(Placement(accelerator="B200 SXM")))
    assert state.added_w(b200, Estimate()) == 2 * (1000 - H100_W)
    assert state.added_w(fleet.edit(service.on(Placement(provider="lambda"))), Estimate()) == -2 * H100_W
    resized = fleet.edit(service.resized())
    assert state.added_w(resized, Estimate(stopped=(service.deployments[0].deployment_id,))) == -H100_W
    assert state.added_w(resized, Estimate(added=((service.name, 3),))) == 3 * H100_W


def test_a_device_that_two_engines_share_is_counted_once() -> None:
    fleet = small((1, 0), (1, 0))
    assert budget(fleet, 5000).used_w == H100_W
    one = fleet.services[0].deployments[0].deployment_id
    assert budget(fleet, 5000).added_w(fleet, Estimate(stopped=(one,))) == 0


def test_an_accelerator_with_an_unknown_limit_leaves_no_power_to_add() -> None:
    fleet = small((1, 0))
    unknown = replace(fleet.services[0].deployments[0], placement=Placement(accelerator="Z9"))
    state = budget(replace(fleet, services=(replace(fleet.services[0], deployments=(unknown,)),)), 5000)
    assert state.used_w is None and state.headroom_w == 0
    assert "is not known now" in state.refusal(100.0, 0.0) and "not known" in state.refusal(None, 0.0)


def planned(state: Present, rows: tuple[Recommendation, ...], max_w: float | None) -> Plan:
    return compose(state, rows, PlanLimits(max_power_w=max_w))


def test_a_step_that_exceeds_the_power_budget_is_left_out_with_the_reason() -> None:
    state = present(capped((1, 0)))
    rows = advice(state, [cheaper(state.fleet.services[0])])
    assert [step.rule_id for step in planned(state, rows, L40S_W).steps] == ["move-accelerator"]
    refused = planned(state, rows, L40S_W - 1)
    assert refused.steps == ()
    assert refused.left_out[0].reason == "its devices may draw 50 W more, and the power budget of 349 W leaves 49 W"


def test_services_share_one_power_budget_and_the_one_that_saves_most_has_it() -> None:
    state = present(capped((1, 0), (3, 2)))
    rows = advice(state, map(cheaper, state.fleet.services))
    whole = planned(state, rows, None)
    assert len(whole.steps) == 2
    # 4 devices at 300 W; 200 W more are wanted, and 160 W are left: enough for the three of the second service.
    plan = planned(state, rows, 4 * CAPPED_W + 160)
    assert [step.where for step in plan.steps] == ["chat-2"]
    assert "leaves 10 W" in plan.left_out[0].reason and not plan.exact
    assert planned(state, rows, 4 * CAPPED_W + 200) == whole


@given(st.integers(3 * CAPPED_W - 50, 3 * L40S_W + 50), st.sets(st.integers(0, 3), min_size=1))
@settings(max_examples=6, deadline=None)
def test_no_plan_exceeds_its_power_budget_and_more_power_never_saves_less(max_w: int, chosen: set[int]) -> None:
    state, rows = KNOWN
    subset = tuple(rows[at] for at in sorted(chosen))
    used = budget(state.fleet, max_w).used_w
    assert used is not None
    tight, free = planned(state, subset, max_w), planned(state, subset, None)
    devices = {"chat-1": 1, "chat-2": 2}
    moved = [devices[step.where] for step in tight.steps if step.rule_id == "move-accelerator"]
    assert not moved or used + (L40S_W - CAPPED_W) * sum(moved) <= max_w
    assert (tight.bankable[1], tight.capacity[1]) <= (free.bankable[1], free.capacity[1])


def _known() -> tuple[Present, tuple[Recommendation, ...]]:
    state = present(capped((1, 0), (2, 2)))
    asked = [made(service) for service in state.fleet.services for made in (cheaper, quantize_kv)]
    return state, advice(state, asked)


KNOWN = _known()


def test_dollars_per_mtok_before_and_after_are_of_all_services() -> None:
    state = present(small((2, 0)))
    plan = planned(state, advice(state, [scale(state.fleet.services[0])]), None)
    seen = state.context.services["chat-1"]
    tok_s = seen.prompt_tok_s.mean + seen.generated_tok_s.mean
    assert plan.mtok_per_month == pytest.approx(tok_s * 730 * 3600 / 1e6)
    before, after = plan.per_mtok(plan.spend), plan.per_mtok(plan.spend_after)
    assert before is not None and after is not None
    assert after / before == pytest.approx(plan.spend_after / plan.spend)
    silent = replace(state, context=replace(state.context, services={}))
    assert compose(silent, ()).mtok_per_month is None and compose(silent, ()).per_mtok(1) is None
