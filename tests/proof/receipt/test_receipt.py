"""Receipts: made again from their inputs, and dollars only where a saving is measured."""

import json
from dataclasses import replace
from functools import cache

import pytest

from pertoken.proof.receipt import (
    NanoUsd,
    Receipt,
    ReceiptChange,
    ReceiptPrice,
    ServiceLevel,
    TrialFigures,
    from_json,
    from_text,
    is_intact,
    receipt,
    to_dict,
    to_json,
    to_text,
)
from pertoken.proof.verification.estimate import EffectVerdict, Interval
from pertoken.proof.verification.question import Promise, Question
from pertoken.proof.verification.verify import Release, ReleaseQuestion, ServiceTokens
from tests.proof.histories import CHANGED, UNTIL, asked, history

CHANGE = ReceiptChange(
    "chunked prefill on",
    "chat",
    "vllm 0.32.0 --no-enable-chunked-prefill",
    rule="chunked-prefill",
    regime="long prompts",
    estimated_per_month=NanoUsd(50_000_000_000, 100_000_000_000, 150_000_000_000),
)
PRICE = ReceiptPrice(3_600_000_000, "configured")
BEFORE, AFTER = ServiceLevel(0.5, 0.02, 0.9), ServiceLevel(0.6, 0.02, 0.8)


@cache
def question(effect: float = -0.10) -> Question:
    return asked(1, effect, promise=Promise(0.05, 0.10, 0.15))


NO_OBJECTIVES = ServiceLevel()


def made(
    effect: float = -0.10, price: ReceiptPrice | None = PRICE, objectives: ServiceLevel = NO_OBJECTIVES
) -> Receipt:
    return receipt(question(effect), CHANGE, UNTIL, price, (BEFORE, AFTER), objectives)


def test_a_receipt_is_made_again_from_its_inputs() -> None:
    again = receipt(from_json(to_json(question())), CHANGE, UNTIL, PRICE, (BEFORE, AFTER))
    assert to_text(again) == to_text(made())


@pytest.mark.parametrize("effect", [-0.10, 0.0])
def test_a_receipt_is_read_back_from_its_text_unchanged(effect: float) -> None:
    assert from_text(to_text(made(effect))) == made(effect)


def test_text_that_is_no_receipt_is_refused() -> None:
    for text in ("{}", "[]", json.dumps({**to_dict(made()), "format": 2})):
        with pytest.raises(ValueError, match="receipt"):
            from_text(text)


def test_a_receipt_that_was_altered_is_seen() -> None:
    text = to_text(made())
    assert is_intact(text)
    altered = json.loads(text)
    altered["measured_per_mtok"]["likely"] += 1
    assert not is_intact(json.dumps(altered))


def test_dollars_are_device_seconds_saved_at_the_accepted_price() -> None:
    receipt = made()
    finding = receipt.finding
    assert finding.verdict is EffectVerdict.REALIZED
    assert receipt.measured_per_mtok is not None and receipt.measured_in_window is not None
    assert finding.expected_s_per_mtok is not None and finding.later_s_per_mtok is not None
    assert finding.matched_mtok is not None
    saved_s = finding.expected_s_per_mtok - finding.later_s_per_mtok
    assert receipt.measured_per_mtok.likely == pytest.approx(saved_s * 1_000_000, rel=1e-6)  # $3.60 an hour
    assert receipt.measured_in_window.likely == pytest.approx(
        receipt.measured_per_mtok.likely * finding.matched_mtok, rel=1e-6
    )
    assert receipt.measured_per_mtok.low < receipt.measured_per_mtok.likely < receipt.measured_per_mtok.high


def test_another_price_alters_no_saving() -> None:
    dearer = made(price=ReceiptPrice(7_200_000_000, "configured"))
    assert dearer.finding == made().finding


def test_estimated_and_measured_dollars_are_never_added() -> None:
    values = json.loads(to_text(made()))
    assert values["change"]["estimated_per_month"] == {
        "low": 50_000_000_000,
        "likely": 100_000_000_000,
        "high": 150_000_000_000,
    }
    with_estimate, without = (
        made(),
        receipt(question(), replace(CHANGE, estimated_per_month=None), UNTIL, PRICE, (BEFORE, AFTER)),
    )
    assert with_estimate.measured_per_mtok == without.measured_per_mtok


@pytest.mark.parametrize("price", [None, PRICE])
def test_no_effect_has_no_dollars(price: ReceiptPrice | None) -> None:
    receipt = made(0.0, price)
    assert receipt.finding.verdict is EffectVerdict.NO_EFFECT
    assert receipt.measured_per_mtok is None and receipt.measured_in_window is None


def test_without_a_price_there_are_no_dollars() -> None:
    assert made(price=None).measured_per_mtok is None


def test_a_regression_has_negative_dollars() -> None:
    amount = made(0.10).measured_per_mtok
    assert amount is not None and amount.high < 0


@pytest.mark.parametrize(
    ("objectives", "kept"),
    [
        (ServiceLevel(), None),
        (ServiceLevel(ttft_p95_s=1.0), True),
        (ServiceLevel(ttft_p95_s=0.55), False),
        (ServiceLevel(ttft_p95_s=1.0, tpot_p95_s=0.01), False),
    ],
)
def test_objectives_are_kept_or_missed_in_the_window_after(objectives: ServiceLevel, kept: bool | None) -> None:
    assert made(objectives=objectives).objectives_kept is kept


def test_an_objective_that_was_not_measured_is_not_known_to_be_kept() -> None:
    unmeasured = replace(made(objectives=ServiceLevel(ttft_p95_s=1.0)), service_after=ServiceLevel())
    assert unmeasured.objectives_kept is None


def test_a_release_has_exact_dollars_and_its_receipt_is_read_back_and_made_again() -> None:
    hours = history(1)
    question = ReleaseQuestion(
        Release(2, 2, True),
        ServiceTokens(hours.ts, hours.tokens_per_s),
        CHANGED,
        UNTIL,
        nano_usd_per_hour=4_000_000_000,
    )
    first = receipt(question, CHANGE, UNTIL, None)
    assert first.finding.verdict is EffectVerdict.REALIZED and first.release is not None
    assert first.release.measured_per_month == NanoUsd(*[2_920_000_000_000] * 3)
    assert from_text(to_text(first)) == first and is_intact(to_text(first))
    again = receipt(from_json(to_json(question)), CHANGE, UNTIL, None)
    assert to_text(again) == to_text(first)


def test_a_trial_stands_beside_the_saving_and_is_no_part_of_it() -> None:
    tried = TrialFigures("REPLICAS", 120, Interval(0.05, 0.1, 0.15))
    with_trial = receipt(asked(1, -0.1), CHANGE, UNTIL, None, trial=tried)
    assert from_text(to_text(with_trial)) == with_trial
    assert with_trial.finding == receipt(asked(1, -0.1), CHANGE, UNTIL, None).finding
