"""Proposals of many targets, which are forecast together."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pertoken.advisor import pricing
from pertoken.advisor.changes.commands import commands
from pertoken.advisor.changes.title import title
from pertoken.advisor.plan.levers import levers
from pertoken.advisor.plan.plan import PlanLimits
from pertoken.evidence import Evidence
from pertoken.forecast.tiers import tiers
from pertoken.proof.recommendation import State, Variant
from pertoken.rule import Deployment, Service
from pertoken.state.diff import Diff
from tests.advisor.gathered import advised, gathered, own
from tests.advisor.services import narrower, services
from tests.savings.fleets import FOUR, context, low_batch, slow_host


def test_a_proposal_is_not_refused_because_of_another_deployment_with_unseen_devices() -> None:
    fleet, known = services(2)
    unseen = replace(fleet, devices=fleet.devices[:2])
    by_target = {row.target_key: row for row in advised(gathered(unseen, known), own(narrower))}
    assert by_target["1"].state is State.OPEN


@pytest.mark.usefixtures("in_this_process")
def test_only_the_proposals_that_are_kept_are_made_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    def several(now: Deployment) -> Iterator[Deployment]:
        for chosen in ({"weight_dtype": "fp8"}, {"weight_dtype": "fp8", "tp": 1}, {"weight_dtype": "int4", "tp": 1}):
            for limit in (128, 256):
                yield now.but(**chosen, max_num_seqs=limit)

    made: list[str] = []

    def noted(difference: Diff, *more: Any) -> Any:
        made.append(difference.key)
        return commands(difference, *more)

    monkeypatch.setattr(pricing, "commands", noted)
    (row,) = advised(gathered(*services(1)), own(several))
    assert len(row.variants) == pricing.MAX_VARIANTS
    assert made == [variant.key for variant in row.variants]


def test_only_the_target_of_a_refusal_that_cannot_be_written_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def costlier(now: Deployment) -> Iterator[Deployment]:
        yield now.but(max_num_seqs=2)

    def failing(difference: Diff, *more: Any) -> str:
        if difference.knobs(2):
            raise ZeroDivisionError("no title")
        return title(difference, *more)

    monkeypatch.setattr(pricing, "title", failing)
    by_target = {row.target_key: row for row in advised(gathered(*services(3)), own(costlier))}
    assert {key: row.state for key, row in by_target.items()} == {
        "1": State.REFUSED,
        "2": State.FAILED,
        "3": State.REFUSED,
    }
    assert by_target["2"].reason is not None and "no title" in by_target["2"].reason


def test_a_doubtful_forecast_is_shown_without_money_and_left_out_of_the_plan_with_its_reason() -> None:
    def resized(service: Service) -> Iterator[Service]:
        yield service.but(weight_dtype="fp8").resized()

    def planned(seen: Evidence) -> tuple[Variant, tuple[str, ...]]:
        present = gathered(FOUR, context(FOUR, seen))
        (row,) = advised(present, own(resized))
        assert row.state is State.OPEN and len(row.variants) == 1
        kept, left = levers(present, [row], PlanLimits())
        assert len(kept) + len(left) == 1
        return row.variants[0], tuple(lever.reason for lever in left)

    usual, none_left = planned(low_batch())
    assert usual.net is not None and usual.net[1] > 0 and none_left == ()
    held, (reason,) = planned(slow_host(20))
    assert (held.net, held.capacity) == (None, None)
    assert held.to_confirm is not None and held.to_confirm.startswith("the forecast is doubtful: this host runs")
    assert held.break_even is not None and held.break_even.endswith("if the forecast holds")
    assert reason == f"no money is counted for it: {held.to_confirm}"


def test_weights_in_four_bits_are_a_variant_only_where_they_save_15_percent_more_than_eight() -> None:
    def narrower_in_both(service: Service) -> Iterator[Service]:
        for dtype in ("int4", "fp8"):
            yield service.but(weight_dtype=dtype).resized()

    (row,) = advised(gathered(FOUR, context(FOUR, low_batch())), own(narrower_in_both))
    assert [variant.title.count("fp8") for variant in row.variants] == [1], "both leave one of four replicas"
    (row,) = advised(gathered(*services(1)), own(narrower_in_both))
    saved = {variant.title: variant.capacity[1] for variant in row.variants if variant.capacity}
    in_eight, in_four = (
        max((dollars for title, dollars in saved.items() if dtype in title), default=0) for dtype in ("fp8", "int4")
    )
    assert in_eight > 0 and (in_four == 0 or in_four > 1.15 * in_eight)


def test_a_variant_names_the_published_evaluation_of_its_weights() -> None:
    (row,) = advised(gathered(*services(1)), own(narrower))
    assert any("published evaluation" in note for note in row.variants[0].against)


def test_a_priced_variant_carries_the_tier_of_its_forecast_apart_from_its_assumptions() -> None:
    def fewer_bits(now: Deployment) -> Iterator[Deployment]:
        yield now.but(weight_dtype="fp8")

    (row,) = advised(gathered(*services(1)), own(fewer_bits))
    assert row.best is not None and row.best.tier == tiers()["stated"]
    assert not any("tier" in line for line in row.best.assumptions)
