"""Levers: what is left out with the reason, what excludes what, and what is searched together."""

from dataclasses import replace

import pytest

from pertoken.advisor.plan.compose import compose
from pertoken.advisor.plan.levers import groups, levers
from pertoken.advisor.plan.plan import PlanLimits
from pertoken.errors import BadInput
from pertoken.rule import propose
from pertoken.state.deployment import Commitment
from tests.advisor.plan.fleets import (
    Asked,
    advice,
    commit,
    exhaustive,
    move,
    planned,
    present,
    quantize,
    quantize_kv,
    rank,
    reasons,
    rules,
    scale,
    small,
    spot,
)
from tests.savings.fleets import AWS_H100


def test_two_levers_that_move_one_service_are_a_conflict_that_names_the_placement() -> None:
    state = present(small((2, 0)))
    service = state.fleet.services[0]
    plan = planned(state, spot(service), move(service))
    assert len(plan.steps) == 1
    (left,) = plan.left_out
    assert "conflicts with step 1" in left.reason and "both set placement of chat-1" in left.reason
    (named,) = plan.steps[0].conflicts
    assert named.startswith(left.rule_id) and "placement" in named


def test_two_levers_that_set_one_knob_otherwise_are_a_conflict_that_names_both_values() -> None:
    state = present(small((2, 0)))
    service = state.fleet.services[0]
    one: Asked = ("one", service, [service.but(kv_dtype="fp8").resized()])
    other: Asked = ("other", service, [service.but(kv_dtype="fp16").resized()])
    plan = planned(state, one, other)
    (left,) = plan.left_out
    assert "both set KV cache of chat-1: to" in left.reason and "fp8" in left.reason and "fp16" in left.reason


def test_two_levers_that_set_another_number_of_replicas_are_a_conflict() -> None:
    state = present(small((4, 0)))
    service = state.fleet.services[0]
    plan = planned(state, ("one", service, [service.scaled_to(2)]), ("other", service, [service.scaled_to(3)]))
    assert rules(plan) == ["one"]
    assert "both set the number of replicas of chat-1: to 2 and to 3" in reasons(plan)["other"]


def test_variants_of_one_recommendation_are_alternatives() -> None:
    state = present(small((2, 0)))
    service = state.fleet.services[0]
    both: Asked = ("quantize-kv", service, [service.but(kv_dtype=dtype) for dtype in ("fp8", "fp8_e5m2")[:1]])
    several: Asked = ("own", service, [service.scaled_to(1), spot(service)[2][0]])
    plan = planned(state, several, both)
    assert rules(plan).count("own") == 1
    assert "own" not in reasons(plan)


def test_a_rule_that_excludes_another_one_is_named() -> None:
    state = present(small((2, 0)))
    service = state.fleet.services[0]
    one: Asked = ("one", service, [propose(service.resized(), excludes=("quantize-kv",))])
    plan = planned(state, one, quantize_kv(service))
    assert rules(plan) == ["one"]
    assert "one excludes quantize-kv" in reasons(plan)["quantize-kv"]


def test_a_commitment_is_not_made_for_hosts_that_a_step_may_give_back() -> None:
    state = present(small((4, 0)))
    service = state.fleet.services[0]
    plan = planned(state, commit(state.fleet), scale(service))
    assert rules(plan) == ["scale-replicas"]
    assert "may release" in reasons(plan)["commit-capacity"]
    # Where nothing is given back it is the last step.
    alone = planned(state, commit(state.fleet, 2), quantize_kv(service))
    assert rules(alone) == ["quantize-kv", "commit-capacity"]


def test_hosts_of_a_commitment_that_runs_are_searched_together() -> None:
    fleet = small((2, 0), (2, 2))
    running = Commitment("aws", "us-east-1", "p5.48xlarge", 1, 2 * AWS_H100, end_ts=2_000_000_000)
    state = present(replace(fleet, commitments=(running,)))
    rows = advice(state, map(spot, state.fleet.services))
    kept, _ = levers(state, rows, PlanLimits())
    assert groups(state.fleet, kept) == ((0, 1),)
    plan = compose(state, rows)
    assert rank(plan) == exhaustive(state, rows).rank
    assert len([name for step in plan.steps for name in step.released]) <= 1


def test_rules_and_effort_that_are_not_wanted_are_left_out_with_the_reason() -> None:
    state = present(small((4, 0)))
    service = state.fleet.services[0]
    rows = advice(state, [scale(service), spot(service), quantize(service)])
    plan = compose(state, rows, PlanLimits(exclude=("scale-replicas",), max_effort="hours"))
    assert rules(plan) == ["quantize-weights"]
    assert reasons(plan) == {
        "scale-replicas": "scale-replicas is excluded",
        "use-spot": "it takes days, and at most hours are asked for",
    }
    assert {step.effort for step in plan.steps} == {"hours"}


def test_advice_that_the_last_run_did_not_confirm_is_left_out_with_the_reason() -> None:
    state = present(small((2, 0)))
    (row,) = advice(state, [scale(state.fleet.services[0])])
    assert rules(compose(state, [row])) == ["scale-replicas"]
    plan = compose(state, [replace(row, unconfirmed="its rule did not report on this target")])
    assert not plan.steps and not any(plan.bankable)
    assert reasons(plan)["scale-replicas"] == "the last run did not confirm it: its rule did not report on this target"


def test_an_effort_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="max effort 'weeks' is not possible: use minutes, hours, days"):
        compose(present(small((1, 0))), (), PlanLimits(max_effort="weeks"))


def test_an_unpriced_change_is_left_out_and_no_money_is_counted() -> None:
    state = present(small((2, 0)))
    service = state.fleet.services[0]
    plan = planned(state, ("upgrade-engine", service, [service.but(engine_version="9.9")]))
    assert not plan.steps
    assert reasons(plan)["upgrade-engine"].startswith("no money is counted for it: ")


def test_advice_for_what_runs_no_more_is_left_out() -> None:
    state = present(small((2, 0), (1, 2)))
    rows = advice(state, [scale(state.fleet.services[0]), quantize_kv(state.fleet.services[1])])
    gone = replace(state, fleet=replace(state.fleet, services=state.fleet.services[:1]))
    plan = compose(gone, rows)
    assert reasons(plan)["quantize-kv"].startswith("it does not apply any more: ")


def test_advice_of_an_older_version_has_to_be_made_again() -> None:
    state = present(small((2, 0)))
    (row,) = advice(state, [scale(state.fleet.services[0])])
    old = replace(row, variants=tuple(replace(variant, proposal="") for variant in row.variants))
    assert "run `pertoken advise` again" in reasons(compose(state, [old]))["scale-replicas"]
