"""Settings of the team's pages: who reads them, by which login, and which proxies vouch for a user."""

import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pertoken.settings.listen import is_loopback

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
