"""Cold starts: only those that were watched from the start of a process to its first page, each once."""

from dataclasses import replace

import pytest

from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.rows.assemble import Readings
from tests.agent.rows.ticks import counted, run
from tests.agent.values import ENDPOINT, START_MS, engine, probe, tick_state


def started(after_ms: int, **fields: object) -> Endpoint:
    """Return a server whose process began so long after this agent did."""
    return replace(ENDPOINT, pid=300, pids=(300,), process_start_ms=START_MS + after_ms, **fields)  # type: ignore[arg-type]


def loading(endpoint: Endpoint) -> EngineReading:
    return EngineReading(endpoint, fault="503", fault_kind="http")


def loads(*readings: EngineReading | None, **state: object) -> list[dict[str, int]]:
    """Return what is counted of loads in ticks 10 s apart."""
    ticks = run(*(Readings(probe(), (reading,) if reading else ()) for reading in readings), start=tick_state(**state))
    return [{name: n for name, n in counted(tick).items() if "load" in name} for tick in ticks]


def test_a_load_is_the_time_from_the_start_of_the_process_to_its_first_page_counted_once() -> None:
    new = started(2_500)
    assert loads(None, loading(new), engine(0, endpoint=new), engine(5, endpoint=new)) == [
        *({}, {}),
        {"loads": 1, "load_s": 18},
        {},
    ]


def test_a_restart_is_one_more_load() -> None:
    again = started(11_000)
    assert loads(engine(7), engine(8), engine(0, endpoint=again), engine(3, endpoint=again)) == [
        *({}, {}),
        {"loads": 1, "load_s": 9},
        {},
    ]


@pytest.mark.parametrize(
    ("endpoint", "state"),
    [
        (started(-1_000), {}),
        (started(1_000), {"away_ms": 60_000}),
        (started(1_000, certain=False), {}),
        (started(1_000, model="one-of-two"), {}),
        (replace(started(0), pid=None, process_start_ms=None), {}),
    ],
)
def test_a_load_that_was_not_watched_is_not_known(endpoint: Endpoint, state: dict[str, object]) -> None:
    assert loads(None, engine(0, endpoint=endpoint), engine(5, endpoint=endpoint), **state) == [{}, {}, {}]


def test_a_server_without_counters_has_no_first_page() -> None:
    nothing = engine(0, endpoint=started(1_000), counters={})
    assert loads(None, nothing, nothing) == [{}, {}, {}]
