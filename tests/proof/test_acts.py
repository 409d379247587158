"""Acts of a person on a recommendation."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pertoken.errors import BadInput
from pertoken.proof import recommendation
from pertoken.proof.recommendation import IllegalMove, Moved, Recommendation, State
from tests.proof.rows import DAY, FP8, INT4, NOW, row

PutOff = Callable[[Recommendation, int, int], Sequence[Moved]]


def test_accepting_freezes_the_best_variant_or_the_one_that_is_named() -> None:
    (best,) = recommendation.accept(row(), NOW)
    assert (best.recommendation.state, best.recommendation.estimate) == (State.ACCEPTED, FP8)
    (named,) = recommendation.accept(row(), NOW, variant="bb")
    assert (named.recommendation.variant, named.recommendation.estimate) == (INT4.key, INT4)
    with pytest.raises(BadInput, match=r"'cc' names none of its variants: aaaa000000000000 \(weights"):
        recommendation.accept(row(), NOW, variant="cc")


def test_advice_of_an_older_pertoken_is_run_again_before_it_is_accepted() -> None:
    with pytest.raises(BadInput, match="run `pertoken advise` first"):
        recommendation.accept(row(variants=()), NOW)


@pytest.mark.parametrize("act", [recommendation.snooze, recommendation.dismiss])
def test_the_date_to_put_a_row_off_to_is_within_a_year(act: PutOff) -> None:
    (put_off,) = act(row(), NOW, NOW + DAY)
    assert put_off.recommendation.until_ts == NOW + DAY
    for until_ts, line in ((NOW, "in the past"), (NOW + 400 * DAY, "more than 366d from now")):
        with pytest.raises(BadInput, match=line):
            act(row(), NOW, until_ts)


def test_a_withdrawn_acceptance_ends_with_its_estimate_and_its_proposal_goes_on_as_the_next_life() -> None:
    (accepted,) = recommendation.accept(row(), NOW)
    ended, again = (
        moved.recommendation for moved in recommendation.reopen(accepted.recommendation, NOW + 1, "too risky")
    )
    assert (ended.state, ended.estimate, ended.life) == (State.EXPIRED, FP8, 1)
    assert (again.state, again.estimate, again.life, again.created_ts) == (State.OPEN, None, 2, NOW + 1)
    assert again.recommendation_id != ended.recommendation_id and again.variants == ended.variants


def test_an_unaccepted_recommendation_declared_applied_has_its_estimate_frozen() -> None:
    (declared,) = recommendation.declare(row(State.DISMISSED, until_ts=NOW + 9), NOW, variant="bb")
    assert (declared.recommendation.state, declared.recommendation.estimate) == (State.APPLIED, INT4)
    assert declared.recommendation.until_ts is None


def test_another_variant_than_the_accepted_one_cannot_be_declared() -> None:
    (accepted,) = recommendation.accept(row(), NOW)
    with pytest.raises(BadInput, match=r"weights bf16 → fp8 was accepted, not 'bb'; `pertoken reopen"):
        recommendation.declare(accepted.recommendation, NOW, variant="bb")


def test_only_applied_recommendations_have_commands_to_undo_them() -> None:
    (declared,) = recommendation.declare(row(), NOW)
    assert recommendation.undo_commands(declared.recommendation).undo == FP8.undo
    for state in (State.OPEN, State.ACCEPTED, State.EXPIRED):
        with pytest.raises(IllegalMove, match="cannot be rolled back"):
            recommendation.undo_commands(replace(row(state), estimate=FP8))


def test_a_change_that_was_undone_is_rolled_back() -> None:
    (declared,) = recommendation.declare(row(), NOW)
    (undone,) = recommendation.roll_back(declared.recommendation, NOW)
    assert (undone.recommendation.state, undone.code) == (State.ROLLED_BACK, "undone")
