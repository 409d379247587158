"""Settings of the team's pages: who reads them, by which login, and which proxies vouch for a user."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass


def read_listen(value: object) -> tuple[str, int]:
    """Return (address, port) of `127.0.0.1:9877`, `[::1]:9877`, or of a port alone, which is of 127.0.0.1."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise ValueError("must be an address and a port, such as 127.0.0.1:9877")
    host, _, port = text.strip().rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    try:
        number = int(port)
        ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ValueError("must be an address and a port, such as 127.0.0.1:9877") from None
    if not 0 <= number <= 65_535:
        raise ValueError("must have a port from 0 (any that is free) to 65535")
    return host, number


def is_loopback(host: str) -> bool:
    """Return whether only this host reaches an address."""
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


_KEYS = {"token_file", "user", "owners"}
_HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True)
class PageReader:
    """One login to the pages: a token in a file, or a user that a proxy names."""

    token_file: str | None = None
    user: str | None = None
    owners: tuple[str, ...] | None = None
    """Owners whose services it reads; None: everything."""


def read_readers(value: object) -> tuple[PageReader, ...]:
    """Return the readers of a setting. Raises ValueError naming the table and key that is wrong."""
    if not isinstance(value, list | tuple) or not all(isinstance(row, dict) for row in value):
        raise ValueError("must be a list of tables with token_file or user, and owners")
    return tuple(_reader(number, row) for number, row in enumerate(value, 1))


def _reader(number: int, row: dict[str, object]) -> PageReader:
    if unknown := sorted(set(row) - _KEYS):
        raise ValueError(f"reader {number}: {unknown[0]} is not one of {', '.join(sorted(_KEYS))}")
    login = {name: row[name] for name in ("token_file", "user") if name in row}
    if len(login) != 1:
        raise ValueError(f"reader {number}: must have token_file or user, and not both")
    ((name, text),) = login.items()
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"reader {number}: {name} must be text")
    owners = row.get("owners")
    if owners is not None:
        if not isinstance(owners, list) or not all(isinstance(owner, str) and owner.strip() for owner in owners):
            raise ValueError(f"reader {number}: owners must be a list of owners of [services]")
        owners = tuple(owner.strip() for owner in owners)
    return PageReader(**{name: text.strip()}, owners=owners)


def read_networks(items: object) -> tuple[str, ...]:
    """Return addresses and networks. Raises ValueError for a network of all addresses, which nobody vouches for."""
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of addresses and networks, such as 10.0.0.7 and 10.0.1.0/28")
    for item in items:
        try:
            network = ipaddress.ip_network(item.strip())
        except ValueError:
            raise ValueError(f"{item!r} is not an address or a network, such as 10.0.0.7 and 10.0.1.0/28") from None
        if network.prefixlen == 0:
            raise ValueError(f"{item} has every address: anybody could name a user")
    return tuple(item.strip() for item in items)


def read_header_name(value: object) -> str:
    """Return the name of an HTTP header."""
    if not isinstance(value, str) or not _HEADER_NAME.fullmatch(value):
        raise ValueError("must be the name of a header, such as X-Forwarded-User")
    return value


def unsafe_pages(
    host: str, readers: Sequence[PageReader], proxies: Collection[str], cert_file: str | None
) -> str | None:
    """Return why pages are not served at an address with these settings; None if they are safe to serve."""
    if not is_loopback(host):
        if not readers:
            return f"{host} is no loopback address: set advisor.pages_readers, too"
        if cert_file is None and not proxies:
            return f"{host} is no loopback address: set advisor.pages_cert_file, or advisor.pages_proxies to end TLS"
    if proxies and not readers:
        return "advisor.pages_proxies name users: set advisor.pages_readers, too"
    if any(reader.user is not None for reader in readers) and not proxies:
        return "a user of advisor.pages_readers is named by a proxy: set advisor.pages_proxies, too"
    return None


THEMES = ("dark", "light", "16-colour")
"""Colours of the screens; `16-colour` uses those of the terminal."""
BORDERS = ("unicode", "ascii")
"""Characters that lines, bars and plots are drawn with."""
HEADLINES = ("blended", "generated", "per_request", "good")
"""Prices that may be the headline, which `metrics.HEADLINES` explains."""
REFRESHES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Times between two readings that the settings screen offers, seconds."""
_ACTION = re.compile(r"[a-z_]+")


def one_of(names: tuple[str, ...]) -> Callable[[object], str]:
    """Return a parser of one of some names."""

    def parse(value: object) -> str:
        if value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return str(value)

    return parse


def read_keys(table: object) -> tuple[tuple[str, str], ...]:
    """Return (action, key) of a table such as `{sort = "s"}`. Whether both exist is checked by the screens."""
    if not isinstance(table, Mapping):
        raise ValueError('must be a table of actions and keys, such as {sort = "s"}')
    for action, key in table.items():
        if not _ACTION.fullmatch(action):
            raise ValueError(f"{action}: is not an action; docs/keys.md lists them")
        if not isinstance(key, str) or not key.strip() or len(key) > 40:
            raise ValueError(f'{action}: must be a key, such as "s", "ctrl+s" or "f5"')
    return tuple((action, key.strip()) for action, key in table.items())
