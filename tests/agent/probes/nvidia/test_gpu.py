"""GPM, MIG, GH200, Xids, SM time and hanging calls, through the real pynvml over the stand-in driver."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from pertoken.agent.probes.nvidia.nvml import XidWatch
from pertoken.agent.probes.nvidia.probe import NvidiaProbe
from pertoken.agent.readings import DeviceReading, DriverEvent, energy_step
from pertoken.agent.workers import HANGS
from tests.standin_nvml import Gpu, Machine, ManualClock, Slice, Wave, eight, installed

DEADLINE_S = 20.0
H100 = Gpu("GPU-1")
ME, PARENT = os.getpid(), os.getppid()


def reasons(reading: DeviceReading) -> dict[str, str]:
    return {missing.metric: missing.reason for missing in reading.unavailable}


def read_after(probe: NvidiaProbe, clock: ManualClock, s: float, processes: bool = False) -> tuple[DeviceReading, ...]:
    clock.now_s += s
    return probe.read(processes)[0]


def test_activity_is_the_mean_between_two_readings() -> None:
    clock = ManualClock()
    gpu = replace(H100, dram_percent=Wave(50, 50, 2.0, "square"), tensor_percent=Wave(10))
    with installed(Machine(gpus=(gpu,)), clock):
        probe = NvidiaProbe(clock)
        (first,) = read_after(probe, clock, 0)
        (second,) = read_after(probe, clock, 1)
        (third,) = read_after(probe, clock, 1)
        (too_soon,) = read_after(probe, clock, 0.05)
        (after,) = read_after(probe, clock, 0.95)
        (away,) = read_after(probe, clock, 1000)
    assert first.dram_active_1e4 is None and "new window" in reasons(first)["dram_active_1e4"]
    assert [reading.dram_active_1e4 for reading in (second, third, after)] == [10_000, 0, 10_000]
    assert (third.sm_active_1e4, third.sm_occupancy_1e4, third.tensor_active_1e4) == (5500, 2000, 1000)
    assert (third.nvlink_rx_mib_s, third.nvlink_tx_mib_s) == (1000, 1000)
    assert too_soon.sm_active_1e4 is None and away.sm_active_1e4 is None


@pytest.mark.parametrize(("gpm", "why"), [("no", "older than Hopper"), ("lies", "gives no sample")])
def test_a_gpu_without_activity_counters_gives_the_reason_and_is_not_asked_again(gpm: str, why: str) -> None:
    clock = ManualClock()
    with installed(Machine(gpus=(replace(H100, gpm=gpm),)), clock) as library:  # type: ignore[arg-type]
        probe = NvidiaProbe(clock)
        for _ in range(5):
            (device,) = read_after(probe, clock, 1)
    assert device.sm_active_1e4 is None and why in reasons(device)["sm_active_1e4"]
    assert device.power_mw == 400_000
    assert library.calls["nvmlGpmQueryDeviceSupport"] == 1
    assert library.calls["nvmlGpmSampleGet"] == (gpm == "lies")


def test_samples_are_allocated_once_and_given_back() -> None:
    clock = ManualClock()
    with installed(Machine(gpus=(H100,)), clock) as library:
        probe = NvidiaProbe(clock)
        for _ in range(5):
            read_after(probe, clock, 1)
        probe.close()
    assert library.calls["nvmlGpmSampleAlloc"] == library.calls["nvmlGpmSampleFree"] == 2


def test_power_of_a_gh200_gpu_is_distinguished_from_power_of_its_module() -> None:
    clock = ManualClock()
    gpu = Gpu("GPU-g", "NVIDIA GH200 480GB", power_mw=Wave(500_000), module_power_mw=Wave(800_000))
    with installed(Machine(gpus=(gpu,)), clock):
        (device,) = read_after(NvidiaProbe(clock), clock, 10)
    assert (device.power_mw, device.power_source) == (500_000, "average, gpu")
    assert (device.power_module_mw, device.energy_mj, device.energy_source) == (800_000, 8_000_000, "module")


def test_an_a100_has_no_average_power_and_reports_the_instantaneous_one() -> None:
    clock = ManualClock()
    gpu = Gpu("GPU-a", "NVIDIA A100-SXM4-80GB", power_mw=Wave(300_000, 100_000, 4), power_averaged=False, gpm="no")
    with installed(Machine(gpus=(gpu,)), clock):
        (device,) = read_after(NvidiaProbe(clock), clock, 1)
    assert (device.power_mw, device.power_instant_mw, device.power_source) == (400_000, 400_000, "instant, gpu")


SLICES = tuple(Slice(f"MIG-{n}", gpu_instance=7 + n, sm_percent=Wave(10 * n)) for n in range(7))


def test_seven_mig_devices_are_separate_devices_and_the_gpu_keeps_its_card_wide_metrics() -> None:
    clock = ManualClock()
    busy = replace(SLICES[2], processes=((ME, 2**30),))
    gpu = replace(H100, slices=(*SLICES[:2], busy, *SLICES[3:]), processes=((ME, 2**30),))
    with installed(Machine(gpus=(gpu, Gpu("GPU-2"))), clock):
        probe = NvidiaProbe(clock)
        read_after(probe, clock, 0)
        parent, *slices, other = read_after(probe, clock, 1, processes=True)
    assert [device.uuid for device in slices] == [f"MIG-{n}" for n in range(7)]
    assert {(reading.kind, reading.parent_uuid, reading.slot, reading.part_1e6) for reading in slices} == {
        ("mig", "GPU-1", 0, 142857)
    }
    assert [device.sm_active_1e4 for device in slices] == [1000 * n for n in range(7)]
    assert [bool(device.processes) for device in slices] == [False, False, True, False, False, False, False]
    assert slices[0].memory_used_bytes == 8 * 2**30
    assert slices[0].power_mw is None and "whole GPU" in reasons(slices[0])["power_mw"]
    assert (parent.power_mw, parent.processes, parent.util_1e4) == (400_000, (), None)
    assert other.util_1e4 == 6000


def test_mig_devices_come_and_go_while_the_gpu_stays() -> None:
    clock = ManualClock()
    with installed(Machine(gpus=(replace(H100, slices=SLICES),)), clock) as library:
        probe = NvidiaProbe(clock)
        assert len(read_after(probe, clock, 1)) == 8
        library.machine = Machine(gpus=(replace(H100, slices=SLICES[:1]),))
        assert [reading.uuid for reading in read_after(probe, clock, 10, processes=True)] == ["GPU-1", "MIG-0"]
        library.machine = Machine(gpus=(H100,))
        assert [reading.kind for reading in read_after(probe, clock, 10, processes=True)] == ["gpu"]


def test_several_processes_are_weighted_by_their_sm_time_since_the_previous_list() -> None:
    clock = ManualClock()
    gpu = replace(H100, processes=((ME, 2**30), (PARENT, 2**30)), process_sm=((ME, 60), (PARENT, 20)))
    with installed(Machine(gpus=(gpu,)), clock):
        probe = NvidiaProbe(clock)
        read_after(probe, clock, 100, processes=True)
        (device,) = read_after(probe, clock, 5, processes=True)
    assert {process.pid: process.sm_time for process in device.processes or ()} == {ME: 300, PARENT: 100}


def test_sm_time_of_a_pid_that_is_not_on_the_list_is_not_guessed_about() -> None:
    clock = ManualClock()
    gpu = replace(H100, processes=((ME, 5), (PARENT, 5)), process_sm=((645_400, 60), (ME, 20)))
    with installed(Machine(gpus=(gpu,)), clock):
        (device,) = read_after(NvidiaProbe(clock), clock, 100, processes=True)
    assert [process.sm_time for process in device.processes or ()] == [None, None]


def test_an_xid_is_an_event_of_its_gpu() -> None:
    clock = ManualClock()
    gpus = list(eight())
    gpus[3] = replace(gpus[3], xids=((5.0, 79),))
    watch = XidWatch()
    with installed(Machine(gpus=tuple(gpus)), clock):
        probe = NvidiaProbe(clock, watch=watch)
        read_after(probe, clock, 0)
        assert probe.driver_events() == ()
        clock.now_s = 6
        events: tuple[DriverEvent, ...] = ()
        deadline = time.monotonic() + DEADLINE_S
        while not events and time.monotonic() < deadline:
            events = probe.driver_events()
        probe.close()
    assert [(event.uuid, event.kind) for event in events] == [(gpus[3].uuid, "xid")]
    assert "Xid 79" in events[0].message


def told_by(probe: NvidiaProbe, n: int) -> tuple[DriverEvent, ...]:
    events: tuple[DriverEvent, ...] = ()
    deadline = time.monotonic() + DEADLINE_S
    while len(events) < n and time.monotonic() < deadline:
        events += probe.driver_events()
    return events


def test_an_xid_is_an_event_of_its_mig_device_or_of_the_gpu_with_the_reason() -> None:
    clock = ManualClock()
    halves = (Slice("MIG-a", 3, 0), Slice("MIG-b", 3, 1))
    struck = ((5.0, 13, 3, 1), (6.0, 31, 3, 0), (7.0, 43), (8.0, 45, 9, 0))
    with installed(Machine(gpus=(replace(H100, slices=halves, xids=struck),)), clock):
        probe = NvidiaProbe(clock, watch=XidWatch())
        read_after(probe, clock, 1)
        clock.now_s = 9
        events = told_by(probe, 4)
        probe.close()
    assert [event.uuid for event in events] == ["MIG-b", "MIG-a", "GPU-1", "GPU-1"]
    assert "Xid 43" in events[2].message and "names no MIG device" in events[2].message
    assert "Xid 45" in events[3].message and "GPU instance 9" in events[3].message


def test_xids_of_other_and_of_later_gpus_are_reported_after_one_fell_off_the_bus() -> None:
    clock, gpus = ManualClock(), eight()
    with installed(Machine(gpus=gpus[:7]), clock) as library:
        probe = NvidiaProbe(clock, watch=XidWatch())
        read_after(probe, clock, 1)
        library.machine = Machine(gpus=(replace(gpus[0], lost_after=0), *gpus[1:]))
        read_after(probe, clock, 1, processes=True)
        deadline = time.monotonic() + DEADLINE_S
        while (made := library.calls["nvmlEventSetCreate"]) < 2 and time.monotonic() < deadline:
            read_after(probe, clock, 1, processes=True)
        assert made == 2, "a set that broke is made again"
        struck = clock.now_s + 1
        library.machine = Machine(
            gpus=(library.machine.gpus[0], *(replace(gpu, xids=((struck, 48),)) for gpu in gpus[1:]))
        )
        clock.now_s += 2
        events = told_by(probe, 7)
        probe.close()
    assert {event.uuid for event in events} == {gpu.uuid for gpu in gpus[1:]} and len(events) == 7


def test_a_call_that_hangs_costs_its_gpu_only_and_is_left_until_it_returns(tmp_path: Path) -> None:
    clock, fifo = ManualClock(), tmp_path / "hang"
    os.mkfifo(fifo)
    hanging = replace(eight()[3], hang=("nvmlDeviceGetUtilizationRates", str(fifo)))
    with installed(Machine(gpus=eight()), clock) as library:
        probe = NvidiaProbe(clock, patience_s=0.1)
        read_after(probe, clock, 1)
        library.machine = Machine(gpus=(*eight()[:3], hanging, *eight()[4:]))
        for _ in range(3):
            devices = read_after(probe, clock, 1)
            assert [device.lost for device in devices] == [None] * 3 + [HANGS] + [None] * 4
            assert all(device.util_1e4 is not None for device in devices if not device.lost)
            assert devices[3].power_mw is None
        assert library.gpu_calls["nvmlDeviceGetUtilizationRates", hanging.uuid] == 2, "left alone in its call"
        library.machine = Machine(gpus=eight())
        fifo.open("wb").close()
        deadline = time.monotonic() + DEADLINE_S
        while any(device.lost for device in devices) and time.monotonic() < deadline:
            devices = read_after(probe, clock, 1)
        assert not any(device.lost for device in devices)
        probe.close()


def test_a_driver_that_hangs_as_a_whole_is_left_alone_as_a_whole(tmp_path: Path) -> None:
    clock, fifo = ManualClock(), tmp_path / "hang"
    os.mkfifo(fifo)
    gpus = tuple(replace(gpu, hang=("nvmlDeviceGetUtilizationRates", str(fifo))) for gpu in eight())
    with installed(Machine(gpus=gpus), clock) as library:
        probe = NvidiaProbe(clock, patience_s=0.05)
        assert all(device.lost == HANGS for device in read_after(probe, clock, 1))
        assert library.calls["nvmlDeviceGetUtilizationRates"] == 2, "two threads are lost to it and no more"
        library.machine = Machine(gpus=eight())
        fifo.open("wb").close()  # wakes all who wait for it
        probe.close()


def test_a_gpu_pulled_out_is_lost_and_one_put_back_is_itself_again() -> None:
    clock, gpus = ManualClock(), eight()
    with installed(Machine(gpus=gpus), clock) as library:
        probe = NvidiaProbe(clock)
        read_after(probe, clock, 1, processes=True)
        library.machine = Machine(gpus=(*gpus[:3], replace(gpus[3], removed=True), *gpus[4:]))
        devices = read_after(probe, clock, 1, processes=True)
        assert [device.uuid for device in devices if device.lost] == [gpus[3].uuid]
        assert all(device.power_mw for device in devices if not device.lost)
        library.machine = Machine(gpus=(*gpus, Gpu("GPU-new")))
        clock.now_s += 60
        devices = read_after(probe, clock, 1, processes=True)
    assert {device.uuid for device in devices} == {*(gpu.uuid for gpu in gpus), "GPU-new"}
    assert not any(device.lost for device in devices)


def test_sixty_four_gpus_are_all_read() -> None:
    clock = ManualClock()
    with installed(Machine(gpus=tuple(Gpu(f"GPU-{n}") for n in range(64))), clock) as library:
        probe = NvidiaProbe(clock)
        read_after(probe, clock, 1)
        before = library.calls.total()
        devices = read_after(probe, clock, 1)
        assert library.calls.total() - before == 64 * 7
    assert len(devices) == 64 and all(device.dram_active_1e4 == 7000 for device in devices)


@pytest.mark.parametrize("shape", ["sine", "square"])
def test_a_minute_at_one_hertz_is_right_by_counter_and_by_integral(shape: str) -> None:
    clock = ManualClock()
    clock.now_s = 5.0
    gpu = replace(H100, power_mw=Wave(400_000, 250_000, 7.3, shape), energy_start_mj=10**6)  # type: ignore[arg-type]
    with installed(Machine(gpus=(gpu,)), clock) as library:
        probe = NvidiaProbe(clock)
        (before,) = read_after(probe, clock, 0)
        start_s, counted, integral = clock.now_s, 0, 0
        for _ in range(60):
            (after,) = read_after(probe, clock, 1)
            step = energy_step(before, after, 1000)
            assert step.counter_mj is not None and step.integral_mj is not None
            counted, integral, before = counted + step.counter_mj, integral + step.integral_mj, after
        truth = library.energy_mj(gpu, clock.now_s) - library.energy_mj(gpu, start_s)
    assert counted == pytest.approx(truth, rel=0.01)
    assert integral == pytest.approx(truth, rel=0.03)


def test_memory_errors_are_read_with_the_processes() -> None:
    with installed(Machine(gpus=(replace(H100, ecc_errors=(3, 1), unsupported=(pynvml.NVML_FI_DEV_MEMORY_TEMP,)),))):
        (device,), _ = NvidiaProbe().read(processes=True)
    assert (device.ecc_corrected, device.ecc_uncorrected) == (3, 1)
