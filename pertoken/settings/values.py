"""Values of settings as they are read from a file, the environment or an option, each checked.

Every function takes what was written and returns the value, or raises ValueError with what it must be.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import TypeVar

from pertoken.access import Access, read_access
from pertoken.settings import fleet
from pertoken.settings.alerts import read_destinations, webhook_url
from pertoken.settings.fleet import PlugSource, read_plug_sources
from pertoken.settings.owners import LABEL_NAME
from pertoken.settings.pages import one_of, read_networks
from pertoken.units import format_duration, parse_duration_s

T = TypeVar("T")
PROBES = ("nvidia", "amd", "gaudi")
"""Vendors whose devices the agent can read; the host and its CPUs are always read."""
TLS = ("verify-full", "verify-ca", "require", "disable")
"""How far a server's certificate is believed, in libpq's words."""
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and what Python makes of bytes that are not UTF-8; tables may hold tabs and line ends."""


class Unrepeated(ValueError):
    """A mistake in a value that may hold a secret: the message does not show it."""


def text(value: object) -> str:
    """Return text without the blanks around it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text")
    return value.strip()


def secret(read: Callable[[object], T]) -> Callable[[object], T]:
    """Return a parser with messages that do not show the value."""

    def parse(value: object) -> T:
        try:
            return read(value)
        except ValueError as error:
            raise Unrepeated(str(error)) from None

    return parse


secret_text = secret(text)
secret_webhook = secret(lambda value: webhook_url(text(value)))
secret_destinations = secret(read_destinations)


def without_password(url: str) -> str:
    """Return a database's folder or URL as it may be shown, however it is written."""
    shown = re.sub(r"^([A-Za-z0-9+.]+:/*[^:/@?]*):.*@", r"\1:***@", url)
    return re.sub(r"(password=)[^&]*", r"\1***", shown)


def flag(value: object) -> bool:
    """Return a truth value, also of the words people write for one."""
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError("must be true or false")


def seconds(value: object, least: float) -> float:
    """Return a duration in seconds, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a duration such as 10s, 5m or 24h")
    number = parse_duration_s(value) if isinstance(value, str) else float(value)
    if number < least:
        raise ValueError(f"must be at least {format_duration(least) if least >= 1 else f'{1000 * least:g}ms'}")
    return number


def interval(value: object) -> int:
    """Return whole seconds that divide a minute."""
    number = seconds(value, 1)
    if number != int(number) or 60 % int(number):
        raise ValueError("must be whole seconds that divide a minute: 1s, 2s, 5s, 10s, 15s, 20s, 30s or 60s")
    return int(number)


def window(value: object) -> float:
    """Return a duration of at least a minute, in seconds."""
    return seconds(value, 60)


def age(value: object) -> float:
    """Return a duration of at least an hour, in seconds."""
    return seconds(value, 3600)


def at_least(value: object, low: int) -> float:
    """Return a number that is not below `low`."""
    number = positive(value)
    if number < low:
        raise ValueError(f"must be at least {low}")
    return number


def toml(text: str) -> dict[str, object]:
    """Return TOML as a table. Raises TOMLDecodeError, also where it is nested too deeply to be read."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("nested too deeply") from None


def items_of(value: object) -> object:
    """Return the items of a text, as in TOML (`["a", "b"]`, `[]`) or with commas between; anything else as it is."""
    if not isinstance(value, str):
        return value
    if not value.strip().startswith("["):
        return [part.strip() for part in value.split(",") if part.strip()]
    try:
        return toml(f"items = {value}")["items"]
    except tomllib.TOMLDecodeError:
        return None


def urls(value: object) -> tuple[str, ...]:
    """Return base URLs, see `base_url`."""
    items = items_of(value)
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of base URLs")
    return tuple(base_url(item) for item in items)


def texts(what: str) -> Callable[[object], tuple[str, ...]]:
    """Return a parser of a list of texts; `what` names them in messages."""

    def parse(value: object) -> tuple[str, ...]:
        items = items_of(value)
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item.strip() for item in items):
            raise ValueError(f"must be a list of {what}")
        return tuple(item.strip() for item in items)

    return parse


def pod_labels(value: object) -> tuple[str, ...]:
    """Return names of pod labels."""
    names = texts("names of pod labels")(value)
    for name in names:
        if not LABEL_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a pod label, such as team or app.kubernetes.io/part-of")
    return names


def forbidden(value: object) -> tuple[str, ...]:
    """Return names of changes that are never proposed."""
    return fleet.read_forbidden(items_of(value))


def access(value: object) -> tuple[Access, ...]:
    """Return what opens servers that want a token or a certificate."""
    try:
        rows = toml(f"rows = {value}")["rows"] if isinstance(value, str) else value
        return tuple(replace(access, url=base_url(access.url)) for access in read_access(rows))
    except tomllib.TOMLDecodeError:
        raise Unrepeated("must be a list of tables as in TOML: [{url = ..., token_file = ...}]") from None
    except ValueError as error:
        raise Unrepeated(str(error)) from None


def tables(read: Callable[[object], T]) -> Callable[[object], T]:
    """Return a parser of tables, which an environment variable holds as inline TOML. Messages name the wrong key."""

    def parse(value: object) -> T:
        try:
            rows = toml(f"tables = {value}")["tables"] if isinstance(value, str) else value
        except tomllib.TOMLDecodeError:
            raise Unrepeated("must be tables as in TOML, on one line") from None
        return secret(read)(rows)

    return parse


def plug_sources(value: object) -> tuple[PlugSource, ...]:
    """Return what measures the power of a server, see `agent.plug`."""
    sources = read_plug_sources(texts("sources of power")(value))
    return tuple(replace(source, url=base_url(source.url) if source.url else "") for source in sources)


def networks(value: object) -> tuple[str, ...]:
    """Return addresses and networks of proxies."""
    return read_networks(items_of(value))


def probes(value: object) -> tuple[str, ...]:
    """Return names of probes, see `PROBES`."""
    items = items_of(value)
    if not isinstance(items, list | tuple):
        raise ValueError(f"must be a list of probes: {', '.join(PROBES)}")
    for item in items:
        if item not in PROBES:
            raise ValueError(f"{item!r} is not a probe: there are {', '.join(PROBES)}")
    return tuple(items)


tls = one_of(TLS)


def marks(value: object) -> int:
    """Return a number of dirty marks, at least 1000."""
    number = positive(value)
    if number != int(number) or number < 1000:
        raise ValueError("must be a whole number of at least 1000")
    return int(number)


def base_url(value: str) -> str:
    """Return a base URL without its trailing slash, checked.

    Raises ValueError if it is not http(s)://host[:port][/path], without repeating one that holds a password.
    """
    from urllib.parse import urlsplit

    parts = urlsplit(value.strip())
    if "@" in parts.netloc:
        raise Unrepeated("a base URL must not hold a user name or password: use agent.access")
    try:
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if parts.query or parts.fragment:
        raise Unrepeated("a base URL must not hold a query, which may be a key: use agent.access")
    if not usable:
        raise ValueError(f"{value!r} is not a base URL: write it like http://127.0.0.1:8000")
    return value.strip().rstrip("/")


def positive(value: object) -> float:
    """Return a finite number above 0."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError("must be a number") from None
    if isinstance(value, bool) or not 0 < number < float("inf"):
        raise ValueError("must be a number above 0")
    return number


def thresholds(value: object) -> tuple[float, ...]:
    """Return shares of a budget, rising."""
    items = items_of(value)
    if not isinstance(items, list | tuple) or not items:
        raise ValueError("must be a list of shares of the budget, like [0.8, 1.0]")
    shares = tuple(sorted({positive(item) for item in items}))
    if shares[-1] > 10:
        raise ValueError("must be shares of the budget, of which 1.0 is all of it")
    return shares


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
    published = fleet.date_of(day)
    if published is None:
        raise ValueError(f"{where}.date: must be a date such as 2026-11-01")
    if type(per_usd) not in (int, float) or not 0 < per_usd < float("inf"):  # type: ignore[operator]
        raise ValueError(f"{where}.per_usd: must be a number above 0: units of the currency for one US dollar")
    if not isinstance(source, str) or not source.strip():
        raise ValueError(f"{where}.source: must be text: where the rate was published")
    return Rate(published, Decimal(str(per_usd)), source.strip())
