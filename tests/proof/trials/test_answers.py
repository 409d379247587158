"""The small check of outputs, on answers made by hand."""

from collections.abc import Sequence

import pytest

from pertoken.proof.trials.endpoint import PROMPTS, PromptOutput, compared, is_degenerate

USUAL = tuple(PromptOutput(f"{number} is the answer, as everybody knows.", 12) for number in range(len(PROMPTS)))


def changed(texts: Sequence[str], tokens: int = 12) -> tuple[PromptOutput, ...]:
    return tuple(PromptOutput(text, tokens) for text in texts)


@pytest.mark.parametrize(
    "text",
    ["", " \n ", "!!!!!!!!!!!!!!!!", "a " * 12, "the the the the the the the", "ok then " + "lalila " * 12],
)
def test_empty_and_repeated_text_is_degenerate(text: str) -> None:
    assert is_degenerate(text)


@pytest.mark.parametrize("text", ["Paris.", "no", "!!", "def add(a, b):\n    return a + b", "\ufffd\ufffd of \ufffd"])
def test_short_and_varied_text_is_not(text: str) -> None:
    assert not is_degenerate(text)


def test_equal_answers_did_not_change() -> None:
    check = compared(USUAL, USUAL, USUAL)
    assert (check.agreement, check.self_agreement, check.length_ratio, check.name) == (1.0, 1.0, 1.0, None)
    assert check.sentence.startswith("100% of answers begin alike")


@pytest.mark.parametrize(
    ("after", "name"),
    [
        (changed(["!" * 40] * len(PROMPTS), 40), "outputs are degenerate"),
        (changed([""] * len(PROMPTS), 1), "outputs are degenerate"),
        (changed([f"quite another answer {n}" for n in range(len(PROMPTS))]), "outputs are other ones"),
        (changed([answer.text for answer in USUAL], 6), "outputs are terser"),
        (changed([answer.text for answer in USUAL], 48), "outputs are longer"),
    ],
)
def test_each_change_of_outputs_is_named(after: tuple[PromptOutput, ...], name: str) -> None:
    check = compared(USUAL, USUAL, after)
    assert check.name == name and check.sentence.startswith(f"{name}: ")


def test_some_answers_in_other_words_are_those_of_a_quantized_model() -> None:
    after = (*changed(["well, that depends on what you mean"] * 6), *USUAL[6:])
    assert compared(USUAL, USUAL, after).name is None


def test_a_server_that_disagrees_with_itself_is_held_to_no_more() -> None:
    other = changed([f"quite another answer {n}" for n in range(len(PROMPTS))])
    again = (*USUAL[:8], *other[8:])
    assert compared(USUAL, again, (*USUAL[:5], *other[5:])).name is None
