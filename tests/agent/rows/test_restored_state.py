"""Random lives of an engine, from pages to roll-ups: what is stored is what the last pages exposed, or it is marked.

Pages go through the real reader, ticks through the real store. An engine of these histories works, is restarted,
loses a counter, is upgraded to other metric names and shows broken pages; its agent is away, or is killed.
"""

import shutil
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.host.processes import HostProcesses
from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.restored_state import restored
from pertoken.agent.rows.tick_state import OBSERVED_TICKS, TickState
from pertoken.agent.scrape import Reply, RequestLimits
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.write.writer import Writer
from tests.agent.engine_pages import read_one
from tests.agent.values import START_MS, moment, probe, tick_state
from tests.examples import examples
from tests.values import new_store

NAMES = {
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "cached_tokens": ("vllm:prompt_tokens_cached_total", "vllm:prefix_cache_hits_total"),
    "generated_tokens": ("vllm:generation_tokens_total",),
}
"""Our words, and what releases of the engine call them: newest first."""
MODELS = b'{"data": [{"id": "tiny"}]}'
RANKS = ("0", "1", "2")
SERIES = [(word, rank) for word in NAMES for rank in RANKS]
STARTS = ("seen", "exposed", "unknown")
"""Whether the agent sees the process of the engine, or the page exposes when it started, or nothing does."""
BROKEN = ("NaN", "+Inf", "-Inf", "-1", "1e19", "cut", "twice", "rubbish")

moves = st.lists(
    st.one_of(
        st.tuples(st.just("work"), st.sampled_from(SERIES), st.sampled_from([0, 1, 7, 1000, 10**6])),
        st.tuples(st.just("burst"), st.sampled_from(SERIES), st.just(10**16)),
        st.tuples(st.just("read")),
        st.tuples(st.just("read")),
        st.tuples(st.just("read broken"), st.sampled_from(BROKEN)),
        st.tuples(st.just("read in two copies")),
        st.tuples(st.just("read without"), st.sampled_from(SERIES)),
        st.tuples(st.just("be away")),
        st.tuples(st.just("rename")),
        st.tuples(st.just("lose"), st.sampled_from(SERIES)),
        st.tuples(st.just("restart engine")),
        st.tuples(st.just("kill agent")),
    ),
    max_size=25,
)


@dataclass
class Engine:
    """Engine in its present life. Like a real one, it counts in floats."""

    started_ms: int
    newest: bool = True
    counts: dict[tuple[str, str], float] = field(default_factory=dict)

    def work(self, series: tuple[str, str], amount: int) -> None:
        self.counts[series] = self.counts.get(series, 0.0) + amount

    def page(self, without: tuple[str, str] | None = None, start: bool = False) -> bytes:
        lines = ["# TYPE vllm:prompt_tokens counter", "vllm:num_requests_running 0.0"]
        if start:
            lines.append(f"process_start_time_seconds {self.started_ms / 1000!r}")
        for (word, rank), count in self.counts.items():
            name = NAMES[word][0 if self.newest else -1]
            if (word, rank) != without:
                lines.append(f'{name}{{engine="{rank}",model_name="tiny"}} {count!r}')
        return ("\n".join(lines) + "\n").encode()

    def exposed(self) -> dict[tuple[str, str], int]:
        return {series: round(count) for series, count in self.counts.items()}


def damaged(page: bytes, how: str) -> bytes:
    """Return the page as it must not be believed."""
    head, _, number = page.rstrip(b"\n").rpartition(b" ")
    match how:
        case "cut":
            return page[: -1 - len(number)]
        case "twice":
            return page + head.split(b"\n")[-1] + b" 12345.5\n"
        case "rubbish":
            return page + b"<html>\n"
        case value:
            return head + b" " + value.encode() + b"\n"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A laid database that is copied for every history."""
    folder = tmp_path_factory.mktemp("empty")
    new_store(folder)
    return folder


class History:
    """One engine, one agent and its store; `expected` is counted beside them from the pages that were good."""

    def __init__(self, folder: Path, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.location, self.start = locate(str(folder)), start
        self.writer = Writer(self.location)
        self.n = 0
        self.tick_state: TickState = tick_state()
        self.engine = Engine(START_MS + 10_001)  # just after the baseline
        self.all: dict[str, int] = defaultdict(int)
        self.seen: dict[str, int] = defaultdict(int)
        self._good: dict[tuple[str, str], int] = {}
        self.base: dict[str, int] | None = None if start != "seen" else {}
        """What it had counted before the first page of it: ours only if its process is seen to be younger."""
        self.lost = self.known = self.restarted = self.unnoticed = False
        self.last_good = 0
        self.body = b""
        monkeypatch.setattr(
            "pertoken.agent.engines.reader.get",
            lambda url, limits: Reply(self.body if url.endswith("/metrics") else MODELS, "text/plain"),
        )
        self.reader = self._new_reader()
        self._tick(None, baseline=True)

    def _new_reader(self) -> EngineReader:
        return EngineReader(Endpoint("vllm", "http://gpu-1:8000", "setting"), RequestLimits(), processes=no_processes)

    def read(self, body: bytes, seen: dict[tuple[str, str], int] | None) -> None:
        self.body = body
        reading = read_one(self.reader)
        assert (reading.fault is None) == (seen is not None)
        self._good |= seen or {}
        if seen is not None:
            if self.base is None:
                self.base = defaultdict(int)
                for (word, _), count in seen.items():
                    self.base[word] += count
            # A restart right between two pages, from which it came back past all it had, is visible nowhere.
            self.unnoticed |= self.restarted and self.n + 1 - self.last_good <= OBSERVED_TICKS
            self.restarted, self.last_good = False, self.n + 1
        self.known = self.known or seen is not None  # lives before that one nobody could know of
        endpoint = Endpoint("vllm", "http://gpu-1:8000", "setting", 8000)
        if self.start == "seen":
            endpoint = replace(endpoint, pid=100, process_start_ms=self.engine.started_ms, pids=(100,))
        self._tick(replace(reading, endpoint=endpoint))

    def _page(self, without: tuple[str, str] | None = None) -> bytes:
        return self.engine.page(without, start=self.start == "exposed")

    def _tick(self, reading: EngineReading | None, baseline: bool = False) -> None:
        self.n += 1
        readings = Readings(probe(), (reading,) if reading else ())
        cost = None if baseline else AgentCost(1, 1, 1, 0)
        tick, self.tick_state = assemble(self.tick_state, readings, moment(self.n), cost)
        self.writer.commit(tick)

    def end_life(self) -> None:
        for (word, _), count in self.engine.exposed().items() if self.known else ():
            self.all[word] += count
        for (word, _), count in self._good.items():
            self.seen[word] += count
        self._good = {}

    def kill_agent(self) -> None:
        self.writer.close()
        self.writer = Writer(self.location)
        now_ms = moment(self.n).monotonic_ms
        self.tick_state = restored(self.writer.restored, probe(), (), wall_ms=now_ms, since_boot_ms=now_ms).tick_state
        self.reader = self._new_reader()
        self._tick(None, baseline=True)

    def move(self, what: str, *how: Any) -> None:
        match what:
            case "work":
                self.engine.work(*how)
            case "burst":  # more than a server can count: not stored, and the totals are not known by the pages
                self.engine.work(*how)
                self.lost = True
            case "rename":
                self.engine.newest = not self.engine.newest
            case "lose" if how[0] in self.engine.counts:
                self.lost = True
                self.all[how[0][0]] += round(self.engine.counts[how[0]]) if self.known else 0
                self.seen[how[0][0]] += self._good.pop(how[0], 0)
                self.engine.counts[how[0]] = 0.0
            case "restart engine":
                self.end_life()
                self.restarted = True
                self.engine = Engine(START_MS + 10_000 * self.n + 5_000, newest=self.engine.newest)
            case "kill agent":
                self.kill_agent()
            case "be away":
                self.n += 3
            case _ if not self.engine.counts:
                pass  # its page has no counters yet
            case "read":
                self.read(self._page(), self.engine.exposed())
            case "read in two copies":
                self.read(self._page() * 2, self.engine.exposed())
            case "read broken":
                self.read(damaged(self._page(), how[0]), None)
            case "read without":
                counts = {series: count for series, count in self.engine.exposed().items() if series != how[0]}
                if counts:
                    self.read(self._page(how[0]), counts)


def no_processes() -> HostProcesses:
    return HostProcesses({})


def totals(where: Any, table: Any) -> tuple[dict[str, int], dict[str, int]]:
    """Return (sums, least values) of the words of a table."""
    words = [table.c[word] for word in NAMES]
    with open_store(where).read() as connection:
        sums = connection.execute(select(*(func.coalesce(func.sum(word), 0) for word in words))).one()
        least = connection.execute(select(*(func.coalesce(func.min(word), 0) for word in words))).one()
    return dict(zip(NAMES, sums, strict=True)), dict(zip(NAMES, least, strict=True))


@settings(max_examples=examples(60), deadline=None)
@given(moves=moves, start=st.sampled_from(STARTS))
@example([("work", SERIES[0], 7), ("read",), ("work", SERIES[0], 7), ("restart engine",)], "seen")
@example([("work", SERIES[0], 7), ("read broken", "NaN"), ("kill agent",)], "seen")
@example([("work", SERIES[0], 7), ("read",), ("restart engine",), ("work", SERIES[0], 70), ("read",)], "exposed")
@example([("work", SERIES[0], 7), ("read",), ("restart engine",), ("be away",), ("work", SERIES[0], 70)], "unknown")
@example([*[("burst", SERIES[0], 10**16)] * 10, ("read",), ("restart engine",), ("work", SERIES[0], 7)], "unknown")
@example([("work", SERIES[0], 7), ("read",), *[("burst", SERIES[0], 10**16)] * 10, ("kill agent",)], "unknown")
@example([("work", SERIES[0], 7), ("read",), *[("burst", SERIES[0], 10**16)] * 10, ("restart engine",)], "unknown")
def test_totals_are_those_of_the_last_pages_or_marked_and_never_negative_nor_doubled(
    empty: Path, moves: list[tuple[Any, ...]], start: str
) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        shutil.copytree(empty, folder, dirs_exist_ok=True)
        history = History(Path(folder), start, patch)
        try:
            for move in [*moves, ("work", SERIES[0], 0), ("read",)]:
                history.move(*move)
            history.end_life()
            history.writer.roll_up()
            stored, least = totals(history.location, t.deployment_sample)
            with open_store(history.location).read() as connection:
                rows = t.deployment_sample
                marked = connection.execute(select(func.count()).where(rows.c.complete.is_(False))).scalar_one()
            assert all(count >= 0 for count in least.values())
            assert all(stored[word] <= history.all[word] for word in NAMES), (stored, dict(history.all))
            ours = {word: history.seen[word] - (history.base or {}).get(word, 0) for word in NAMES}
            if start != "unknown" and not history.lost:
                assert stored == ours
            if start == "seen" and not marked and not history.lost:
                assert all(stored[word] == history.all[word] for word in NAMES if history.seen[word])
            if start == "unknown" and not marked and not history.lost and not history.unnoticed:
                assert stored == ours
            for table in t.deployment_rollup.values():
                assert totals(history.location, table)[0] == stored
                with open_store(history.location).read() as connection:
                    assert (connection.execute(select(func.sum(table.c.incomplete_n))).scalar() or 0) == marked
        finally:
            history.writer.close()
