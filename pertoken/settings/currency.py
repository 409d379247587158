"""Settings of the currency that people see: a code, and dated rates with their sources."""

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise

USD = "USD"
"""Currency in which everything is computed and stored."""
_CODE = re.compile("[A-Z]{3}")
_KEYS = ("date", "per_usd", "source")


@dataclass(frozen=True, slots=True)
class Rate:
    """Value of a US dollar on a day."""

    day: date
    per_usd: Decimal
    """Units of the currency for one US dollar."""
    source: str


@dataclass(frozen=True, slots=True)
class Currency:
    """A currency with its rates."""

    code: str = USD
    rates: tuple[Rate, ...] = ()

    def on(self, day: date) -> Rate | None:
        """Return the newest rate that is not later than a day; None if there is none."""
        return max((rate for rate in self.rates if rate.day <= day), key=lambda rate: rate.day, default=None)


def read_code(value: object) -> str:
    """Return the code of a currency. Raises ValueError."""
    code = value.strip().upper() if isinstance(value, str) else ""
    if not _CODE.fullmatch(code):
        raise ValueError('must be a currency code of three letters (ISO 4217), such as "EUR"')
    return code


def read_rates(value: object) -> tuple[Rate, ...]:
    """Return rates, oldest first. Raises ValueError for one that is incomplete, and for two of one day."""
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise ValueError("must be a list of tables, each written [[currency.rates]]")
    rates = tuple(sorted((_rate(number, row) for number, row in enumerate(value, 1)), key=lambda rate: rate.day))
    for earlier, later in pairwise(rates):
        if earlier.day == later.day:
            raise ValueError(f"two rates of {later.day}: keep one of them")
    return rates


def _rate(number: int, row: dict[str, object]) -> Rate:
    where = f"rate {number}"
    for key in row:
        if key not in _KEYS:
            raise ValueError(f"{where}.{key}: no such key; there are {', '.join(_KEYS)}")
    for key in _KEYS:
        if key not in row:
            raise ValueError(f"{where}: {key} is missing")
    day, per_usd, source = (row[key] for key in _KEYS)
    if isinstance(day, str):
        try:
            day = date.fromisoformat(day.strip())
        except ValueError:
            day = None
    if not isinstance(day, date) or isinstance(day, datetime):
        raise ValueError(f"{where}.date: must be a date such as 2026-11-01")
    if type(per_usd) not in (int, float) or not 0 < per_usd < float("inf"):  # type: ignore[operator]
        raise ValueError(f"{where}.per_usd: must be a number above 0: units of the currency for one US dollar")
    if not isinstance(source, str) or not source.strip():
        raise ValueError(f"{where}.source: must be text: where the rate was published")
    return Rate(day, Decimal(str(per_usd)), source.strip())
