"""Settings as plain values for people, without what is secret in them."""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from urllib.parse import urlsplit

from pertoken.settings.alerts import masked
from pertoken.settings.expression import Comparison, Scope
from pertoken.settings.values import without_password

WEBHOOKS = ("delivery.webhook", "delivery.alerts_to", "alerts.to")
"""Settings whose URLs are secret but for their host."""
DATABASES = ("db", "ship.url")


def shown(name: str, value: Any) -> Any:
    """Return the value of the setting `name` as plain values: what is unset in a table is left out."""
    if isinstance(value, Comparison | Scope):
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
