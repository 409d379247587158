"""Busy time: what an engine's own counters report, never more than it can have worked."""

import getpass
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from math import floor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.readings import Endpoint, EngineReading, Gap
from pertoken.agent.rows.assemble import Cost, Readings, assemble
from pertoken.agent.rows.busy import Stretch, busy
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.agent.scrape.http import Limits
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.report.lines import FleetReport
from pertoken.provenance import Provenance
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.rows import DeploymentSample, DeviceShare, Tick
from pertoken.store.write.writer import Writer
from pertoken.units import NANO_USD
from tests.agent.engine_pages import read_one, values
from tests.agent.values import ENDPOINT, START_MS, engine, gpu, memory, probe
from tests.llama import LlamaServer, Shape, write_model
from tests.load import Load
from tests.values import laid

DEADLINE_S = 60.0
LIMITS = Limits(timeout_s=20)
SLOW = Shape(width=256, heads=4, layers=4, hidden=512)
"""Of a model that takes about 1 ms a token, so that requests last."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "slow.gguf", shape=SLOW)


@pytest.fixture
def server(model: Path) -> Iterator[LlamaServer]:
    with LlamaServer(model) as running:
        yield running


@dataclass
class Agent:
    """Ticks of readings, stored where a place is given; a tick is `step_ms` after the last one, or now."""

    where: StoreLocation | None = None
    rows: list[DeploymentSample] = field(default_factory=list)
    shares: list[DeviceShare] = field(default_factory=list)
    _kept: TickState = field(default_factory=memory)
    _n: int = 0

    def tick(self, *readings: EngineReading, step_ms: int = 10_000, at_ms: int | None = None) -> Tick:
        baseline = self._n == 0
        monotonic_ms = 0 if baseline else (self._kept.monotonic_ms or 0) + step_ms
        if at_ms is not None:
            monotonic_ms = at_ms
        when = Moment(START_MS // 1000 + 10 * self._n, START_MS + monotonic_ms, monotonic_ms, 10)
        cost = None if baseline else Cost(1, 1, 1, 0)
        devices = probe(gpu(0, *(readings[0].endpoint.pids if readings else ())))
        tick, self._kept = assemble(self._kept, Readings(devices, readings), when, cost)
        if self.where is not None:
            with Writer(self.where) as writer:
                writer.commit(tick)
                writer.roll_up()
        self._n += 1
        self.rows += [each for each in tick.samples if isinstance(each, DeploymentSample)]
        self.shares += [each for each in tick.samples if isinstance(each, DeviceShare)]
        return tick

    @property
    def busy_ms(self) -> int:
        return sum(row.busy_ms or 0 for row in self.rows)


def reader_of(server: LlamaServer) -> EngineReader:
    return EngineReader(Endpoint("llama.cpp", server.url, "setting", server.port), LIMITS)


def report_of(where: StoreLocation, usd_per_hour: int, ticks: int) -> FleetReport:
    with AdviceRepository(where).writing() as connection:
        repository.add_price(
            connection,
            selector="H100",
            nano_usd_per_device_hour=usd_per_hour * NANO_USD,
            from_ts=0,
            set_ts=1,
            set_by=getpass.getuser(),
            note=None,
        )
    return fleet_report(open_store(where), 3600, START_MS // 1000 + 10 * ticks)


def test_a_server_with_little_to_do_is_busy_for_as_long_as_its_own_counters_report(
    server: LlamaServer, tmp_path: Path
) -> None:
    reader, agent = reader_of(server), Agent(laid(tmp_path))
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

    report = report_of(laid(tmp_path), 10, 12)
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
    for each in clients:
        each.start()
    for each in clients:
        each.join()
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
    assert len(agent.rows) > 3, "the request was too short to tell"
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


def captured(kind: str, name: str) -> EngineReading:
    found = values(kind, name)
    endpoint = replace(ENDPOINT, kind=kind)
    return EngineReading(endpoint, served_model="tiny", counters=found.counters, gauges=found.gauges)


def after(kind: str, *names: str) -> list[DeploymentSample]:
    agent = Agent()
    for name in names:
        agent.tick(captured(kind, name))
    return agent.rows


def test_vllm_is_busy_for_its_prefill_and_for_its_steps() -> None:
    (row,) = after("vllm", "vllm-0.32.0-metrics-before", "vllm-0.32.0-metrics-after")
    # 0.851 s of prefill; 14.524 s of requests in decode, 2563 tokens in 327 steps: 1.85 s.
    assert (row.busy_ms, row.busy_provenance) == (2704, Provenance.BOUND)


def test_vllm_that_is_still_running_is_continued_at_the_next_page() -> None:
    names = [f"vllm-0.32.0-metrics-{when}" for when in ("before", "during", "after")]
    rows = after("vllm", *names)
    assert sum(row.busy_ms or 0 for row in rows) == 2704
    assert [bool(row.busy_ms) for row in rows] == [True, True]


def test_vllm_with_data_parallel_ranks_is_busy_for_at_most_the_sum_of_its_ranks() -> None:
    (row,) = after("vllm", "vllm-0.32.0-dp2-api2-before", "vllm-0.32.0-dp2-api2-after")
    by_rank = [(0.3037 + 5.6295 * 167 / 572), (0.3572 + 4.6241 * 180 / 522)]
    assert row.busy_ms is not None
    assert 1000 * max(by_rank) < row.busy_ms
    assert row.busy_ms == pytest.approx(1000 * sum(by_rank), rel=0.02)
    assert row.busy_provenance == Provenance.BOUND


def test_sglang_is_busy_for_as_long_as_it_counts_forward_passes() -> None:
    def at(prefill_s: float, decode_s: float, requests_s: float) -> EngineReading:
        ranks = "".join(
            f'sglang:forward_execution_seconds_total{{category="{phase}",tp_rank="{rank}"}} {seconds}\n'
            for rank in (0, 1)
            for phase, seconds in (("prefill", prefill_s), ("decode", decode_s))
        )
        text = f'{ranks}sglang:inter_token_latency_seconds_sum{{model_name="m"}} {requests_s}\n'
        return from_text("sglang", text + "sglang:num_running_reqs 0\n")

    agent = Agent()
    for reading in (at(1, 2, 10), at(1.5, 4.25, 90)):
        agent.tick(reading)
    assert [(row.busy_ms, row.busy_provenance) for row in agent.rows] == [(2750, Provenance.COUNTER)]


def test_sglang_without_that_counter_is_bounded_by_its_requests() -> None:
    def at(ttft_s: float, gaps_s: float) -> EngineReading:
        return from_text(
            "sglang",
            f"sglang:time_to_first_token_seconds_sum {ttft_s}\n"
            f"sglang:inter_token_latency_seconds_sum {gaps_s}\nsglang:num_running_reqs 0\n",
        )

    agent = Agent()
    for reading in (at(1, 10), at(1.5, 12), at(2, 112)):
        agent.tick(reading)
    assert [(row.busy_ms, row.busy_provenance) for row in agent.rows] == [
        (2500, Provenance.BOUND),
        (10_000, Provenance.BOUND),
    ]


def test_tgi_is_busy_for_the_time_of_its_batches() -> None:
    def at(prefill_s: float, decode_s: float) -> EngineReading:
        return from_text(
            "tgi",
            f'tgi_batch_inference_duration_sum{{method="prefill"}} {prefill_s}\n'
            f'tgi_batch_inference_duration_sum{{method="decode"}} {decode_s}\ntgi_batch_current_size 0\n',
        )

    agent = Agent()
    for reading in (at(1, 2), at(1.25, 3)):
        agent.tick(reading)
    assert [(row.busy_ms, row.busy_provenance) for row in agent.rows] == [(1250, Provenance.COUNTER)]


def from_text(kind: str, text: str) -> EngineReading:
    from pertoken.agent.engines.adapters import ADAPTERS
    from pertoken.agent.scrape.page import parse

    adapter = ADAPTERS[kind]
    found = adapter.read(parse(text.encode(), adapter.wanted))
    endpoint = replace(ENDPOINT, kind=kind)
    return EngineReading(endpoint, served_model="m", counters=found.counters, gauges=found.gauges)


def test_an_engine_that_exposes_no_time_has_unknown_busy_time_and_at_most_all_dollars_of_its_devices(
    tmp_path: Path,
) -> None:
    where = laid(tmp_path)
    agent = Agent(where)
    silent = engine(0, counters={}, gauges={}, gaps=(Gap("busy", "missing", "it counts no time"),))
    for _ in range(7):
        agent.tick(silent)
    assert {(row.busy_ms, row.busy_provenance) for row in agent.rows} == {(None, Provenance.BOUND)}
    assert {share.busy_ms for share in agent.shares} == {10_000}
    report = report_of(where, 6, 6)
    assert report.deployments[0].busy is None
    assert report.bill is not None and report.bill.busy_is_bound
    assert (report.bill.busy, report.bill.idle) == (report.bill.paid, 0)


def test_an_engine_without_time_is_idle_while_its_counters_show_that_nothing_happened(tmp_path: Path) -> None:
    where = laid(tmp_path)
    agent = Agent(where)
    for generated, running in ((0, 0.0), (0, 0.0), (5, 1.0), (5, 0.0), (5, 0.0)):
        agent.tick(engine(generated, gauges={"running": running}))
    assert [row.busy_ms for row in agent.rows] == [0, None, 0, 0]
    (line,) = report_of(where, 6, 4).deployments
    # At most the tick in which it worked.
    assert (line.busy, line.busy_is_bound) == (0.25, True)


def test_work_of_time_that_nobody_observed_is_left_out_by_proportion() -> None:
    agent = Agent()
    for n, step_ms in ((0, 10_000), (1, 10_000), (2, 100_000)):
        agent.tick(engine(n, counters={"engine_ms": 50_000 * n, "generated_tokens": n}, knobs={}), step_ms=step_ms)
    row = agent.rows[-1]
    assert (row.duration_ms, row.observed_ms, row.busy_ms) == (100_000, 20_000, 20_000)
    agent = Agent()
    for n, step_ms in ((0, 10_000), (1, 10_000), (2, 100_000)):
        counters = {"engine_ms": 1_000 * n, "generated_tokens": n}
        agent.tick(engine(n, counters=counters, gauges={"running": 0.0}, knobs={}), step_ms=step_ms)
    assert [row.busy_ms for row in agent.rows] == [1000, 200]


def test_a_page_that_fails_meanwhile_moves_no_work_into_observed_time() -> None:
    def at(worked_ms: int, **more: Any) -> EngineReading:
        return engine(1, counters={"engine_ms": worked_ms}, gauges={"running": 1.0}, knobs={}, **more)

    failed = at(0, fault="closed", fault_kind="closed")
    agent = Agent()
    for reading in (at(0), at(5_000), failed, failed, failed, at(25_000), at(26_000)):
        agent.tick(reading)
    # 20 s of work over 40 s, of which the last 10 s are observed.
    assert [row.busy_ms for row in agent.rows] == [5_000, None, None, None, 5_000, 1_000]


def test_a_restarted_engine_owes_nothing_of_its_life_before() -> None:
    def at(worked_ms: int, running: float, started_ms: int) -> EngineReading:
        endpoint = replace(ENDPOINT, process_start_ms=started_ms)
        counters = {"engine_ms": worked_ms, "generated_tokens": worked_ms}
        return engine(1, endpoint=endpoint, counters=counters, gauges={"running": running}, knobs={})

    agent = Agent()
    for reading in (
        at(0, 0, -5_000),
        at(0, 1, -5_000),
        at(16_000, 1, -5_000),
        at(1_000, 0, 21_000),
        at(1_000, 0, 21_000),
    ):
        agent.tick(reading)
    assert [row.busy_ms for row in agent.rows] == [0, 10_000, 1_000, 0]


def test_a_counter_that_moves_in_large_steps_is_reported_in_full() -> None:
    # llama.cpp prints six digits: from 10^6 s on its counters move by 10 s.
    agent, printed = Agent(), 1_000_000_000
    alone = {"running": 0.0, "requests_per_step": 1.0}
    for n in range(101):
        counters = {"prefill_ms": 0, "decode_ms": (printed + 200 * n) // 10_000 * 10_000, "generated_tokens": 10 * n}
        agent.tick(engine(1, counters=counters, gauges=alone), step_ms=1_000)
    for _ in range(30):
        agent.tick(engine(1, counters=counters, gauges=alone), step_ms=1_000)
    assert agent.busy_ms == 20_000
    assert max(row.busy_ms or 0 for row in agent.rows) <= 1_000


@dataclass(frozen=True)
class Request:
    """Work from `start_ms` to `end_ms`, counted at its end."""

    start_ms: int
    end_ms: int


def apart(pauses_and_lengths: Sequence[tuple[int, int]]) -> list[Request]:
    """Requests one after the other."""
    requests, now = [], 0
    for pause, length in pauses_and_lengths:
        requests.append(Request(now + pause, now + pause + length))
        now += pause + length
    return requests


def readings(requests: Sequence[Request], ticks: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(length of the tick, work counted in it, requests running at its end)."""
    start = 0
    for ms in ticks:
        end = start + ms
        counted = sum(each.end_ms - each.start_ms for each in requests if start < each.end_ms <= end)
        yield ms, counted, sum(each.start_ms < end < each.end_ms for each in requests)
        start = end


def reported(requests: Sequence[Request], ticks: Sequence[int], *, exact: bool) -> list[int]:
    """Busy time of each tick, and of as many idle ones as it takes to report all that is owed."""
    stretch, found = Stretch(), []
    last = max((each.end_ms for each in requests), default=0)
    rest = [1_000] * (2 + 2 * max(0, last - sum(ticks)) // 1_000 + sum(ticks) // 1_000 + 1)
    for ms, counted, running in readings(requests, [*ticks, *rest]):
        got = busy(
            stretch,
            {"prefill_ms": 0, "decode_ms": counted, "generated_tokens": None},
            observed_ms=ms,
            elapsed_ms=ms,
            running=running,
            waiting=0,
            exact=exact,
        )
        assert got.ms is not None and 0 <= got.ms <= ms
        assert (got.provenance is Provenance.COUNTER) if exact or not got.ms else True
        stretch = got.stretch
        found.append(got.ms)
    return found


work = st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 30_000)), max_size=12)
lengths = st.lists(st.integers(1, 12_000), min_size=1, max_size=30)


@given(work, lengths)
def test_requests_one_after_the_other_are_reported_to_the_millisecond(
    pauses_and_lengths: list[tuple[int, int]], ticks: list[int]
) -> None:
    requests = apart(pauses_and_lengths)
    assert sum(reported(requests, ticks, exact=True)) == sum(each.end_ms - each.start_ms for each in requests)


@given(st.lists(st.tuples(st.integers(0, 60_000), st.integers(1, 20_000)), max_size=12), lengths)
@example([(0, 20_000)] * 8, [5_000] * 4)
def test_requests_that_overlap_are_bounded_by_their_sum_and_by_the_time_there_was(
    starts_and_lengths: list[tuple[int, int]], ticks: list[int]
) -> None:
    requests = [Request(start, start + length) for start, length in starts_and_lengths]
    union = {ms for each in requests for ms in range(each.start_ms, each.end_ms)}
    found = reported(requests, ticks, exact=False)
    ends = list(accumulate([*ticks, *[1_000] * (len(found) - len(ticks))]))
    possible_ms = sum(
        end - start
        for start, end in pairwise([0, *ends])
        if any(each.start_ms < end and each.end_ms > start for each in requests)
    )
    most_ms = min(possible_ms, sum(each.end_ms - each.start_ms for each in requests))
    assert len(union) <= sum(found) <= most_ms


delta = st.none() | st.integers(0, 10**6)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 20_000),
            st.integers(0, 5_000),
            st.fixed_dictionaries(
                dict.fromkeys(
                    ("engine_ms", "prefill_ms", "decode_ms", "steps", "generated_tokens", "spec_accepted_tokens"), delta
                )
            ),
            st.none() | st.integers(0, 3),
        ),
        max_size=30,
    )
)
def test_whatever_an_engine_counts_it_is_never_busy_for_longer_than_it_was_observed(
    history: list[tuple[int, int, dict[str, int | None], int | None]],
) -> None:
    stretch, total, observed, counted = Stretch(), 0, 0, 0.0
    for ms, unseen_ms, deltas, running in history:
        got = busy(
            stretch, deltas, observed_ms=ms, elapsed_ms=ms + unseen_ms, running=running, waiting=None, exact=False
        )
        assert got.ms is None or 0 <= got.ms <= ms
        stretch, total, observed = got.stretch, total + (got.ms or 0), observed + ms
        counted += sum(deltas[word] or 0 for word in ("engine_ms", "prefill_ms", "decode_ms"))
        assert total <= observed
        assert total <= floor(counted)
