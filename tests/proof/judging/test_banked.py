"""Realised savings so far."""

from dataclasses import replace

from pertoken.proof.judging.banked import Banked, banked
from pertoken.proof.judging.receipts import Kind, StoredReceipt
from pertoken.proof.receipts.receipt import to_text
from pertoken.proof.verification.verdict import Verdict
from tests.proof.receipts.test_receipt import made

REALIZED = made()
STORED = StoredReceipt(8, 9, Kind.VERDICT, to_text(REALIZED), "{}", 100)


def test_the_newest_receipt_of_each_change_counts() -> None:
    saved = REALIZED.measured_in_window
    assert REALIZED.finding.verdict is Verdict.REALIZED and saved is not None
    again = replace(STORED, kind=Kind.AFTER_7_DAYS, created_ts=200)
    other = replace(STORED, epoch_id=10)
    assert banked([STORED, again]) == Banked(1, (saved.low, saved.likely, saved.high))
    assert banked([STORED, again, other]) == Banked(2, (2 * saved.low, 2 * saved.likely, 2 * saved.high))


def test_without_a_price_or_a_readable_receipt_nothing_is_banked() -> None:
    without = replace(STORED, text=to_text(made(price=None)))
    assert banked([without, replace(STORED, epoch_id=10, text="{}")]) == Banked()
