"""Dollars that receipts prove to have left a bill."""

from collections.abc import Iterable
from dataclasses import dataclass

from pertoken.proof.judging.receipts import StoredReceipt
from pertoken.proof.receipts.receipt import NanoUsd, Receipt
from pertoken.proof.recommendation import Recommendation, State

LASTING = (State.REALIZED, State.PARTIAL)
"""States of changes whose saving was proven and is still there."""


@dataclass(frozen=True, slots=True)
class Banked:
    """Dollars a month that left a bill, in nano-USD, and by how many changes."""

    changes: int = 0
    nano_usd: tuple[int, int, int] | None = None
    """Low, likely, high. None: nothing was proven."""


def banked(receipts: Iterable[StoredReceipt], rows: Iterable[Recommendation]) -> Banked:
    """Add up the price of the devices that changes gave back, by the newest receipt of each.

    Device time that a faster configuration saves is capacity: no bill falls by it. A change that also pays for other
    devices banks no more than it promised net of them.
    """
    lasting = {row.recommendation_id for row in rows if row.state in LASTING}
    newest: dict[int | None, Receipt] = {}
    for stored in sorted(receipts, key=lambda stored: stored.created_ts):
        receipt = readable(stored) if stored.recommendation_id in lasting else None
        if receipt is not None and receipt.release is not None:
            newest[stored.recommendation_id] = receipt
    known = [saved for receipt in newest.values() if (saved := off_the_bill(receipt)) is not None]
    if not known:
        return Banked()
    sums = (
        sum(saved.low for saved in known),
        sum(saved.likely for saved in known),
        sum(saved.high for saved in known),
    )
    return Banked(len(known), sums)


def off_the_bill(receipt: Receipt) -> NanoUsd | None:
    """Return the dollars a month that left the bill; None where none did."""
    released = None if receipt.release is None else receipt.release.measured_per_month
    promised = receipt.change.estimated_per_month
    if released is None or promised is None or promised.likely <= 0:
        return None
    return NanoUsd(
        min(released.low, promised.low), min(released.likely, promised.likely), min(released.high, promised.high)
    )


def readable(stored: StoredReceipt) -> Receipt | None:
    """Return a receipt; None where its text is none, which `pertoken receipt` reports."""
    try:
        return stored.read()
    except (ValueError, KeyError, TypeError):
        return None
