"""Words of `pertoken prices`: amounts, times and devices, as people enter and read them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pertoken.costs.prices.book import Discount, Entered, Price, Priced
    from pertoken.costs.repricing import Prices

MAX_USD = 1_000_000


def entered_amount(
    text: str, currency: str | None, rate: str | None, rate_date: str | None, rate_source: str | None, who: str
) -> tuple[int, Entered | None]:
    """Return an amount in nano-USD, and as it was entered in another currency. Raises BadInput."""
    import time
    from datetime import UTC, date, datetime

    from pertoken.costs.prices.book import Entered
    from pertoken.errors import BadInput
    from pertoken.settings.values import USD, read_code

    if currency is None:
        if (rate, rate_date, rate_source) != (None, None, None):
            raise BadInput("--rate, --rate-date and --rate-source belong to a --currency: name it, such as EUR")
        return nano_usd(text), None
    try:
        code = read_code(currency)
    except ValueError as error:
        raise BadInput(f"--currency {currency}: {error}") from None
    if code == USD:
        raise BadInput("dollars need no --currency: leave it and --rate out")
    if rate is None:
        raise BadInput(f"--currency {code} needs --rate: the dollars of one {code}, such as 1.08; no rate is assumed")
    today = datetime.fromtimestamp(time.time(), UTC).date()
    try:
        day = today if rate_date is None else date.fromisoformat(rate_date)
    except ValueError:
        raise BadInput(f"--rate-date {rate_date!r}: write a date like 2026-11-28") from None
    if day > today:
        raise BadInput(f"--rate-date {day}: this day is not over yet")
    usd_per_unit = _number(rate, "a rate: write the dollars of one unit like 1.08")
    if not usd_per_unit.is_finite() or not 0 < usd_per_unit <= MAX_USD:
        raise BadInput(f"--rate {rate}: one {code} is worth more than 0 dollars")
    amount = _number(text.strip(), f"a price: write {code} like 2.50")
    entered = Entered(amount, code, usd_per_unit, day, rate_source or f"entered by {who}")
    return _checked(amount * usd_per_unit if amount.is_finite() else amount, text), entered


def nano_usd(dollars: str) -> int:
    """Return dollars as entered, in nano-USD. Raises BadInput."""
    return _checked(_number(dollars.strip().lstrip("$"), "a price: write dollars like 2.50"), dollars)


def _number(text: str, what: str) -> Decimal:
    from decimal import InvalidOperation

    from pertoken.errors import BadInput

    try:
        value = Decimal(text)
    except InvalidOperation:
        raise BadInput(f"{text!r} is not {what}") from None
    return value


def _checked(value: Decimal, text: str) -> int:
    from pertoken.errors import BadInput
    from pertoken.units import NANO_USD

    if not value.is_finite() or not 0 <= value <= MAX_USD:
        raise BadInput(f"{text}: a device-hour costs between 0 and {MAX_USD:,} dollars")
    nano = int((value * NANO_USD).to_integral_value())
    if value and not nano:
        raise BadInput(f"{text}: prices are kept to the nano-dollar, and this is less")
    return nano


def millionths(percent: str) -> int:
    """Return a discount such as `30%` in millionths of a price. Raises BadInput."""
    from pertoken.errors import BadInput

    text = percent.strip()
    if not text.endswith("%"):
        raise BadInput(f"--discount {percent!r}: write percent of the list price, such as 30%")
    value = _number(text.removesuffix("%").strip(), "a discount: write percent of the list price, such as 30%")
    part = int((value * 10_000).to_integral_value()) if value.is_finite() else 0
    if not 0 < part <= 1_000_000:
        raise BadInput(f"--discount {percent}: it is above 0% and at most 100% of the list price")
    return part


def start_ts(text: str, now: int) -> int:
    """Return the instant that a price begins at: `ever` is 0. Raises BadInput."""
    from datetime import UTC, datetime

    from pertoken.errors import BadInput

    if text == "ever":
        return 0
    if text == "now":
        return now // 60 * 60
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"--from {text!r}: write `ever`, `now`, or a time like 2026-11-01T08:00") from None
    return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) // 60 * 60)


def end_ts(text: str | None, from_ts: int, now: int) -> int | None:
    """Return the instant that a price ends at; a date alone counts to its last minute. Raises BadInput."""
    from datetime import UTC, datetime, timedelta

    from pertoken.errors import BadInput

    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"--until {text!r}: write a date like 2026-12-31, or a time like 2026-12-31T18:00") from None
    if len(text) == len("2026-12-31"):
        moment += timedelta(days=1)
    ts = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) // 60 * 60
    if ts <= from_ts:
        raise BadInput(f"--until {text}: it ends before it starts, {since(from_ts, now)}")
    return ts


def since(from_ts: int, now: int) -> str:
    """Return the start of a price as text."""
    if from_ts == 0:
        return "from the beginning"
    return f"{'begins' if from_ts > now else 'from'} {when(from_ts)}"


def period(from_ts: int, until_ts: int | None, now: int) -> str:
    """Return the start of a price, and its end where it has one."""
    if until_ts is None:
        return since(from_ts, now)
    return f"{since(from_ts, now)} {'to' if until_ts > now else 'ended'} {when(until_ts)}"


def per_hour(price: Price) -> str:
    """Return a price as text, in dollars and as it was entered."""
    nano = price.nano_usd_per_device_hour
    if nano is None:
        return "no price"
    from pertoken.text.amounts import amount, currency_values

    other = "" if currency_values() is None else f" ({amount(nano)})"
    entered = "" if price.entered is None else f", entered as {price.entered.text}"
    return f"{_exact(nano)} an hour{other}{entered}"


def _exact(nano: int) -> str:
    """Return dollars to the last nano-dollar, and at least to the cent."""
    dollars, rest = divmod(nano, 10**9)
    return f"${dollars:,}.{f'{rest:09}'[:2]}{f'{rest:09}'[2:].rstrip('0')}"


def set_note(price: Price | Discount) -> str:
    """Return who set a price or a discount, when and why."""
    note = f": {price.note}" if price.note else ""
    return f"(set {when(price.set_ts)} by {price.set_by}{note})"


def when(ts: int) -> str:
    """Return an instant as text."""
    from pertoken.units import format_utc

    return format_utc(ts)


def named(known: Prices, selector: str) -> str:
    """Return a line with the recorded devices that a selector matches, which shows a typo at once."""
    from pertoken.costs.prices.book import accelerators

    devices = known.named(selector)
    if devices:
        return f"It applies to {counted(devices)}."
    if not known.devices:
        return "Nothing was recorded yet; it applies to devices recorded later."
    recorded = ", ".join(dict.fromkeys(device.name for device in known.devices))
    what = "No recorded device matches" if accelerators(selector) else "Nothing recorded or in the catalog matches"
    return f"{what} {selector!r} yet; recorded: {recorded}."


def counted(devices: Sequence[Priced]) -> str:
    """Return devices by name with their numbers."""
    names = [device.name for device in devices]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def no_longer(selector: str, names: Sequence[str]) -> str:
    """Return that a selector has lost devices, and what to do."""
    return (
        f"{selector!r} no longer prices {', '.join(names)}: names match by whole words. Set the price again for the "
        f"device's own name with --from ever, then `pertoken prices unset` this one."
    )
