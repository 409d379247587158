"""Busy time of a real server, by its own counters."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.scrape import RequestLimits
from pertoken.provenance import Provenance
from pertoken.units import NANO_USD
from tests.agent.engine_pages import read_one
from tests.agent.rows.busy.agent import Agent, report_of
from tests.agent.values import ENDPOINT
from tests.llama import LlamaServer, Shape, write_model
from tests.load import Load
from tests.values import new_store

DEADLINE_S = 60.0
LIMITS = RequestLimits(timeout_s=20)
SLOW = Shape(width=256, heads=4, layers=4, hidden=512)
"""Of a model that takes about 1 ms a token, so that requests last."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "slow.gguf", shape=SLOW)


@pytest.fixture
def server(model: Path) -> Iterator[LlamaServer]:
    with LlamaServer(model) as running:
        yield running


def reader_of(server: LlamaServer) -> EngineReader:
    return EngineReader(Endpoint("llama.cpp", server.url, "setting", server.port), LIMITS)


def test_a_server_with_little_to_do_is_busy_for_as_long_as_its_own_counters_report(
    server: LlamaServer, tmp_path: Path
) -> None:
    reader, agent = reader_of(server), Agent(new_store(tmp_path))
    endpoint = ENDPOINT

    def read() -> EngineReading:
        return replace(read_one(reader), endpoint=endpoint)

    agent.tick(read())
    for n in range(12):
        if n % 4 == 0:
            server.complete(list(range(10 + n, 40 + n)), 8)
        agent.tick(read())
    worked_s = server.seconds("prompt_seconds_total") + server.seconds("tokens_predicted_seconds_total")
    assert 0 < worked_s < 5
    assert agent.busy_ms == pytest.approx(1000 * worked_s, abs=2)
    assert {row.busy_provenance for row in agent.rows} == {Provenance.COUNTER}  # one request at a time

    report = report_of(new_store(tmp_path), 10, 12)
    (line,) = report.deployments
    assert line.busy == pytest.approx(worked_s / 120, abs=1e-4)
    assert (line.busy_provenance, line.busy_is_bound) == ("counter", False)
    assert report.bill is not None
    held = report.bill.busy + report.bill.idle
    assert held == pytest.approx(10 * NANO_USD * 120 / 3600, rel=1e-6)
    assert report.bill.busy == pytest.approx(held * worked_s / 120, rel=0.01, abs=held * 1e-4)
    assert report.bill.paid == held + report.bill.other + report.bill.unallocated
    assert not report.bill.busy_is_bound


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def test_a_server_under_full_load_is_busy_all_the_time_and_never_longer(server: LlamaServer) -> None:
    reader, agent = reader_of(server), Agent()
    start = now_ms()
    with Load(lambda n: server.complete([10 + n % 200] * 20, 60), clients=8) as load:
        deadline = time.monotonic() + DEADLINE_S
        for served in (20, 40, 60, 80, 100):
            while load.served < served:
                assert time.monotonic() < deadline, "the server serves nothing"
                time.sleep(0.01)
            agent.tick(read_one(reader), at_ms=now_ms() - start)
    observed_ms = sum(row.observed_ms for row in agent.rows)
    assert all(row.busy_ms is not None and row.busy_ms <= row.observed_ms for row in agent.rows)
    assert 0.8 * observed_ms < agent.busy_ms <= observed_ms
    assert agent.rows[-1].busy_provenance == Provenance.BOUND


def test_requests_that_ran_in_parallel_are_not_counted_once_each(server: LlamaServer) -> None:
    reader, agent = reader_of(server), Agent()
    agent.tick(read_one(reader))
    start = now_ms()
    clients = [threading.Thread(target=server.complete, args=([10 + n] * 20, 300)) for n in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    wall_ms = now_ms() - start
    agent.tick(read_one(reader), step_ms=20_000)
    summed_ms = 1000 * server.seconds("tokens_predicted_seconds_total")
    assert summed_ms > 2 * wall_ms
    # Far below the time of the tick, so it is no cap that makes it right.
    assert 0.7 * wall_ms < agent.busy_ms < 1.3 * wall_ms
    assert agent.rows[-1].busy_provenance == Provenance.BOUND


def test_time_that_is_counted_when_a_long_request_ends_is_all_reported_in_the_end(server: LlamaServer) -> None:
    reader, agent = reader_of(server), Agent()
    agent.tick(read_one(reader))
    client = threading.Thread(target=server.complete, args=([7] * 30, 1500))
    start, deadline = now_ms(), time.monotonic() + DEADLINE_S
    client.start()
    while client.is_alive():
        agent.tick(read_one(reader), at_ms=now_ms() - start)
        client.join(0.1)
    assert len(agent.rows) > 3, "the request was too short to measure"
    agent.tick(read_one(reader), at_ms=now_ms() - start)
    worked_ms = 1000 * (server.seconds("prompt_seconds_total") + server.seconds("tokens_predicted_seconds_total"))
    counted_late = agent.busy_ms < 0.9 * worked_ms
    while agent.busy_ms < 0.98 * worked_ms:
        assert time.monotonic() < deadline, f"{agent.busy_ms} of {worked_ms} ms were reported"
        agent.tick(read_one(reader), step_ms=500)
    assert counted_late
    assert all((row.busy_ms or 0) <= row.observed_ms for row in agent.rows)
    for _ in range(5):
        agent.tick(read_one(reader), step_ms=500)
    # A page is read some milliseconds before its tick is stamped: the first ones of a request may lie before it.
    assert 0.98 * worked_ms < agent.busy_ms < worked_ms + 2


def test_buckets_are_not_read_for_it(server: LlamaServer) -> None:
    reader = reader_of(server)
    read_one(reader)
    server.complete([9] * 30, 4)
    between = read_one(reader, latencies=False)
    assert between.histograms is None
    assert between.counters["prefill_ms"] + between.counters["decode_ms"] > 0
