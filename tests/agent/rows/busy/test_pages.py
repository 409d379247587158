"""Busy time of each kind of engine, by captured pages."""

from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.agent.readings import EngineReading, Unavailable
from pertoken.provenance import Provenance
from pertoken.store.schema.rows import DeploymentSample
from tests.agent.engine_pages import read_page, values
from tests.agent.rows.busy.agent import Agent, report_of
from tests.agent.values import ENDPOINT, engine
from tests.values import new_store


def captured(kind: str, name: str) -> EngineReading:
    captured_values = values(kind, name)
    endpoint = replace(ENDPOINT, kind=kind)
    return EngineReading(
        endpoint, served_model="tiny", counters=captured_values.counters, gauges=captured_values.gauges
    )


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
    from pertoken.agent.scrape import parse

    adapter = ADAPTERS[kind]
    values_read = read_page(adapter, parse(text.encode(), adapter.wanted))
    endpoint = replace(ENDPOINT, kind=kind)
    return EngineReading(endpoint, served_model="m", counters=values_read.counters, gauges=values_read.gauges)


def test_an_engine_that_exposes_no_time_has_unknown_busy_time_and_at_most_all_dollars_of_its_devices(
    tmp_path: Path,
) -> None:
    where = new_store(tmp_path)
    agent = Agent(where)
    silent = engine(0, counters={}, gauges={}, unavailable=(Unavailable("busy", "missing", "it counts no time"),))
    for _ in range(7):
        agent.tick(silent)
    assert {(row.busy_ms, row.busy_provenance) for row in agent.rows} == {(None, Provenance.BOUND)}
    assert {share.busy_ms for share in agent.shares} == {10_000}
    report = report_of(where, 6, 6)
    assert report.deployments[0].busy is None
    assert report.bill is not None and report.bill.busy_is_bound
    assert (report.bill.busy, report.bill.idle) == (report.bill.paid, 0)


def test_an_engine_without_time_is_idle_while_its_counters_show_that_nothing_happened(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    agent = Agent(where)
    for generated, running in ((0, 0.0), (0, 0.0), (5, 1.0), (5, 0.0), (5, 0.0)):
        agent.tick(engine(generated, gauges={"running": running}))
    assert [row.busy_ms for row in agent.rows] == [0, None, 0, 0]
    (line,) = report_of(where, 6, 4).deployments
    # At most the tick in which it worked.
    assert (line.busy, line.busy_is_bound) == (0.25, True)
