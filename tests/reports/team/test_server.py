import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.errors import BadInput, StoreError
from pertoken.reports.team.server import Login, TeamServer
from pertoken.settings.fleet import PageReader
from tests.http_requests import ask, raw

TOKEN = "0123456789abcdef"


def answer(path: str, reader: PageReader) -> str | None:
    if path == "/broken":
        raise StoreError("/secret/folder: locked")
    return f"<p>{reader.owners}</p>" if path == "/" else None


@contextlib.contextmanager
def serving(settings: Settings | None = None, cert: tuple[str, str] | None = None) -> Iterator[int]:
    cert_file, key_file = cert or (None, None)
    login = Login(settings or Settings())
    server = TeamServer(("127.0.0.1", 0), answer, login, cert_file=cert_file, key_file=key_file)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


def test_a_page_is_served_with_headers_that_forbid_scripts_frames_and_copies() -> None:
    with serving() as port:
        status, headers, body = ask(port)
        assert (status, body) == (200, "<p>None</p>")
        assert (
            headers["Content-Security-Policy"].startswith("default-src 'none'")
            and headers["Cache-Control"] == "no-store"
        )
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["X-Frame-Options"] == "DENY"
        status, headers, body = ask(port, method="HEAD")
        assert (status, body, headers["Content-Length"]) == (200, "", "11")


@pytest.mark.parametrize("path", ["/../etc/passwd", "/%2e%2e/", "//", "/savings/../", "/x\x00", "/.env", "/static/a"])
def test_no_path_leads_elsewhere_and_none_is_repeated(path: str) -> None:
    with serving() as port:
        reply = raw(port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert reply.startswith((b"HTTP/1.0 404", b"HTTP/1.0 200 OK")) and b"passwd" not in reply
        assert not reply.startswith(b"HTTP/1.0 200") or path == "//"


def test_a_reader_without_a_login_learns_nothing_of_which_pages_there_are(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    reader = PageReader(token_file=str(tmp_path / "token"), owners=("search",))
    with serving(Settings(advisor_pages_readers=(reader,))) as port:
        without = {path: ask(port, path) for path in ("/", "/none", "/broken")}
        assert {(status, body) for status, _, body in without.values()} == {
            (401, "A login is needed: the token is the password.\n")
        }
        assert ask(port, headers={"X-Forwarded-User": "root"})[0] == 401
        assert ask(port, headers={"Authorization": f"Bearer {TOKEN}"})[2] == "<p>('search',)</p>"


def test_another_site_that_was_pointed_at_this_host_gets_no_page() -> None:
    with serving() as port:
        assert ask(port, headers={"Host": f"rebound.example:{port}"})[0] == 401


def test_a_database_that_cannot_be_read_is_logged_once_and_its_folder_is_on_no_page(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving() as port:
        for _ in range(3):
            status, _, body = ask(port, "/broken")
            assert status == 503 and "/secret" not in body
    assert caplog.messages == ["/secret/folder: locked"]


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"pages_cert_file: .*none: cannot be used"):
        TeamServer(("127.0.0.1", 0), answer, Login(Settings()), cert_file=str(tmp_path / "none"))


def test_an_address_without_tls_and_not_of_a_proxy_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Login, "may_connect", lambda self, address: False)
    with serving() as port:
        assert raw(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
