import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pertoken.agent.engines.reader import IDENTITY_S, EngineReader, answers, detect, kind_at
from pertoken.agent.processes import Address, HostProcesses, Process, start_ms
from pertoken.agent.readings import Endpoint
from pertoken.agent.scrape import Limits, ScrapeError
from tests.agent.servers import Answer, answering, dripping, http, pages

CAPTURES = Path(__file__).parents[2] / "captures"
QUICK = Limits(timeout_s=0.3, page_bytes=1_000_000)
PAGE = (CAPTURES / "vllm-0.32.0-metrics-after.prom").read_bytes()
VLLM = {
    "/metrics": PAGE,
    "/version": (CAPTURES / "vllm-0.32.0-version.json").read_bytes(),
    "/v1/models": (CAPTURES / "vllm-0.32.0-v1-models.json").read_bytes(),
}


def nobody() -> HostProcesses:
    return HostProcesses({})


def remote(url: str, kind: str = "vllm") -> Endpoint:
    return Endpoint(kind, url, "setting", int(url.rpartition(":")[2]))


class Clock:
    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def test_a_vllm_page_becomes_counters_gauges_histograms_and_identity() -> None:
    with answering(pages(VLLM)) as url:
        reading = EngineReader(remote(url), QUICK, processes=nobody).read()
    assert reading.fault is None
    assert reading.counters['prompt_tokens{engine="0",model_name="tiny-llama"}'] == 6784
    assert reading.gauges == {"running": 0, "waiting": 0, "kv_use": 0, "awake": 1}
    assert sum(reading.histograms['ttft_s{engine="0",model_name="tiny-llama"}'].counts) == 41
    assert (reading.served_model, reading.version, reading.model_path) == (
        "tiny-llama",
        "0.32.0",
        "/models/tiny-llama",
    )
    assert reading.knobs["max_model_len"] == 1024


def test_the_engine_is_asked_who_it_is_only_now_and_then() -> None:
    asked: list[str] = []

    def answer(connection: object, path: str) -> None:
        asked.append(path)
        pages(VLLM)(connection, path)  # type: ignore[arg-type]

    clock = Clock()
    with answering(answer) as url:
        reader = EngineReader(remote(url), QUICK, processes=nobody, clock=clock)
        for _ in range(3):
            reader.read()
        assert asked.count("/metrics") == 3
        assert asked.count("/version") == 1
        clock.s += IDENTITY_S
        reader.read()
    assert asked.count("/version") == 2


def test_what_an_engine_said_of_itself_is_kept_when_it_cannot_say_it_again() -> None:
    replies: dict[str, bytes | tuple[int, bytes]] = dict(VLLM)
    clock = Clock()
    with answering(lambda connection, path: pages(replies)(connection, path)) as url:
        reader = EngineReader(remote(url), QUICK, processes=nobody, clock=clock)
        reader.read()
        clock.s += IDENTITY_S
        replies["/version"] = b"<html>"
        reading = reader.read()
    assert (reading.fault, reading.version) == (None, "0.32.0")


def huge(connection: object, path: str) -> None:
    connection.sendall(http(b"a 1\n" * 12_500_000))  # type: ignore[attr-defined]


def bomb(connection: object, path: str) -> None:
    body = gzip.compress(b"a 1\n" * 12_500_000, 1)
    connection.sendall(http(body, "Content-Encoding: gzip"))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answer", "fault_kind"),
    [
        (pages({"/metrics": (500, b"boom")}), "http"),
        (pages({"/metrics": b"<html>\n"}), "malformed"),
        (pages({**VLLM, "/metrics": PAGE[:20_000]}), "malformed"),
        (pages({**VLLM, "/metrics": PAGE.replace(b"} 2563.0", b"} NaN")}), "malformed"),
        (pages({**VLLM, "/v1/models": b"<html>"}), "malformed"),
        (pages({**VLLM, "/metrics": b"python_info 1\n"}), "metrics_off"),
        (huge, "too_large"),
        (bomb, "too_large"),
        (dripping(b"HTTP/1.1 200 OK\r\n\r\n"), "timeout"),
    ],
)
def test_a_page_that_cannot_be_used_is_a_fault_with_a_remedy_and_counts_nothing(
    answer: Answer, fault_kind: str
) -> None:
    limits = Limits(timeout_s=0.3 if fault_kind == "timeout" else 10, page_bytes=1_000_000)
    with answering(answer) as url:
        reading = EngineReader(remote(url), limits, processes=nobody).read()
    assert reading.fault_kind == fault_kind
    assert reading.fault and reading.remedy
    assert not (reading.counters or reading.gauges or reading.histograms)


def test_a_closed_port_is_a_fault() -> None:
    with answering(pages({})) as url:
        pass
    reading = EngineReader(remote(url), QUICK, processes=nobody).read()
    assert (reading.fault_kind, reading.counters) == ("closed", {})


def test_llama_cpp_without_metrics_says_how_to_switch_them_on() -> None:
    with answering(pages({"/metrics": (501, b"{}")})) as url:
        reading = EngineReader(remote(url, "llama.cpp"), QUICK, processes=nobody).read()
    assert reading.fault_kind == "metrics_off"
    assert "--metrics" in (reading.remedy or "")


def test_llama_cpp_that_does_not_name_its_model_is_not_counted() -> None:
    with answering(pages({"/metrics": b"llamacpp:prompt_tokens_total 1\n"})) as url:
        reading = EngineReader(remote(url, "llama.cpp"), QUICK, processes=nobody).read()
    assert reading.fault is not None and "which model" in reading.fault
    assert reading.counters == {}


def listener(port: int, start: int | None) -> Callable[[], HostProcesses]:
    me = Process(os.getpid(), 1, (), start, (Address("127.0.0.1", port),))
    return lambda: HostProcesses({me.pid: me})


def test_a_reader_finds_the_process_anew_after_it_was_restarted() -> None:
    with answering(pages(VLLM)) as url:
        endpoint = remote(url)
        gone = Endpoint("vllm", url, "process", endpoint.port, pid=os.getpid(), process_start_ms=1)
        reader = EngineReader(gone, QUICK, processes=listener(endpoint.port or 0, start_ms(os.getpid())))
        reading = reader.read()
    assert reading.fault is None
    assert reading.endpoint.process_start_ms == start_ms(os.getpid()) != 1


def test_a_page_whose_process_changed_meanwhile_is_not_counted() -> None:
    with answering(pages(VLLM)) as url:
        endpoint = remote(url)
        starts = iter([listener(endpoint.port or 0, None), nobody])
        reader = EngineReader(endpoint, QUICK, processes=lambda: next(starts)())
        reading = reader.read()
    assert (reading.fault_kind, reading.counters) == ("closed", {})
    assert "changed" in (reading.fault or "")


def test_the_kind_is_told_by_the_page_or_by_the_owner_of_the_models() -> None:
    models = b'{"data": [{"id": "m", "owned_by": "%s"}]}'
    cases: list[tuple[dict[str, bytes | tuple[int, bytes]], str | None]] = [
        ({"/metrics": b"# HELP x\nvllm:a 1\n"}, "vllm"),
        ({"/metrics": b"llamacpp:a 1\n"}, "llama.cpp"),
        ({"/metrics": (501, b"{}"), "/v1/models": models % b"llamacpp"}, "llama.cpp"),
        ({"/metrics": b"python_info 1\n", "/v1/models": models % b"vllm"}, "vllm"),
        ({"/metrics": (404, b""), "/v1/models": models % b"library"}, "ollama"),
        ({"/metrics": (404, b""), "/v1/models": models % b"somebody"}, None),
        ({"/metrics": b"node_load1 1\n"}, None),
    ]
    for replies, kind in cases:
        with answering(pages(replies)) as url:
            assert kind_at(url, QUICK) == kind


def test_an_endpoint_that_is_no_engine_is_refused_with_the_reason() -> None:
    with answering(pages({"/metrics": b"node_load1 1\n"})) as url:
        with pytest.raises(ScrapeError, match="none of the engines"):
            detect(url, QUICK, nobody)
        assert answers(url, QUICK) is None
    with pytest.raises(ScrapeError, match="nothing answers"):
        detect(url, QUICK, nobody)
    with answering(pages({"/metrics": (503, b"loading")})) as url, pytest.raises(ScrapeError, match="503"):
        detect(url, QUICK, nobody)
    assert answers(url, QUICK) is None


def test_an_endpoint_of_this_host_is_detected_with_its_process() -> None:
    with answering(pages(VLLM)) as url:
        endpoint = detect(url, QUICK)
    assert (endpoint.kind, endpoint.found_by, endpoint.pid) == ("vllm", "setting", os.getpid())
    assert endpoint.process_start_ms == start_ms(os.getpid())
