import gzip
import socket
import time

import pytest

from pertoken.agent.scrape import RequestLimits, ScrapeError, get
from tests.agent.servers import Answer, answering, dripping, http, pages

QUICK = RequestLimits(timeout_s=0.3, page_bytes=1_000_000)


def refused(answer: Answer, limits: RequestLimits = QUICK) -> ScrapeError:
    with answering(answer) as url, pytest.raises(ScrapeError) as caught:
        get(f"{url}/metrics", limits)
    return caught.value


def test_a_whole_page_is_returned_with_its_type() -> None:
    with answering(pages({"/metrics?a=b": b"a 1\n"})) as url:
        reply = get(f"{url}/metrics?a=b", QUICK)
    assert (reply.body, reply.content_type) == (b"a 1\n", "text/plain")


def test_an_address_is_not_looked_up_as_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*asked: object, **how: object) -> None:
        raise socket.gaierror

    with answering(pages({"/metrics": b"a 1\n"})) as url, monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", unknown)
        assert get(f"{url}/metrics", QUICK).body == b"a 1\n"
        with pytest.raises(ScrapeError, match="the name localhost is not known here"):
            get(f"{url.replace('127.0.0.1', 'localhost')}/metrics", QUICK)


def test_gzip_and_chunks_are_understood() -> None:
    def chunked(connection: socket.socket, path: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na \r\n2\r\n1\n\r\n0\r\n\r\n")

    def compressed(connection: socket.socket, path: str) -> None:
        connection.sendall(http(gzip.compress(b"a 1\n" * 10_000), "Content-Encoding: gzip"))

    for answer, body in ((chunked, b"a 1\n"), (compressed, b"a 1\n" * 10_000)):
        with answering(answer) as url:
            assert get(url, QUICK).body == body


def test_a_connection_serves_one_request_and_asks_to_be_closed() -> None:
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        from threading import Thread

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(65_536))
                connection.sendall(http(b"x"))

        thread = Thread(target=serve)
        thread.start()
        get(f"http://user:secret@127.0.0.1:{listener.getsockname()[1]}/", QUICK)
        thread.join()
    assert b"Connection: close" in asked[0]


def test_a_closed_port_is_reported_as_nothing_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ScrapeError, match="nothing answers") as caught:
        get(f"http://user:secret@127.0.0.1:{port}/metrics", QUICK)
    assert caught.value.kind == "closed"
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("status", [204, 301, 404, 500, 503])
def test_any_status_but_200_is_refused_with_it(status: int) -> None:
    error = refused(pages({"/metrics": (status, b"a 1\n")}))
    assert (error.kind, error.status) == ("http", status)


def test_a_redirect_is_named_but_not_followed() -> None:
    error = refused(lambda connection, path: connection.sendall(http(b"", "Location: http://other/", status=302)))
    assert error.kind == "http"
    assert "302 to http://other/" in error.message


def test_a_redirect_that_acts_on_a_terminal_is_named_in_escapes() -> None:
    answer = http(b"", "Location: http://other/\x1b[2J\x7f", status=302)
    error = refused(lambda connection, path: connection.sendall(answer))
    assert error.message.replace("\\x1b[2J\\x7f", "").isprintable() and "\\x1b[2J" in error.message


def drip_headers(connection: socket.socket, path: str) -> None:
    dripping(b"HTTP/1.1 200 OK\r\n")(connection, path)


@pytest.mark.parametrize(
    "answer",
    [
        drip_headers,
        dripping(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"),
        dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n"),
        lambda connection, path: connection.recv(1),
    ],
    ids=["headers that drip", "a page that never ends", "a page that drips", "no answer at all"],
)
def test_a_server_cannot_outlast_the_total_time(answer: Answer) -> None:
    began = time.monotonic()
    error = refused(answer)
    assert error.kind == "timeout"
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "answer",
    [
        lambda connection, path: connection.sendall(http(b"a 1\n" * 400_000)),
        lambda connection, path: connection.sendall(
            http(gzip.compress(b"a 1\n" * 20_000_000, 1), "Content-Encoding: gzip")
        ),
    ],
    ids=["a large page", "a gzip bomb"],
)
def test_a_page_over_the_limit_is_refused_and_never_cut(answer: Answer) -> None:
    assert refused(answer, RequestLimits(timeout_s=5, page_bytes=1_000_000)).kind == "too_large"


CUT_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\na 1\n"


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"", "closed"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "malformed"),
        (http(b"a 1\nb 2\n")[:-4], "malformed"),
        (CUT_CHUNKS, "malformed"),
        (http(b"a 1\n", "Content-Encoding: gzip"), "malformed"),
        (http(gzip.compress(b"a 1\n")[:-3], "Content-Encoding: gzip"), "malformed"),
        (http(b"a 1\n", "Content-Encoding: br"), "malformed"),
    ],
    ids=["closed at once", "not HTTP", "cut page", "cut chunk", "not gzip", "cut gzip", "other encoding"],
)
def test_a_reply_that_is_not_whole_is_refused(sent: bytes, kind: str) -> None:
    assert refused(lambda connection, path: connection.sendall(sent)).kind == kind
