"""What servers answer: identity of engines, gateways, Prometheus, a cloud's metadata service, streams of a probe."""

import http.client
import io
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.reader import kind_at
from pertoken.agent.gateways import ADAPTERS as GATEWAYS
from pertoken.agent.gateways import read_gateway
from pertoken.agent.history import prometheus as api
from pertoken.agent.host import identity
from pertoken.agent.load_probe import MAX_MESSAGE, ProbeError, _message, _read
from pertoken.agent.scrape import MetricsPage, Reply, RequestLimits, ScrapeError
from pertoken.catalog.clouds import clouds
from pertoken.errors import BadInput
from pertoken.settings.fleet import GatewaySettings
from tests.fuzz.damage import BYTES, DEEP, VALUES, altered, damaged, read_or_refused

CAPTURES = Path(__file__).parents[1] / "captures"
STEPS = api.RangeSteps(0, 3, 60)
MATRIX = {
    "status": "success",
    "data": {"resultType": "matrix", "result": [{"metric": {"__name__": "a"}, "values": [[0, "1"], [60, "2"]]}]},
}
DEEP_JSON = b'{"data":' + b"[" * DEEP
ODD = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"7",
    b'"a"',
    b"\xff\xfe",
    b"NaN",
    DEEP_JSON,
    b"[" * DEEP,
    b'{"a":1e999}',
    b"9" * 5000,
)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Answers by path; `""` answers any other."""
    bodies: dict[str, bytes] = {}

    def get(url: str, *_: Any) -> Reply:
        path = "/" + url.split("://")[1].partition("/")[2]
        return Reply(bodies.get(path, bodies.get("", b"")), "text/plain")

    def fetch(method: str, url: str, limits: RequestLimits, headers: Mapping[str, str]) -> Reply:
        return get(url)

    for name in ("pertoken.agent.engines.reader", "pertoken.agent.gateways"):
        monkeypatch.setattr(f"{name}.get", get)
    for name in ("pertoken.agent.history.prometheus", "pertoken.agent.host.identity"):
        monkeypatch.setattr(f"{name}.fetch", fetch)
    return bodies


def bodies_of(value: Any, seed: object, copies: int) -> Iterator[bytes]:
    yield from (json.dumps(each).encode() for each in altered(value, seed, copies))
    yield from damaged(json.dumps(value).encode(), seed, copies)
    yield from ODD


def test_an_answer_of_prometheus_is_read_or_refused(answer: dict[str, bytes]) -> None:
    seen = set()
    prometheus = api.PrometheusApi("http://p", RequestLimits())
    for body in (*bodies_of(MATRIX, "matrix", 400), *_values()):
        answer[""] = body
        seen.add(read_or_refused(lambda: prometheus.ranges("up", STEPS), BadInput))
    assert seen == {True, False}


def _values() -> Iterator[bytes]:
    """Answers with each odd value as a time and as a value."""
    for value in VALUES:
        for pair in ([value, "1"], [0, value], value):
            result = [{"metric": {"__name__": "a"}, "values": [pair]}]
            yield json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def test_the_owner_of_models_is_read_or_refused(answer: dict[str, bytes]) -> None:
    models = json.loads((CAPTURES / "vllm-0.32.0-v1-models.json").read_text())
    for body in bodies_of(models, "models", 150):
        answer["/v1/models"] = body
        read_or_refused(lambda: kind_at("http://e", RequestLimits()), ScrapeError)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_any_report_of_an_engine_about_itself_is_read(kind: str) -> None:
    paths = {
        "/v1/models": "vllm-0.32.0-v1-models.json",
        "/server_info?config_format=json": "vllm-0.32.0-server-info.json",
        "/version": "vllm-0.32.0-version.json",
        "/props": "llamacpp-props.json",
    }
    known = {path: json.loads((CAPTURES / name).read_text()) for path, name in paths.items()}
    for path in (*known, ""):
        for value in (*altered(known.get(path, {"a": 1}), path, 100), *VALUES):
            asked: dict[str, Any] = {**known, path: value} if path else dict.fromkeys(known, value)
            ADAPTERS[kind].identify(asked.get, MetricsPage({}))


@pytest.mark.parametrize("kind", GATEWAYS)
def test_a_page_of_a_gateway_is_read_or_refused(answer: dict[str, bytes], kind: str) -> None:
    page = (CAPTURES / "litellm-1.106.2.prom").read_bytes()
    for body in (*damaged(page, kind, 80, (*BYTES, b"# EOF\n", b'le="+Inf"')), *ODD):
        answer[""] = body
        for setting in (GatewaySettings("http://gw", kind=kind), GatewaySettings("http://gw")):
            read_or_refused(lambda setting=setting: read_gateway(setting, RequestLimits()), ScrapeError)  # type: ignore[misc]


@pytest.mark.parametrize("cloud", clouds(), ids=lambda cloud: cloud.name)
def test_an_answer_of_a_metadata_service_is_read_or_refused(answer: dict[str, bytes], cloud: Any) -> None:
    documents = (
        b"p5.48xlarge",
        b"projects/1/machineTypes/a3-highgpu-8g",
        b'{"compute": {"vmSize": "a", "priority": "Spot"}}',
    )
    for document in documents:
        for body in (*damaged(document, cloud.name, 60), *ODD):
            answer[""] = body
            read_or_refused(lambda: identity.read_instance(cloud, "http://m"), ScrapeError)


EVENT = {
    "choices": [{"index": 0, "text": "a", "delta": {"content": "a"}, "finish_reason": None}],
    "error": {"message": "m"},
}
LAST = {
    "choices": [],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}},
}


def stream(body: bytes) -> Any:
    class Socket:
        def makefile(self, *_: Any) -> io.BytesIO:
            return io.BytesIO(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    reply = http.client.HTTPResponse(Socket())  # type: ignore[arg-type]
    reply.begin()
    return _read(reply, lambda: 1.0, 0.0, "http://e", False)


def test_a_stream_of_a_probe_is_read_or_refused() -> None:
    event = {**EVENT}
    del event["error"]
    whole = [f"data: {json.dumps(each)}\n\n".encode() for each in (event, LAST)]
    assert stream(b"".join(whole)).generated_tokens == 3
    seen = set()
    for body in (*damaged(b"".join(whole), "stream", 200), *(b"data: " + odd + b"\n" for odd in ODD)):
        seen.add(read_or_refused(lambda body=body: stream(body), ProbeError))  # type: ignore[misc]
    for value in (*altered(EVENT, "event", 200), *altered(LAST, "last", 200)):
        body = whole[0] + b"data: " + json.dumps(value).encode() + b"\n\n"
        seen.add(read_or_refused(lambda body=body: stream(body), ProbeError))  # type: ignore[misc]
    assert seen == {True, False}


def test_the_message_of_a_refusal_is_read_whatever_it_is() -> None:
    for body in (*bodies_of({"error": {"message": "no such field"}}, "message", 100), *ODD):
        assert len(_message(body)) <= MAX_MESSAGE


def test_an_address_with_damaged_characters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """URLs that discovery or a person may name; nothing is connected to."""
    from pertoken.agent import scrape

    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("no network here")

    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(scrape, "_connected", refused)
    for body in damaged(b"http://user:secret@host.example:8000/metrics?a=b", "url", 150):
        url = body.decode("latin-1")
        assert not read_or_refused(lambda url=url: scrape.get(url, RequestLimits()), ScrapeError)  # type: ignore[misc]
