"""Realised savings of all changes so far, by their receipts."""

from collections.abc import Iterable
from dataclasses import dataclass

from pertoken.proof.judging.receipts import StoredReceipt
from pertoken.proof.receipts.receipt import Receipt
from pertoken.proof.verification.verdict import Verdict

COUNTED = (Verdict.REALIZED, Verdict.PARTIAL, Verdict.REGRESSED)
"""Verdicts whose dollars count; those of a regression are below 0."""


@dataclass(frozen=True, slots=True)
class Banked:
    """Dollars that receipts measured, in nano-USD, and of how many changes."""

    changes: int = 0
    nano_usd: tuple[int, int, int] | None = None
    """Low, likely, high. None: no receipt has dollars."""


def banked(receipts: Iterable[StoredReceipt]) -> Banked:
    """Add up the newest receipt of each change, in the hours that it compared."""
    newest: dict[tuple[int | None, ...], StoredReceipt] = {}
    for stored_row in sorted(receipts, key=lambda stored_row: stored_row.created_ts):
        newest[stored_row.deployment_id, stored_row.epoch_id, stored_row.recommendation_id] = stored_row
    made = [receipt for stored_row in newest.values() if (receipt := _read(stored_row)) is not None]
    saved = [receipt.measured_in_window for receipt in made if receipt.finding.verdict in COUNTED]
    known = [amount for amount in saved if amount is not None]
    if not known:
        return Banked()
    sums = (
        sum(amount.low for amount in known),
        sum(amount.likely for amount in known),
        sum(amount.high for amount in known),
    )
    return Banked(len(known), sums)


def _read(stored: StoredReceipt) -> Receipt | None:
    """Return a receipt; None where its text is none, which `pertoken receipt` reports."""
    try:
        return stored.read()
    except (ValueError, KeyError, TypeError):
        return None
