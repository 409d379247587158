"""Alerts and where they are sent: `[alerts.NAME]`."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from pertoken.settings.expression import FLEET, Comparison, Scope, read_comparison, read_scope
from pertoken.units import parse_duration_s

LOG, MAIL = "log", "mail"
DEFAULT_FOR_S = 300.0
DEFAULT_WINDOW_S = 3600.0
MIN_WINDOW_S = 60.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """One alert."""

    name: str
    when: Comparison
    scope: Scope
    for_s: float
    """How long it must hold before it fires, and how long not before it resolves."""
    window_s: float
    """Telemetry its figure is of."""
    to: tuple[str, ...]
    """`log`, `mail`, and URLs of webhooks."""
    enabled: bool = True
    """Whether it is evaluated. An alert that is not keeps its destinations, so that they learn that it ended."""


def read_alerts(value: object) -> tuple[AlertSettings, ...]:
    """Return the alerts of a setting, by name. Raises ValueError naming the table and key that is wrong."""
    if not isinstance(value, dict) or not all(isinstance(row, dict) for row in value.values()):
        raise ValueError("must be tables by name, each written [alerts.NAME]")
    return tuple(_alert(name, row) for name, row in value.items())


def _alert(name: str, row: dict[str, object]) -> AlertSettings:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r}: a name is letters, digits, - and _, at most 64")
    readers = {
        "when": read_comparison,
        "scope": read_scope,
        "for": lambda value: _seconds(value, 0.0),
        "window": lambda value: _seconds(value, MIN_WINDOW_S),
        "to": read_destinations,
        "enabled": _flag,
    }
    values: dict[str, object] = {}
    for key, text in row.items():
        if key not in readers:
            raise ValueError(f"{name}.{key}: no such key; there are {', '.join(readers)}")
        try:
            values[key] = readers[key](text)
        except ValueError as error:
            raise ValueError(f"{name}.{key}: {error}") from None
    when = values.get("when")
    if not isinstance(when, Comparison):
        raise ValueError(f"{name}.when: is missing")
    scope, written = values.get("scope"), when.scope
    if scope is not None and written is not None and scope != written:
        raise ValueError(f"{name}.scope: differs from the one in `when`; give one of them")
    chosen = scope or written or FLEET
    assert isinstance(chosen, Scope)
    for_s, window_s, to = values.get("for"), values.get("window"), values.get("to")
    return AlertSettings(
        name,
        Comparison(when.figure, when.operator, when.limit, chosen),
        chosen,
        for_s if isinstance(for_s, float) else DEFAULT_FOR_S,
        window_s if isinstance(window_s, float) else DEFAULT_WINDOW_S,
        to if isinstance(to, tuple) else (LOG,),
        values.get("enabled") is not False,
    )


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _seconds(value: object, low: float) -> float:
    if not isinstance(value, str):
        raise ValueError("must be a duration such as 15m")
    seconds = parse_duration_s(value)
    if seconds < low:
        raise ValueError(f"must be at least {low:.0f}s")
    return seconds


def read_destinations(value: object) -> tuple[str, ...]:
    """Return `log`, `mail` and URLs of webhooks. Raises ValueError; a URL, which may be secret, is not repeated."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of log, mail and https:// URLs")
    return tuple(item if item in (LOG, MAIL) else webhook_url(item) for item in items)


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
    parts = urlsplit(destination)
    return (
        f"{parts.scheme}://{parts.netloc}/***"
        if parts.path.strip("/") or parts.query or parts.fragment
        else destination
    )
