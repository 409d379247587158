"""Moves between states: the table is whole, and what it lacks is refused with what is possible instead."""

import pytest

from pertoken.proof.recommendation import DONE, FINAL, MOVES, IllegalMove, State, moved, next_moves, refusal, short_id
from tests.proof.rows import NOW, row


def test_every_state_is_reached_by_a_move_and_only_ends_lack_one_that_leaves_them() -> None:
    assert {move.after for move in MOVES} == set(State)
    left = {state for move in MOVES for state in move.before}
    assert set(State) - left == {State.SUPERSEDED, State.ROLLED_BACK}
    assert set(DONE) < set(FINAL)


def test_each_reason_code_names_one_move() -> None:
    codes = [move.code for move in MOVES]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("state", State)
def test_a_move_is_legal_or_refused_in_one_line_that_names_the_state(state: State) -> None:
    recommendation = row(state)
    for move in MOVES:
        if state in move.before:
            assert moved(recommendation, move.code, "why", NOW).recommendation.state is move.after
            continue
        with pytest.raises(IllegalMove) as caught:
            moved(recommendation, move.code, "why", NOW)
        line = str(caught.value)
        assert line.startswith(short_id(recommendation)) and state.label in line and "\n" not in line


def test_a_refusal_names_the_commands_that_are_possible() -> None:
    recommendation = row(State.SNOOZED, until_ts=NOW + 60)
    assert refusal(recommendation, "accepted") == (
        f"{short_id(recommendation)} (weights bf16 → fp8) is snoozed until 2026-09-21 14:14Z and cannot be accepted; "
        f"possible now: `pertoken dismiss {short_id(recommendation)}`, `pertoken reopen {short_id(recommendation)}`, "
        f"`pertoken applied {short_id(recommendation)}`"
    )
    assert refusal(row(State.EXPIRED), "accepted").endswith(
        "it has ended; if its rule proposes it again, that is a new recommendation"
    )
    assert refusal(row(State.BLOCKED), "accepted").endswith("there is no proposal in it")
    assert [next_move.command for next_move in next_moves(State.BLOCKED)] == []
