"""Machine that the stand-in driver pretends to be: GPUs, what they do over time, and what goes wrong."""

import math
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Wave:
    """A value over time and its exact integral: constant, or swinging by `swing` around `mean`."""

    mean: float
    swing: float = 0.0
    period_s: float = 60.0
    shape: Literal["sine", "square"] = "sine"

    def at(self, t: float) -> float:
        phase = t / self.period_s
        if self.shape == "sine":
            return self.mean + self.swing * math.sin(2 * math.pi * phase)
        return self.mean + (self.swing if phase % 1 < 0.5 else -self.swing)

    def integral(self, t: float) -> float:
        """From 0 to `t` seconds, in value x seconds."""
        phase = t / self.period_s
        if self.shape == "sine":
            part = (1 - math.cos(2 * math.pi * phase)) / (2 * math.pi)
        else:
            part = min(phase % 1, 1 - phase % 1)
        return self.mean * t + self.swing * self.period_s * part


@dataclass(frozen=True)
class Slice:
    """One MIG device of a GPU."""

    uuid: str
    gpu_instance: int
    compute_instance: int = 0
    compute_slices: int = 1
    name: str = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    memory_bytes: int = 10 * 2**30
    memory_used_bytes: int = 8 * 2**30
    sm_percent: Wave = Wave(50)
    processes: tuple[tuple[int, int | None], ...] = ()


@dataclass(frozen=True)
class Gpu:
    """One GPU. Calls are counted per GPU from the first that names its handle."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory_bytes: int = 80 * 2**30
    memory_used_bytes: int = 60 * 2**30
    memory_reserved_bytes: int = 500 * 2**20
    power_limit_mw: int = 700_000
    power_mw: Wave = Wave(400_000)
    power_averaged: bool = True
    """Whether it reports a 1 s average (Ampere, but not A100, and newer)."""
    module_power_mw: Wave | None = None
    """Of GPU and CPU together, on a GH200: its plain power and energy are of the module then."""
    memory_power_mw: Wave | None = None
    util_percent: Wave = Wave(60)
    gpm: Literal["yes", "no", "lies"] = "yes"
    """`lies`: claims that it is supported, and then gives no sample."""
    sm_percent: Wave = Wave(55)
    occupancy_percent: Wave = Wave(20)
    tensor_percent: Wave = Wave(30)
    dram_percent: Wave = Wave(70)
    nvlink_mib_s: Wave = Wave(1000)
    sm_clock_mhz: int = 1980
    memory_clock_mhz: int = 2619
    temperature_c: int = 61
    throttle_reasons: int = 0x4
    ecc_errors: tuple[int, int] = (0, 0)
    """Corrected and uncorrected since the driver was loaded."""
    energy_start_mj: int = 0
    energy_reset_at_s: float | None = None
    """When its counter starts again from 0, seconds on the machine's clock."""
    processes: tuple[tuple[int, int | None], ...] = ()
    """(pid, memory in bytes or None for not available)."""
    process_sm: tuple[tuple[int, int], ...] = ()
    """(pid, percent of the SMs): each reported once a second."""
    slices: tuple[Slice, ...] | None = None
    """Its MIG devices; None: MIG is off."""
    lost_after: int | None = None
    """Number of calls after which it falls off the bus; 0: not even its handle can be had."""
    removed: bool = False
    """Pulled out: not listed at all, and handles to it are lost."""
    hang: tuple[str, str] | None = None
    """(C function, path of a FIFO): each such call on this GPU blocks until somebody opens the FIFO for writing."""
    xids: tuple[tuple[float, int] | tuple[float, int, int, int], ...] = ()
    """(when, Xid): critical errors, seconds on the machine's clock; with them the ids of the GPU instance and the
    compute instance that were struck, where the driver reports it."""
    unsupported: tuple[str | int, ...] = ()
    """C functions and field ids that answer NOT_SUPPORTED for it."""
    failing: tuple[tuple[str, int], ...] = ()
    """(C function, NVML error code): these calls fail so."""
    lies: tuple[tuple[str | int, float], ...] = ()
    """C functions and field ids that answer with this number in place of the true one, cut to the type of the answer;
    `ALL_ONES` is how drivers report "not available"."""


ALL_ONES = -1


@dataclass(frozen=True)
class Machine:
    """A host's driver library. Its `repr` is the text that other processes are given it by."""

    gpus: tuple[Gpu, ...] = ()
    nvlinks: bool = True
    """Whether every GPU reaches every other one by NVLink."""
    driver_version: str = "580.95.05"
    absent: bool = False
    """No library at all."""
    without: tuple[str, ...] = ()
    """C symbols this (old) driver does not have."""
    reload_after: int | None = None
    """Number of calls after which everything is UNINITIALIZED, until initialised again; the GPUs then count
    backwards."""
    reloads: int = 0
    """How often the driver was reloaded so far: the same happens to a running process whenever this changes."""
    reload_mismatch: bool = False
    """The driver is of another version after the reload than the library this process has loaded."""
    slow_s: float = 0.0
    """Seconds each call takes."""
    noisy: bool = False
    """Prints to stdout when initialised, as libraries will."""
    hang: tuple[str, int, str] | None = None
    """(C function, n, path of a FIFO): its n-th call blocks until somebody opens the FIFO for writing."""
    lies: tuple[tuple[str | int, float], ...] = ()
    """As those of a GPU, of calls that are of no one GPU."""

    @classmethod
    def from_text(cls, text: str) -> "Machine":
        names: dict[str, Any] = {kind.__name__: kind for kind in (Machine, Gpu, Slice, Wave)}
        machine = eval(text, names | {"nan": math.nan, "inf": math.inf})
        assert isinstance(machine, cls)
        return machine


def eight(**fields: Any) -> tuple[Gpu, ...]:
    """Return eight healthy GPUs, each under its own load."""
    return tuple(
        Gpu(
            uuid=f"GPU-00000000-0000-4000-8000-00000000000{slot}",
            **{
                "power_mw": Wave(300_000 + 20_000 * slot, 150_000, 40 + slot, "square" if slot % 2 else "sine"),
                "util_percent": Wave(50, 40, 40 + slot),
            }
            | fields,
        )
        for slot in range(8)
    )
