"""Track records from stored receipts."""

from dataclasses import replace

import pytest

from pertoken.proof.judging.receipts import Kind, StoredReceipt, corrected_by, record_entries, records, to_stored
from pertoken.proof.receipt import ReceiptChange, receipt
from pertoken.proof.track_record import PRIOR_SD, SPREAD, Record
from pertoken.proof.verification.question import Promise
from pertoken.text.advice_sheet import advice_sheet
from pertoken.text.lifecycle import record_line
from pertoken.window.inventory import Inventory
from tests.proof.histories import UNTIL, asked
from tests.proof.rows import FP8 as VARIANT
from tests.proof.rows import row as proposed

NOTHING = Inventory(0, (), {}, (), {}, {}, 0)


def stored(rule: str | None, promised: float | None, kind: Kind = Kind.VERDICT) -> StoredReceipt:
    """Return a receipt of a change that saved a tenth."""
    promise = None if promised is None else Promise(promised / 2, promised, promised * 1.5)
    question = asked(1, -0.10, promise=promise)
    made = receipt(question, ReceiptChange("change", "chat", "vllm", rule=rule), UNTIL, None)
    return to_stored(question, made, kind, deployment_id=8, epoch_id=9, recommendation_id=None if rule is None else 1)


def test_a_rule_that_promised_twice_the_realised_saving_gets_a_ratio_below_one() -> None:
    half, kept = stored("half", 0.2), stored("kept", 0.1)
    again = replace(kept, kind=Kind.AFTER_7_DAYS)
    rule_records = {record.rule: record for record in records([half, kept, again, stored(None, None)])}
    assert list(rule_records) == ["half", "kept"]
    assert 0.5 < rule_records["half"].record.ratio < 0.9 < rule_records["kept"].record.ratio < 1.1
    assert (rule_records["kept"].record.receipts, rule_records["kept"].not_counted) == (1, 0)


def test_a_receipt_without_a_promise_is_not_counted_and_leaves_the_ratio_at_one() -> None:
    (record,) = records([stored("house", None)])
    assert (record.record, record.not_counted) == (Record(0, 1.0, PRIOR_SD, SPREAD), 1)
    assert record.record.ratio == pytest.approx(1.0)


def test_the_next_estimate_of_a_rule_is_corrected_by_its_record_and_money_follows() -> None:
    known = record_entries([stored("quantize", 0.2) for _ in range(4)])
    (row,) = corrected_by([proposed(variants=(VARIANT,))], known, NOTHING)
    best = row.variants[0]
    assert best.record is not None and best.record.receipts == 4 and 0.4 < best.record.ratio < 0.8
    assert VARIANT.throughput_ratio is not None and best.throughput_ratio is not None
    before, after = (1 - 1 / ratio[1] for ratio in (VARIANT.throughput_ratio, best.throughput_ratio))
    assert after == pytest.approx(before * best.record.ratio)
    assert best.net is not None and best.net[1] == pytest.approx(2e9 * best.record.ratio, rel=1e-6)
    assert "of what its rule promised was realised (4 receipts)" in record_line(best.record)
    assert "track record" in dict(line for line in advice_sheet(row, 0)[1].lines if not isinstance(line, str))


def test_an_estimate_without_device_time_or_of_a_rule_without_receipts_stays_as_it_is() -> None:
    known = record_entries([stored("quantize", 0.2)])
    priced = replace(VARIANT, throughput_ratio=None)
    rows = [proposed(variants=(priced,)), proposed(rule_id="other", variants=(VARIANT,))]
    assert corrected_by(rows, known, NOTHING) == tuple(rows)


def test_a_record_that_is_believed_does_not_lead_back_to_one() -> None:
    believed = ReceiptChange("change", "chat", "vllm", rule="half", correction=0.5)
    question = asked(1, -0.10, promise=Promise(0.05, 0.1, 0.15))
    made = receipt(question, believed, UNTIL, None)
    kept = to_stored(question, made, Kind.VERDICT, deployment_id=8, epoch_id=9, recommendation_id=1)
    assert record_entries([kept])[0].ratio == pytest.approx(0.5, abs=0.1)
