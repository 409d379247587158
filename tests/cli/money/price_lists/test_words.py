from datetime import UTC, datetime
from decimal import Decimal

import pytest

from pertoken.cli.money.price_lists import end_ts, entered_amount, millionths, nano_usd, period, start_ts
from pertoken.errors import BadInput

NOW = int(datetime(2026, 11, 28, 12, 0, 30, tzinfo=UTC).timestamp())


def ts(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp())  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(("text", "nano"), [("2.50", 2_500_000_000), ("$55.04", 55_040_000_000), ("0", 0)])
def test_dollars_are_kept_to_the_nano_dollar(text: str, nano: int) -> None:
    assert nano_usd(text) == nano


@pytest.mark.parametrize("text", ["", "two", "nan", "snan", "inf", "-1", "1000001", "0.0000000001"])
def test_text_that_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        nano_usd(text)


@pytest.mark.parametrize(("text", "part"), [("30%", 300_000), (" 12.5 % ", 125_000), ("100%", 1_000_000)])
def test_a_discount_is_written_in_percent(text: str, part: int) -> None:
    assert millionths(text) == part


@pytest.mark.parametrize("text", ["30", "0.3", "0%", "-5%", "101%", "%", "nan%", "ten%"])
def test_a_discount_without_percent_or_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="discount"):
        millionths(text)


def test_an_amount_in_another_currency_is_kept_as_entered_beside_its_dollars() -> None:
    nano, entered = entered_amount("2.00", "eur", "1.08", "2026-11-01", "ECB", "ann")
    assert nano == 2_160_000_000 and entered is not None and entered.amount == Decimal("2.00")
    assert entered.text == "2.00 EUR (1 EUR = 1.08 USD, 2026-11-01, ECB)"


def test_a_rate_without_a_source_is_that_of_the_person_who_entered_it() -> None:
    _, entered = entered_amount("2", "EUR", "1.08", None, None, "ann")
    assert entered is not None and entered.rate_source == "entered by ann"


@pytest.mark.parametrize(
    ("currency", "rate", "day", "message"),
    [
        ("EUR", None, None, "no rate is assumed"),
        (None, "1.08", None, "belong to a --currency"),
        ("EURO", "1.08", None, "three letters"),
        ("USD", "1", None, "dollars need no --currency"),
        ("EUR", "0", None, "more than 0 dollars"),
        ("EUR", "nan", None, "more than 0 dollars"),
        ("EUR", "1.08", "soon", "write a date"),
        ("EUR", "1.08", "2999-01-01", "not over yet"),
    ],
)
def test_nothing_is_converted_at_a_rate_that_nobody_entered(
    currency: str | None, rate: str | None, day: str | None, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        entered_amount("2", currency, rate, day, None, "ann")


def test_a_start_is_ever_now_or_a_time_of_utc() -> None:
    assert start_ts("ever", NOW) == 0 and start_ts("now", NOW) == NOW - 30
    assert start_ts("2026-11-01", NOW) == ts(2026, 11, 1)
    with pytest.raises(BadInput, match="--from"):
        start_ts("soon", NOW)


def test_a_date_alone_ends_with_that_day_and_a_time_at_its_minute() -> None:
    assert end_ts(None, 0, NOW) is None
    assert end_ts("2026-12-31", NOW, NOW) == ts(2027, 1, 1)
    assert end_ts("2026-12-31T18:00", NOW, NOW) == ts(2026, 12, 31, 18)
    assert end_ts("2026-12-31T18:00+02:00", NOW, NOW) == ts(2026, 12, 31, 16)


@pytest.mark.parametrize("text", ["2026-11-01", "2026-11-28T12:00", "tomorrow", ""])
def test_an_end_before_the_start_or_no_time_at_all_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--until"):
        end_ts(text, NOW, NOW)


def test_a_period_names_its_start_and_its_end() -> None:
    assert period(0, None, NOW) == "from the beginning"
    assert period(0, ts(2027, 1, 1), NOW) == "from the beginning to 2027-01-01 00:00Z"
    assert period(ts(2026, 1, 1), ts(2026, 2, 1), NOW) == "from 2026-01-01 00:00Z ended 2026-02-01 00:00Z"
