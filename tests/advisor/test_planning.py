"""A plan from a store: from advice that is given, or from rules."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from benchmarks.best_plan import random_fleets
from benchmarks.plan import installed
from pertoken.advisor import planning as module
from pertoken.advisor.plan.compose import compose
from pertoken.advisor.plan.plan import LeftOut, PlanLimits
from pertoken.advisor.plan.what_if import WhatIf, price_of
from pertoken.advisor.planning import (
    Ground,
    Planned,
    Planner,
    PlanRequest,
    composed,
    fell_away,
    ground_of_rules,
    plan_of_advice,
    plan_of_rules,
)
from pertoken.advisor.run import advice_of
from pertoken.advisor.worker.child import PluginSource
from pertoken.catalog.market import load_market
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.proof.recommendation import Moved, Recommendation, RecordLine, State, accept
from pertoken.proof.stored import store_acts, stored, write
from pertoken.proof.track_record import corrected_money
from pertoken.rule import Evidence, Service, Skip, rule, skip
from pertoken.store.connect.open import Store, open_store
from pertoken.store.repository import AdviceRepository
from pertoken.units import NANO_USD
from tests.advisor.gathered import rule_source
from tests.examples import examples
from tests.scenario import LOW_BATCH_70B, seed
from tests.test_rule import DOC

NOW = 1_790_000_040


def asked(folder: Path, what_if: WhatIf | None = None) -> Planned:
    where = seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=10, end_ts=NOW)
    return Planned(open_store(where), load_market(), Settings(), 3600, NOW, what_if=what_if or WhatIf())


def narrower(at_least: float = 0.0) -> PluginSource:
    def narrow(seen: Evidence, service: Service) -> Iterator[Service | Skip]:
        if seen.generated_tok_s.mean < at_least:
            yield skip("little-load", "too little load")
        else:
            yield service.but(weight_dtype="fp8")

    narrow.__doc__ = DOC
    return rule_source(rule("narrow")(narrow))


def test_rules_run_and_what_they_propose_becomes_steps_with_their_sensitivity(tmp_path: Path) -> None:
    plan = plan_of_rules(asked(tmp_path), [narrower()], PlanLimits())
    assert [step.rule_id for step in plan.steps] == ["narrow"]
    assert plan.capacity[1] > 0 and plan.sensitivity


def test_an_assumed_price_is_that_of_the_spend(tmp_path: Path) -> None:
    plan = plan_of_advice(asked(tmp_path, WhatIf(prices=(price_of("H100=1"),))), (), PlanLimits())
    assert plan.spend == 2 * 730 * NANO_USD


def test_a_rule_that_did_not_run_cannot_be_excluded(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--exclude other: no rule of that id ran; rules: narrow"):
        plan_of_rules(asked(tmp_path), [narrower()], PlanLimits(exclude=("other",)))


def test_a_plan_of_a_run_starts_from_stored_advice_that_was_accepted(tmp_path: Path) -> None:
    ground = asked(tmp_path)
    (row,) = ground_of_rules(ground, [narrower()]).rows
    target = AdviceRepository(ground.store.location)
    with target.writing() as connection:
        write(connection, [Moved(row, "proposed", "test")], {}, "test")
        (stored_row,) = stored(connection)
    store_acts(target, stored_row, accept(stored_row, NOW - 1), "test")
    ground = replace(ground, store=open_store(ground.store.location))
    (step,) = plan_of_rules(ground, [narrower()], PlanLimits()).steps
    assert step.accepted and step.recommendation_id == row.recommendation_id


def test_a_plan_under_assumptions_names_each_saving_that_falls_away_with_the_reason(tmp_path: Path) -> None:
    ground = asked(tmp_path)
    (row,) = ground_of_rules(ground, [narrower()]).rows
    with AdviceRepository(ground.store.location).writing() as connection:
        write(connection, [Moved(row, "proposed", "test")], {}, "test")
    assumed = replace(ground, store=open_store(ground.store.location), what_if=WhatIf(traffic=0.5))
    plan = plan_of_rules(assumed, [narrower(at_least=1e9)], PlanLimits())
    (left,) = [entry for entry in plan.left_out if "fell away" in entry.reason]
    assert (left.recommendation_id, left.title, plan.steps) == (row.recommendation_id, row.title, ())
    assert left.reason == "it fell away under these assumptions: too little load"
    half = plan_of_rules(replace(assumed, what_if=WhatIf(traffic=0.9)), [narrower()], PlanLimits())
    assert half.steps and not [entry for entry in half.left_out if "fell away" in entry.reason]


MOVES = {"move-accelerator", "leave-host", "smaller-instance", "use-spot", "change-provider"}
"""Rules that go elsewhere: their searches take most of the time, and at less load they save no less."""


def test_plans_of_random_fleets_at_half_the_traffic_name_each_step_that_falls_away_with_its_reason() -> None:
    sources = [source for source in installed(Settings()) if source.name not in MOVES]
    without_step = 0
    for present in islice(random_fleets(Random(45)), examples(20)):
        rows = advice_of(sources, present)[0]
        halved = WhatIf(traffic=0.5).present(present)
        fresh = advice_of(sources, halved)[0]
        half = composed(Settings(), Ground(halved, fresh, tuple(fell_away(rows, fresh))), PlanLimits())
        kept = {step.recommendation_id: step for step in half.steps}
        reasons = {entry.recommendation_id: entry.reason for entry in half.left_out}
        for step in compose(present, rows).steps:
            after = kept.get(step.recommendation_id)
            without_step += after is None
            if after is None or after.bankable[1] < step.bankable[1]:
                assert reasons.get(step.recommendation_id), step.title
    assert without_step > 0


def test_the_saving_of_a_row_is_that_of_the_plan_which_holds_only_that_row() -> None:
    sources = [source for source in installed(Settings()) if source.name != "leave-host"]
    compared = 0
    for present in islice(random_fleets(Random(43)), examples(12)):
        for row in advice_of(sources, present)[0]:
            if row.best is None or row.best.saving is None:
                continue
            plan = compose(present, [replace(row, variants=(row.best,))])
            if row.best.saving.net[1] < 0:
                assert not plan.steps and "the bill would rise by" in plan.left_out[0].reason
                continue
            (step,) = plan.steps
            assert (step.bankable, step.capacity) == (row.best.saving.net, row.best.saving.capacity), row.title
            assert plan.bankable == row.best.saving.net
            compared += 1
    assert compared > 20


def test_a_change_that_a_plan_under_assumptions_makes_in_another_way_did_not_fall_away(tmp_path: Path) -> None:
    ground = ground_of_rules(asked(tmp_path), [narrower()])
    (row,) = ground.rows
    former = LeftOut(row.rule_id, row.recommendation_id, "weights bf16 → int4", row.target, "it fell away")
    plan = composed(Settings(), replace(ground, fell_away=(former,)), PlanLimits())
    (step,) = plan.steps
    assert plan.left_out[0] == replace(former, reason=f"under these assumptions the plan has instead: {step.title}")


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Planner, Store, tuple[Recommendation, ...]]:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=10, end_ts=NOW)
    store = open_store(where)
    ground = Planned(store, load_market(), Settings(), 3600, NOW, dated=True)
    rows = tuple(ground_of_rules(ground, [narrower()]).rows)
    return Planner(Settings(advisor_since=3600), as_of=NOW), store, rows


def test_the_next_plan_of_the_same_advice_reuses_the_gathered_figures(
    planned: tuple[Planner, Store, tuple[Recommendation, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    planner, store, rows = planned
    plan = planner.plan(store, rows, PlanRequest())
    (step,) = plan.steps
    monkeypatch.setattr(module, "ground_of_advice", None)
    without = planner.plan(store, rows, PlanRequest(PlanLimits(without=frozenset({step.recommendation_id}))))
    assert (without.steps, [entry.reason for entry in without.left_out]) == ((), ["you left it out"])


def test_an_assumption_set_to_another_number_prices_the_recommendation_again(
    planned: tuple[Planner, Store, tuple[Recommendation, ...]],
) -> None:
    planner, store, rows = planned
    row = next(row for row in rows if row.state is State.OPEN)
    measured = planner.tested(store, rows, row, {})
    names = [sensitivity.assumption for sensitivity in measured.sensitivity if sensitivity.ends is not None]
    assert "the load stays as measured" in names
    half = planner.tested(store, rows, row, {"the load stays as measured": 0.5}).estimate
    assert measured.estimate.capacity is not None and half.capacity is not None
    assert half.capacity[1] < measured.estimate.capacity[1]


def test_a_new_price_is_corrected_by_the_track_record_of_its_rule(
    planned: tuple[Planner, Store, tuple[Recommendation, ...]],
) -> None:
    planner, store, rows = planned
    row = next(candidate for candidate in rows if candidate.state is State.OPEN)
    record = RecordLine(receipts=5, ratio=0.5, ratio_sd=0.1, widening=1.2)
    realised = replace(row, variants=tuple(replace(variant, record=record) for variant in row.variants))
    promised, corrected = (planner.tested(store, rows, tested_row, {}) for tested_row in (row, realised))
    assert promised.estimate.capacity is not None and promised.estimate.capacity[1] > 0
    assert corrected.estimate.capacity == corrected_money(promised.estimate.capacity, 0.5, 1.2)
    for plain, half in zip(promised.sensitivity, corrected.sensitivity, strict=True):
        assert half.low.capacity == round(plain.low.capacity / 2)


def test_a_recommendation_without_a_proposal_is_refused_with_the_reason(
    planned: tuple[Planner, Store, tuple[Recommendation, ...]],
) -> None:
    planner, store, rows = planned
    silent = next(row for row in rows if not row.variants) if any(not e.variants for e in rows) else None
    row = silent or Recommendation(1, "narrow", State.REFUSED, "narrow", "chat")
    with pytest.raises(BadInput, match="no proposal"):
        planner.tested(store, rows, row, {})


def test_other_assumptions_run_the_rules_again(
    planned: tuple[Planner, Store, tuple[Recommendation, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    planner, store, rows = planned
    monkeypatch.setattr(module, "find_rules", lambda settings: ())
    plan = planner.plan(store, rows, PlanRequest(what_if=WhatIf(traffic=2.0)))
    assert plan.steps == ()  # no rule is left that would propose any
