"""The currency of the settings: its code, and rates that are complete and not contradictory."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from pertoken.config import load
from pertoken.errors import BadInput
from pertoken.settings.values import Currency, CurrencyRate

TWO = """
[currency]
code = "eur"
[[currency.rates]]
date = 2026-11-01
per_usd = 0.92
source = "ECB"
[[currency.rates]]
date = 2026-10-01
per_usd = 0.9
source = "ECB"
"""


def read(folder: Path, text: str) -> Currency:
    file = folder / "pertoken.toml"
    file.write_text(text)
    return load(str(file)).currency


def test_without_a_setting_amounts_are_us_dollars(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Currency("USD", ())


def test_the_rate_in_force_is_the_newest_one_that_is_not_later(tmp_path: Path) -> None:
    euro = read(tmp_path, TWO)
    assert euro.code == "EUR"
    assert euro.on(date(2026, 11, 22)) == CurrencyRate(date(2026, 11, 1), Decimal("0.92"), "ECB")
    assert euro.on(date(2026, 10, 31)) == CurrencyRate(date(2026, 10, 1), Decimal("0.9"), "ECB")
    assert euro.on(date(2026, 9, 30)) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('code = "euro"', "three letters"),
        ("rates = [{date = 2026-11-01, per_usd = 0.9}]", "rate 1: source is missing"),
        ('rates = [{date = 2026-11-01, per_usd = 0, source = "ECB"}]', "per_usd: must be a number above 0"),
        ('rates = [{date = "soon", per_usd = 1, source = "ECB"}]', "date: must be a date"),
        ('rates = [{date = 2026-11-01, per_usd = 1, source = "", x = 1}]', "rate 1.x: no such key"),
        (
            'rates = [{date = 2026-11-01, per_usd = 1, source = "a"}, {date = 2026-11-01, per_usd = 2, source = "b"}]',
            "two rates of 2026-11-01: keep one of them",
        ),
    ],
)
def test_a_rate_that_is_incomplete_or_contradictory_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read(tmp_path, f"[currency]\n{text}\n")
