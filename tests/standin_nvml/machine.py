"""What the stand-in driver pretends: GPUs, what they do over time, and what goes wrong."""

import math
from dataclasses import asdict, dataclass
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
class Gpu:
    """One GPU. Calls are counted per GPU from the first that names its handle."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory_bytes: int = 80 * 2**30
    memory_used_bytes: int = 60 * 2**30
    memory_reserved_bytes: int = 500 * 2**20
    power_limit_mw: int = 700_000
    power_mw: Wave = Wave(400_000)
    util_percent: Wave = Wave(60)
    sm_clock_mhz: int = 1980
    memory_clock_mhz: int = 2619
    temperature_c: int = 61
    throttle_reasons: int = 0x4
    energy_start_mj: int = 0
    energy_reset_at_s: float | None = None
    """When its counter starts again from 0, seconds on the machine's clock."""
    processes: tuple[tuple[int, int | None], ...] = ()
    """(pid, memory in bytes or None for not available)."""
    lost_after: int | None = None
    """Falls off the bus after so many calls; 0: not even its handle can be had."""
    unsupported: tuple[str, ...] = ()
    """C functions that answer NOT_SUPPORTED for it."""


@dataclass(frozen=True)
class Machine:
    """A host's driver library."""

    gpus: tuple[Gpu, ...] = ()
    driver_version: str = "580.95.05"
    absent: bool = False
    """No library at all."""
    without: tuple[str, ...] = ()
    """C symbols this (old) driver does not have."""
    reload_after: int | None = None
    """After so many calls everything is UNINITIALIZED, until initialised anew; the GPUs then count backwards."""
    reload_mismatch: bool = False
    """The driver is of another version after the reload than the library this process has loaded."""
    slow_s: float = 0.0
    """Seconds each call takes."""
    noisy: bool = False
    """Prints to stdout when initialised, as libraries will."""
    hang: tuple[str, int, str] | None = None
    """(C function, n, path of a FIFO): its n-th call blocks until somebody opens the FIFO for writing."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Machine":
        gpus = tuple(
            Gpu(
                **each
                | {
                    "power_mw": Wave(**each["power_mw"]),
                    "util_percent": Wave(**each["util_percent"]),
                    "processes": tuple((pid, memory) for pid, memory in each["processes"]),
                    "unsupported": tuple(each["unsupported"]),
                }
            )
            for each in raw["gpus"]
        )
        hang = tuple(raw["hang"]) if raw["hang"] else None
        return cls(**raw | {"gpus": gpus, "without": tuple(raw["without"]), "hang": hang})


def eight(**fields: Any) -> tuple[Gpu, ...]:
    """Eight healthy GPUs, each under its own load."""
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
