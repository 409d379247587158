"""Identity and names of recommendations."""

from dataclasses import replace

from pertoken.proof.recommendation import State, full_id, identity, short_id
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
