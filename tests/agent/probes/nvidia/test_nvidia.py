import os
from pathlib import Path

import pynvml
import pytest

from pertoken.agent.probes.nvidia.nvml import FAULTS
from pertoken.agent.probes.nvidia.probe import NvidiaProbe
from pertoken.agent.readings import DeviceProcess, DeviceReading, Unavailable, energy_step
from tests.standin_nvml import Gpu, Machine, ManualClock, Wave, eight, installed

ENERGY, POWER = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"
UTIL = "nvmlDeviceGetUtilizationRates"


RARE = {"power_module_mw", "power_memory_mw"}
"""What an ordinary GPU does not have."""


def by_metric(reading: DeviceReading) -> dict[str, Unavailable]:
    """Gaps, without those of a first reading or of an ordinary GPU."""
    return {
        missing.metric: missing
        for missing in reading.unavailable
        if missing.metric not in RARE and missing.remedy != "wait"
    }


def with_one(**fields: object) -> tuple[Gpu, ...]:
    """Return eight GPUs, the fourth of them differing by these fields."""
    gpus = list(eight())
    gpus[3] = Gpu(**vars(gpus[3]) | fields)
    return tuple(gpus)


def complete(reading: DeviceReading) -> bool:
    values = (reading.util_1e4, reading.memory_used_bytes, reading.power_mw, reading.energy_mj)
    return reading.lost is None and not by_metric(reading) and None not in values


def test_eight_healthy_gpus_are_read_whole() -> None:
    clock = ManualClock()
    clock.now_s = 12.5
    with installed(Machine(gpus=eight(processes=((os.getpid(), 40 * 2**30),))), clock):
        devices, unavailable = NvidiaProbe(clock).read(processes=True)
    assert unavailable == ()
    assert [device.slot for device in devices] == list(range(8))
    assert all(complete(device) for device in devices)
    gpu = eight()[5]
    assert devices[5]._replace(unavailable=()) == DeviceReading(
        uuid="GPU-00000000-0000-4000-8000-000000000005",
        kind="gpu",
        vendor="NVIDIA",
        name="NVIDIA H100 80GB HBM3",
        slot=5,
        memory_bytes=80 * 2**30,
        power_limit_mw=700_000,
        driver_version="580.95.05",
        pci_bus_id="00000000:06:00.0",
        util_1e4=round(gpu.util_percent.at(12.5)) * 100,
        memory_used_bytes=60 * 2**30,
        power_source="average, gpu",
        energy_source="gpu",
        power_mw=round(gpu.power_mw.integral(12.5) - gpu.power_mw.integral(11.5)),
        power_instant_mw=round(gpu.power_mw.at(12.5)),
        ecc_corrected=0,
        ecc_uncorrected=0,
        energy_mj=int(gpu.power_mw.integral(12.5)),
        sm_clock_mhz=1980,
        memory_clock_mhz=2619,
        temperature_c=61,
        throttle_reasons=4,
        processes=(DeviceProcess(os.getpid(), 40 * 2**30),),
    )


def test_the_calls_counted_are_the_calls_the_driver_got() -> None:
    with installed(
        Machine(gpus=eight(processes=((os.getpid(), None),)), without=("nvmlDeviceGetMemoryInfo_v2",))
    ) as library:
        probe = NvidiaProbe()
        for processes in (True, False, True):
            probe.read(processes)
        assert probe.nvml.calls == library.calls.total()


def test_a_minute_of_ticks_needs_at_most_nine_calls_a_tick_for_each_gpu_and_none_of_the_slow_ones() -> None:
    clock = ManualClock()
    with installed(Machine(gpus=eight(processes=((os.getpid(), 1), (os.getppid(), 1)))), clock) as library:
        probe = NvidiaProbe(clock)
        probe.read(processes=True)
        before = library.calls.copy()
        for tick in range(60):
            clock.now_s += 1
            devices, _ = probe.read(processes=tick % 10 == 9)
        asked = library.calls - before
    assert all(complete(device) and device.dram_active_1e4 == 7000 for device in devices)
    assert asked.total() / 60 <= 72
    assert asked["nvmlDeviceGetComputeRunningProcesses_v3"] == 6 * 8 * 2
    assert not {name for name in asked if "Pcie" in name or "Fan" in name}


def test_a_host_without_the_library_is_a_normal_cpu_host() -> None:
    clock = ManualClock()
    with installed(Machine(absent=True), clock) as library:
        probe = NvidiaProbe(clock)
        for _ in range(3):
            devices, unavailable = probe.read(processes=True)
            assert devices == ()
            assert [(missing.metric, missing.status) for missing in unavailable] == [("nvidia", "missing")]
        probe.close()
        assert (library.calls.total(), probe.nvml.calls) == (0, 0)


def test_a_gpu_lost_at_start_leaves_the_other_seven_complete() -> None:
    clock = ManualClock()
    with installed(Machine(gpus=with_one(lost_after=0)), clock) as library:
        probe = NvidiaProbe(clock)
        devices, unavailable = probe.read(processes=True)
        assert [device.slot for device in devices] == [0, 1, 2, 4, 5, 6, 7]
        assert all(complete(device) for device in devices)
        assert [(missing.metric, missing.status) for missing in unavailable] == [("gpu 3", "failing")]
        assert [(driver_event.kind, driver_event.message) for driver_event in probe.driver_events()] == [
            ("device_lost", "gpu 3: the GPU fell off the bus")
        ]
        asked = library.calls["nvmlDeviceGetHandleByIndex_v2"]
        probe.read(processes=True)
        assert library.calls["nvmlDeviceGetHandleByIndex_v2"] == asked, "left alone for a while"
        library.recovered.add(eight()[3].uuid)
        clock.now_s += 6
        devices, unavailable = probe.read(processes=True)
        assert len(devices) == 8 and all(complete(device) for device in devices) and unavailable == ()


def test_a_gpu_lost_later_costs_only_itself_and_is_left_alone_longer_and_longer() -> None:
    clock = ManualClock()
    with installed(Machine(gpus=with_one(lost_after=20)), clock) as library:
        probe = NvidiaProbe(clock)
        first, _ = probe.read(processes=False)
        assert all(complete(device) for device in first)
        asked = []
        for _ in range(60):
            clock.now_s += 1
            before = library.calls["nvmlDeviceGetHandleByUUID"]
            devices, unavailable = probe.read(processes=False)
            asked.append(library.calls["nvmlDeviceGetHandleByUUID"] - before)
            lost = devices[3]
            assert unavailable == () and len(devices) == 8
            assert all(complete(device) for device in devices if device is not lost)
        assert lost.lost == "the GPU fell off the bus"
        assert (lost.uuid, lost.name, lost.power_mw, lost.energy_mj) == (first[3].uuid, first[3].name, None, None)
        assert sum(asked) == 3, "after 5, 15 and 35 s"
        library.recovered.add(lost.uuid)
        clock.now_s += 100
        devices, _ = probe.read(processes=False)
        assert complete(devices[3])


def test_an_unsupported_field_is_unknown_with_its_reason_and_never_asked_again() -> None:
    gpus = with_one(
        unsupported=(
            ENERGY,
            pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetTemperatureV",
        )
    )
    clock = ManualClock()
    with installed(Machine(gpus=gpus), clock) as library:
        probe = NvidiaProbe(clock)
        for _ in range(5):
            clock.now_s += 1
            devices, _ = probe.read(processes=False)
        uuid = gpus[3].uuid
        assert (devices[3].energy_mj, devices[3].util_1e4, devices[3].temperature_c) == (None, None, 61)
        unavailable = by_metric(devices[3])
        assert set(unavailable) == {"energy_mj", "util_1e4"}
        assert unavailable["energy_mj"].status == "unsupported" and "MIG" in unavailable["energy_mj"].reason
        assert library.gpu_calls[ENERGY, uuid] == library.gpu_calls["nvmlDeviceGetTemperatureV", uuid] == 1
        assert library.gpu_calls[ENERGY, gpus[0].uuid] == 0, "the field value is enough"
        assert all(complete(device) for device in devices if device.slot != 3)


def test_an_old_driver_is_read_by_its_older_calls() -> None:
    new = (
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    )
    with installed(Machine(gpus=eight(processes=((os.getpid(), 7),)), driver_version="470.256.02", without=new)):
        devices, _ = NvidiaProbe().read(processes=True)
    assert all(complete(device) for device in devices)
    assert (devices[0].temperature_c, devices[0].throttle_reasons) == (61, 4)
    assert devices[0].processes == (DeviceProcess(os.getpid(), 7),)
    assert devices[0].memory_used_bytes == 60 * 2**30 + 500 * 2**20, "v1 counts what is reserved"


def test_metrics_missing_from_an_old_driver_are_unavailable_with_the_advice_to_update() -> None:
    without = (
        "nvmlDeviceGetFieldValues",
        ENERGY,
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v2",
    )
    with installed(Machine(gpus=eight(), without=without)):
        devices, _ = NvidiaProbe().read(processes=True)
    unavailable = by_metric(devices[0])
    assert set(unavailable) == {"energy_mj", "processes", "power_instant_mw", "ecc_corrected", "ecc_uncorrected"}
    assert devices[0].power_mw == 300_000 and devices[0].power_source == "usage, gpu"
    assert {(missing.status, missing.remedy) for missing in unavailable.values()} == {
        ("missing", "update the NVIDIA driver")
    }


def test_memory_shared_with_the_host_is_reported_as_memory_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\nHugePages_Total: 0\n")
    unified = Gpu("GPU-gb10", "NVIDIA GB10", unsupported=("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"))
    with installed(Machine(gpus=(unified,))):
        (device,), _ = NvidiaProbe(proc=tmp_path).read(processes=False)
    assert (device.memory_bytes, device.memory_used_bytes) == (1_024_000, 614_400)
    unavailable = by_metric(device)
    assert set(unavailable) == {"memory_bytes", "memory_used_bytes"}
    assert "whole host's" in unavailable["memory_used_bytes"].reason


@pytest.mark.parametrize("calls_before", [1, 3, 40, 139, 160, 203])
def test_after_a_driver_reload_the_same_gpus_are_found_by_their_uuid(calls_before: int) -> None:
    clock = ManualClock()
    with installed(Machine(gpus=eight(), reload_after=calls_before), clock) as library:
        probe = NvidiaProbe(clock)
        for _ in range(4):
            clock.now_s += 10
            devices, unavailable = probe.read(processes=False)
        assert library.lives == 2
        assert unavailable == () and len(devices) == 8 and all(complete(device) for device in devices)
        assert [device.slot for device in devices] == list(range(8))
        assert devices[0].uuid == eight()[7].uuid, "the slots moved, the names did not"
        (event,) = probe.driver_events()
        assert (event.uuid, event.kind) == (None, "driver") and "was reloaded" in event.message


def test_a_refused_call_is_made_again_after_a_reload() -> None:
    with installed(Machine(gpus=eight(unsupported=(UTIL,)), reload_after=300)) as library:
        probe = NvidiaProbe()
        for _ in range(6):
            probe.read(processes=False)
        assert library.lives == 2
        assert library.gpu_calls[UTIL, eight()[0].uuid] == 2


def test_a_driver_that_lets_this_process_not_in_names_the_rights_and_is_tried_again() -> None:
    clock = ManualClock()
    with installed(Machine(gpus=eight()), clock) as library:
        library.failing["nvmlInitWithFlags"] = pynvml.NVML_ERROR_NO_PERMISSION
        probe = NvidiaProbe(clock)
        devices, (missing,) = probe.read(processes=False)
        assert devices == () and (missing.metric, missing.status) == ("nvidia", "denied")
        assert "/dev/nvidia" in (missing.remedy or "")
        library.failing.clear()
        clock.now_s += 6
        assert len(probe.read(processes=False)[0]) == 8


def test_a_driver_that_went_away_leaves_its_gpus_known_as_lost_until_it_is_back() -> None:
    clock = ManualClock()
    with installed(Machine(gpus=eight()), clock) as library:
        probe = NvidiaProbe(clock)
        probe.read(processes=False)
        library.unloaded = True
        devices, unavailable = probe.read(processes=False)
        assert len(devices) == 8
        assert all(device.lost and device.power_mw is None for device in devices)
        assert [(missing.metric, missing.status) for missing in unavailable] == [("nvidia", "missing")]
        assert [driver_event.kind for driver_event in probe.driver_events()] == ["driver"]
        asked = library.calls.total()
        assert probe.read(processes=False) == (devices, unavailable)
        assert library.calls.total() == asked, "left alone for a while"
        assert probe.driver_events() == (), "reported once"
        library.unloaded = False
        clock.now_s += 6
        devices, unavailable = probe.read(processes=False)
        assert unavailable == () and all(complete(device) for device in devices)


def test_a_driver_of_another_version_after_a_reload_needs_a_new_process() -> None:
    with installed(Machine(gpus=eight())) as library:
        NvidiaProbe().read(processes=False)
        calls_of_a_first_read = library.calls.total()
    with installed(Machine(gpus=eight(), reload_after=calls_of_a_first_read, reload_mismatch=True)):
        probe = NvidiaProbe()
        probe.read(processes=False)
        assert not probe.outdated
        devices, (missing,) = probe.read(processes=False)
    assert probe.outdated
    assert all(device.lost for device in devices) and "different versions" in missing.reason


def test_a_call_that_fails_now_and_then_is_a_gap_now_and_asked_again() -> None:
    with installed(Machine(gpus=eight())) as library:
        probe = NvidiaProbe()
        library.failing = {UTIL: 999, "nvmlDeviceGetName": 10}
        devices, _ = probe.read(processes=True)
        assert {missing.metric: missing.status for missing in by_metric(devices[0]).values()} == {
            "util_1e4": "failing",
            "name": "failing",
        }
        assert (devices[0].util_1e4, devices[0].name) == (None, "NVIDIA GPU")
        assert "999" in by_metric(devices[0])["util_1e4"].reason
        library.failing = {}
        devices, _ = probe.read(processes=True)
        assert all(complete(device) for device in devices)
        assert devices[0].name == "NVIDIA H100 80GB HBM3"


def test_a_gpu_that_answers_nothing_at_all_is_lost_whatever_the_error() -> None:
    clock = ManualClock()
    with installed(Machine(gpus=eight()), clock) as library:
        probe = NvidiaProbe(clock)
        probe.read(processes=False)
        library.failing = {name: 999 for name in (POWER, ENERGY, *(name for name, _ in library.gpu_calls))}
        devices, _ = probe.read(processes=False)
        assert all(device.lost and "answers nothing" in device.lost for device in devices)
        library.failing = {}
        clock.now_s += 6
        assert all(complete(device) for device in probe.read(processes=False)[0])


@pytest.mark.parametrize("shape", ["sine", "square"])
def test_energy_by_counter_deltas_is_within_one_percent_of_the_truth(shape: str) -> None:
    clock = ManualClock()
    gpu = Gpu("GPU-1", power_mw=Wave(400_000, 250_000, 37, shape), energy_start_mj=123_456_789)  # type: ignore[arg-type]
    with installed(Machine(gpus=(gpu,)), clock) as library:
        probe = NvidiaProbe(clock)
        (before,), _ = probe.read(processes=False)
        counted, integral = 0, 0
        for tick in range(1, 361):
            clock.now_s = tick * 10.0
            (after,), _ = probe.read(processes=False)
            step = energy_step(before, after, 10_000)
            assert step.counter_mj is not None and step.integral_mj is not None
            counted, integral, before = counted + step.counter_mj, integral + step.integral_mj, after
        truth = library.energy_mj(gpu, 3600) - library.energy_mj(gpu, 0)
    assert counted == pytest.approx(truth, rel=0.0001)
    assert integral == pytest.approx(truth, rel=0.05)


def test_an_energy_counter_reset_costs_one_step_of_the_counter_and_none_of_the_integral() -> None:
    clock = ManualClock()
    gpu = Gpu("GPU-1", energy_start_mj=10**9, energy_reset_at_s=35)
    with installed(Machine(gpus=(gpu,)), clock):
        probe = NvidiaProbe(clock)
        (before,), _ = probe.read(processes=False)
        steps = []
        for tick in range(1, 7):
            clock.now_s = tick * 10.0
            (after,), _ = probe.read(processes=False)
            steps.append(energy_step(before, after, 10_000))
            before = after
    assert [step.counter_mj for step in steps] == [4_000_000] * 3 + [None] + [4_000_000] * 2
    assert [step.integral_mj for step in steps] == [4_000_000] * 6


def processes_of(*rows: tuple[int, int | None]) -> DeviceReading:
    with installed(Machine(gpus=(Gpu("GPU-1", processes=rows),))):
        (device,), _ = NvidiaProbe().read(processes=True)
    return device


def test_no_processes_is_an_empty_list_and_not_asked_is_none() -> None:
    assert processes_of().processes == ()
    with installed(Machine(gpus=(Gpu("GPU-1", processes=((os.getpid(), 1),)),))):
        (device,), _ = NvidiaProbe().read(processes=False)
    assert device.processes is None and not by_metric(device)


@pytest.mark.parametrize("row", [(0, 5), (2**32 - 1, 5), (os.getpid(), 2**60)])
def test_a_scrambled_process_list_is_not_believed(row: tuple[int, int]) -> None:
    device = processes_of((os.getpid(), 5), row)
    assert device.processes is None
    assert by_metric(device)["processes"].status == "failing"


def test_every_fault_has_a_reason_and_every_fault_but_unsupported_a_remedy() -> None:
    for fault in FAULTS.values():
        assert fault.reason
        assert fault.remedy or fault.status == "unsupported"


def test_letting_go_shuts_the_library_down_once() -> None:
    with installed(Machine(gpus=eight())) as library:
        probe = NvidiaProbe()
        probe.read(processes=False)
        probe.close()
        probe.close()
        assert library.calls["nvmlShutdown"] == 1
