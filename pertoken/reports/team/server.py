"""Server of the team's pages: checks the login and returns one page per path. Error details go to the log only."""

from __future__ import annotations

import binascii
import hmac
import ipaddress
import logging
from base64 import b64decode
from collections.abc import Callable, Sequence
from email.message import Message
from http import HTTPStatus

from pertoken.access import read_secret
from pertoken.config import Settings
from pertoken.errors import BadInput, PertokenError, StoreError
from pertoken.exposition import PageReply, PageRequest, PageServer, tls_context
from pertoken.reports.html import POLICY
from pertoken.settings.fleet import PageReader, is_loopback

MIN_TOKEN_BYTES = 16
ANYBODY = "*"
"""User name in the settings that matches every user a proxy names."""
EVERYTHING = PageReader()
"""Reader of all services: for requests from this host while the settings list no readers."""
MAX_REASONS = 100
"""Maximum error texts remembered to log each of them once."""
HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
HTML = "text/html; charset=utf-8"
PageOf = Callable[[str, PageReader], str | None]
"""Return the HTML of a path for a reader; None if that page does not exist for the reader."""
log = logging.getLogger("pertoken.pages")


class TeamServer(PageServer):
    """HTTP server of the team's pages."""

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
            address, self._reply, name="pages", context=context, headers=HEADERS, may_connect=login.may_connect
        )

    def _reply(self, request: PageRequest) -> PageReply:
        reader = self._login.reader(request.address, request.headers)
        if reader is None:
            challenge = {"WWW-Authenticate": 'Basic realm="pertoken", charset="UTF-8"'}
            text = "A login is needed: the token is the password.\n"
            return PageReply(HTTPStatus.UNAUTHORIZED, text, headers=challenge)
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
        """Log an error once; a full set of reported errors starts again."""
        reason = str(error)
        if reason not in self._reported:
            log.error("%s", error)
        is_full = len(self._reported) >= MAX_REASONS
        self._reported = {reason} if is_full else {*self._reported, reason}


class Login:
    """Readers in the settings, with the tokens that their files held at start."""

    def __init__(self, settings: Settings) -> None:
        """Read the tokens. Raises BadInput for an unreadable or short token, or one in two files."""
        self._readers = settings.advisor_pages_readers
        self._header = settings.advisor_pages_user_header
        self._proxies = [ipaddress.ip_network(text) for text in settings.advisor_pages_proxies]
        self._tls = settings.advisor_pages_cert_file is not None
        self._tokens = _read_tokens(self._readers)

    def may_connect(self, address: str) -> bool:
        """Return whether an address may connect: without TLS, only this host and the proxies may."""
        return self._tls or is_loopback(_unmapped(address)) or self._is_proxy(address)

    def reader(self, address: str, headers: Message) -> PageReader | None:
        """Return the reader that sent a request; None if it needs a login.

        Without readers in the settings, the Host header must name this host, which stops DNS rebinding: another
        site's page with a name that resolves to this host gets no figures.
        """
        if not self._readers:
            return EVERYTHING if is_loopback(_unmapped(address)) and _names_loopback(headers) else None
        by_token = self._by_token(headers.get_all("Authorization", []))
        return by_token or (self._by_user(headers.get_all(self._header, [])) if self._is_proxy(address) else None)

    def _by_token(self, values: Sequence[str]) -> PageReader | None:
        presented = _presented_token(values[0]) if len(values) == 1 else b""
        matches = [reader for token, reader in self._tokens if hmac.compare_digest(token, presented)]
        return matches[0] if matches else None

    def _by_user(self, values: Sequence[str]) -> PageReader | None:
        """Return the reader of a user; None for two headers, since a client may have forged one."""
        user = values[0].strip() if len(values) == 1 else ""
        by_user = {reader.user: reader for reader in reversed(self._readers) if reader.user is not None}
        return (by_user.get(user) or by_user.get(ANYBODY)) if user else None

    def _is_proxy(self, address: str) -> bool:
        return any(ipaddress.ip_address(_unmapped(address)) in network for network in self._proxies)


def _read_tokens(readers: Sequence[PageReader]) -> list[tuple[bytes, PageReader]]:
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


def _presented_token(header: str) -> bytes:
    """Return the token of `Bearer TOKEN`, or the password of `Basic`, for which browsers show a dialog."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("utf-8", "replace")
    if scheme.lower() == "basic":
        try:
            return b64decode(value.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _unmapped(address: str) -> str:
    """Return an address with IPv4-mapped IPv6 written as IPv4, as proxies are listed."""
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _names_loopback(headers: Message) -> bool:
    hosts = headers.get_all("Host", [])
    host_port = hosts[0].strip() if len(hosts) == 1 else ""
    host = host_port[1:].partition("]")[0] if host_port.startswith("[") else host_port.partition(":")[0]
    try:
        return is_loopback(host)
    except ValueError:
        return False
