"""Faults of a driver under a whole `pertoken agent`, through the stand-in as a compiled shared library.

Each run has many faults at once, of GPUs of their own: they must not hide each other, and what is whole stays whole.
"""

import os
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select

from pertoken.agent.rows.devices import device_id_of
from pertoken.store.schema import telemetry as t
from tests.agent.whole_agent import MEASURED, agent, until
from tests.standin_nvml import Gpu, Machine, Slice, Wave
from tests.standin_nvml.shared import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
ACTIVITY = ("sm_active_1e4", "tensor_active_1e4", "dram_active_1e4")
REFUSED = ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerUsage", 83, 185, 186)
"""C functions and field ids: with them go utilization, clock, and power; the energy counter has an older call."""
MIG = tuple(Slice(f"MIG-{n}", gpu_instance=n, sm_percent=Wave(10 * n)) for n in range(7))
SLOT = {
    1: {"name": "NVIDIA GB10", "unsupported": ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")},
    2: {"slices": MIG},
    3: {"name": "NVIDIA A100-SXM4-80GB", "power_averaged": False, "gpm": "no"},
    4: {"unsupported": ("nvmlDeviceGetUtilizationRates",)},
    5: {"lost_after": 0},
    6: {"name": "NVIDIA GH200 480GB", "module_power_mw": Wave(650_000)},
    7: {"gpm": "lies"},
}
"""What is odd from the start, by slot; all other slots are healthy."""


def rack(**odd: dict[str, object]) -> list[Gpu]:
    """Return 64 GPUs: `SLOT`, and what is odd beside it, as `slot_10={...}`."""
    gpus = [Gpu(f"GPU-{slot:02}", power_mw=Wave(300_000 + 1000 * slot, 100_000, 20)) for slot in range(64)]
    for slot, fields in SLOT.items():
        gpus[slot] = replace(gpus[slot], **fields)  # type: ignore[arg-type]
    for name, fields in odd.items():
        slot = int(name.removeprefix("slot_"))
        gpus[slot] = replace(gpus[slot], **fields)  # type: ignore[arg-type]
    return gpus


ODD = {
    "GPU-02": ("util_1e4", *ACTIVITY),
    "GPU-03": ACTIVITY,
    "GPU-04": ("util_1e4",),
    "GPU-07": ACTIVITY,
}
"""What is NULL in a row of a GPU that is odd from the start."""


def test_faults_of_single_gpus_among_64_and_then_of_their_driver(tmp_path: Path) -> None:
    healthy, fifo = rack(slot_5={"lost_after": None}), tmp_path / "hang"
    os.mkfifo(fifo)
    with agent(tmp_path, Machine(gpus=tuple(rack()))) as recorded:
        # Odd from the start: one lost, MIG, unified memory, older GPUs, fields that one model lacks.
        until(lambda: recorded.faulty(rack()) == {**ODD, "GPU-05": None}, "62 whole GPUs and the odd ones")
        assert "device_lost" in recorded.kinds()
        rows, reasons = recorded.latest(), {slot: recorded.reasons(f"GPU-{slot:02}") for slot in range(64)}
        assert rows["GPU-01"].memory_used_bytes < psutil.virtual_memory().total
        assert "share the host's memory" in reasons[1]["memory_used_bytes"]
        assert "mode it is in (MIG" in reasons[2]["util_1e4"]
        assert [rows[slot.uuid].sm_active_1e4 for slot in MIG] == [1000 * n for n in range(7)]
        assert {rows[slot.uuid].power_mw for slot in MIG} == {None}
        assert "whole GPU" in recorded.reasons("MIG-3")["power_mw"]
        assert "older than Hopper" in reasons[3]["dram_active_1e4"] and "no sample" in reasons[7]["dram_active_1e4"]
        assert rows["GPU-06"].power_module_mw == 650_000 != rows["GPU-06"].power_mw
        assert "does not offer it" in reasons[4]["util_1e4"] and "util_1e4" not in reasons[8]

        # All at once, each of a GPU of its own.
        now_s = time.time()
        recorded.set_machine(
            rack(
                slot_5={"lost_after": None},
                slot_10={"lost_after": 0},
                slot_11={"hang": ("nvmlDeviceGetUtilizationRates", str(fifo))},
                slot_12={"removed": True},
                slot_13={"unsupported": REFUSED},
                slot_14={"xids": ((now_s, 48),)},
                slot_15={"energy_reset_at_s": now_s},
                slot_16={"ecc_errors": (0, 2)},
                slot_2={"xids": ((now_s, 13, 3, 0),)},
            )
        )
        lost = {f"GPU-{slot}": MEASURED for slot in (10, 11, 12)}
        refused = ("util_1e4", "power_mw", "energy_integral_mj", "sm_clock_mhz")
        until(lambda: recorded.faulty(healthy) == {**ODD, **lost, "GPU-13": refused}, "the faults and no other")
        until(lambda: "ecc" in recorded.kinds("GPU-16"), "memory errors, which are read with the processes")
        assert "fell off the bus" in recorded.reasons("GPU-10")["device"]
        assert "hangs" in recorded.reasons("GPU-11")["device"]
        until(lambda: "no longer lists" in recorded.reasons("GPU-12")["device"], "the GPU pulled out to be named so")
        assert set(refused) - {"energy_integral_mj"} <= set(recorded.reasons("GPU-13"))
        expected = {"GPU-10": "device_lost", "GPU-11": "device_lost", "GPU-12": "device_lost", "GPU-13": "metric_lost"}
        expected |= {"GPU-14": "xid", "GPU-15": "energy_counter", "GPU-16": "ecc", "MIG-3": "xid"}
        assert {uuid: kind for uuid, kind in expected.items() if kind not in recorded.kinds(uuid)} == {}
        assert recorded.kinds("GPU-02") == recorded.kinds("GPU-17") == set()

        # What went comes back: a call that returns, a GPU put in again, the bus.
        recorded.set_machine(rack(slot_5={"lost_after": None}, slot_13={"unsupported": REFUSED}))
        fifo.open("wb").close()
        until(lambda: recorded.faulty(healthy) == {**ODD, "GPU-13": refused}, "all of them back")
        assert all("device_back" in recorded.kinds(uuid) for uuid in lost)

        # A driver that is loaded again lists its GPUs in another order, and may offer what it did not before.
        recorded.set_machine(healthy, reloads=1)
        until(lambda: recorded.faulty(healthy) == ODD, "all GPUs after a reload")
        assert "driver" in recorded.kinds() and "metric_back" in recorded.kinds("GPU-13")
        assert recorded.latest()["GPU-63"].power_mw > 363_000 - 100_001, "found by its UUID, not by its place"

        # One of another version can only be read by a new sampler.
        recorded.set_machine(healthy, reloads=2, reload_mismatch=True)
        until(lambda: "sampler_restarted" in recorded.kinds(), "a new sampler")
        until(lambda: recorded.faulty(healthy) == ODD, "all GPUs through a new sampler")

        # Calls that take long are waited for.
        recorded.set_machine(healthy, reloads=2, reload_mismatch=True, slow_s=0.002)
        slow = select(t.agent_sample.c.tick_ms).where(t.agent_sample.c.tick_ms >= 64 * 7 * 2)
        until(lambda: recorded.ask(slow), "a slow tick")
        assert recorded.faulty(healthy) == ODD

        energy = select(t.device_sample.c.energy_counter_mj, t.device_sample.c.energy_integral_mj)
        used = recorded.ask(energy.where(t.device_sample.c.device_id == device_id_of("GPU-15")))
        assert all(counter is None or counter >= 0 for counter, _ in used)
        assert any(counter is None and integral for counter, integral in used), "the integral stands"


def test_an_old_driver_has_not_even_the_symbols(tmp_path: Path) -> None:
    without = (
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlGpmSampleAlloc",
    )
    gpus = tuple(Gpu(f"GPU-{n}") for n in range(8))
    with agent(tmp_path, Machine(gpus=gpus, without=without)) as recorded:
        until(lambda: recorded.faulty(gpus) == {gpu.uuid: ACTIVITY for gpu in gpus}, "all that an old driver reports")
        assert recorded.latest()["GPU-0"].temperature_c == gpus[0].temperature_c
        assert "too old" in recorded.reasons("GPU-0")["dram_active_1e4"]
        assert "device_lost" not in recorded.kinds()
