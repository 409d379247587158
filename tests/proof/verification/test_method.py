"""Methods of verification: each receipt is recomputed by its own."""

import json
from dataclasses import replace

import pytest

from pertoken.proof.judging.receipts import Check, Kind, to_stored
from pertoken.proof.receipt import ReceiptChange, from_text, receipt, to_text
from pertoken.proof.verification.estimate import EffectVerdict
from pertoken.proof.verification.question import FIRST, METHODS, PRESENT, SECOND, Question
from pertoken.proof.verification.verify import verify
from tests.proof.histories import UNTIL, asked

CHANGE = ReceiptChange("weights bf16 to fp8", "chat", "bf16")


@pytest.fixture
def question() -> Question:
    """A saving of an engine whose starts are not recorded."""
    known = asked(3, -0.10)
    return replace(known, deployment=replace(known.deployment, started_ts=None), siblings=())


def test_only_the_first_method_proves_a_change_whose_restart_is_not_recorded(question: Question) -> None:
    assert (verify(question, FIRST).verdict, verify(question, FIRST).code) == (EffectVerdict.REALIZED, None)
    assert verify(question).code == "not-separable"


def test_later_methods_have_the_wider_interval(question: Question) -> None:
    first, second, present = (verify(question, method).saving_90 for method in (FIRST, SECOND, PRESENT))
    assert first is not None and second is not None and present is not None
    assert first.likely == pytest.approx(second.likely) == pytest.approx(present.likely)
    assert first.half_width < second.half_width == pytest.approx(present.half_width)


@pytest.mark.parametrize(
    ("number", "low", "high"), [(1, 0.07032440309847, 0.11840509113315), (2, 0.06924527162335, 0.11942722595069)]
)
def test_earlier_methods_keep_their_figures(number: int, low: float, high: float) -> None:
    interval = verify(asked(4, -0.10), METHODS[number]).saving_90
    assert interval is not None
    assert (interval.low, interval.likely, interval.high) == pytest.approx((low, 0.09468388221233, high), rel=1e-9)


def test_methods_differ_in_what_a_restart_adds() -> None:
    second, present = (verify(asked(3, -0.10), method).saving_90 for method in (SECOND, PRESENT))
    assert second is not None and present is not None
    assert present.half_width < 0.8 * second.half_width


@pytest.mark.parametrize("number", METHODS)
def test_a_receipt_is_made_again_by_its_own_method(question: Question, number: int) -> None:
    made = receipt(question, CHANGE, UNTIL, None, method=METHODS[number])
    stored = to_stored(question, made, Kind.VERDICT, deployment_id=1, epoch_id=2, recommendation_id=None)
    assert stored.check() == Check(intact=True, reproduced=True)
    assert stored.read() == made


def test_a_receipt_without_a_number_is_of_the_method_of_its_figures(question: Question) -> None:
    values = json.loads(to_text(receipt(question, CHANGE, UNTIL, None)))
    del values["method"]
    assert from_text(json.dumps(values)).method == 2
    del values["finding"]["siblings_moved"]
    assert from_text(json.dumps(values)).method == 1


def test_a_receipt_of_a_newer_method_is_refused_by_its_number(question: Question) -> None:
    newer = to_text(replace(receipt(question, CHANGE, UNTIL, None), method=max(METHODS) + 1))
    with pytest.raises(ValueError, match=f"newer method of verification, number {max(METHODS) + 1}"):
        from_text(newer)
