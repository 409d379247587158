"""Server of the team's pages: a login, one page a path, and reasons that stay in the log."""

from __future__ import annotations

import binascii
import hmac
import ipaddress
import logging
from base64 import b64decode
from collections.abc import Callable, Sequence
from email.message import Message
from http import HTTPStatus

from pertoken.config import Settings
from pertoken.errors import BadInput, PertokenError, StoreError
from pertoken.exposition import PageReply, PageRequest, PageServer, tls_context
from pertoken.reports.delivery import read_secret
from pertoken.reports.html import POLICY
from pertoken.settings.fleet import PageReader, is_loopback

MIN_TOKEN_BYTES = 16
ANYBODY = "*"
"""User of a reader that stands for every user whom a proxy names."""
EVERYTHING = PageReader()
"""Reader on this host, where no readers are set."""


class Login:
    """Readers of the settings, with their tokens as the files hold them at start."""

    def __init__(self, settings: Settings) -> None:
        """Read the tokens. Raises BadInput for one that cannot be read, is short, or stands in two files."""
        self._readers = settings.advisor_pages_readers
        self._header = settings.advisor_pages_user_header
        self._proxies = [ipaddress.ip_network(text) for text in settings.advisor_pages_proxies]
        self._tls = settings.advisor_pages_cert_file is not None
        self._tokens = _tokens(self._readers)

    def may_connect(self, address: str) -> bool:
        """Return whether an address may send a request: without TLS only this host and the proxies may."""
        return self._tls or is_loopback(_plain(address)) or self._is_proxy(address)

    def reader(self, address: str, headers: Message) -> PageReader | None:
        """Return the reader of a request from an address; None if it needs a login.

        Where no readers are set, the request must name this host: a page of another site, with a name pointed at
        this host, gets no figures.
        """
        if not self._readers:
            return EVERYTHING if is_loopback(_plain(address)) and _names_loopback(headers) else None
        by_token = self._by_token(headers.get_all("Authorization", []))
        return by_token or (self._by_user(headers.get_all(self._header, [])) if self._is_proxy(address) else None)

    def _by_token(self, values: Sequence[str]) -> PageReader | None:
        given = _token_of(values[0]) if len(values) == 1 else b""
        matches = [reader for token, reader in self._tokens if hmac.compare_digest(token, given)]
        return matches[0] if matches else None

    def _by_user(self, values: Sequence[str]) -> PageReader | None:
        """Return the reader of a user; None for two headers: a client may have sent one of them."""
        user = values[0].strip() if len(values) == 1 else ""
        readers = {reader.user: reader for reader in reversed(self._readers) if reader.user is not None}
        return (readers.get(user) or readers.get(ANYBODY)) if user else None

    def _is_proxy(self, address: str) -> bool:
        return any(ipaddress.ip_address(_plain(address)) in network for network in self._proxies)


def _tokens(readers: Sequence[PageReader]) -> list[tuple[bytes, PageReader]]:
    tokens: dict[bytes, PageReader] = {}
    for reader in readers:
        token = read_secret(reader.token_file, None, "pages_readers")
        if token is None:
            continue
        if len(token) < MIN_TOKEN_BYTES:
            raise BadInput(f"pages_readers: {reader.token_file}: a token has at least {MIN_TOKEN_BYTES} characters")
        if token in tokens:
            raise BadInput(f"pages_readers: {tokens[token].token_file} and {reader.token_file} hold one token")
        tokens[token] = reader
    return list(tokens.items())


def _token_of(header: str) -> bytes:
    """Return the token of `Bearer TOKEN`, or the password of `Basic`, by which a browser asks a person for it."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("utf-8", "replace")
    if scheme.lower() == "basic":
        try:
            return b64decode(value.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _plain(address: str) -> str:
    """Return an address as its proxies are listed: IPv4 also where an IPv6 socket accepted it."""
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _names_loopback(headers: Message) -> bool:
    hosts = headers.get_all("Host", [])
    name = hosts[0].strip() if len(hosts) == 1 else ""
    host = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    try:
        return is_loopback(host)
    except ValueError:
        return False


MAX_REASONS = 100
"""Reasons that are remembered as logged."""
HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
HTML = "text/html; charset=utf-8"
PageOf = Callable[[str, PageReader], str | None]
"""The page at a path for a reader; None if there is none."""
log = logging.getLogger("pertoken.pages")


class TeamServer(PageServer):
    """Server of the team's pages."""

    def __init__(
        self,
        address: tuple[str, int],
        page_of: PageOf,
        login: Login,
        *,
        cert_file: str | None = None,
        key_file: str | None = None,
    ) -> None:
        """Bind the port. Raises OSError, and BadInput for a certificate that cannot be used."""
        self._page_of, self._login = page_of, login
        self._reported: set[str] = set()
        context = tls_context(cert_file, key_file, "pages_cert_file")
        super().__init__(
            address, self._answer, name="pages", context=context, headers=HEADERS, may_connect=login.may_connect
        )

    def _answer(self, request: PageRequest) -> PageReply:
        reader = self._login.reader(request.address, request.headers)
        if reader is None:
            login = {"WWW-Authenticate": 'Basic realm="pertoken", charset="UTF-8"'}
            text = "A login is needed: the token is the password.\n"
            return PageReply(HTTPStatus.UNAUTHORIZED, text, headers=login)
        try:
            page = self._page_of(request.path, reader)
        except StoreError as error:
            self._report(error)
            text = "The database cannot be read now: the advisor's log has why.\n"
            return PageReply(HTTPStatus.SERVICE_UNAVAILABLE, text)
        except PertokenError as error:
            self._report(error)
            return PageReply(HTTPStatus.INTERNAL_SERVER_ERROR, "The page cannot be made: the advisor's log has why.\n")
        if page is None:
            return PageReply(HTTPStatus.NOT_FOUND, "There is no such page, or this login does not read it.\n")
        return PageReply(HTTPStatus.OK, page, HTML)

    def _report(self, error: PertokenError) -> None:
        """Log a reason why pages cannot be made, once."""
        if str(error) not in self._reported:
            log.error("%s", error)
        self._reported = {*self._reported, str(error)} if len(self._reported) < MAX_REASONS else {str(error)}
