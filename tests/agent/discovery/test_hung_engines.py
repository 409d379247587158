"""Servers that hang: they cost their own figures, and nobody else's; over real sockets and processes."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import func, select

from pertoken.agent.discovery import MAX_READERS, EndpointWatch
from pertoken.agent.host.processes import start_ms
from pertoken.agent.readings import LATE, Endpoint
from pertoken.agent.recorder import Recorder
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.scrape import RequestLimits
from pertoken.config import load
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample, DeviceShare
from tests.agent.servers import answering, pages
from tests.agent.test_recorder import Drivers
from tests.agent.values import engine, gpu, moment, probe, tick_state
from tests.llama import LlamaServer, write_model
from tests.recorded import agent, newest, rows_of, scalar, until
from tests.values import new_store

SOON_S = 2.0
HUNG_S = 12
N_SILENT = 40
PAGE = 'vllm:generation_tokens_total{model_name="m"} %d\n'


@contextmanager
def silent() -> Iterator[str]:
    """Base URL of a port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_server_that_hangs_costs_other_engines_and_the_host_nothing(tmp_path: Path) -> None:
    """Beside it runs an agent that does not know the server that hangs: a busy machine takes as much time from both."""
    folder, spared, model = tmp_path / "db", tmp_path / "spared", write_model(tmp_path / "tiny.gguf")
    with ExitStack() as stack:
        hung, healthy = (stack.enter_context(LlamaServer(model)) for _ in range(2))
        stack.enter_context(agent(folder))
        stack.enter_context(agent(spared, "--engine", healthy.url, PERTOKEN_AGENT_DISCOVER="false"))
        known = ((folder, hung), (folder, healthy), (spared, healthy))
        until(lambda: all(observed_s(*endpoint) for endpoint in known), "rows of all")
        os.kill(hung.pid, signal.SIGSTOP)
        try:
            since = max(newest(folder), newest(spared))
            until(lambda: min(newest(folder), newest(spared)) > since + HUNG_S, "host rows of both")
        finally:
            os.kill(hung.pid, signal.SIGCONT)
        interval = since, since + HUNG_S
        assert host_observed_s(folder, *interval) >= 0.9 * host_observed_s(spared, *interval)
        assert observed_s(folder, healthy, *interval) >= 0.9 * observed_s(spared, healthy, *interval) > 0
        faults = select(func.count()).where(t.event.c.kind == "engine_timeout")
        assert scalar(folder, faults) >= 1
        hung.complete(list(range(20, 60)), generated=7)
        until(lambda: generated(folder, hung) == 7, "the tokens of the one that goes on")


def host_observed_s(folder: Path, since: int, until_ts: int) -> float:
    host = t.host_sample.c
    query = select(func.sum(host.observed_ms)).where(host.ts > since, host.ts <= until_ts)
    return float(scalar(folder, query) or 0) / 1000


def observed_s(folder: Path, server: LlamaServer, since: int = 0, until_ts: int = 2**62) -> float:
    row = t.deployment_sample.c
    query = rows_of(server, func.sum(row.observed_ms)).where(row.ts > since, row.ts <= until_ts)
    return float(scalar(folder, query) or 0) / 1000


def generated(folder: Path, server: LlamaServer) -> int:
    return int(scalar(folder, rows_of(server, func.sum(t.deployment_sample.c.generated_tokens))) or 0)


def test_servers_that_never_answer_hold_up_neither_a_start_nor_new_settings_nor_an_end(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with ExitStack() as stack:
        urls = [stack.enter_context(silent()) for _ in range(N_SILENT)]
        settings = load(
            None,
            {},
            db=str(tmp_path),
            agent_interval="1s",
            agent_discover=False,
            agent_cloud_metadata=False,
            agent_engines=urls,
        )
        recorder = Recorder(where, settings, Drivers())  # type: ignore[arg-type]
        steps: dict[str, Callable[[], None]] = {
            "start": recorder.begin,
            "settings": lambda: recorder.apply(replace(settings, agent_interval=2)),
            "tick": recorder.tick,
            "end": lambda: recorder.end(damaged=False),
        }
        took_s = {}
        for name, step in steps.items():
            started = time.monotonic()
            step()
            took_s[name] = time.monotonic() - started
    assert max(took_s.values()) < SOON_S, took_s
    assert newest(tmp_path) > 0


def test_silent_ports_are_asked_at_once_and_hold_up_no_other_server() -> None:
    with ExitStack() as stack:
        urls = [stack.enter_context(silent()) for _ in range(N_SILENT)]
        url = stack.enter_context(answering(pages({"/metrics": (PAGE % 5).encode()})))
        watch = EndpointWatch([*urls[:8], url, *urls[8:]], False, RequestLimits(timeout_s=0.5))
        watch.start_look()
        until(lambda: watch.endpoints or watch.unavailable, "the look", 20)
        assert [reading.base_url for reading in watch.look()] == [url]
        watch.close()


def test_a_server_that_hangs_in_each_tick_is_never_read_twice_at_once() -> None:
    entered: list[str] = []
    go_on = threading.Event()

    def answer(connection: socket.socket, path: str) -> None:
        entered.append(path)
        go_on.wait(20)
        pages({"/metrics": (PAGE % 5).encode()})(connection, path)

    with answering(answer) as url:
        watch = EndpointWatch([url], False, RequestLimits(timeout_s=20), endpoints=[Endpoint("vllm", url, "setting")])
        for _ in range(5):
            (reading,) = watch.read(wait_s=0.01)
            assert reading.fault_kind == LATE
        until(lambda: entered, "the request")
        assert entered == ["/metrics"]
        go_on.set()
        until(lambda: watch.read(wait_s=0.5)[0].fault is None, "the page")
        watch.close()


def test_more_hung_servers_than_threads_leave_the_tick_its_time() -> None:
    me = {"pid": os.getpid(), "process_start_ms": start_ms(os.getpid())}
    with ExitStack() as stack:
        urls = [stack.enter_context(silent()) for _ in range(MAX_READERS + 6)]
        endpoints = [Endpoint("vllm", url, "setting", **me) for url in urls]  # type: ignore[arg-type]
        watch = EndpointWatch(urls, False, RequestLimits(timeout_s=20), endpoints=endpoints)
        started = time.monotonic()
        assert {reading.fault_kind for reading in watch.read(wait_s=0.1)} == {LATE}
        assert time.monotonic() - started < SOON_S
        watch.close()


COST = AgentCost(1, 1, 1, 0)


def test_a_page_that_comes_late_counts_for_the_time_up_to_its_reading_and_leaves_no_gap() -> None:
    """Ticks of 10 s; the page of the second came 2 s after it, that of the third in time again."""
    late = engine(0, fault="still being read", fault_kind=LATE)
    steps = [
        engine(100),
        engine(110),
        late,
        replace(engine(130), read_ms=moment(2).monotonic_ms + 2_000),
        engine(140),
    ]
    kept, rows = tick_state(), []
    for n, reading in enumerate(steps):
        tick, kept = assemble(kept, Readings(probe(gpu(0, 100)), (reading,)), moment(n), COST if n else None)
        rows.append([sample for sample in tick.samples if isinstance(sample, DeploymentSample)])
        assert {event.kind for event in tick.events if event.kind.startswith("engine")} <= {"engine_found"}
        assert {share.epoch_id for share in tick.samples if isinstance(share, DeviceShare)} <= {
            epoch.epoch_id for epoch in kept.epochs.values()
        }
    assert rows[2] == []
    intervals = [(row.generated_tokens, row.duration_ms, row.observed_ms) for sample in rows for row in sample]
    assert intervals == [(10, 10_000, 10_000), (20, 12_000, 12_000), (10, 18_000, 18_000)]


def test_a_late_engine_keeps_its_devices_and_is_not_reported_as_stopped() -> None:
    late = engine(0, fault="still being read", fault_kind=LATE)
    kept = tick_state()
    for n, reading in enumerate((engine(100), engine(110), late)):
        tick, kept = assemble(kept, Readings(probe(gpu(0, 100)), (reading,)), moment(n), COST if n else None)
    (share,) = (sample for sample in tick.samples if isinstance(sample, DeviceShare) and sample.share_1e6 == 10**6)
    assert share.epoch_id in {epoch.epoch_id for epoch in kept.epochs.values()}
    assert not [event for event in tick.events if event.kind.startswith("engine")]
    assert not [capability for capability in tick.capabilities if capability.owner_id == tick.engines[0].engine_id]
