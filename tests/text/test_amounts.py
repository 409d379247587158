"""Amounts in the currency of the settings, at a dated rate."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from pertoken.costs.ledger import ServedCost
from pertoken.settings.values import Currency, CurrencyRate
from pertoken.text import amounts
from pertoken.text.amounts import amount, beside, caption, note, note_once, show_headline, show_in, show_of
from pertoken.text.columns import Column, table
from pertoken.text.fleet import deployment_columns, figures
from pertoken.text.words import usd_parts
from pertoken.units import NANO_USD
from tests.tui.reports import RICH

EURO = Currency(
    "EUR",
    (CurrencyRate(date(2026, 10, 1), Decimal("0.5"), "bank"), CurrencyRate(date(2026, 11, 1), Decimal("0.92"), "ECB")),
)
NOVEMBER, OCTOBER, MAY = (datetime(2026, month, 20, tzinfo=UTC).timestamp() for month in (11, 10, 5))


@pytest.fixture(autouse=True)
def dollars_afterwards() -> Iterator[None]:
    yield
    amounts.reset()


def test_amounts_are_dollars_unless_a_currency_is_set() -> None:
    assert (amount(1_234 * NANO_USD), amount(None), caption("$/Mtok")) == ("$1,234", "–", "$/Mtok")
    assert note() is None and beside({"usd": 1}) == {"usd": 1}


def test_prices_are_those_of_the_headline_until_it_is_reset() -> None:
    served = ServedCost(10 * NANO_USD, 3_000_000, 1_000_000, 2_000, 0.5)
    report = replace(RICH, served=served, nano_usd_per_mtok=served.price("blended"))
    for name, value, text in (
        ("blended", "$2.50", "$/Mtok"),
        ("generated", "$10.00", "$/gen Mtok"),
        ("per_request", "$5.00", "$/1k req"),
        ("good", "$5.00", "$/good Mtok"),
    ):
        show_headline(name)
        first = figures(report)[0]
        assert first.value == value and first.caption.startswith(text)
        assert deployment_columns(report)[2].name == text
    show_headline("good")
    assert figures(replace(report, served=served._replace(good_share=None)))[0].caption == "$/good Mtok: no SLO"
    amounts.reset()
    assert figures(report)[0].value == "$2.50"


def test_an_amount_is_converted_at_the_rate_of_its_day() -> None:
    show_in(EURO)
    show_of(NOVEMBER)
    assert amount(100 * NANO_USD) == "€92.00" and caption("$/Mtok") == "€/Mtok"
    assert note() == "Amounts are in EUR: 0.92 per USD, 2026-11-01, ECB."
    show_of(OCTOBER)
    assert amount(100 * NANO_USD) == "€50.00" and "bank" in (note() or "")


def test_without_a_rate_no_amount_is_shown_and_the_note_has_the_reason() -> None:
    show_in(EURO)
    show_of(MAY)
    assert amount(100 * NANO_USD) == "–" and usd_parts(3, (1, 2)) == ("–", ("–", "–"))
    assert note() == "No amount is shown: currency.rates has no rate of EUR on or before 2026-05-20."
    values = beside({"usd": 1})
    assert isinstance(values, dict) and values["currency"]["per_usd"] is None
    first, *_ = figures(RICH)
    assert first.sentence == "€/Mtok: no rate of EUR"


def test_a_currency_without_a_symbol_of_its_own_is_written_with_its_code() -> None:
    show_in(Currency("CHF", (CurrencyRate(date(2026, 1, 1), Decimal("0.8"), "SNB"),)))
    assert amount(-1.5 * NANO_USD) == "-CHF 1.20" and caption("bankable $/month") == "bankable CHF/month"


def test_a_bill_still_adds_up_in_another_currency() -> None:
    show_in(EURO)
    paid, parts = usd_parts(10 * NANO_USD, (3_333_333_333, 3_333_333_333, 3_333_333_334))
    assert paid == "€9.20" and sum(float(part.removeprefix("€")) for part in parts) == pytest.approx(9.2)


def test_headings_of_tables_have_the_currency_and_its_width() -> None:
    show_in(EURO)
    columns: tuple[Column[int], ...] = (Column("$/Mtok", amount, 0, float), Column("dollars", amount, 1, float))
    assert table("$ per Mtok", [2 * NANO_USD], columns, None) == ["€ per Mtok", "  €/Mtok    EUR", "   €1.84  €1.84"]


def test_json_stays_in_dollars_with_the_currency_beside_them() -> None:
    show_in(EURO)
    show_of(NOVEMBER)
    rate = {"code": "EUR", "per_usd": 0.92, "date": "2026-11-01", "source": "ECB"}
    assert beside({"usd": 2.0}) == {"usd": 2.0, "currency": rate}
    assert beside([{"usd": 2.0}]) == [{"usd": 2.0, "currency": rate}]


def test_the_note_comes_once_and_only_where_an_amount_was_written() -> None:
    show_in(EURO)
    assert note_once() is None
    amount(NANO_USD)
    assert note_once() is not None and note_once() is None


def test_every_screen_and_command_writes_amounts_with_this_module() -> None:
    """Only `reconcile` writes dollars: an invoice is compared to the cent in its own currency."""
    package = Path(amounts.__file__).parents[1]
    others = {
        path.relative_to(package).as_posix()
        for folder in ("tui", "cli")
        for path in (package / folder).rglob("*.py")
        if "format_usd" in path.read_text()
    }
    assert others == {"cli/money/reconcile.py"}
