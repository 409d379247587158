"""Owners of a GPU that a driver refuses to report are unknown with the reason: never nobody."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest
from sqlalchemy import select

from pertoken.advisor.present import present
from pertoken.agent.readings import DeviceReading, EngineReading, Unavailable, bounded
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.devices import device_id_of
from pertoken.catalog.market import load_market
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.evidence import NotMeasured
from pertoken.provenance import Provenance
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeviceShare, Tick
from tests.agent.recorded_devices import Recording, copied, recording
from tests.agent.rows.mig import mig
from tests.agent.values import ENDPOINT, START_MS, engine, gpu, moment, probe, tick_state
from tests.standin_nvml import Gpu, Machine, Slice
from tests.values import new_store

ME = os.getpid()
LOCAL_ENDPOINT = replace(ENDPOINT, pid=ME, pids=(ME,))
SLICES = (Slice("MIG-0", 1, processes=((ME, 2**30),)), Slice("MIG-1", 2))
REFUSALS = (pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_UNKNOWN)
ENUMERATION = ("nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex")
IDENTITY = ("nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetAttributes_v2")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty")
    new_store(folder)
    return folder


def serving(n: int) -> tuple[EngineReading, ...]:
    return (engine(100 * n, 10 * n, endpoint=LOCAL_ENDPOINT),)


def shares_by_owner(recorded: Recording, uuid: str) -> dict[bool, int]:
    """Return share of a device in the newest tick, by whether an engine holds it."""
    return {share.epoch_id != 0: share.share_1e6 for share in shares(recorded.ticks[-1]).get(device_id_of(uuid), [])}


def shown(recorded: Recording) -> tuple[Any, Any]:
    """Return the whole GPU as the screens show it, and as rules see it."""
    recorded.writer.roll_up()
    store, now = open_store(recorded.where), START_MS // 1000 + 120
    line = next(device for device in fleet_report(store, 3600, now).devices if device.kind == "gpu")
    window = present(store, load_market(), 3600, now)
    return line, window.context.devices[next(device.device_id for device in window.fleet.devices if device.accelerator)]


def assert_not_called_free(recorded: Recording) -> None:
    line, device = shown(recorded)
    assert line.held_by != ()
    with pytest.raises(NotMeasured):
        _ = device.held
    assert "processes" in recorded.reasons("GPU-1")


@pytest.mark.parametrize("code", REFUSALS)
@pytest.mark.parametrize("call", ENUMERATION)
def test_a_gpu_without_a_list_of_its_mig_devices_is_not_called_free(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    machine = Machine(gpus=(Gpu("GPU-1", slices=SLICES),))
    with recording(copied(empty, tmp_path), machine, monkeypatch, serving) as recorded:
        recorded.library.failing = {call: code}
        recorded.tick(12)
        assert [row.uuid for row in recorded.ask(select(t.device)) if row.kind == "mig"] == []
        assert "which MIG devices" in recorded.reasons("GPU-1")["mig"]
        assert shares_by_owner(recorded, "GPU-1") == {}
        assert shares(recorded.ticks[-1]) == {}, "that the engine holds the CPUs is not known either"
        assert_not_called_free(recorded)


@pytest.mark.parametrize("code", [*REFUSALS, pynvml.NVML_ERROR_NOT_SUPPORTED])
@pytest.mark.parametrize("call", ENUMERATION)
def test_known_mig_devices_stay_when_they_are_no_longer_listed(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    machine = Machine(gpus=(Gpu("GPU-1", slices=SLICES),))
    with recording(copied(empty, tmp_path), machine, monkeypatch, serving) as recorded:
        recorded.tick(3)
        assert shares_by_owner(recorded, "GPU-1") == {True: 142_857}
        recorded.library.failing = {call: code}
        recorded.tick(9)
        assert recorded.rows("MIG-0")[-1].sm_active_1e4 == 5000
        assert shares_by_owner(recorded, "MIG-0") == {True: 1_000_000} and shares_by_owner(recorded, "GPU-1") == {
            True: 142_857
        }
        assert_not_called_free(recorded)
        assert "device_lost" not in dict(recorded.events())
        recorded.library.failing = {}
        recorded.tick()
        if code == pynvml.NVML_ERROR_UNKNOWN:
            assert "processes" not in recorded.reasons("GPU-1")


@pytest.mark.parametrize("code", REFUSALS)
@pytest.mark.parametrize("call", IDENTITY)
def test_a_mig_device_that_is_identified_in_part_is_a_device_all_the_same(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    machine = Machine(gpus=(Gpu("GPU-1", slices=SLICES),))
    with recording(copied(empty, tmp_path), machine, monkeypatch, serving) as recorded:
        recorded.library.failing = {call: code}
        recorded.tick(12)
        assert shares_by_owner(recorded, "MIG-0") == {True: 1_000_000}
        assert recorded.rows("MIG-0")[-1].memory_used_bytes == 8 * 2**30
        if call == "nvmlDeviceGetAttributes_v2":
            assert "what part" in recorded.reasons("MIG-0")["part_1e6"]
            assert shares_by_owner(recorded, "GPU-1") == {}
            assert_not_called_free(recorded)
        else:
            assert shares_by_owner(recorded, "GPU-1") == {True: 142_857}
        if call == "nvmlDeviceGetGpuInstanceId":
            assert recorded.rows("MIG-0")[-1].sm_active_1e4 is None, "what it would get is of the whole GPU"
            assert "GPU instance" in recorded.reasons("MIG-0")["sm_active_1e4"]
        assert recorded.library.calls["nvmlGpmSampleAlloc"] <= 2 * 3, "samples are not allocated again and again"


@pytest.mark.parametrize("code", REFUSALS)
def test_whether_a_gpu_is_in_mig_devices_is_not_guessed(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    machine = Machine(gpus=(Gpu("GPU-1"), Gpu("GPU-2", processes=((ME, 2**30),))))
    with recording(copied(empty, tmp_path), machine, monkeypatch, serving) as recorded:
        recorded.library.failing = {"nvmlDeviceGetMigMode": code}
        recorded.tick(12)
        assert_not_called_free(recorded)
        assert shares_by_owner(recorded, "GPU-2") == {True: 1_000_000}, "a list with processes is of who is there"


def test_two_mig_devices_with_one_uuid_are_reported_and_do_not_make_the_gpu_free(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = (SLICES[1], replace(SLICES[0], uuid="MIG-1"))
    machine = Machine(gpus=(Gpu("GPU-1", slices=twice),))
    with recording(copied(empty, tmp_path), machine, monkeypatch, serving) as recorded:
        recorded.tick(12)
        assert "two of them have the UUID MIG-1" in recorded.reasons("GPU-1")["mig"]
        assert_not_called_free(recorded)


def shares(tick: Tick) -> dict[int, list[DeviceShare]]:
    by_device: dict[int, list[DeviceShare]] = {}
    for sample in tick.samples:
        if isinstance(sample, DeviceShare):
            by_device.setdefault(sample.device_id, []).append(sample)
    return by_device


def run(*steps: tuple[DeviceReading, ...]) -> list[Tick]:
    kept, ticks = tick_state(), []
    for n, devices in enumerate(steps):
        readings = Readings(probe(*devices), (engine(100 * n),))
        tick, kept = assemble(kept, readings, moment(n), AgentCost(1, 1, 1, 0) if n else None)
        ticks.append(tick)
    return ticks


HIDDEN = Unavailable("processes", "failing", "the driver answered error 999")


def refusing(device: DeviceReading) -> DeviceReading:
    return device._replace(processes=None, unavailable=(HIDDEN,))


def test_who_held_a_gpu_before_its_list_was_refused_holds_it_as_an_assumption() -> None:
    ticks = run((gpu(0, 101),), (gpu(0, 101),), (refusing(gpu(0)),), (refusing(gpu(0)),), (gpu(0, 101),))
    held = [shares(tick)[device_id_of("GPU-0")] for tick in ticks[1:]]
    assert [[allocation.provenance for allocation in one] for one in held] == [
        [Provenance.REPORTED],
        [Provenance.ASSUMED],
        [Provenance.ASSUMED],
        [Provenance.REPORTED],
    ]


def test_a_free_gpu_with_a_refused_process_list_is_unknown_and_no_engine_moves_to_the_cpu() -> None:
    ticks = run((gpu(0),), (gpu(0),), (refusing(gpu(0)),))
    cpu = ticks[0].devices[-1].device_id
    assert list(shares(ticks[1])) == [cpu], "the engine is on the CPU while no GPU is held"
    assert shares(ticks[2]) == {}


def test_a_gpu_of_which_one_partition_hides_its_processes_is_held_in_part_and_not_free_besides() -> None:
    whole, first, second = gpu(0), mig(1, 428_571, 101), mig(2, 142_857)
    tick = run((whole, first, refusing(second)), (whole, first, refusing(second)))[1]
    assert [share.share_1e6 for share in shares(tick)[device_id_of("GPU-0")]] == [428_571]
    first_tick = run((whole, first, refusing(second)))[0]
    unavailable = {
        (capability.owner_id, capability.metric) for capability in first_tick.capabilities if capability.status != "ok"
    }
    assert unavailable == {(device_id_of("GPU-0"), "processes"), (device_id_of("MIG-2"), "processes")}


def test_two_partitions_of_one_engine_add_up_on_their_gpu() -> None:
    devices = (gpu(0), mig(1, 428_571, 101), mig(2, 142_857, 101), mig(3, 142_857, 999))
    tick = run(devices, devices)[1]
    held = {share.epoch_id != 0: share.share_1e6 for share in shares(tick)[device_id_of("GPU-0")]}
    assert held == {True: 571_428, False: 142_857}


def test_a_process_without_sm_time_makes_the_split_an_assumption_by_memory() -> None:
    timed = gpu(0, 101, 999)
    assert timed.processes is not None
    ours, other = timed.processes
    some = timed._replace(processes=(replace(ours, sm_time=90, memory_bytes=3 * 10**9), other))
    both = timed._replace(processes=(replace(ours, sm_time=90), replace(other, sm_time=30)))
    for device, expected in (
        (some, {True: (230_769, Provenance.ASSUMED), False: (769_231, Provenance.ASSUMED)}),
        (both, {True: (750_000, Provenance.INTEGRAL), False: (250_000, Provenance.INTEGRAL)}),
    ):
        tick = run((device,), (device,))[1]
        held = {
            share.epoch_id != 0: (share.share_1e6, share.provenance) for share in shares(tick)[device_id_of("GPU-0")]
        }
        assert held == expected


@pytest.mark.parametrize("assumed", [1, 2])
def test_a_split_of_one_partition_that_is_assumed_is_assumed_of_the_gpu(assumed: int) -> None:
    shared = mig(assumed, 428_571, 101, 999)
    alone = mig(3 - assumed, 428_571, 101)
    devices = (gpu(0), *sorted((shared, alone)))
    tick = run(devices, devices)[1]
    held = {share.epoch_id != 0: share.provenance for share in shares(tick)[device_id_of("GPU-0")]}
    assert held == {True: Provenance.ASSUMED, False: Provenance.ASSUMED}


def test_partitions_that_add_up_to_more_than_their_gpu_are_parts_of_unknown_size() -> None:
    devices = (gpu(0), mig(1, 600_000, 101), mig(2, 600_000, 999))
    reading = bounded(probe(*devices), {})
    assert [device.part_1e6 for device in reading.devices] == [None] * 4
    tick = run(reading.devices[:-1], reading.devices[:-1])[1]
    assert device_id_of("GPU-0") not in shares(tick)
    assert [share.share_1e6 for share in shares(tick)[device_id_of("MIG-1")]] == [1_000_000]
