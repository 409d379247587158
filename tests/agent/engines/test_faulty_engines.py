"""A broken engine, over a real socket and into a real database: an event and a NULL, never a wrong number."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.host.processes import HostProcesses
from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.restored_state import restored
from pertoken.agent.scrape import RequestLimits
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample
from pertoken.store.write.writer import Writer
from tests.agent.engine_pages import read_one
from tests.agent.engines.test_reader import PAGE, VLLM, huge
from tests.agent.servers import Answer, answering, dripping, pages
from tests.agent.values import engine, moment, probe, tick_state
from tests.values import new_store

GOOD = pages({**VLLM, "/metrics": PAGE})
TOKENS = "generated_tokens"
FAULTS: dict[str, Answer] = {
    "malformed": pages({**VLLM, "/metrics": b"vllm:prompt_tokens_total{engine=\n"}),
    "http": pages({**VLLM, "/metrics": (500, b"boom")}),
    "too_large": huge,
    "timeout": dripping(b"HTTP/1.1 200 OK\r\n\r\n"),
}


def read(answer: Callable[[], AbstractContextManager[str]] | Answer) -> EngineReading:
    """Return one reading, always under the same address."""
    with answering(answer) as url:  # type: ignore[arg-type]
        endpoint = Endpoint("vllm", url, "setting")
        limits = RequestLimits(timeout_s=0.5, page_bytes=1_000_000)
        reading = read_one(EngineReader(endpoint, limits, processes=lambda: HostProcesses({})))
    return replace(reading, endpoint=Endpoint("vllm", "http://gpu-1:8000", "setting"))


def closed() -> EngineReading:
    with answering(GOOD) as url:
        pass
    reader = EngineReader(Endpoint("vllm", url, "setting"), RequestLimits(1.0), processes=lambda: HostProcesses({}))
    return replace(read_one(reader), endpoint=Endpoint("vllm", "http://gpu-1:8000", "setting"))


@pytest.mark.parametrize("kind", [*FAULTS, "closed"])
def test_each_fault_is_an_event_and_a_null_and_the_next_good_page_counts_on(tmp_path: Path, kind: str) -> None:
    good = read(GOOD)
    broken = closed() if kind == "closed" else read(FAULTS[kind])
    deltas = replace(good, counters={name: value + 5 for name, value in good.counters.items()})
    where = new_store(tmp_path)
    kept = tick_state()
    with Writer(where) as writer:
        for n, reading in enumerate((good, broken, deltas)):
            cost = AgentCost(1, 1, 1, 0) if n else None
            tick, kept = assemble(kept, Readings(probe(), (reading,)), moment(n), cost)
            writer.commit(tick)
    with open_store(where).read() as connection:
        rows = connection.execute(select(t.deployment_sample).order_by(t.deployment_sample.c.ts)).all()
        events = connection.execute(select(t.event.c.kind)).scalars().all()
    assert [row.generated_tokens for row in rows] == [None, 5]
    assert (rows[0].prompt_tokens, rows[0].running_1e2, rows[0].observed_ms) == (None, None, 0)
    assert f"engine_{kind}" in events


SHOWN_LESS = (1000, 1000, 999, 999, 1000, 400, 400, 450, 1057)
"""Generated tokens on the pages of one process. 57 were generated, 50 of them while its pages showed less."""


@pytest.mark.parametrize("restart_before", [None, *range(1, len(SHOWN_LESS))])
def test_pages_of_a_living_process_that_show_less_for_a_while_add_nothing_even_if_the_agent_restarts_meanwhile(
    tmp_path: Path, restart_before: int | None
) -> None:
    where = new_store(tmp_path)
    kept, rows = tick_state(), list[DeploymentSample]()
    for n, count in enumerate(SHOWN_LESS):
        readings = Readings(probe(), (engine(count),))
        with Writer(where) as writer:
            if n == restart_before:
                away = moment(n - 1).monotonic_ms
                kept = restored(writer.restored, probe(), (), wall_ms=away, since_boot_ms=away).tick_state
                tick, kept = assemble(kept, readings, moment(n - 1), None)
                writer.commit(tick)
            tick, kept = assemble(kept, readings, moment(n), AgentCost(1, 1, 1, 0) if n else None)
            writer.commit(tick)
        rows += [sample for sample in tick.samples if isinstance(sample, DeploymentSample)]
    assert [row.generated_tokens for row in rows] == [0, None, 0, 0, None, 0, 50, 7]
    assert [row.complete for row in rows] == [True, False, True, False, False, True, True, False]
    with open_store(where).read() as connection:
        owners = connection.execute(select(t.counter_state.c.owner_id).where(t.counter_state.c.series == TOKENS))
        assert len(owners.all()) == 1, "the peaks are removed"
