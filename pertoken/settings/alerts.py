"""Alerts, those of the settings and those that need none, and where they are sent: `[alerts.NAME]`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from pertoken.settings.fleet import one_of, read_flag, read_row, tables_by_name
from pertoken.settings.owners import BASES, is_basis
from pertoken.units import parse_duration_s

MAX_LENGTH = 200
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda value, limit: value > limit,
    ">=": lambda value, limit: value >= limit,
    "<": lambda value, limit: value < limit,
    "<=": lambda value, limit: value <= limit,
}
KINDS = ("fleet", "service", "model", "host")
"""What figures may be of, beside owners."""
_COMPARISON = re.compile(
    r"\s*(?P<figure>[a-z][a-z0-9_]*)\s*(?:\[(?P<scope>[^\]]*)\])?\s*(?P<operator>>=|<=|>|<)"
    r"\s*(?P<limit>-?[0-9]+(?:\.[0-9]+)?)\s*(?P<percent>%)?\s*"
)


@dataclass(frozen=True, slots=True)
class FigureScope:
    """The fleet, or the service, model, host or owner that a figure is of."""

    kind: str = "fleet"
    target: str = "*"
    """Name, or `*` for each."""

    def covers(self, name: str) -> bool:
        """Return whether a target is meant."""
        return self.target in ("*", name)

    def __str__(self) -> str:
        return self.kind if self.kind == "fleet" else f"{self.kind}={self.target}"


FLEET = FigureScope()


@dataclass(frozen=True, slots=True)
class FigureLimit:
    """A figure, an operator and a limit."""

    figure: str
    operator: str
    limit: float
    scope: FigureScope | None = None
    """None: none was written."""

    def holds(self, value: float) -> bool:
        """Return whether the comparison is true of a value."""
        return OPERATORS[self.operator](value, self.limit)

    def __str__(self) -> str:
        scope = "" if self.scope is None else f"[{self.scope}]"
        return f"{self.figure}{scope} {self.operator} {self.limit:g}"


def read_comparison(text: object) -> FigureLimit:
    """Return the comparison that a text is. Raises ValueError with the accepted form."""
    match = _COMPARISON.fullmatch(text) if isinstance(text, str) and len(text) <= MAX_LENGTH else None
    if match is None:
        raise ValueError("must compare a figure with a number, such as 'usd_per_mtok > 2.5' or 'idle_share >= 40%'")
    limit = float(match["limit"]) / (100 if match["percent"] else 1)
    scope = None if match["scope"] is None else read_scope(match["scope"])
    return FigureLimit(match["figure"], match["operator"], limit, scope)


def read_scope(text: object) -> FigureScope:
    """Return a scope: `fleet`, `service=chat`, `host=*`, `namespace=prod`. Raises ValueError with all forms."""
    kind, _, target = text.partition("=") if isinstance(text, str) else ("", "", "")
    kind, target = kind.strip(), target.strip()
    if (kind not in KINDS and not is_basis(kind)) or (kind == "fleet") == bool(target):
        raise ValueError(
            f"must be fleet, service=NAME, model=NAME, host=NAME or an owner ({', '.join(BASES)} or label:NAME, "
            "such as namespace=prod), with * for each"
        )
    return FLEET if kind == "fleet" else FigureScope(kind, target)


LOG, MAIL = "log", "mail"
CHATS = ("slack", "teams", "pagerduty", "opsgenie")
"""Services with a payload of their own, written before the URL: `slack:https://hooks.slack.com/services/...`."""
KEYED = ("pagerduty", "opsgenie")
"""Those of which the key is written after the URL: `pagerduty:https://events.pagerduty.com/v2/enqueue#KEY`."""
SEVERITIES = ("critical", "warning")
DEFAULT_FOR_S = 300.0
DEFAULT_WINDOW_S = 3600.0
MIN_WINDOW_S = 60.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """One alert."""

    name: str
    when: FigureLimit
    scope: FigureScope
    for_s: float
    """How long it must hold before it fires, and how long not before it resolves."""
    window_s: float
    """Telemetry its figure is of."""
    to: tuple[str, ...] = ()
    """`log`, `mail`, and URLs of webhooks and of `CHATS`; empty: those of `delivery.alerts_to`."""
    enabled: bool = True
    """Whether it is evaluated. An alert that is not keeps its destinations, so that they learn that it ended."""
    severity: str = "warning"
    """One of `SEVERITIES`."""


def read_alerts(value: object) -> tuple[AlertSettings, ...]:
    """Return the alerts of a setting, by name. Raises ValueError naming the table and key that is wrong."""
    return tuple(_alert(name, row) for name, row in tables_by_name(value, "alerts.NAME"))


def watched_alerts(alerts: Sequence[AlertSettings], to: tuple[str, ...], *, budget: bool) -> tuple[AlertSettings, ...]:
    """Return the alerts of the settings and the default ones, each with its destinations.

    `to`: destinations of alerts that name none. The alert on the budget needs one.
    """
    defaults = [alert for alert in DEFAULTS.values() if budget or alert.name != BUDGET]
    merged = {alert.name: alert for alert in (*defaults, *alerts)}
    return tuple(alert if alert.to else replace(alert, to=to) for alert in merged.values())


def _alert(name: str, row: Mapping[str, object]) -> AlertSettings:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r}: a name is letters, digits, - and _, at most 64")
    readers = {
        "when": read_comparison,
        "scope": read_scope,
        "for": lambda value: _seconds(value, 0.0),
        "window": lambda value: _seconds(value, MIN_WINDOW_S),
        "to": read_destinations,
        "enabled": read_flag,
        "severity": one_of(SEVERITIES),
    }
    values = read_row(name, row, readers)
    default = DEFAULTS.get(name)
    when = values.get("when", default.when if default else None)
    if not isinstance(when, FigureLimit):
        raise ValueError(f"{name}.when: is missing")
    scope, written = values.get("scope"), when.scope
    if scope is not None and written is not None and scope != written and "when" in values:
        raise ValueError(f"{name}.scope: differs from the one in `when`; give one of them")
    chosen = scope or written or FLEET
    assert isinstance(chosen, FigureScope)
    base = default or AlertSettings(name, when, chosen, DEFAULT_FOR_S, DEFAULT_WINDOW_S)
    keys = {"for": "for_s", "window": "window_s", "to": "to", "enabled": "enabled", "severity": "severity"}
    given = {field: values[key] for key, field in keys.items() if key in values}
    return replace(base, when=FigureLimit(when.figure, when.operator, when.limit, chosen), scope=chosen, **given)


def _seconds(value: object, low: float) -> float:
    if not isinstance(value, str):
        raise ValueError("must be a duration such as 15m")
    seconds = parse_duration_s(value)
    if seconds < low:
        raise ValueError(f"must be at least {low:.0f}s")
    return seconds


def read_destinations(value: object) -> tuple[str, ...]:
    """Return `log`, `mail` and URLs of webhooks and chats. Raises ValueError; a URL, which may be secret, is not
    repeated."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items or not all(isinstance(item, str) for item in items):
        raise ValueError(
            f"must be a list of log, mail, https:// URLs, and such URLs after {', '.join(CHATS)} and a colon"
        )
    return tuple(item if item in (LOG, MAIL) else _destination(item) for item in items)


def chat_of(destination: str) -> tuple[str | None, str]:
    """Return which of `CHATS` a destination is written for, None for a webhook of your own, and its URL."""
    kind, colon, url = destination.partition(":")
    return (kind, url) if colon and kind in CHATS else (None, destination)


def _destination(text: str) -> str:
    kind, url = chat_of(text)
    webhook_url(url)
    if kind in KEYED and not urlsplit(url).fragment:
        raise ValueError(f"{kind}: write the key behind the URL, after a #")
    return text


def webhook_url(text: str) -> str:
    """Return the URL of a webhook. Raises ValueError, which does not repeat it."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("must be log, mail or a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("must be log, mail or an http:// or https:// URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL holds no user or password here: sign with delivery.secret_file")
    if parts.scheme == "http" and not is_own_address(parts.hostname):
        raise ValueError("must be https:// but for an address of your own network")
    return text


def is_own_address(host: str) -> bool:
    """Return whether a host is written as an address that is not public, or as localhost: a person's own choice."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def masked(destination: str) -> str:
    """Return a destination without what may be secret in it: the path, query and fragment of a URL."""
    if destination in (LOG, MAIL):
        return destination
    kind, url = chat_of(destination)
    parts = urlsplit(url)
    has_secret = parts.path.strip("/") or parts.query or parts.fragment
    return f"{f'{kind}:' if kind else ''}{f'{parts.scheme}://{parts.netloc}/***' if has_secret else url}"


def _default(name: str, when: str, for_s: float, severity: str) -> AlertSettings:
    comparison = read_comparison(when)
    scope = comparison.scope or FLEET
    return AlertSettings(name, replace(comparison, scope=scope), scope, for_s, DEFAULT_WINDOW_S, severity=severity)


BUDGET = "over-budget"
DEFAULTS = {
    alert.name: alert
    for alert in (
        _default("stuck", "stuck[model=*] > 0", 60.0, "critical"),
        _default("telemetry-lost", "telemetry_lost[host=*] > 0", 120.0, "critical"),
        _default("slo-missed", "slo_ratio[service=*] > 1", 900.0, "warning"),
        _default(BUDGET, "budget_expected_share > 1", 3600.0, "warning"),
        _default("price-lost", "price_lost > 0", 900.0, "warning"),
    )
}
"""Alerts that need no settings, by name. A table of the same name in the settings changes one (times are judgement)."""
