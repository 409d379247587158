"""Events are state changes: one when something begins, one when it ends, however long it lasts and whatever its
message."""

from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from pertoken.agent.probes.nvidia.nvml import Xid, XidWatch
from pertoken.agent.probes.nvidia.probe import NvidiaProbe
from pertoken.agent.readings import STANDS_STILL, DriverEvent, EngineReading, Unavailable
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.store.schema.rows import Tick
from tests.agent.recorded_devices import recording
from tests.agent.rows.ticks import elsewhere
from tests.agent.values import ENDPOINT, START_MS, engine, gpu, moment, probe, tick_state
from tests.standin_nvml import Gpu, Machine, installed
from tests.values import new_store

COST = AgentCost(1, 1, 1, 0)


def run(*steps: Readings) -> list[Tick]:
    kept, ticks = tick_state(), []
    for n, readings in enumerate(steps):
        tick, kept = assemble(kept, readings, moment(n), COST if n else None)
        ticks.append(tick)
    return ticks


def events_of(ticks: list[Tick]) -> list[tuple[int, str, str]]:
    return [(n, event.kind, event.message) for n, tick in enumerate(ticks) for event in tick.events]


def energies(*counters: int | None) -> list[tuple[int, str, str]]:
    return events_of(run(*(Readings(probe(gpu(0, energy_mj=counter))) for counter in counters)))


def test_an_energy_counter_that_stands_still_for_an_hour_is_two_events() -> None:
    counters = [0, 3_000_000, *[3_000_000] * 360, 6_000_000, 9_000_000]
    assert [(n, kind) for n, kind, _ in energies(*counters)] == [(2, "energy_counter"), (362, "energy_counter_back")]


def test_events_of_an_energy_counter_carry_no_figures() -> None:
    begins = {
        message for _, kind, message in energies(10**6, 10**6, 5, 10**15, 10**15 + 10) if kind == "energy_counter"
    }
    assert len(begins) == 3 and any(STANDS_STILL in begin for begin in begins)
    assert not any(part.isdigit() for begin in begins for part in begin.replace("H100", "").replace("80GB", "").split())


def test_an_energy_counter_keeps_its_state_while_it_cannot_be_read() -> None:
    stored = energies(0, 3_000_000, 3_000_000, None, None, 3_000_000, 6_000_000)
    assert [(n, kind) for n, kind, _ in stored] == [(2, "energy_counter"), (6, "energy_counter_back")]


def failing(kind: str, fault: str) -> EngineReading:
    return EngineReading(ENDPOINT, fault=fault, fault_kind=kind, remedy="wait")


def test_a_page_that_fails_in_ever_other_words_is_one_event_until_it_can_be_read_again() -> None:
    pages = [
        engine(1),
        *(failing("timeout", f"no answer within {n / 10} s") for n in range(20)),
        failing("http", "HTTP 500"),
        failing("http", "HTTP 503"),
        engine(2),
        engine(3),
    ]
    kinds = [(n, kind) for n, kind, _ in events_of(run(*(Readings(probe(), (page,)) for page in pages)))]
    assert [kind for kind in kinds if kind[1] != "engine_found"] == [
        (1, "engine_timeout"),
        (21, "engine_http"),
        (23, "engine_back"),
    ]


def test_a_server_that_stops_while_its_page_fails_is_not_reported_as_back() -> None:
    steps = [Readings(probe(), (engine(1),)), Readings(probe(), (failing("timeout", "no answer"),)), Readings(probe())]
    kinds = [kind for _, kind, _ in events_of(run(*steps, Readings(probe())))]
    assert "engine_back" not in kinds


def test_servers_that_answer_in_turn_are_one_event() -> None:
    older, newer = -(10**7), -(10**6)
    readings = [elsewhere(1000 + n, START_MS + (older if n % 2 else newer)) for n in range(9)]
    kinds = [kind for _, kind, _ in events_of(run(*(Readings(probe(), (reading,)) for reading in readings)))]
    assert kinds.count("engine_restarted") == 1


def test_increasing_memory_errors_repeat_one_message() -> None:
    steps = [Readings(probe(gpu(0, energy_mj=n * 10**6, ecc_uncorrected=n * n))) for n in range(5)]
    messages = [message for _, kind, message in events_of(run(*steps)) if kind == "ecc"]
    assert len(messages) == 4 and len(set(messages)) == 1


def test_a_storm_of_one_xid_between_two_readings_is_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = XidWatch()
    monkeypatch.setattr(watch, "pending", lambda: (Xid("GPU-1", 13, None, None),) * 1000)
    with installed(Machine(gpus=(Gpu("GPU-1"),))):
        nvidia = NvidiaProbe(watch=watch)
        nvidia.read(False)
        assert [driver_event.uuid for driver_event in nvidia.driver_events()] == ["GPU-1"]
        nvidia.close()


def test_a_driver_that_fails_at_every_reading_is_reported_once_until_it_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording(new_store(tmp_path), Machine(gpus=(Gpu("GPU-1"),)), monkeypatch) as recorded:
        recorded.tick(2)
        for _ in range(2):
            recorded.library.failing = {"nvmlDeviceGetUtilizationRates": pynvml.NVML_ERROR_UNINITIALIZED}
            recorded.tick(30)
            recorded.library.failing = {}
            recorded.tick(40)
        assert recorded.rows("GPU-1")[-1].power_mw
        assert len(recorded.events("driver")) == 2


def test_events_and_unavailable_values_of_a_reading_are_no_conditions() -> None:
    struck = replace(probe(gpu(0)), driver_events=(DriverEvent("GPU-0", "xid", "the driver reported Xid 13"),))
    events = events_of(run(Readings(probe(gpu(0))), Readings(struck), Readings(struck)))
    assert [(n, kind) for n, kind, _ in events if kind == "xid"] == [(1, "xid"), (2, "xid")]
    missing = Unavailable("nvidia", "missing", "no driver")
    assert events_of(run(*[Readings(replace(probe(), unavailable=(missing,)))] * 3)) == []
