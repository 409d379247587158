"""Server of one metrics page over HTTP or HTTPS, with an optional bearer token."""

import hmac
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from pertoken.errors import BadInput
from pertoken.exposition.http_server import PageServer, Reply, Request, tls_context
from pertoken.exposition.page import CONTENT_TYPE

PATH = "/metrics"
MAX_TOKEN_BYTES = 4096


class MetricsServer(PageServer):
    """Server of `page` at `/metrics`, which is made for one client after another."""

    def __init__(
        self,
        address: tuple[str, int],
        page: Callable[[], str],
        *,
        token_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
    ) -> None:
        """Bind the port. Raises OSError, BadInput for a token or certificate that cannot be read."""
        self._page = page
        self._token = None if token_file is None else _token(token_file)
        self._lock = threading.Lock()
        context = tls_context(cert_file, key_file, "metrics_cert_file")
        super().__init__(address, self._answer, name="metrics", context=context)

    def _answer(self, request: Request) -> Reply:
        if self._token is not None:
            given = request.headers.get("Authorization", "").encode("utf-8", "replace")
            if not hmac.compare_digest(given, b"Bearer " + self._token):
                login = {"WWW-Authenticate": "Bearer"}
                return Reply(HTTPStatus.UNAUTHORIZED, "a token is needed\n", headers=login)
        if request.path != PATH:
            return Reply(HTTPStatus.NOT_FOUND, f"the page is {PATH}\n")
        with self._lock:
            return Reply(HTTPStatus.OK, self._page(), CONTENT_TYPE)


def _token(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            text = opened.read(MAX_TOKEN_BYTES).partition(b"\n")[0].strip()
    except OSError as error:
        raise BadInput(f"metrics_token_file: {file}: cannot be read: {(error.strerror or '').lower()}") from None
    if not text:
        raise BadInput(f"metrics_token_file: {file}: is empty")
    return text
