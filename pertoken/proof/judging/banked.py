"""What changes have saved so far, by their receipts."""

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
    for each in sorted(receipts, key=lambda each: each.created_ts):
        newest[each.deployment_id, each.epoch_id, each.recommendation_id] = each
    made = [found for each in newest.values() if (found := _read(each)) is not None]
    saved = [each.measured_in_window for each in made if each.finding.verdict in COUNTED]
    known = [each for each in saved if each is not None]
    if not known:
        return Banked()
    sums = (sum(each.low for each in known), sum(each.likely for each in known), sum(each.high for each in known))
    return Banked(len(known), sums)


def _read(stored: StoredReceipt) -> Receipt | None:
    """Return a receipt; None where its text is none, which `pertoken receipt` reports."""
    try:
        return stored.read()
    except (ValueError, KeyError, TypeError):
        return None
