import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.processes import with_process
from pertoken.agent.engines.reader import IDENTITY_S, REMEDIES, EngineReader, answers, detect, kind_at
from pertoken.agent.host.processes import Address, HostProcesses, Process, start_ms
from pertoken.agent.readings import LATE, Endpoint, EngineReading
from pertoken.agent.scrape import Reply, RequestLimits, ScrapeError
from tests.agent.engine_pages import read_one
from tests.agent.servers import Answer, answering, dripping, http, pages

CAPTURES = Path(__file__).parents[2] / "captures"
QUICK = RequestLimits(timeout_s=0.3, page_bytes=1_000_000)
PAGE = (CAPTURES / "vllm-0.32.0-metrics-after.prom").read_bytes()
VLLM = {
    "/metrics": PAGE,
    "/version": (CAPTURES / "vllm-0.32.0-version.json").read_bytes(),
    "/v1/models": (CAPTURES / "vllm-0.32.0-v1-models.json").read_bytes(),
}


def no_processes() -> HostProcesses:
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
        reading = read_one(EngineReader(remote(url), QUICK, processes=no_processes))
    assert reading.fault is None
    assert reading.counters['prompt_tokens{engine="0",model_name="tiny-llama"}'] == 6784
    assert reading.gauges == {"running": 0, "waiting": 0, "kv_use": 0, "awake": 1}
    assert reading.histograms is not None
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
        reader = EngineReader(remote(url), QUICK, processes=no_processes, clock=clock)
        for _ in range(3):
            read_one(reader)
        assert asked.count("/metrics") == 3
        assert asked.count("/version") == 1
        clock.s += IDENTITY_S
        read_one(reader)
    assert asked.count("/version") == 2


def test_the_reported_identity_of_an_engine_is_kept_when_it_is_no_longer_reported() -> None:
    replies: dict[str, bytes | tuple[int, bytes]] = dict(VLLM)
    clock = Clock()
    with answering(lambda connection, path: pages(replies)(connection, path)) as url:
        reader = EngineReader(remote(url), QUICK, processes=no_processes, clock=clock)
        read_one(reader)
        clock.s += IDENTITY_S
        replies["/version"] = b"<html>"
        reading = read_one(reader)
    assert (reading.fault, reading.version) == (None, "0.32.0")


def huge(connection: object, path: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")  # type: ignore[attr-defined]
    for _ in range(500):
        connection.sendall(b"a 1\n" * 25_000)  # type: ignore[attr-defined]


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
    limits = RequestLimits(timeout_s=0.3 if fault_kind == "timeout" else 10, page_bytes=1_000_000)
    with answering(answer) as url:
        reading = read_one(EngineReader(remote(url), limits, processes=no_processes))
    assert reading.fault_kind == fault_kind
    assert reading.fault and reading.remedy
    assert not (reading.counters or reading.gauges or reading.histograms)


def test_a_closed_port_is_a_fault() -> None:
    with answering(pages({})) as url:
        pass
    reading = read_one(EngineReader(remote(url), QUICK, processes=no_processes))
    assert (reading.fault_kind, reading.counters) == ("closed", {})


def test_llama_cpp_without_metrics_gives_the_flag_that_enables_them() -> None:
    with answering(pages({"/metrics": (501, b"{}")})) as url:
        reading = read_one(EngineReader(remote(url, "llama.cpp"), QUICK, processes=no_processes))
    assert reading.fault_kind == "metrics_off"
    assert "--metrics" in (reading.remedy or "")


def test_llama_cpp_that_does_not_name_its_model_is_not_counted() -> None:
    with answering(pages({"/metrics": b"llamacpp:prompt_tokens_total 1\n"})) as url:
        reading = read_one(EngineReader(remote(url, "llama.cpp"), QUICK, processes=no_processes))
    assert reading.fault is not None and "does not name the model" in reading.fault
    assert reading.counters == {}


def listener(port: int, start: int | None) -> Callable[[], HostProcesses]:
    me = Process(os.getpid(), 1, (), start, (Address("127.0.0.1", port),))
    return lambda: HostProcesses({me.pid: me})


def test_a_reader_identifies_the_process_again_after_a_restart() -> None:
    with answering(pages(VLLM)) as url:
        endpoint = remote(url)
        gone = Endpoint("vllm", url, "process", endpoint.port, pid=os.getpid(), process_start_ms=1)
        reader = EngineReader(gone, QUICK, processes=listener(endpoint.port or 0, start_ms(os.getpid())))
        reading = read_one(reader)
    assert reading.fault is None
    assert reading.endpoint.process_start_ms == start_ms(os.getpid()) != 1


def test_a_page_read_while_its_process_changes_is_not_counted() -> None:
    with answering(pages(VLLM)) as url:
        endpoint = remote(url)
        starts = iter([listener(endpoint.port or 0, None), no_processes])
        reader = EngineReader(endpoint, QUICK, processes=lambda: next(starts)())
        reading = read_one(reader)
    assert (reading.fault_kind, reading.counters) == ("closed", {})
    assert "changed" in (reading.fault or "")


def test_the_kind_is_recognised_by_the_page_or_by_the_owner_of_the_models() -> None:
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


@pytest.mark.parametrize(
    ("path", "page", "kind"),
    [
        ("/metrics", "sglang-0.5.23-collector", "sglang"),
        ("/metrics", "lmdeploy-0.18.0-collector", "lmdeploy"),
        ("/metrics", "tgi-written", "tgi"),
        ("/metrics", "triton-written", "triton"),
        ("/metrics", "dynamo-frontend-written", "dynamo-frontend"),
        ("/prometheus/metrics", "trtllm-collector", "trtllm"),
        ("/v1/metrics", "nim-1-written", "nim"),
        ("/v1/metrics", "vllm-0.32.0-metrics-after", "nim"),
    ],
)
def test_every_engine_is_recognised_by_its_page(path: str, page: str, kind: str) -> None:
    with answering(pages({path: (CAPTURES / f"{page}.prom").read_bytes()})) as url:
        assert kind_at(url, QUICK) == kind


def test_a_dynamo_worker_and_a_ray_node_are_not_taken_for_the_engine_they_run() -> None:
    worker = PAGE + b"dynamo_component_uptime_seconds 5\n"
    for body, kind in ((worker, "dynamo-vllm"), (PAGE.replace(b"vllm:", b"ray_vllm_"), "ray")):
        with answering(lambda connection, path, body=body: connection.sendall(http(body))) as url:  # type: ignore[misc]
            assert kind_at(url, QUICK) == kind


def test_the_queue_that_reading_empties_is_never_read() -> None:
    asked: list[str] = []
    replies = {
        "/v1/models": b'{"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}',
        "/prometheus/metrics": (CAPTURES / "trtllm-collector.prom").read_bytes(),
    }

    def answer(connection: object, path: str) -> None:
        asked.append(path)
        pages(replies)(connection, path)  # type: ignore[arg-type]

    with answering(answer) as url:
        assert kind_at(url, QUICK) == "trtllm"
        reading = read_one(EngineReader(remote(url, "trtllm"), QUICK, processes=no_processes))
        assert (reading.fault, reading.served_model, reading.knobs["tp"]) == (None, "llama-70b", 4)
        del replies["/prometheus/metrics"]
        assert kind_at(url, QUICK) == "trtllm"
        off = read_one(EngineReader(remote(url, "trtllm"), QUICK, processes=no_processes))
    assert off.fault_kind == "metrics_off"
    assert "return_perf_metrics" in (off.remedy or "")
    assert "/metrics" not in asked


def test_counts_of_several_models_where_there_should_be_one_are_refused() -> None:
    body = b'vllm:prompt_tokens_total{model_name="a"} 1\nvllm:prompt_tokens_total{model_name="b"} 2\n'
    with answering(pages({"/metrics": body})) as url:
        reading = read_one(EngineReader(remote(url), QUICK, processes=no_processes))
    assert (reading.fault_kind, reading.counters) == ("several_models", {})
    assert "a, b" in (reading.fault or "")


def test_each_model_of_a_node_of_several_is_an_engine_of_its_own() -> None:
    replies: dict[str, bytes | tuple[int, bytes]] = {
        "/metrics": b"""ray_vllm_prompt_tokens_total{model_name="a",ReplicaId="1"} 1
ray_vllm_prompt_tokens_total{model_name="a",ReplicaId="2"} 10
ray_vllm_num_requests_running{model_name="a"} 3
ray_vllm_prompt_tokens_total{model_name="b"} 2
"""
    }
    with answering(lambda connection, path: pages(replies)(connection, path)) as url:
        reader = EngineReader(remote(url, "ray"), QUICK, processes=no_processes)
        a, b = reader.read()
        replies["/metrics"] = (500, b"boom")
        faults = reader.read()
        replies["/metrics"] = b'ray_vllm_prompt_tokens_total{model_name="b"} 5\n'
        (left,) = reader.read()
    assert [(reading.served_model, reading.endpoint.model) for reading in (a, b)] == [("a", "a"), ("b", "b")]
    assert [sum(reading.counters.values()) for reading in (a, b, left)] == [11, 2, 5]
    assert (a.gauges, b.gauges) == ({"running": 3}, {})
    assert [(fault.endpoint.model, fault.fault_kind) for fault in faults] == [("a", "http"), ("b", "http")]


def test_tokens_counted_at_the_end_of_a_request_are_marked_late() -> None:
    replies = {"/metrics": (CAPTURES / "tgi-written.prom").read_bytes(), "/info": b'{"model_id": "org/m"}'}
    with answering(pages(replies)) as url:
        reading = read_one(EngineReader(remote(url, "tgi"), QUICK, processes=no_processes))
    late = {missing.metric for missing in reading.unavailable if missing.status == "late"}
    assert late == {"prompt_tokens", "generated_tokens"}


def test_when_its_process_started_is_read_from_the_page_of_one_process() -> None:
    with answering(pages(VLLM)) as url:
        assert read_one(EngineReader(remote(url), QUICK, processes=no_processes)).started_ms == 1_795_239_110_050
    many = (CAPTURES / "vllm-0.32.0-dp2-api2-after.prom").read_bytes()
    with answering(pages({**VLLM, "/metrics": many})) as url:
        assert read_one(EngineReader(remote(url), QUICK, processes=no_processes)).started_ms is None


def test_ollama_is_asked_each_time_what_it_has_loaded_and_has_no_tokens() -> None:
    replies: dict[str, bytes | tuple[int, bytes]] = {"/api/ps": b'{"models": [{"name": "a"}]}'}
    with answering(lambda connection, path: pages(replies)(connection, path)) as url:
        reader = EngineReader(remote(url, "ollama"), QUICK, processes=no_processes)
        first = read_one(reader)
        replies["/api/ps"] = b'{"models": [{"name": "b"}]}'
        second = read_one(reader)
        replies["/api/ps"] = b'{"models": []}'
        third = read_one(reader)
    assert (first.served_model, second.served_model) == ("a", "b")
    assert (first.fault, first.counters) == (None, {})
    assert [(missing.metric, missing.status) for missing in first.unavailable] == [
        ("tokens", "missing"),
        ("busy", "missing"),
    ]
    assert (third.fault_kind, third.counters) == ("no_model", {})


@pytest.mark.parametrize(
    ("kind", "page", "model"),
    [
        ("sglang", "sglang-0.5.23-collector", "tiny-llama"),
        ("trtllm", "trtllm-collector", "llama-70b"),
        ("triton", "triton-written", "tensorrt_llm"),
        ("lmdeploy", "lmdeploy-0.18.0-collector", "tiny-llama"),
        ("nim", "nim-1-written", "meta/llama-3.1-8b-instruct"),
        ("dynamo-vllm", "vllm-0.32.0-metrics-after", "tiny-llama"),
        ("dynamo-frontend", "dynamo-frontend-written", "llama-70b"),
    ],
)
def test_an_engine_that_shows_only_its_page_is_known_by_its_labels(kind: str, page: str, model: str) -> None:
    body = (CAPTURES / f"{page}.prom").read_bytes()
    with answering(pages({ADAPTERS[kind].metrics_path or "": body})) as url:
        reading = read_one(EngineReader(remote(url, kind), QUICK, processes=no_processes))
    assert (reading.fault, reading.served_model) == (None, model)
    unavailable = tuple(missing for missing in reading.unavailable if missing.status != "late")
    never = ADAPTERS[kind].no_tokens, ADAPTERS[kind].no_time
    assert unavailable == tuple(missing for missing in never if missing)


def test_tgi_reports_its_own_model() -> None:
    replies = {"/metrics": (CAPTURES / "tgi-written.prom").read_bytes(), "/info": b'{"model_id": "org/m"}'}
    with answering(pages(replies)) as url:
        assert read_one(EngineReader(remote(url, "tgi"), QUICK, processes=no_processes)).served_model == "org/m"


def test_vllm_behind_a_key_is_known_by_the_label_of_its_series() -> None:
    with answering(pages({"/metrics": PAGE, "/v1/models": (401, b"")})) as url:
        assert read_one(EngineReader(remote(url), QUICK, processes=no_processes)).served_model == "tiny-llama"


def test_an_endpoint_that_is_no_engine_is_refused_with_the_reason() -> None:
    with answering(pages({"/metrics": b"node_load1 1\n"})) as url:
        with pytest.raises(ScrapeError, match="none of the engines"):
            detect(url, QUICK, no_processes)
        assert answers(url, QUICK) is None
    with pytest.raises(ScrapeError, match="nothing answers"):
        detect(url, QUICK, no_processes)
    with answering(pages({"/metrics": (503, b"loading")})) as url, pytest.raises(ScrapeError, match="503"):
        detect(url, QUICK, no_processes)
    assert answers(url, QUICK) is None


def test_an_endpoint_of_this_host_is_detected_with_its_process() -> None:
    with answering(pages(VLLM)) as url:
        endpoint = detect(url, QUICK)
    assert (endpoint.kind, endpoint.found_by, endpoint.pid) == ("vllm", "setting", os.getpid())
    assert endpoint.process_start_ms == start_ms(os.getpid())


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        ((), "bf16"),
        (("--quantization", "bitsandbytes"), None),
        (("--config", "/etc/serve.yaml"), None),
        (("-q", "fp8"), "fp8"),
        (("--dtype", "auto"), "bf16"),
    ],
)
def test_a_checkpoint_decides_the_weights_unless_a_flag_or_a_file_may_ask_for_others(
    tmp_path: Path, flags: tuple[str, ...], dtype: str | None
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "torch_dtype": "bfloat16"}')
    argv = ("vllm", "serve", str(tmp_path), *flags)
    with answering(pages(VLLM | {"/v1/models": b'{"data": [{"id": "tiny-llama"}]}'})) as url:
        own = Process(os.getpid(), 1, argv, start_ms(os.getpid()))
        endpoint = with_process(remote(url), own, (own.pid,), argv)
        reading = read_one(EngineReader(endpoint, QUICK, processes=lambda: HostProcesses({own.pid: own})))
    assert reading.knobs.get("weight_dtype") == dtype


def test_a_router_of_llama_cpp_is_a_fault_that_names_it() -> None:
    refusal = {"/metrics": (400, b'{"error": {"message": "model name is missing"}}')}
    with answering(pages(refusal)) as url:
        reading = read_one(EngineReader(remote(url, "llama.cpp"), QUICK, processes=no_processes))
    assert (reading.fault_kind, reading.counters) == ("router", {})
    assert reading.fault is not None and "a router, which starts servers of its own" in reading.fault


def test_the_router_of_the_production_stack_is_not_taken_for_a_vllm() -> None:
    page = b'vllm:current_qps{server="http://a"} 3\nvllm:num_requests_running{server="http://a"} 1\n'
    with answering(pages({"/metrics": page})) as url, pytest.raises(ScrapeError, match="is a router") as raised:
        detect(url, QUICK, no_processes)
    assert raised.value.kind in REMEDIES


@pytest.mark.parametrize("models", [b'{"data": []}', b'{"data": [{"id": "hf.co/a/b", "owned_by": "hf.co"}]}'])
def test_ollama_is_known_by_its_greeting_whoever_owns_its_newest_model(models: bytes) -> None:
    with answering(pages({"/v1/models": models, "/": b"Ollama is running"})) as url:
        assert kind_at(url, QUICK) == "ollama"


def test_tokens_of_vllm_in_triton_count_for_each_of_its_models() -> None:
    page = (
        'nv_inference_request_success{model="a",version="1"} 4\n'
        'vllm:prompt_tokens_total{model="a",version="1"} 1000\n'
        'vllm:generation_tokens_total{model="a",version="1"} 50\n'
        'vllm:prompt_tokens_total{model="b",version="2"} 7\n'
        'vllm:generation_tokens_total{model="b",version="2"} 3\n'
    )
    with answering(pages({"/metrics": page.encode()})) as url:
        assert kind_at(url, QUICK) == "triton"
        readings = EngineReader(remote(url, "triton"), QUICK, processes=no_processes).read()
    assert [(reading.served_model, reading.fault) for reading in readings] == [("a", None), ("b", None)]
    assert [reading.counters[f'prompt_tokens{{model="{model}",version="{version}"}}']
            for reading, model, version in zip(readings, "ab", "12", strict=True)] == [1000, 7]  # fmt: skip
    assert not any(missing.metric == "tokens" for reading in readings for missing in reading.unavailable)


def test_a_model_of_another_backend_of_triton_is_named_and_has_no_tokens() -> None:
    page = b'nv_inference_request_success{model="resnet",version="1"} 4\n'
    with answering(pages({"/metrics": page})) as url:
        reading = read_one(EngineReader(remote(url, "triton"), QUICK, processes=no_processes))
    assert (reading.served_model, reading.fault) == ("resnet", None)
    assert any(missing.metric == "tokens" for missing in reading.unavailable)


@pytest.mark.parametrize(
    ("config", "series", "is_marked"),
    [
        ('{"kv_connector":"MooncakeConnector","kv_role":"kv_both"}', "", True),
        ('{"kv_connector":"MooncakeConnector","kv_role":"kv_consumer"}', "", False),
        ('{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}', "", False),
        (
            '{"kv_connector":"NixlConnector","kv_role":"kv_both"}',
            'vllm:prompt_tokens_by_source_total{source="external_kv_transfer",model_name="m"} 0\n',
            False,
        ),
    ],
)
def test_prompts_that_two_servers_may_count_are_marked(config: str, series: str, is_marked: bool) -> None:
    argv = ("vllm", "serve", "m", "--kv-transfer-config", config)
    page = 'vllm:prompt_tokens_total{model_name="m"} 9\nvllm:generation_tokens_total{model_name="m"} 4\n' + series
    with answering(pages({"/metrics": page.encode()})) as url:
        own = Process(os.getpid(), 1, argv, start_ms(os.getpid()))
        endpoint = with_process(remote(url), own, (own.pid,), argv)
        reading = read_one(EngineReader(endpoint, QUICK, processes=lambda: HostProcesses({own.pid: own})))
    assert any(missing.metric == "transferred_tokens" for missing in reading.unavailable) == is_marked


class SleepingServer:
    """A llama-server that unloads its model when idle, and what it is asked."""

    def __init__(self, build: str = "b9760-6ee0f6579") -> None:
        self.build, self.is_sleeping, self.tokens, self.running = build, False, 5, 0
        self.asked: list[str] = []
        self.clock = Clock()

    def get(self, url: str, limits: RequestLimits) -> Reply:
        path = "/" + url.rpartition("/")[2]
        self.asked.append(path)
        if path == "/metrics":
            text = f"llamacpp:tokens_predicted_total {self.tokens}\nllamacpp:requests_processing {self.running}\n"
            return Reply(text.encode(), "text/plain")
        if path == "/props":
            props = {"model_path": "/m.gguf", "build_info": self.build, "is_sleeping": self.is_sleeping}
            return Reply(json.dumps(props).encode(), "application/json")
        raise ScrapeError("http", "none", 404)

    def reader(self, monkeypatch: pytest.MonkeyPatch, sleep_after_s: int | None = 60) -> EngineReader:
        monkeypatch.setattr("pertoken.agent.engines.reader.get", self.get)
        knobs: dict[str, object] = {} if sleep_after_s is None else {"sleep_after_s": sleep_after_s}
        own = Process(os.getpid(), 1, ("llama-server",), start_ms(os.getpid()))
        endpoint = replace(
            remote("http://127.0.0.1:9", "llama.cpp"), pid=own.pid, process_start_ms=own.start_ms, knobs=knobs
        )
        return EngineReader(endpoint, QUICK, processes=no_processes, clock=self.clock)

    def read(self, reader: EngineReader, after_s: float = 0) -> EngineReading:
        """Return the reading after some time, with `asked` of this read alone."""
        self.clock.s += after_s
        self.asked.clear()
        return read_one(reader)


def test_a_server_that_its_page_keeps_awake_is_left_alone_until_it_may_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SleepingServer()
    reader = server.reader(monkeypatch)
    assert server.read(reader).counters == {"generated_tokens": 5}
    for _ in range(6):
        reading = server.read(reader, 10)
        assert (reading.fault_kind, server.asked) == (LATE, ["/props"])
    server.is_sleeping = True
    reading = server.read(reader, 10)
    assert (reading.fault, reading.counters, reading.gauges["awake"]) == (None, {"generated_tokens": 5}, 0)
    assert server.asked == ["/props"]


def test_a_server_that_woke_or_did_not_fall_asleep_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SleepingServer()
    reader = server.reader(monkeypatch)
    server.read(reader)
    server.tokens = 9
    assert server.read(reader, 63).counters == {"generated_tokens": 9}
    server.is_sleeping = True
    assert server.read(reader, 63).gauges["awake"] == 0
    server.is_sleeping, server.tokens, server.running = False, 12, 1
    for _ in range(3):
        assert server.read(reader, 5).counters == {"generated_tokens": 12}
        assert "/metrics" in server.asked


@pytest.mark.parametrize(
    ("build", "sleep_after_s"), [("b9760", None), ("b11549-1", 60), ("b12001-1", 60), ("b20000", 60)]
)
def test_a_server_that_its_page_does_not_keep_awake_is_read_each_time(
    monkeypatch: pytest.MonkeyPatch, build: str, sleep_after_s: int | None
) -> None:
    server = SleepingServer(build)
    reader = server.reader(monkeypatch, sleep_after_s)
    for _ in range(3):
        assert server.read(reader, 5).fault is None
        assert "/metrics" in server.asked
