"""Server of the team's pages: a login, one page a path, and reasons that stay in the log."""

import logging
from collections.abc import Callable
from http import HTTPStatus

from pertoken.errors import PertokenError, StoreError
from pertoken.exposition import PageServer, Reply, Request, tls_context
from pertoken.reports.page.html import POLICY
from pertoken.reports.team.login import Login
from pertoken.settings.pages import PageReader

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

    def _answer(self, request: Request) -> Reply:
        reader = self._login.reader(request.address, request.headers)
        if reader is None:
            login = {"WWW-Authenticate": 'Basic realm="pertoken", charset="UTF-8"'}
            text = "A login is needed: the token is the password.\n"
            return Reply(HTTPStatus.UNAUTHORIZED, text, headers=login)
        try:
            page = self._page_of(request.path, reader)
        except StoreError as error:
            self._report(error)
            text = "The database cannot be read now: the advisor's log has why.\n"
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, text)
        except PertokenError as error:
            self._report(error)
            return Reply(HTTPStatus.INTERNAL_SERVER_ERROR, "The page cannot be made: the advisor's log has why.\n")
        if page is None:
            return Reply(HTTPStatus.NOT_FOUND, "There is no such page, or this login does not read it.\n")
        return Reply(HTTPStatus.OK, page, HTML)

    def _report(self, error: PertokenError) -> None:
        """Log a reason why pages cannot be made, once."""
        if str(error) not in self._reported:
            log.error("%s", error)
        self._reported = {*self._reported, str(error)} if len(self._reported) < MAX_REASONS else {str(error)}
