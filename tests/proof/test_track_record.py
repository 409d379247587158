"""Realised over promised savings: shrunk when few, trusted when many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.proof.track_record import PRIOR_SD, SPREAD, Record, RecordEntry, corrected, record, record_entry
from pertoken.proof.verification.estimate import EffectVerdict, Interval
from pertoken.proof.verification.question import Promise
from pertoken.proof.verification.verify import VerifiedEffect

TENTH = Promise(0.05, 0.10, 0.15)


def realised(likely: float, half_width: float = 0.01, regime: str | None = "decode") -> RecordEntry:
    return RecordEntry("quantize-kv", regime, 0.10, Interval(likely - half_width, likely, likely + half_width))


def test_without_receipts_a_promise_stays_as_it_is() -> None:
    assert record([], "quantize-kv") == Record(0, 1.0, PRIOR_SD, SPREAD)
    assert corrected(TENTH, Record(0, 1.0, PRIOR_SD, SPREAD)) == TENTH


def test_one_receipt_moves_the_ratio_by_about_half_and_many_move_it_all_the_way() -> None:
    ratios = [record([realised(0.05)] * n, "quantize-kv").ratio for n in (1, 3, 30)]
    assert ratios[0] == pytest.approx(0.75, abs=0.05)
    assert ratios[0] > ratios[1] > ratios[2]
    assert ratios[2] == pytest.approx(0.5, abs=0.02)


def test_an_uncertain_receipt_moves_it_less() -> None:
    sure, unsure = record([realised(0.05)], "quantize-kv"), record([realised(0.05, 0.08)], "quantize-kv")
    assert sure.ratio < unsure.ratio < 1
    assert sure.ratio_sd < unsure.ratio_sd < PRIOR_SD


def test_other_rules_do_not_count() -> None:
    assert record([realised(0.05)], "lock-clocks").receipts == 0


def test_a_regime_without_receipts_starts_from_its_rule() -> None:
    other = [realised(0.05)] * 20
    track_record = record(other, "quantize-kv", "prefill")
    assert track_record.receipts == 0
    assert track_record.ratio == pytest.approx(0.5, abs=0.03)
    mixed = record([*other, realised(0.10, regime="prefill")], "quantize-kv", "prefill")
    assert track_record.ratio < mixed.ratio < 1


def test_a_regime_without_receipts_of_its_own_corrects_by_its_rule() -> None:
    track_record = record([realised(0.05)] * 20, "quantize-kv", "prefill")
    assert corrected(TENTH, track_record).likely == pytest.approx(0.05, abs=0.005)


def test_receipts_that_agree_narrow_the_next_interval_and_those_that_scatter_widen_it() -> None:
    agree = record([realised(0.10)] * 12, "quantize-kv")
    scatter = record([realised(0.02), realised(0.18)] * 6, "quantize-kv")
    assert agree.spread < SPREAD < scatter.spread
    narrow, wide = corrected(TENTH, agree), corrected(TENTH, scatter)
    assert narrow.high - narrow.low < 0.10 < wide.high - wide.low


@given(st.lists(st.floats(-0.1, 0.3), min_size=1, max_size=20))
def test_the_ratio_lies_between_1_and_the_realised_ones_and_a_corrected_promise_is_ordered(likely: list[float]) -> None:
    track_record = record([realised(value) for value in likely], "quantize-kv")
    ratios = [1.0, *(value / 0.10 for value in likely)]
    assert min(ratios) - 1e-9 <= track_record.ratio <= max(ratios) + 1e-9
    promise = corrected(TENTH, track_record)
    assert promise.low <= promise.likely <= promise.high


@pytest.mark.parametrize(
    ("finding", "promise", "counts"),
    [
        (VerifiedEffect(EffectVerdict.REALIZED, saving_90=Interval(0.05, 0.1, 0.15)), TENTH, True),
        (VerifiedEffect(EffectVerdict.NO_EFFECT, saving_90=Interval(-0.02, 0, 0.02)), TENTH, True),
        (VerifiedEffect(EffectVerdict.INCONCLUSIVE, "wide-interval", saving_90=Interval(-0.1, 0, 0.1)), TENTH, True),
        (VerifiedEffect(EffectVerdict.INCONCLUSIVE, "baseline-fails", saving_90=Interval(-0.1, 0, 0.1)), TENTH, False),
        (VerifiedEffect(EffectVerdict.INCONCLUSIVE, "few-hours"), TENTH, False),
        (VerifiedEffect(EffectVerdict.REALIZED, saving_90=Interval(0.05, 0.1, 0.15)), None, False),
        (VerifiedEffect(EffectVerdict.REALIZED, saving_90=Interval(0.05, 0.1, 0.15)), Promise(0, 0, 0.1), False),
    ],
)
def test_only_measured_and_promised_savings_count(
    finding: VerifiedEffect, promise: Promise | None, counts: bool
) -> None:
    assert (record_entry("quantize-kv", None, promise, finding) is not None) is counts
