"""C symbols of the stand-in: the mark of a method, shared state, and replies to C."""

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

from tests.standin_nvml.machine import Gpu, Machine

Clock = Callable[[], float]
Body = TypeVar("Body", bound=Callable[..., int])
PTR, UINT = ctypes.c_void_p, ctypes.c_uint
OK: int = pynvml.NVML_SUCCESS


class Driver:
    """State that every part of the library shares: the machine it pretends to be, the time, and its present life."""

    machine: Machine
    clock: Clock
    lives: int
    """How often it was initialised: handles of a life before are dead."""
    initialised: bool
    reloaded: bool

    def handle(self, gpu: Gpu, part: int = 0) -> int:
        """Of a GPU, or of the `part`-th of its MIG devices, counted from 1."""
        return self.lives * 100_000 + self.machine.gpus.index(gpu) * 100 + part

    def _lost(self, gpu: Gpu) -> bool:
        raise NotImplementedError

    def energy_mj(self, gpu: Gpu, t: float) -> float:
        """Return what the energy counter of `gpu` truly stands at, `t` seconds on the clock."""
        power = gpu.module_power_mw or gpu.power_mw
        if gpu.energy_reset_at_s is not None and t >= gpu.energy_reset_at_s:
            return power.integral(t) - power.integral(gpu.energy_reset_at_s)
        return gpu.energy_start_mj + power.integral(t)


def symbol(*arguments: Any) -> Callable[[Body], Body]:
    """Return exported under the method's own name with these C arguments."""

    def mark(body: Body) -> Body:
        body.c_arguments = arguments  # type: ignore[attr-defined]
        return body

    return mark


def mig_symbol(*arguments: Any) -> Callable[[Body], Body]:
    """As `gpu_symbol`, for calls that a MIG device answers too; the body is given the `Slice` then."""

    def mark(body: Body) -> Body:
        body.c_arguments, body.per_gpu, body.per_slice = (PTR, *arguments), True, True  # type: ignore[attr-defined]
        return body

    return mark


def gpu_symbol(*arguments: Any) -> Callable[[Body], Body]:
    """As `symbol`, with a device handle before the arguments; the body is given the GPU."""

    def mark(body: Body) -> Body:
        body.c_arguments, body.per_gpu = (PTR, *arguments), True  # type: ignore[attr-defined]
        return body

    return mark


def put(kind: Any, out: int, value: int) -> int:
    kind.from_address(out).value = value
    return OK


def text(out: int, size: int, value: str) -> int:
    raw = value.encode() + b"\0"
    if len(raw) > size:
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    ctypes.memmove(out, raw, len(raw))
    return OK
