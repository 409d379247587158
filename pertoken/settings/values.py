"""Values of settings as they are read from a file, the environment or an option, each checked.

Every function takes what was written and returns the value, or raises ValueError with what it must be.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from pertoken.access import Access, read_access
from pertoken.errors import BadInput
from pertoken.printable import short
from pertoken.settings import fleet
from pertoken.settings.alerts import FigureLimit, FigureScope, masked, read_destinations, webhook_url
from pertoken.settings.fleet import PlugSource, one_of, read_networks, read_plug_sources
from pertoken.settings.owners import LABEL_NAME
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
class CurrencyRate:
    """Value of a US dollar on a day."""

    day: date
    per_usd: Decimal
    """Units of the currency for one US dollar."""
    source: str


@dataclass(frozen=True, slots=True)
class Currency:
    """A currency with its rates."""

    code: str = USD
    rates: tuple[CurrencyRate, ...] = ()

    def on(self, day: date) -> CurrencyRate | None:
        """Return the newest rate that is not later than a day; None if there is none."""
        return max((rate for rate in self.rates if rate.day <= day), key=lambda rate: rate.day, default=None)


def read_code(value: object) -> str:
    """Return the code of a currency. Raises ValueError."""
    code = value.strip().upper() if isinstance(value, str) else ""
    if not _CODE.fullmatch(code):
        raise ValueError('must be a currency code of three letters (ISO 4217), such as "EUR"')
    return code


def read_rates(value: object) -> tuple[CurrencyRate, ...]:
    """Return rates, oldest first. Raises ValueError for one that is incomplete, and for two of one day."""
    rows = enumerate(fleet.list_of_tables(value, "currency.rates"), 1)
    rates = tuple(sorted((_rate(number, row) for number, row in rows), key=lambda rate: rate.day))
    for earlier, later in pairwise(rates):
        if earlier.day == later.day:
            raise ValueError(f"two rates of {later.day}: keep one of them")
    return rates


def _rate(number: int, row: dict[str, object]) -> CurrencyRate:
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
    return CurrencyRate(published, Decimal(str(per_usd)), source.strip())


APP = "pertoken"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: its attribute of `Settings`, its place in the file, its environment variable."""

    attribute: str
    section: str
    key: str
    environment: str
    default: object
    example: str
    parse: Callable[[object], object]
    option: str
    """As typed on the command line, by the commands that have it: `--interval`."""

    @classmethod
    def of(cls, spec: Field[object]) -> Setting:
        """Return the key a field of `Settings` stands for."""
        section = spec.metadata["section"]
        key = spec.name.removeprefix(f"{section}_") if section else spec.name
        return cls(
            attribute=spec.name,
            section=section,
            key=key,
            environment=f"{APP}_{spec.name}".upper(),
            default=spec.default,
            example=spec.metadata["example"],
            parse=spec.metadata["parse"],
            option=spec.metadata.get("option", f"--{key.replace('_', '-')}"),
        )

    @property
    def name(self) -> str:
        """As written in messages: `agent.interval`."""
        return f"{self.section}.{self.key}" if self.section else self.key


def parsed(key: Setting, value: object, where: str) -> object:
    """Return a value as its key reads it. `where` is the place that an error names.

    Raises BadInput for a value that the key refuses.
    """
    try:
        if isinstance(value, str) and CONTROL.search(value):
            raise Unrepeated("must be UTF-8 text without control characters")
        return key.parse(value)
    except Unrepeated as error:
        raise BadInput(f"{where}: {error}") from None
    except ValueError as error:
        raise BadInput(f"{where}: {short(str(error))} (got {short(repr(value))})") from None


def refuse_unknown(table: Mapping[str, object], keys: Sequence[Setting], file: Path) -> None:
    """Raise BadInput for the first key of a settings file that is none of `keys`, naming the nearest one."""
    sections = {key.section for key in keys if key.section}
    key_names = {(key.section, key.key) for key in keys}
    for name, value in table.items():
        if name in sections:
            if not isinstance(value, dict):
                raise BadInput(f"{file}: {name}: must be a section, written [{name}]")
            for key in value:
                if (name, key) not in key_names:
                    raise BadInput(f"{file}: {name}.{key}: no such setting{_nearest(key, name, keys)}")
        elif ("", name) not in key_names:
            raise BadInput(f"{file}: {name}: no such setting{_nearest(name, '', keys)}")


def _nearest(wrong: str, section: str, keys: Sequence[Setting]) -> str:
    from difflib import get_close_matches

    names = {key.key: key.name for key in keys if key.section == section} | {key.name: key.name for key in keys}
    close = get_close_matches(wrong, list(names), n=1)
    return f" (did you mean {names[close[0]]}?)" if close else ""


WEBHOOKS = ("delivery.webhook", "delivery.alerts_to", "alerts.to")
"""Settings whose URLs are secret but for their host."""
DATABASES = ("db", "ship.url")


def shown(name: str, value: object) -> object:
    """Return the value of the setting `name` as plain values: what is unset in a table is left out."""
    if isinstance(value, FigureLimit | FigureScope):
        return str(value)
    if is_dataclass(value):
        row = {field.name: getattr(value, field.name) for field in fields(value)}
        return {key: shown(f"{name}.{key}", cell) for key, cell in row.items() if cell not in (None, "")}
    if isinstance(value, Mapping):
        return {str(key): shown(name, cell) for key, cell in value.items()}
    if isinstance(value, tuple | list):
        return [shown(name, item) for item in value]
    if not isinstance(value, str):  # dates and decimals become text
        return value if value is None or isinstance(value, bool | int | float) else str(value)
    if name in WEBHOOKS:
        return masked(value)
    return without_password(value) if name in DATABASES else secretless(value)


def secretless(text: str) -> str:
    """Return text without the password, query and fragment of a URL, or the password of `user:password@host`."""
    text = re.sub(r"((?:^|//)[^/@:\s]*):[^/\s]*@", r"\1:***@", text)
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return "***"
    return parts._replace(query="***" if parts.query else "", fragment="***" if parts.fragment else "").geturl()


_KINDS: Mapping[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple[str, ...]: "a list of texts",
}


def option(default: Any, meaning: str, *, low: float | None = None, high: float | None = None) -> Any:
    """Declare a field of an options dataclass: `few_running: int = option(16, "requests per device", low=0)`.

    The annotation is `bool`, `int`, `float`, `str`, `tuple[str, ...]` or a `Literal` of texts. A number that only a
    person knows is `int | None` or `float | None` with the default None. `low` and `high` bound a number, both
    included. A plain default (`few_running: int = 16`) is an option without a meaning or bounds.
    """
    return field(default=default, metadata={"meaning": meaning, "low": low, "high": high})


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, type, default, meaning and allowed values."""

    name: str
    type: object
    default: object
    meaning: str = ""
    low: float | None = None
    high: float | None = None
    optional: bool = False
    """Whether it is None, not known, until a person sets it."""

    @property
    def domain(self) -> str:
        """Allowed values in words: `a whole number from 1 to 64`."""
        if get_origin(self.type) is Literal:
            return f"one of {', '.join(get_args(self.type))}"
        low = None if self.low is None else f"{self.low:g}"
        high = None if self.high is None else f"{self.high:g}"
        match low, high:
            case None, None:
                return _KINDS[self.type]
            case _, None:
                return f"{_KINDS[self.type]}, {low} or more"
            case None, _:
                return f"{_KINDS[self.type]}, {high} or less"
        return f"{_KINDS[self.type]} from {low} to {high}"

    def check(self, value: object) -> object:
        """Return a value of the configuration file as the dataclass holds it. Raises ValueError with the domain."""
        if self.type is float:
            if (type(value) is int or type(value) is float) and math.isfinite(value) and self._in_range(value):
                return float(value)
        elif self.type is int:
            if type(value) is int and self._in_range(value):
                return value
        elif self.type == tuple[str, ...]:
            if isinstance(value, list | tuple) and all(type(item) is str for item in value):
                return tuple(value)
        elif type(value) is self.type or (type(value) is str and value in get_args(self.type)):
            return value
        raise ValueError(f"{self.name}: must be {self.domain} (got {value!r})")

    def _in_range(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


def options_of(kind: type) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in its order.

    Raises ValueError for what is no frozen dataclass, a field of another type or without a default, or a default that
    is outside its own bounds.
    """
    if not is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ValueError(f"{getattr(kind, '__name__', kind)} must be a frozen dataclass: @dataclass(frozen=True)")
    hints = get_type_hints(kind)
    options = []
    for declared in fields(kind):
        hint, optional = _without_none(hints[declared.name])
        words = get_args(hint) if get_origin(hint) is Literal else ()
        if hint not in _KINDS and not (words and all(type(word) is str for word in words)):
            kinds = "bool, int, float, str, tuple[str, ...], a Literal of texts, int | None or float | None"
            raise ValueError(f"option {declared.name}: use {kinds}")
        if declared.default is MISSING:
            raise ValueError(f"option {declared.name} needs a default")
        bounds = {name: declared.metadata.get(name) for name in ("low", "high")}
        option = Option(
            declared.name, hint, declared.default, declared.metadata.get("meaning", ""), **bounds, optional=optional
        )
        try:
            if not (optional and declared.default is None):
                option.check(option.default)
        except ValueError as error:
            raise ValueError(f"option {error}: its default is not allowed") from None
        options.append(option)
    return tuple(options)


def _without_none(hint: object) -> tuple[object, bool]:
    """Return the type of an option that may be unknown, `float | None`, without its None."""
    types = [argument for argument in get_args(hint) if argument is not NoneType]
    number = types[0] if len(types) == 1 and len(get_args(hint)) == 2 else None
    return (number, True) if number in (int, float) else (hint, False)


def read_options(kind: type[T], values: Mapping[str, object]) -> T:
    """Return an instance of an options dataclass with these values, its defaults elsewhere.

    Raises ValueError that begins with the key that is unknown or of another type or range.
    """
    declared = {option.name: option for option in options_of(kind)}
    checked = {}
    for name, value in values.items():
        if name not in declared:
            raise ValueError(f"{name}: no such option; there are {', '.join(declared)}")
        checked[name] = declared[name].check(value)
    return kind(**checked)


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Values that a person set for one rule: `[rules.quantize-weights]`."""

    rule_id: str
    options: dict[str, object]
    """Plain values, which the rule's own dataclass checks once the rule is loaded."""


def read_rules(value: object) -> tuple[RuleSettings, ...]:
    """Return the tables of a setting, by rule id.

    Raises ValueError for what is no table by id, or a value that no option can have.
    """
    if not isinstance(value, dict) or not all(isinstance(row, dict) for row in value.values()):
        raise ValueError("must be tables by rule id, each written [rules.ID]")
    for rule_id, row in value.items():
        for key, text in row.items():
            texts = isinstance(text, list) and all(isinstance(item, str) for item in text)
            if not isinstance(text, bool | int | float | str) and not texts:
                raise ValueError(f"{rule_id}.{key}: must be true or false, a number, text or a list of texts")
    return tuple(RuleSettings(rule_id, dict(row)) for rule_id, row in value.items())
