"""A client of servers that take only a part of the API."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from pertoken.access import Access
from pertoken.agent.load_probe import Client, ProbeError

USAGE = {"prompt_tokens": 70, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 6}}


@contextmanager
def answering(reply: Any) -> Iterator[tuple[str, list[tuple[str, dict[str, Any], str | None]]]]:
    """A server; `reply(path, body)` gives a status and the events of a stream. Yields its URL and what it was sent."""
    seen: list[tuple[str, dict[str, Any], str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, body, self.headers.get("Authorization")))
            status, events = reply(self.path, body)
            self.send_response(status)
            self.end_headers()
            if status == 200:
                self.wfile.write(b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events))
                self.wfile.write(b"data: [DONE]\n\n")
            else:
                self.wfile.write(json.dumps({"error": {"message": "no such field"}}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def client(url: str, **access: str) -> Client:
    return Client(url, "tiny", Access(url, **access), 0)


def text(*parts: str) -> list[dict[str, Any]]:
    return [*({"choices": [{"text": part, "finish_reason": None}]} for part in parts), {"choices": [], "usage": USAGE}]


def test_a_server_without_plain_completions_is_asked_by_chat() -> None:
    def reply(path: str, body: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
        events = [
            {"choices": [{"delta": delta}]} for delta in ({"role": "assistant", "content": ""}, {"content": "a b c"})
        ]
        return (404, []) if path == "/v1/completions" else (200, [*events, {"choices": [], "usage": USAGE}])

    with answering(reply) as (url, seen):
        completion = client(url).complete("hello", 3)
        assert [path for path, _, _ in seen] == ["/v1/completions", "/v1/chat/completions"]
        assert seen[1][1]["messages"] == [{"role": "user", "content": "hello"}]
    assert (
        completion.prompt_tokens,
        completion.cached_tokens,
        completion.generated_tokens,
        len(completion.part_s),
    ) == (70, 6, 3, 1)


def test_a_server_that_refuses_fields_beyond_the_api_is_asked_without_them() -> None:
    with answering(lambda _, body: (400, []) if "ignore_eos" in body else (200, text("a", "b", "c"))) as (url, seen):
        asked = client(url)
        assert len(asked.complete("hello", 3).part_s) == 3
        asked.complete("hello", 3)
    assert ["ignore_eos" in body for _, body, _ in seen] == [True, False, False]


def test_a_server_that_reports_no_usage_cannot_be_probed() -> None:
    with answering(lambda *_: (200, text("a")[:1])) as (url, _), pytest.raises(ProbeError, match="no token usage"):
        client(url).complete("hello", 3)


def test_the_server_s_answer_to_an_error_is_repeated() -> None:
    with answering(lambda *_: (500, [])) as (url, _), pytest.raises(ProbeError, match="answered 500: no such field"):
        client(url).complete("hello", 3)


def test_a_token_is_sent_where_the_settings_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_TOKEN", "secret")
    with answering(lambda *_: (200, text("a"))) as (url, seen):
        client(url, token_env="PROBE_TOKEN").complete("hello", 3)
    assert seen[0][2] == "Bearer secret"


def test_prompts_have_about_as_many_tokens_as_asked_and_no_two_begin_alike() -> None:
    with answering(lambda *_: (200, text("a"))) as (url, _):
        asked = client(url)
        asked.calibrate()  # 32 words were 70 tokens
        prompts = [asked.prompt(700) for _ in range(20)]
    assert {len(prompt.split()) for prompt in prompts} == {320}
    assert len({prompt[:15] for prompt in prompts}) == 20


def test_an_output_that_may_end_is_returned_as_text_even_if_it_is_empty() -> None:
    with answering(lambda _path, _body: (200, text("a ", "b"))) as (url, seen):
        assert client(url).complete("hello", 3, may_end=True).text == "a b"
        assert "ignore_eos" not in seen[0][1]
    with answering(lambda _path, _body: (200, [{"choices": [], "usage": USAGE}])) as (url, _):
        assert client(url).complete("hello", 3, may_end=True).text == ""
        with pytest.raises(ProbeError, match="generated nothing"):
            client(url).complete("hello", 3)
