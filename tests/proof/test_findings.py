"""Merge of an advice run with stored rows."""

from collections.abc import Sequence

import pytest

from pertoken.proof.recommendation import FINAL, Recommendation, State
from pertoken.proof.stored import merged
from tests.proof.rows import DAY, FP8, NOW, row

RAN = ("quantize",)


def after(
    before: Recommendation | None,
    recommendation: Recommendation | None,
    ran: Sequence[str] = RAN,
    now_ts: int = NOW + 1,
) -> list[tuple[State, str]]:
    changes = merged(
        [] if before is None else [before], [] if recommendation is None else [recommendation], ran, now_ts
    )
    return [(change.recommendation.state, change.code) for change in changes]


def test_open_advice_that_a_run_refuses_closes_at_once_and_a_proposal_opens_the_same_row_again() -> None:
    (closed,) = merged([row()], [row(State.REFUSED)], RAN, NOW + 1)
    assert closed.recommendation.state is State.REFUSED and not closed.recommendation.counted
    (again,) = merged([closed.recommendation], [row()], RAN, NOW + 2)
    assert again.recommendation.state is State.OPEN
    assert again.recommendation.recommendation_id == row().recommendation_id


def test_unconfirmed_advice_that_the_next_run_refuses_closes() -> None:
    (missed,) = merged([row()], [], RAN, NOW + 1)
    assert after(missed.recommendation, row(State.REFUSED)) == [(State.REFUSED, "refused")]


def test_open_advice_that_one_run_cannot_judge_stays_uncounted_and_the_second_run_in_a_row_closes_it() -> None:
    (first,) = merged([row()], [row(State.BLOCKED)], RAN, NOW + 1)
    kept = first.recommendation
    assert (kept.state, kept.variants, kept.counted) == (State.OPEN, row().variants, False)
    assert kept.unconfirmed == "blocked because of a figure"
    assert after(kept, row(State.BLOCKED)) == [(State.BLOCKED, "blocked")]


def test_advice_that_is_found_again_is_confirmed_and_one_more_run_may_miss_it() -> None:
    (missed,) = merged([row()], [row(State.BLOCKED)], RAN, NOW + 1)
    (again,) = merged([missed.recommendation], [row()], RAN, NOW + 2)
    assert (again.recommendation.state, again.recommendation.counted) == (State.OPEN, True)
    (missed,) = merged([again.recommendation], [row(State.BLOCKED)], RAN, NOW + 3)
    assert missed.recommendation.state is State.OPEN


def test_advice_for_a_missing_target_expires_with_the_second_run() -> None:
    (first,) = merged([row()], [], RAN, NOW + 1)
    assert first.recommendation.unconfirmed == "its rule did not report on this target"
    assert after(first.recommendation, None) == [(State.EXPIRED, "not-found")]


def test_advice_of_a_rule_that_did_not_run_expires_at_once() -> None:
    assert after(row(), None, ran=()) == [(State.EXPIRED, "not-found")]


def test_a_broken_rule_is_shown_at_once() -> None:
    assert after(row(), row(State.FAILED)) == [(State.FAILED, "failed")]


def test_the_same_finding_again_changes_nothing() -> None:
    assert after(row(), row()) == [] and after(row(State.REFUSED), row(State.REFUSED)) == []


@pytest.mark.parametrize("state", [State.ACCEPTED, State.APPLIED, State.VERIFYING])
def test_a_decision_stays_whatever_a_run_finds(state: State) -> None:
    for recommendation in (row(variants=()), row(State.REFUSED), row(State.FAILED), None):
        assert after(row(state, estimate=FP8), recommendation) == []


@pytest.mark.parametrize("state", [State.SNOOZED, State.DISMISSED])
def test_postponed_advice_stays_until_its_date_and_then_takes_the_state_of_the_run(state: State) -> None:
    before = row(state, until_ts=NOW + DAY)
    assert after(before, row(State.REFUSED), now_ts=NOW + DAY - 1) == []
    code = {State.SNOOZED: "snooze-ended", State.DISMISSED: "dismissal-ended"}[state]
    woken = merged([before], [row()], RAN, NOW + DAY)
    assert [(moved.recommendation.state, moved.recommendation.until_ts, moved.code) for moved in woken] == [
        (State.OPEN, None, code)
    ]
    assert after(before, row(State.FAILED), now_ts=NOW + DAY) == [(State.OPEN, code), (State.FAILED, "failed")]


@pytest.mark.parametrize("state", FINAL)
def test_a_proposal_after_a_final_state_opens_the_next_life(state: State) -> None:
    (next_life,) = merged([row(state, estimate=FP8)], [row()], RAN, NOW + 1)
    recommendation = next_life.recommendation
    assert (recommendation.state, recommendation.life, recommendation.estimate, recommendation.version) == (
        State.OPEN,
        2,
        None,
        0,
    )
    assert recommendation.recommendation_id != row().recommendation_id


def test_an_expired_row_without_a_proposal_continues_in_the_same_row() -> None:
    (again,) = merged([row(State.EXPIRED)], [row(State.REFUSED)], RAN, NOW + 1)
    assert (again.recommendation.state, again.recommendation.life) == (State.REFUSED, 1)
