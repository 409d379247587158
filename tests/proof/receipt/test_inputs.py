"""A question as text: the same question comes back, to the last bit."""

from dataclasses import replace

import pytest

from pertoken.proof.receipt import from_json, sha256, to_json
from pertoken.proof.verification.question import Covariate, Cycle, EventKind, OtherChange, Promise, Question
from pertoken.proof.verification.verify import verify
from tests.proof.histories import CHANGED, asked, history

QUESTION = asked(
    1,
    -0.1,
    siblings=(replace(history(2), cached_share=None),),
    promise=Promise(0.05, 0.1, 0.15),
    events=(OtherChange(CHANGED, EventKind.PRICE, "its price changed"),),
    acts_through=frozenset({Covariate.CACHE}),
    after_from=CHANGED + 86_400,
    cycle=Cycle(),
)


def test_the_question_that_was_written_gives_the_same_finding() -> None:
    read = from_json(to_json(QUESTION))
    assert isinstance(read, Question) and verify(read) == verify(QUESTION)


def test_equal_questions_have_equal_text() -> None:
    text = to_json(QUESTION)
    assert to_json(from_json(text)) == text
    assert sha256(text) != sha256(to_json(replace(QUESTION, changed_at=CHANGED + 1)))


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"deployment": 3}', "no JSON"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        from_json(text)
