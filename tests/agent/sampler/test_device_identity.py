"""UUIDs that are not what they should be: of two GPUs at once, of another GPU than before, of none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest
from sqlalchemy import select

from pertoken.agent.readings import DriversReading, HostReading, ProbeReading
from pertoken.agent.sampler.client import Drivers
from pertoken.store.schema import telemetry as t
from tests.agent.recorded_devices import copied, recording
from tests.agent.values import CPU, HOST, gpu, probe
from tests.standin_nvml import Gpu, Machine, Wave
from tests.values import new_store


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty")
    new_store(folder)
    return folder


@pytest.mark.parametrize("bus", [True, False], ids=["with bus ids", "without bus ids"])
def test_the_second_gpu_of_one_uuid_is_a_gap_and_one_event_and_stops_nothing(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bus: bool
) -> None:
    hidden = () if bus else ("nvmlDeviceGetPciInfo_v3",)
    twins = (Gpu("GPU-1", unsupported=hidden), Gpu("GPU-1", temperature_c=40, unsupported=hidden), Gpu("GPU-2"))
    with recording(copied(empty, tmp_path), Machine(gpus=twins), monkeypatch) as recorded:
        recorded.tick(30)
        assert recorded.hosts() == 29
        assert recorded.rows("GPU-1")[-1].temperature_c == twins[0].temperature_c
        reasons = {row.metric: row for row in recorded.ask(select(t.capability)) if row.metric == "gpu 1"}
        events = recorded.events("device_duplicate")
        assert len(events) == 1 and reasons["gpu 1"].status == "failing"
        for text in (events[0][1], reasons["gpu 1"].reason):
            places = ("00000000:01:00.0", "00000000:02:00.0") if bus else ("slot 0", "slot 1")
            assert "GPU-1" in text and all(place in text for place in places)
        recorded.library.machine = Machine(gpus=(twins[0], replace(twins[1], uuid="GPU-3"), twins[2]))
        recorded.tick(60)
        assert recorded.rows("GPU-3")[-1].temperature_c == 40
        assert next(row.status for row in recorded.ask(select(t.capability)) if row.metric == "gpu 1") == "ok"


class FixedSampler:
    """A sampler and a CPU probe that answer with readings made by hand; the CPUs are the last device of each."""

    def __init__(self, *readings: ProbeReading) -> None:
        self._hosts = [(reading.host, reading.devices[-1]) for reading in readings]
        self._devices = [DriversReading(reading.devices[:-1]) for reading in readings]

    def read(self, *asked: object) -> Any:
        """As the sampler where a reading is asked for, as the CPU probe without that."""
        return (self._devices if asked else self._hosts).pop(0)

    def ask(self, processes: bool) -> None: ...

    def close(self) -> None: ...


def through_drivers(patch: pytest.MonkeyPatch, *readings: ProbeReading) -> list[tuple[ProbeReading, list[str]]]:
    answers = FixedSampler(*readings)
    patch.setattr("pertoken.agent.sampler.client.Sampler", lambda probes: answers)
    patch.setattr("pertoken.agent.sampler.client.CpuProbe", lambda: answers)
    drivers = Drivers(["amd"])
    outcomes = []
    for _ in readings:
        reading, events = drivers.read(True, 1.0)
        outcomes.append((reading, [event.kind for event in events]))
    return outcomes


def test_two_devices_of_any_vendor_with_one_uuid_are_one_device_a_gap_and_one_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = gpu(0, pci_bus_id="0000:11:00.0"), gpu(0, pci_bus_id="0000:12:00.0", power_mw=1)
    values = through_drivers(monkeypatch, *[probe(first, second)] * 3, probe(first))
    for reading, _ in values[:3]:
        assert [device.uuid for device in reading.devices] == ["GPU-0", CPU.uuid]
        (missing,) = reading.unavailable
        assert "0000:11:00.0" in missing.reason and "0000:12:00.0" in missing.reason
    assert [events for _, events in values] == [["device_duplicate"], [], [], []]
    assert values[3][0].unavailable == ()


def test_a_gpu_that_was_swapped_behind_its_handle_is_another_device(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, other = Gpu("GPU-old", energy_start_mj=10**9), Gpu("GPU-2")
    with recording(copied(empty, tmp_path), Machine(gpus=(old, other)), monkeypatch) as recorded:
        recorded.tick(3)
        recorded.library.machine = Machine(gpus=(Gpu("GPU-new", power_mw=Wave(200_000)), other))
        recorded.tick(6)
        assert recorded.rows("GPU-old")[-1].power_mw is None
        assert "no longer lists" in recorded.reasons("GPU-old")["device"]
        assert {row.power_mw for row in recorded.rows("GPU-new")} == {200_000}
        assert recorded.rows("GPU-2")[-1].power_mw == 400_000
        assert [kind for kind, _ in recorded.events() if kind.startswith("device")] == ["device_lost", "device_swapped"]
        assert 200_000 not in {row.power_mw for row in recorded.rows("GPU-old")}, "none of it is filed under the old"


def test_an_energy_counter_that_fell_has_its_gpu_looked_at_before_the_next_process_list(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording(copied(empty, tmp_path), Machine(gpus=(Gpu("GPU-old", energy_start_mj=10**9),)), monkeypatch) as it:
        it.clock.now_s += 1
        assert [device.uuid for device in it.drivers.read(True, 1.0)[0].devices][:-1] == ["GPU-old"]
        it.library.machine = Machine(gpus=(Gpu("GPU-new"),))
        readings = []
        for _ in range(3):
            it.clock.now_s += 1
            readings.append([device.uuid for device in it.drivers.read(False, 1.0)[0].devices if not device.lost][:-1])
        assert readings == [[], ["GPU-new"], ["GPU-new"]]


def test_a_driver_that_names_another_uuid_each_time_has_swapped_nothing(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording(copied(empty, tmp_path), Machine(gpus=(Gpu("GPU-1"),)), monkeypatch) as recorded:
        recorded.tick(2)
        names = iter(range(10**6))
        monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: f"GPU-random-{next(names)}")
        recorded.tick(20)
        assert len([row for row in recorded.ask(select(t.device)) if row.kind == "gpu"]) == 1
        assert recorded.rows("GPU-1")[-1].power_mw == 400_000


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("memory_bytes", -1),
        ("memory_bytes", 0),
        ("memory_used_bytes", 2**36 + 1),
        ("memory_used_bytes", -1),
        ("load_1e2", -1),
        ("load_1e2", 2**63),
        ("cpu_util_1e4", 10_001),
        ("cpu_count", 0),
        ("network_rx_bytes", 2**64 - 1),
        ("network_tx_bytes", -5),
        ("memory_traffic_bytes", 2**63),
    ],
)
def test_a_value_of_the_host_that_cannot_be_is_unknown_with_a_gap(
    monkeypatch: pytest.MonkeyPatch, metric: str, value: int
) -> None:
    host: HostReading = replace(HOST, **{metric: value})  # type: ignore[arg-type]
    ((reading, _),) = through_drivers(monkeypatch, replace(probe(), host=host))
    assert getattr(reading.host, metric) is None
    assert [(missing.metric, missing.status) for missing in reading.unavailable] == [(metric, "failing")]
    assert replace(reading.host, **{metric: value}) == host  # type: ignore[arg-type]


@pytest.mark.parametrize("increases", [-1, 10 * 10**13 + 1, 2**62])
def test_network_counters_that_move_by_more_than_can_be_are_unknown(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, increases: int
) -> None:
    with recording(copied(empty, tmp_path), Machine(), monkeypatch) as recorded:
        start = replace(HOST, network_rx_bytes=2**61, network_tx_bytes=5)
        for rx_bytes in (2**61, 2**61 + 10**13, 2**61 + 10**13 + increases):
            recorded.add(replace(probe(), host=replace(start, network_rx_bytes=rx_bytes)))
        rows = recorded.ask(select(t.host_sample).order_by(t.host_sample.c.ts))
        assert [(row.network_rx_bytes, row.network_tx_bytes) for row in rows] == [(10**13, 0), (None, 0)]
