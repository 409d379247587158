"""Amounts of money as text, in the currency of the settings.

Everything is computed, stored and exported in US dollars. Screens and commands write amounts with `amount`, which
converts them at the rate of the day that the figures describe, and captions with `caption`. A process shows one
currency at a time: the command line sets it with `show_in` after it has read the settings.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Protocol

from pertoken.metrics import HEADLINES, HeadlineSpec
from pertoken.settings.values import USD, Currency, CurrencyRate
from pertoken.units import NANO_USD, format_money

if TYPE_CHECKING:
    from pertoken.costs.ledger import KindPrice, ServedCost

NO_AMOUNT = "–"
SYMBOLS = {USD: "$", "EUR": "€", "GBP": "£"}
"""Symbols that mean one currency only; all other currencies are written with their code before the amount."""


@dataclass(slots=True)
class _Shown:
    currency: Currency
    day: date | None
    """Day (UTC) that the shown figures describe; None: today."""
    converted: bool
    """Whether an amount was written since the currency was set."""
    headline: str = "blended"

    @property
    def rate(self) -> CurrencyRate | None:
        return self.currency.on(self.on)

    @property
    def on(self) -> date:
        return self.day or datetime.now(UTC).date()


class PricedLine(Protocol):
    """A line with dollars and tokens."""

    @property
    def nano_usd_per_mtok(self) -> int | None:
        """Nano-USD for a million tokens."""

    @property
    def served(self) -> "ServedCost":
        """Its dollars and tokens."""


_shown = _Shown(Currency(), None, False)


_in_dollars: ContextVar[bool] = ContextVar("in_dollars", default=False)
"""Whether this thread writes a report: its amounts are dollars in any currency of the screens."""


@contextmanager
def in_dollars() -> Iterator[None]:
    """Write amounts in US dollars meanwhile, in this thread: reports and pages of a team are in dollars."""
    token = _in_dollars.set(True)
    try:
        yield
    finally:
        _in_dollars.reset(token)


def _currency() -> Currency:
    return Currency() if _in_dollars.get() else _shown.currency


def show_in(currency: Currency) -> None:
    """Write amounts in this currency from now on."""
    _shown.currency, _shown.converted = currency, False


def show_of(ts: float) -> None:
    """Convert at the rate of the day (UTC) that holds `ts`, epoch seconds, from now on."""
    _shown.day = datetime.fromtimestamp(ts, UTC).date()


def show_headline(name: str) -> None:
    """Show prices by this headline of `metrics.HEADLINES` from now on."""
    _shown.headline = name


def headline() -> HeadlineSpec:
    """Return the headline by which prices are shown."""
    return HEADLINES[_shown.headline]


def price(line: "PricedLine") -> int | None:
    """Return the price of a line by the headline, nano-USD; None if it is not known."""
    if _shown.headline == "blended":
        return line.nano_usd_per_mtok
    return line.served.price(_shown.headline)


def no_price_note() -> tuple[str, ...]:
    """Return why lines of hours, tenants and hosts have no price by the headline; empty where they may have one."""
    if _shown.headline == "good":
        return ("Requests within the SLO are counted by model over a whole window: `pertoken costs --figures`.",)
    if _shown.headline == "per_request":
        return ("Gateways count no requests: tenants have no price per request.",)
    return ()


def reset() -> None:
    """Write amounts in US dollars again, with the rates of today, and prices per Mtok."""
    _shown.currency, _shown.day, _shown.converted, _shown.headline = Currency(), None, False, "blended"


def rate() -> float | None:
    """Return how many units of the shown currency one US dollar buys; None if no rate is known."""
    if _currency().code == USD:
        return 1.0
    _shown.converted = True
    exchange = _shown.rate
    return None if exchange is None else float(exchange.per_usd)


def amount(nano_usd: int | float | None, unknown: str = NO_AMOUNT) -> str:
    """Return an amount of nano-USD in the shown currency: `$1,234`, `€0.0123`.

    None is written as `unknown`; every amount is `–` while the currency has no rate.
    """
    per_usd = rate()
    if nano_usd is None:
        return unknown
    return NO_AMOUNT if per_usd is None else format_money(nano_usd / NANO_USD * per_usd, symbol())


def bounded(price: "KindPrice") -> str:
    """Return a price with its bounds where they differ: `$2.00 ($1.00–$3.00)`; `–` for an unknown one."""
    if price.value is None or price.low is None or price.high is None:
        return NO_AMOUNT
    low, value, high = (amount(usd * NANO_USD) for usd in (price.low, price.value, price.high))
    return value if low == high else f"{value} ({low}–{high})"


def symbol() -> str:
    """Return the prefix of an amount: `$`, `€`, or a currency code and a blank."""
    code = _currency().code
    return SYMBOLS.get(code, f"{code} ")


def caption(text: str) -> str:
    """Return a caption with the shown currency in place of dollars: `€/Mtok`."""
    if _currency().code == USD:
        return text
    unit = SYMBOLS.get(_currency().code, _currency().code)
    return _currency().code if text == "dollars" else text.replace("$", unit)


def no_rate() -> str | None:
    """Return the reason why no amount can be written; None if amounts can be written."""
    code = _currency().code
    if code == USD or _shown.rate is not None:
        return None
    return f"no rate of {code}"


def note() -> str | None:
    """Return the rate with its date and source, or that it is missing; None for US dollars."""
    code, exchange = _currency().code, _shown.rate
    if code == USD:
        return None
    if exchange is None:
        return f"No amount is shown: currency.rates has no rate of {code} on or before {_shown.on}."
    return f"Amounts are in {code}: {exchange.per_usd} per USD, {exchange.day}, {exchange.source}."


def note_once() -> str | None:
    """Return `note` if an amount was written since the last call or since the currency was set, else None."""
    written, _shown.converted = _shown.converted, False
    return note() if written else None


def currency_values() -> dict[str, object] | None:
    """Return the currency with its rate as values for JSON; None for US dollars. `per_usd` is None without a rate."""
    code, exchange = _currency().code, _shown.rate
    if code == USD:
        return None
    if exchange is None:
        return {"code": code, "per_usd": None, "date": None, "source": None, "reason": note()}
    date, source = exchange.day.isoformat(), exchange.source
    return {"code": code, "per_usd": float(exchange.per_usd), "date": date, "source": source}


def beside(values: object) -> object:
    """Return values for JSON with a `currency` key added to an object, or to each object of a list."""
    currency = currency_values()
    if currency is None:
        return values
    if isinstance(values, list):
        return [beside(value) for value in values]
    return {**values, "currency": currency} if isinstance(values, dict) else values
