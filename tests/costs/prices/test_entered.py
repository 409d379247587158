from datetime import date
from decimal import Decimal

from pertoken.costs.prices.book import Entered, entered_of

EUROS = Entered(Decimal("2.00"), "EUR", Decimal("1.08"), date(2026, 11, 1), "ECB")


def test_an_amount_is_stored_as_entered_and_read_again() -> None:
    assert entered_of(EUROS.stored) == EUROS and entered_of(None) is None
    assert str(EUROS.amount) == "2.00", "with the digits that were entered"


def test_its_dollars_are_its_amount_at_its_rate() -> None:
    assert EUROS.nano_usd == 2_160_000_000
    assert EUROS.text == "2.00 EUR (1 EUR = 1.08 USD, 2026-11-01, ECB)"
