"""The whole way on a real server: found among this host's processes, read, and its tokens counted."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pertoken.agent.discovery import discover
from pertoken.agent.engines.adapters import tokens
from pertoken.agent.engines.adapters.adapter import EngineIdentity
from pertoken.agent.engines.reader import EngineReader, answers, detect
from pertoken.agent.host.processes import HostProcesses, host_processes, since_boot_ms, start_ms
from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.rows.assemble import Readings, assemble
from pertoken.agent.rows.counters import advance, process_life, word_totals
from pertoken.agent.scrape import RequestLimits
from pertoken.store.schema.rows import CounterState
from tests.agent.engine_pages import growth, identity, read_one, values
from tests.agent.values import moment, probe, tick_state
from tests.llama import ALIAS, CONTEXT, SLOTS, LlamaServer, write_model

LIMITS = RequestLimits(timeout_s=10)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def server(model: Path) -> Iterator[LlamaServer]:
    with LlamaServer(model) as running:
        yield running


@dataclass
class Meter:
    """Counting of an agent without a store: states survive it, totals are what it counted."""

    states: dict[str, CounterState] = field(default_factory=dict)
    watching_since_ms: int = 0
    totals: dict[str, int] = field(default_factory=dict)
    complete: bool = True

    def add(self, reading: EngineReading) -> None:
        assert reading.fault is None, reading.fault
        taken = advance(
            self.states,
            reading.counters,
            owner_id=1,
            life=process_life("boot-1", reading.endpoint.process_start_ms),
            ts=0,
            from_zero=(reading.endpoint.process_start_ms or 0) >= self.watching_since_ms,
            elapsed_s=3600,
        )
        self.states, self.complete = taken.states, self.complete and taken.complete
        for word, delta in tokens(word_totals(taken.deltas)).items():
            self.totals[word] = self.totals.get(word, 0) + (delta or 0)


def discovered(server: LlamaServer) -> Endpoint:
    """Return the one endpoint of the server among all that this host runs."""
    host = host_processes()
    mine = type(host)(
        {pid: process for pid, process in host.processes.items() if pid == server.pid},
        libraries=host.libraries,
        own_ips=host.own_ips,
    )
    (endpoint,) = discover(mine, lambda url: answers(url, LIMITS)).endpoints
    return endpoint


def test_a_server_inside_a_python_process_is_found_without_configuration(server: LlamaServer) -> None:
    discovery = discover(host_processes(), lambda url: answers(url, LIMITS))
    endpoint = next(endpoint for endpoint in discovery.endpoints if endpoint.port == server.port)
    assert (endpoint.kind, endpoint.base_url, endpoint.found_by) == ("llama.cpp", server.url, "process")
    assert (endpoint.pid, endpoint.process_start_ms) == (server.pid, start_ms(server.pid))
    assert server.pid in endpoint.pids


def test_a_server_named_by_a_setting_is_detected_with_its_process(server: LlamaServer) -> None:
    endpoint = detect(server.url, LIMITS)
    assert (endpoint.kind, endpoint.found_by, endpoint.pid) == ("llama.cpp", "setting", server.pid)


def test_a_server_reports_its_model_and_knobs(server: LlamaServer) -> None:
    reading = read_one(EngineReader(discovered(server), LIMITS))
    assert (reading.served_model, reading.model_path) == (ALIAS, str(server.model))
    assert reading.knobs == {"max_num_seqs": SLOTS, "max_model_len": CONTEXT, "weight_dtype": "fp32"}
    shape = {"n_layers": 2, "n_kv_heads": 4, "head_dim": 16}
    assert reading.model_facts == {"params_total": 115_392, "params_active": 115_392, **shape}
    assert reading.gauges == {"running": 0, "waiting": 0, "requests_per_step": 0}


def test_its_epoch_knows_how_it_is_laid_out_on_the_device_it_holds(server: LlamaServer) -> None:
    reading = read_one(EngineReader(discovered(server), LIMITS))
    tick, _ = assemble(tick_state(), Readings(probe(), (reading,)), moment(0), None)
    (epoch,) = tick.epochs
    layout = {"tp": 1, "pp": 1, "dp": 1}
    expected = {"max_num_seqs": SLOTS, "max_model_len": CONTEXT, "weight_dtype": "fp32"}
    assert json.loads(epoch.knobs) == {**layout, **expected}


def test_restarts_of_a_remote_server_are_distinguished(server: LlamaServer) -> None:
    endpoint = Endpoint("llama.cpp", server.url, "setting", server.port)
    reader = EngineReader(endpoint, LIMITS, processes=lambda: HostProcesses({}))
    lives = [read_one(reader).life_ms, read_one(reader).life_ms]
    server.restart()
    lives.append(read_one(reader).life_ms)
    assert lives[0] is not None and lives[0] == lives[1] != lives[2]


def test_tokens_are_exactly_those_of_the_server_and_of_its_clients(server: LlamaServer) -> None:
    reader, meter = EngineReader(discovered(server), LIMITS), Meter()
    meter.add(read_one(reader))
    usages = [server.complete(list(range(10, 10 + length)), generated) for length, generated in ((40, 7), (60, 5))]
    meter.add(read_one(reader))
    server.abort([5] * 50)
    meter.add(read_one(reader))
    assert [usage.generated_tokens for usage in usages] == [7, 5]
    assert meter.totals["prompt_tokens"] == 40 + 60 + 50
    assert meter.totals["cached_tokens"] == server.counter("prompt_tokens_cached_total") > 0
    assert meter.totals["computed_tokens"] == server.counter("prompt_tokens_total")
    assert meter.totals["generated_tokens"] == server.counter("tokens_predicted_total") > 7 + 5
    assert meter.complete


def test_tokens_served_before_the_agent_watched_are_not_counted(server: LlamaServer) -> None:
    server.complete([9] * 30, 4)
    reader, meter = EngineReader(discovered(server), LIMITS), Meter(watching_since_ms=since_boot_ms())
    meter.add(read_one(reader))
    server.complete([8] * 20, 3)
    meter.add(read_one(reader))
    assert (meter.totals["prompt_tokens"], meter.totals["generated_tokens"]) == (20, 3)
    assert meter.complete


def test_an_agent_that_restarts_loses_and_doubles_nothing(server: LlamaServer) -> None:
    before = Meter()
    before.add(read_one(EngineReader(discovered(server), LIMITS)))
    server.complete([9] * 30, 4)
    after = Meter(before.states, time.time_ns() // 1_000_000)
    after.add(read_one(EngineReader(discovered(server), LIMITS)))
    assert (after.totals["prompt_tokens"], after.totals["generated_tokens"]) == (30, 4)
    assert after.complete


def test_an_engine_that_restarts_is_counted_from_zero_and_marked(server: LlamaServer) -> None:
    reader, meter = EngineReader(discovered(server), LIMITS), Meter()
    server.complete([9] * 30, 4)
    meter.add(read_one(reader))
    server.complete([8] * 10, 2)  # nobody sees these: the server is killed first
    first = reader.endpoint
    server.restart()
    server.complete([7] * 200, 50)  # more than before: only the process shows that it is another
    meter.add(read_one(reader))
    assert reader.endpoint.pid == server.pid != first.pid
    assert (meter.totals["prompt_tokens"], meter.totals["generated_tokens"]) == (30 + 200, 4 + 50)
    assert not meter.complete


def test_a_server_that_is_gone_is_a_fault_until_it_is_back(server: LlamaServer) -> None:
    reader, meter = EngineReader(discovered(server), LIMITS), Meter()
    meter.add(read_one(reader))
    server.kill()
    assert read_one(reader).fault_kind == "closed"
    server.start()
    server.complete([9] * 30, 4)
    meter.add(read_one(reader))
    assert meter.totals["prompt_tokens"] == 30
    assert not meter.complete


def test_a_server_without_metrics_is_discovered_with_the_flag_that_enables_them(model: Path) -> None:
    with LlamaServer(model, metrics=False) as server:
        reading = read_one(EngineReader(discovered(server), LIMITS))
    assert reading.fault_kind == "metrics_off"
    assert "--metrics" in (reading.remedy or "")


def test_llama_cpp_tokens_are_computed_cached_and_generated() -> None:
    assert growth("llama.cpp", "llamacpp-metrics-before", "llamacpp-metrics-after") == {
        "prompt_tokens": 8283 + 49879,
        "cached_tokens": 49879,
        "computed_tokens": 8283,
        "generated_tokens": 86695,
        "prefill_ms": 698,
        "decode_ms": 82_790,
        "steps": 21_979,
        **dict.fromkeys(("spec_drafts", "spec_draft_tokens", "spec_accepted_tokens"), 0),
    }
    assert growth("llama.cpp", "llama-server-0.5.0dev-ngram-before", "llama-server-0.5.0dev-ngram-after") == {
        "prompt_tokens": 2867 + 14229,
        "cached_tokens": 14229,
        "computed_tokens": 2867,
        "generated_tokens": 18855,
        "prefill_ms": 144,
        "decode_ms": 14_300,
        "steps": 5_289,
        **dict.fromkeys(("spec_drafts", "spec_draft_tokens", "spec_accepted_tokens"), 0),
    }
    assert values("llama.cpp", "llamacpp-metrics-during").gauges == {
        "running": 4,
        "waiting": 12,
        "requests_per_step": 3.76382,
    }


def test_llama_cpp_reports_its_slots_their_context_and_its_parameters() -> None:
    replies = {"/props": "llamacpp-props.json", "/v1/models": "llamacpp-v1-models.json"}
    assert identity("llama.cpp", "llamacpp-metrics-after", replies) == EngineIdentity(
        served_model="tiny-llama",
        version="b0-unknown",
        model_path="tiny.gguf",
        model_facts={"params_total": 373120},
        knobs={"max_num_seqs": 4, "max_model_len": 1024, "weight_dtype": "fp32"},
    )
