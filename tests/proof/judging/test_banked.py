"""Dollars that left a bill."""

from dataclasses import replace

import pytest

from pertoken.proof.judging.receipts import Banked, Kind, StoredReceipt, banked
from pertoken.proof.receipt import NanoUsd, ReleaseFigures, signed, to_text
from pertoken.proof.recommendation import Recommendation, State
from pertoken.proof.verification.estimate import EffectVerdict
from pertoken.units import NANO_USD
from tests.proof.receipt.test_receipt import made

REALIZED = made()
STORED = StoredReceipt(8, 9, Kind.VERDICT, to_text(REALIZED), "{}", 100, recommendation_id=1)


def usd(low: int, likely: int, high: int) -> NanoUsd:
    return NanoUsd(low * NANO_USD, likely * NANO_USD, high * NANO_USD)


MONTH, PROMISED = usd(1000, 1000, 1000), usd(900, 1200, 1300)


def row(number: int = 1, state: State = State.REALIZED) -> Recommendation:
    return Recommendation(number, "scale-replicas", state, "2 → 1 replicas", "chat")


def released(
    number: int = 1,
    month: NanoUsd | None = MONTH,
    promised: NanoUsd | None = PROMISED,
    created_ts: int = 100,
) -> StoredReceipt:
    """Return a stored receipt of a release of one device, with its price and its promise a month."""
    figures = ReleaseFigures(1, 1, None, month)
    receipt = signed(replace(REALIZED, release=figures, change=replace(REALIZED.change, estimated_per_month=promised)))
    return StoredReceipt(None, None, Kind.VERDICT, to_text(receipt), "{}", created_ts, recommendation_id=number)


def test_devices_that_left_the_bill_are_banked_by_the_newest_receipt_of_each_change() -> None:
    later = released(month=usd(700, 700, 700), created_ts=200)
    assert banked([released()], [row()]) == Banked(1, (900 * NANO_USD, 1000 * NANO_USD, 1000 * NANO_USD))
    assert banked([later, released()], [row()]).nano_usd == (700 * NANO_USD,) * 3
    assert banked([released(1), released(2)], [row(1), row(2)]).changes == 2


def test_a_faster_configuration_banks_nothing_since_its_bill_stays() -> None:
    assert REALIZED.finding.verdict is EffectVerdict.REALIZED and REALIZED.measured_in_window is not None
    assert banked([STORED], [row()]) == Banked()
    both = banked([released(created_ts=50), STORED], [row()])
    assert both.changes == 1, "a verdict on the deployment that stays does not hide what was given back"


def test_a_regression_takes_nothing_off_what_is_banked() -> None:
    dearer = replace(STORED, text=to_text(made(0.10)), recommendation_id=2)
    assert banked([released(), dearer], [row(), row(2, State.REGRESSED)]) == banked([released()], [row()])


@pytest.mark.parametrize("state", [State.ROLLED_BACK, State.DECAYED, State.VERIFYING, State.INCONCLUSIVE])
def test_a_change_that_was_undone_or_is_not_proven_banks_nothing(state: State) -> None:
    assert banked([released()], [row(state=state)]) == Banked()


def test_devices_without_a_price_or_on_hosts_of_ones_own_bank_nothing() -> None:
    assert banked([released(month=None)], [row()]) == Banked()
    assert banked([released(promised=usd(0, 0, 0))], [row()]) == Banked(), "an owned host leaves no bill"
    assert banked([released(promised=None)], [row()]) == Banked()
    assert banked([replace(released(), text="{}")], [row()]) == Banked(), "`pertoken receipt` reports it"
