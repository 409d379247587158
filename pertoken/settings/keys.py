"""Keys of the settings: their names in the file, the environment and on the command line, and how values are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pertoken.errors import BadInput
from pertoken.printable import short
from pertoken.settings import values
from pertoken.settings.alerts import Comparison, Scope, masked
from pertoken.settings.values import without_password

APP = "pertoken"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: its attribute of `Settings`, its place in the file, its environment variable."""

    attribute: str
    section: str
    key: str
    environment: str
    default: Any
    example: str
    parse: Any
    option: str
    """As typed on the command line, by the commands that have it: `--interval`."""

    @classmethod
    def of(cls, spec: Field[Any]) -> Setting:
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


def parsed(key: Setting, value: Any, where: str) -> Any:
    """Return a value as its key reads it. `where` is the place that an error names.

    Raises BadInput for a value that the key refuses.
    """
    try:
        if isinstance(value, str) and values.CONTROL.search(value):
            raise values.Unrepeated("must be UTF-8 text without control characters")
        return key.parse(value)
    except values.Unrepeated as error:
        raise BadInput(f"{where}: {error}") from None
    except ValueError as error:
        raise BadInput(f"{where}: {short(str(error))} (got {short(repr(value))})") from None


def refuse_unknown(table: Mapping[str, Any], keys: Sequence[Setting], file: Path) -> None:
    """Raise BadInput for the first key of a settings file that is none of `keys`, naming the nearest one."""
    sections = {key.section for key in keys if key.section}
    known = {(key.section, key.key) for key in keys}
    for name, value in table.items():
        if name in sections:
            if not isinstance(value, dict):
                raise BadInput(f"{file}: {name}: must be a section, written [{name}]")
            for key in value:
                if (name, key) not in known:
                    raise BadInput(f"{file}: {name}.{key}: no such setting{_nearest(key, name, keys)}")
        elif ("", name) not in known:
            raise BadInput(f"{file}: {name}: no such setting{_nearest(name, '', keys)}")


def _nearest(wrong: str, section: str, keys: Sequence[Setting]) -> str:
    from difflib import get_close_matches

    names = {key.key: key.name for key in keys if key.section == section} | {key.name: key.name for key in keys}
    close = get_close_matches(wrong, list(names), n=1)
    return f" (did you mean {names[close[0]]}?)" if close else ""


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
