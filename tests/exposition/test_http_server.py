import contextlib
import http.client
import resource
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus

import pytest

from pertoken import exposition as module
from pertoken.exposition import MAX_HEAD_BYTES, PageReply, PageRequest, PageServer, tls_context
from tests.browser import wait_for
from tests.http_requests import ask, raw
from tests.trickle import trickling


def answer(request: PageRequest) -> PageReply:
    if request.path == "/fault":
        raise ZeroDivisionError
    return PageReply(HTTPStatus.OK, f"{len(request.path)}\n")


@contextlib.contextmanager
def serving(
    cert: tuple[str, str] | None = None, may_connect: Callable[[str], bool] = lambda address: True
) -> Iterator[int]:
    context = None if cert is None else tls_context(*cert, "cert_file")
    server = PageServer(("127.0.0.1", 0), answer, name="test", context=context, may_connect=may_connect)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH"])
def test_pages_are_only_read(method: str) -> None:
    with serving() as port:
        assert ask(port, method=method)[0] == 405


def test_nothing_of_a_request_enters_the_headers_of_an_answer() -> None:
    with serving() as port:
        for request in (
            b"GET /%0d%0aSet-Cookie:a=b HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /?a=\rSet-Cookie:a=b HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-User: a\r\n Set-Cookie: b\r\n\r\n",
            b"GET <script>alert(1)</script> HTTP/9.9\r\n\r\n",
            b"<script> Set-Cookie:a=b\r\n\r\n",
        ):
            reply = raw(port, request)
            assert b"Set-Cookie" not in reply and b"<script" not in reply and reply.startswith(b"HTTP/1.0 ")


def test_a_request_that_is_too_long_or_has_no_version_gets_no_page() -> None:
    with serving() as port:
        assert raw(port, b"GET / HTTP/1.1\r\nX: " + b"a" * (MAX_HEAD_BYTES - 19)).startswith(b"HTTP/1.0 431")
        many = b"".join(b"X-%d: a\r\n" % n for n in range(150))
        assert raw(port, b"GET / HTTP/1.1\r\n" + many + b"\r\n").startswith(b"HTTP/1.0 431")
        assert raw(port, b"GET /\r\n\r\n") == b""
        assert ask(port)[0] == 200


def test_a_fault_of_a_page_is_logged_and_ends_that_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as port:
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            ask(port, "/fault")
        assert ask(port)[0] == 200
    assert caplog.messages == ["a page could not be made"] and "ZeroDivisionError" in caplog.text


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow this process more open files than a thousand clients and their server have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard) if hard > 0 else 8192, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_slow_clients_keep_no_reader_waiting(many_files: None) -> None:
    with serving() as port, contextlib.ExitStack() as stack:
        for number in range(1000):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            if number % 2:
                client.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert ask(port)[0] == 200
        wait_for(lambda: _threads() <= module.MAX_CLIENTS, "threads of clients that were cut to end")


def _threads() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return files of a certificate for 127.0.0.1 and of its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(made, check=True, capture_output=True)
    return cert, key


@pytest.mark.parametrize("tls", [False, True])
def test_a_client_that_sends_a_byte_now_and_then_is_cut_off(
    tls: bool, certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_S", 0.5)
    # The first bytes of a request, or of a handshake that announces 512 bytes more.
    begun = b"\x16\x03\x01\x02\x00" if tls else b"GET / HTTP/1.1\r\nX: "
    with (
        serving(cert=certificate if tls else None) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as slow,
        trickling(slow, begun),
        contextlib.suppress(ConnectionResetError),
    ):
        while slow.recv(4096):
            pass


def test_a_certificate_makes_it_tls(certificate: tuple[str, str]) -> None:
    with serving(cert=certificate) as port:
        context = ssl.create_default_context(cafile=certificate[0])
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
        with contextlib.closing(connection):
            connection.request("GET", "/")
            assert connection.getresponse().status == 200
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            ask(port)


def test_an_address_that_may_not_connect_is_not_answered() -> None:
    with serving(may_connect=lambda address: False) as port:
        assert raw(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
