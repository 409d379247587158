"""Replies however they are cut up, broken off or made up: the body whole, or none."""

import io
from http.client import HTTPResponse
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.agent.scrape import Deadline, Reply, RequestLimits, ScrapeError, _exchange, _target

REFUSED = (ScrapeError, ValueError, ConnectionError)
"""What `fetch` reports as a fault of the server."""
PIECES = (
    *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 404 Not Found\r\n", b"Content-Length: 3\r\n", b"Content-Length: -1\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"Content-Encoding: gzip\r\n", b"\r\n"),
    *(
        b"3\r\n",
        b"0\r\n",
        b"+3\r\n",
        b"0x3\r\n",
        b"3;a=b\r\n",
        b"ffffffffffffffffff\r\n",
        b"abc",
        b"\n",
        b": ",
        b"\xff",
    ),
)


class Sent:
    """A socket on which these parts come, then the end."""

    def __init__(self, parts: list[bytes]) -> None:
        self._parts = [part for part in parts if part]

    def settimeout(self, left_s: float) -> None:
        assert left_s > 0

    def sendall(self, request: bytes) -> None:
        assert request.startswith(b"GET /metrics HTTP/1.1\r\n")

    def recv(self, max_bytes: int) -> bytes:
        part = self._parts.pop(0) if self._parts else b""
        if part[max_bytes:]:
            self._parts.insert(0, part[max_bytes:])
        return part[:max_bytes]

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(b"".join(self._parts))


def read(*parts: bytes) -> Reply:
    sent: Any = Sent(list(parts))
    return _exchange(sent, Deadline(60), "GET", _target("http://x/metrics"), {}, RequestLimits(page_bytes=100_000))


def reply_of(body: bytes, framing: str, chunk: int) -> bytes:
    if framing == "length":
        return b"HTTP/1.1 200 OK\r\nContent-LENGTH:%d \r\n\r\n" % len(body) + body
    if framing == "end":
        return b"HTTP/1.0 200 OK\r\nServer: x\r\n\r\n" + body
    chunks = [body[at : at + chunk] for at in range(0, len(body), chunk)]
    sized = b"".join(b"%X;of=%d\r\n%s\r\n" % (len(chunk), n, chunk) for n, chunk in enumerate(chunks))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n" + sized + b"0\r\nTrailer: 1\r\n\r\n"


bodies, framings = st.binary(max_size=300), st.sampled_from(["length", "chunks", "end"])


@given(body=bodies, framing=framings, chunk=st.integers(1, 99), cuts=st.lists(st.integers(0, 700), max_size=9))
def test_a_reply_is_the_same_however_it_comes_and_as_http_client_reads_it(
    body: bytes, framing: str, chunk: int, cuts: list[int]
) -> None:
    sent = reply_of(body, framing, chunk)
    at = sorted({0, *cuts, len(sent)})
    assert read(*(sent[start:end] for start, end in pairwise(at))).body == body
    peer: Any = Sent([sent])
    with HTTPResponse(peer) as response:
        response.begin()
        assert response.read() == body


@given(body=bodies.filter(bool), framing=st.sampled_from(["length", "chunks"]), cut=st.floats(0, 1, exclude_max=True))
def test_a_reply_that_breaks_off_before_its_body_ends_is_refused(body: bytes, framing: str, cut: float) -> None:
    sent = reply_of(body, framing, 50)
    whole = len(sent) - len(b"\r\nTrailer: 1\r\n\r\n") if framing == "chunks" else len(sent)
    with pytest.raises(REFUSED):
        read(sent[: int(cut * whole)])


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=20)), max_size=12))
def test_bytes_at_random_are_a_reply_or_refused(pieces: list[bytes]) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        try:
            read(start, *pieces)
        except REFUSED:
            continue


@pytest.mark.parametrize("length", ["-1", "+5", "5_0", "0x5", "", "5 5", "9" * 20])
def test_a_length_that_is_no_plain_number_is_refused(length: str) -> None:
    for head in (f"Content-Length: {length}", f"Transfer-Encoding: chunked\r\n\r\n{length}"):
        with pytest.raises(REFUSED):
            read(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + b"a" * 50)


def test_headers_without_an_end_are_refused_before_they_fill_the_memory() -> None:
    with pytest.raises(ValueError, match="a line of more than"):
        read(b"HTTP/1.1 200 OK\r\n", *[b"a: " + b"b" * 60_000] * 100)


def test_a_line_that_is_no_header_is_refused_since_it_hides_the_length_after_it() -> None:
    with pytest.raises(ValueError, match="not a header"):
        read(b"HTTP/1.1 200 OK\r\nno header\r\nContent-Length: 50\r\n\r\nabc")


def test_headers_without_number_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 100 headers"):
        read(b"HTTP/1.1 200 OK\r\n", *[b"a: b\r\n"] * 200)


def test_two_lengths_of_one_body_are_refused() -> None:
    with pytest.raises(ValueError, match="two values of content-length"):
        read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\ncontent-length: 2\r\n\r\nabc")


def test_a_header_of_two_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="not a header"):
        read(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain;\r\n charset=utf-8\r\n\r\nabc")


def test_interim_replies_come_before_the_reply() -> None:
    reply = read(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", reply_of(b"abc", "length", 1)
    )
    assert reply.body == b"abc"


def test_bytes_after_a_body_of_known_length_are_not_of_it() -> None:
    assert read(reply_of(b"abc", "length", 1), b"more").body == b"abc"


@pytest.mark.parametrize("size", ["-1", "f" * 15])
def test_a_chunk_of_a_made_up_size_does_not_fill_the_memory(size: str) -> None:
    with pytest.raises(REFUSED):
        read(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\n".encode(), *[b"a" * 60_000] * 100)
