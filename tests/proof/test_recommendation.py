"""Identity and names of recommendations."""

from dataclasses import replace

import pytest

from pertoken.proof.recommendation import (
    Recommendation,
    State,
    Variant,
    best_of_each_target,
    full_id,
    identity,
    short_id,
    total,
)
from pertoken.savings.saving import Saving
from tests.proof.rows import row


def test_rule_target_and_life_are_the_identity_of_a_recommendation() -> None:
    ids = {
        identity("a", "service", "chat"),
        identity("b", "service", "chat"),
        identity("a", "deployment", "chat"),
        identity("a", "service", "other"),
        identity("a", "service", "chat", life=2),
    }
    assert len(ids) == 5


def test_ids_are_hexadecimal_digits_whatever_their_sign() -> None:
    negative = replace(row(), recommendation_id=-1)
    assert (full_id(negative), short_id(negative)) == ("f" * 16, "f" * 8)
    assert full_id(replace(row(), recommendation_id=255)) == "00000000000000ff"


def test_states_are_shown_as_words() -> None:
    assert (State.NO_EFFECT.label, State.ROLLED_BACK.label) == ("no effect", "rolled back")


def advice(number: int, bankable: int, *touches: str, state: State = State.OPEN) -> Recommendation:
    variant = Variant(str(number), f"change {number}", saving=Saving((bankable,) * 3), touches=touches)
    return Recommendation(number, "rule", state, variant.title, "chat", variants=(variant,))


def counted(*rows: Recommendation) -> list[int]:
    return [row.recommendation_id for row in best_of_each_target(rows)]


def test_of_changes_that_touch_the_same_only_the_best_counts() -> None:
    rows = [advice(1, 10, "service:a"), advice(2, 30, "service:a", "host:x"), advice(3, 5, "host:y")]
    rows.append(replace(advice(4, 99, "host:z"), state=State.DISMISSED))
    rows.append(replace(advice(5, 80, "host:u"), unconfirmed="no telemetry"))
    assert counted(*rows) == [2, 3]
    assert total([(1, 2, 3), None, (10, 20, 30)]) == (11, 22, 33)
    assert total([None]) is None


@pytest.mark.parametrize("state", [State.ACCEPTED, State.APPLIED])
def test_a_total_counts_no_proposal_for_the_target_of_an_accepted_change(state: State) -> None:
    taken = replace(advice(1, 30, "service:a", "host:x", state=state), estimate=advice(1, 30, "service:a").best)
    rows = [advice(2, 40, "service:a"), advice(3, 5, "service:b")]
    assert counted(*rows) == [2, 3] and counted(*rows, taken) == [3]
    assert counted(*rows, replace(taken, state=State.VERIFYING)) == [2, 3], "the measured bill has it already"


def test_a_recommendation_is_named_by_the_variant_that_was_applied() -> None:
    proposed = replace(advice(1, 30), title="weights bf16 → int4")
    assert proposed.change == "weights bf16 → int4"
    applied = replace(proposed, state=State.REALIZED, estimate=Variant("2", "weights bf16 → fp8"))
    assert applied.change == "weights bf16 → fp8"
