"""Latencies are read less often than tokens, and yet every observation that a page exposed is stored, once."""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pertoken.agent.clocks import LATENCY_S, reads_latencies
from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.host.processes import HostProcesses
from pertoken.agent.readings import Endpoint
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.agent.scrape import Reply, RequestLimits
from pertoken.store.schema.rows import DeploymentSample, HistogramSample, Tick
from tests.agent.engine_pages import read_one
from tests.agent.values import START_MS, probe, tick_state

BOUNDS = ("0.1", "1.0", "+Inf")
STARTS = ("seen", "exposed", "unknown")
"""Whether the agent sees the process of the engine, or the page exposes when it started, or nothing does."""


@dataclass
class Engine:
    started_ms: int
    tokens: int = 0
    observed: Counter[int] = field(default_factory=Counter)
    """By bucket."""

    def page(self, start: str) -> bytes:
        lines = ["vllm:num_requests_running 1.0", f'vllm:generation_tokens_total{{model_name="tiny"}} {self.tokens}']
        if start == "exposed":
            lines.append(f"process_start_time_seconds {self.started_ms / 1000!r}")
        below = 0
        for bucket, bound in enumerate(BOUNDS):
            below += self.observed[bucket]
            name = "vllm:time_to_first_token_seconds_bucket"
            lines.append(f'{name}{{le="{bound}",model_name="tiny"}} {below}')
        return ("\n".join(lines) + "\n").encode()


class Watched:
    """An engine and the agent that reads it each second, as the recorder does."""

    def __init__(self, start: str, patch: pytest.MonkeyPatch) -> None:
        self.start, self.engine = start, Engine(START_MS + 1)
        self.tick_state: TickState = tick_state()
        self.reader = EngineReader(
            Endpoint("vllm", "http://gpu-1:8000", "setting"), RequestLimits(), processes=lambda: HostProcesses({})
        )
        self.last_ts: int | None = None
        self.ticks: list[Tick] = []
        self.read_at: list[int] = []
        self.expected: Counter[int] = Counter()
        self.exposed: Counter[int] = Counter()
        """By the last page of this life whose latencies were read."""
        patch.setattr(
            "pertoken.agent.engines.reader.get",
            lambda url, limits: Reply(
                self.engine.page(start) if url.endswith("/metrics") else b'{"data": [{"id": "tiny"}]}', "text/plain"
            ),
        )

    def tick(self) -> None:
        n = len(self.ticks)
        ts = START_MS // 1000 + n
        reading = read_one(self.reader, latencies=n == 0 or reads_latencies(ts, self.last_ts))
        if reading.histograms is not None:
            self.exposed = self.engine.observed.copy()
            self.read_at.append(ts)
        endpoint = Endpoint("vllm", "http://gpu-1:8000", "setting", 8000)
        if self.start == "seen":
            endpoint = replace(endpoint, pid=100, process_start_ms=self.engine.started_ms, pids=(100,))
        moment = Moment(ts, START_MS + 1000 * n, START_MS + 1000 * n, 1)
        readings = Readings(probe(), (replace(reading, endpoint=endpoint),) if n else ())
        tick, self.tick_state = assemble(self.tick_state, readings, moment, AgentCost(1, 1, 1, 0) if n else None)
        self.last_ts = ts
        self.ticks.append(tick)

    def restart(self) -> None:
        self.expected += self.exposed
        self.exposed = Counter()
        self.engine = Engine(START_MS + 1000 * len(self.ticks) - 500)

    def stored(self) -> Counter[int]:
        totals: Counter[int] = Counter()
        for sample in self.samples(HistogramSample):
            assert sample.count > 0
            totals[sample.bucket] += sample.count
        return totals

    def samples(self, kind: type[Any]) -> list[Any]:
        return [sample for tick in self.ticks for sample in tick.samples if isinstance(sample, kind)]


moves = st.lists(
    st.one_of(
        st.tuples(st.just("observe"), st.sampled_from((0, 1, 2)), st.sampled_from((1, 3, 50))),
        st.tuples(st.just("generate"), st.sampled_from((1, 500)), st.just(0)),
        st.tuples(st.just("tick"), st.integers(1, 7), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@given(moves=moves, start=st.sampled_from(STARTS))
@example([("observe", 0, 3), ("tick", 2, 0), ("observe", 1, 1), ("restart", 0, 0), ("tick", 1, 0)], "seen")
@example([("observe", 0, 3), ("tick", 6, 0), ("restart", 0, 0), ("observe", 1, 1), ("tick", 1, 0)], "exposed")
@example([("generate", 5, 0), ("tick", 2, 0), ("restart", 0, 0), ("observe", 2, 1), ("tick", 2, 0)], "unknown")
def test_latencies_of_pages_are_stored_once_across_restarts(moves: list[tuple[Any, ...]], start: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        watched = Watched(start, patch)
        watched.tick()
        restarts = 0
        for what, one, two in moves:
            match what:
                case "observe":
                    watched.engine.observed[one] += two
                case "generate":
                    watched.engine.tokens += one
                case "tick":
                    for _ in range(one):
                        watched.tick()
                case "restart" if len(watched.ticks) > 1 and watched.engine.tokens:
                    watched.tick()
                    watched.restart()
                    watched.tick()
                    restarts += 1
        for _ in range(LATENCY_S):
            watched.tick()
        assert watched.stored() == watched.expected + watched.exposed
        events = [event for tick in watched.ticks for event in tick.events if event.kind == "engine_restarted"]
        assert len(events) == restarts, "one restart is reported once, not again when its latencies are read"
        assert sum(not sample.complete for sample in watched.samples(DeploymentSample)) == restarts
        assert all(after - before <= LATENCY_S for before, after in pairwise(watched.read_at))


def test_they_are_read_in_the_first_tick_of_each_interval_however_ticks_fall() -> None:
    assert [ts for ts in range(100, 121) if reads_latencies(ts, ts - 1)] == [100, 105, 110, 115, 120]
    assert [ts for ts in range(100, 121, 2) if reads_latencies(ts, ts - 2)] == [100, 106, 110, 116, 120]
    assert all(reads_latencies(ts, ts - 10) for ts in range(100, 161, 10))
    assert reads_latencies(108, 104), "the tick of 105 was missed"
    assert reads_latencies(101, None), "the first"


def test_a_first_page_is_asked_for_once_and_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    watched, asked = Watched("seen", monkeypatch), []
    page = watched.engine.page("seen")

    def get(url: str, limits: RequestLimits) -> Reply:
        asked.append(url.rpartition("/")[2])
        return Reply(page if url.endswith("/metrics") else b'{"data": [{"id": "tiny"}]}', "text/plain")

    monkeypatch.setattr("pertoken.agent.engines.reader.get", get)
    assert read_one(watched.reader, latencies=False).histograms is not None
    assert asked.count("metrics") == 1
    assert read_one(watched.reader, latencies=False).histograms is None
    assert asked.count("metrics") == 2
