"""The library object: C function pointers by symbol name, as `ctypes.CDLL` would give them.

Each method that is marked with its C arguments is one exported symbol. Struct layouts and return codes are NVML's
own, as the real `pynvml` has them. Here is what every call goes through, faults among it, and what is of no one GPU.
"""

import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pynvml

from tests.standin_nvml.event_calls import EventCalls
from tests.standin_nvml.gpm_calls import GpmCalls
from tests.standin_nvml.gpu_calls import GpuCalls
from tests.standin_nvml.lies import OF_A_GPU, OF_THE_LIBRARY
from tests.standin_nvml.machine import Gpu, Machine, Slice
from tests.standin_nvml.mig_calls import MigCalls
from tests.standin_nvml.symbols import OK, PTR, UINT, Clock, put, symbol, text


class Library(GpuCalls, MigCalls, GpmCalls, EventCalls):
    """One machine's driver library. `calls` counts by C function, `gpu_calls` by (C function, UUID)."""

    def __init__(self, machine: Machine, clock: Clock) -> None:
        self.machine = machine
        self.clock = clock
        self.calls: Counter[str] = Counter()
        self.gpu_calls: Counter[tuple[str, str]] = Counter()
        self.lives = 0
        """How often it was initialised: handles of a life before are dead."""
        self.initialised = False
        self.reloaded = False
        self._reloads = machine.reloads
        self.unloaded = False
        """No kernel driver: nothing answers, until this is unset and the library initialised again."""
        self.failing: dict[str, int] = {}
        """C functions that answer this error code just now."""
        self.recovered: set[str] = set()
        """UUIDs of GPUs that are lost no longer."""
        self._samples: dict[int, tuple[float, Gpu | Slice] | None] = {}
        """GPM samples by their address: when they were taken, of what."""
        self._told_s: dict[str, float] = {}
        self._awaited: set[str] = set()
        self._symbols = {
            name: ctypes.CFUNCTYPE(ctypes.c_int, *body.c_arguments)(self._entry(name, body)) for name, body in _bodies()
        }

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            return super().__getattribute__(name)
        if name in self.machine.without or name not in self._symbols:
            raise AttributeError(name)
        return self._symbols[name]

    def _entry(self, name: str, body: Any) -> Callable[..., int]:
        def call(*given: Any) -> int:
            self.calls[name] += 1
            if self.machine.slow_s:
                time.sleep(self.machine.slow_s)
            if self.machine.hang and self.machine.hang[:2] == (name, self.calls[name]):
                Path(self.machine.hang[2]).open("rb").close()
            if self.unloaded:
                self.initialised = False
                return int(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
            if name in self.failing and not hasattr(body, "per_gpu"):
                return self.failing[name]
            if name == "nvmlInitWithFlags":
                return int(body(self, *given))
            after = self.machine.reload_after
            if after is not None and self.lives == 1 and self.calls.total() > after:
                self.reloaded = True
            if self.machine.reloads != self._reloads:
                self._reloads, self.reloaded = self.machine.reloads, True
            if self.reloaded or not self.initialised:
                return int(pynvml.NVML_ERROR_UNINITIALIZED)
            if hasattr(body, "per_gpu"):
                return self._on_gpu(name, body, *given)
            return self._lying(name, int(body(self, *given)), given, dict(self.machine.lies), OF_THE_LIBRARY)

        return call

    def _on_gpu(self, name: str, body: Any, handle: int, *given: Any) -> int:
        life, place = divmod(handle, 100_000)
        if life != self.lives:
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        slot, part = divmod(place, 100)
        gpu = self.machine.gpus[slot]
        if self._lost(gpu):
            return int(pynvml.NVML_ERROR_GPU_IS_LOST)
        self.gpu_calls[name, gpu.uuid] += 1
        if gpu.hang and gpu.hang[0] == name:
            Path(gpu.hang[1]).open("rb").close()
        if name in self.failing:
            return self.failing[name]
        if name in gpu.unsupported:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if name in dict(gpu.failing):
            return dict(gpu.failing)[name]
        lies = dict(gpu.lies)
        if not part:
            return self._lying(name, int(body(self, gpu, *given)), given, lies, OF_A_GPU)
        if part > len(gpu.slices or ()):
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if not hasattr(body, "per_slice"):
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self._lying(name, int(body(self, (gpu.slices or ())[part - 1], *given)), given, lies, OF_A_GPU)

    @staticmethod
    def _lying(
        name: str, code: int, given: tuple[Any, ...], lies: Mapping[str | int, float], of: Mapping[str, Any]
    ) -> int:
        if code == OK and name in lies and name in of:
            of[name](given, lies[name])
        return code

    def _lost(self, gpu: Gpu) -> bool:
        if gpu.removed:
            return True
        if gpu.lost_after is None or gpu.uuid in self.recovered:
            return False
        return sum(n for (_, uuid), n in self.gpu_calls.items() if uuid == gpu.uuid) >= gpu.lost_after

    def _present(self) -> list[int]:
        """Return slots that are listed."""
        return [slot for slot, gpu in enumerate(self.machine.gpus) if not gpu.removed]

    def _handle(self, slot: int, out: int) -> int:
        if self._lost(self.machine.gpus[slot]):
            return int(pynvml.NVML_ERROR_GPU_IS_LOST)
        return put(PTR, out, self.handle(self.machine.gpus[slot]))

    # -- the library ---------------------------------------------------------------------------------------------

    @symbol(UINT)
    def nvmlInitWithFlags(self, flags: int) -> int:
        if self.reloaded and self.machine.reload_mismatch:
            return int(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        self.lives += 1
        if self.machine.noisy:
            os.write(1, b"NVML: hello from C\n")
            print("NVML: hello from Python", flush=True)
        self.initialised, self.reloaded = True, False
        return OK

    @symbol()
    def nvmlShutdown(self) -> int:
        self.initialised = False
        return OK

    @symbol(PTR, UINT)
    def nvmlSystemGetDriverVersion(self, out: int, size: int) -> int:
        return text(out, size, self.machine.driver_version)

    @symbol(PTR)
    def nvmlDeviceGetCount_v2(self, out: int) -> int:
        return put(UINT, out, len(self._present()))

    @symbol(UINT, PTR)
    def nvmlDeviceGetHandleByIndex_v2(self, index: int, out: int) -> int:
        present = self._present()
        return self._handle(present[index if self.lives == 1 else len(present) - 1 - index], out)

    @symbol(ctypes.c_char_p, PTR)
    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, out: int) -> int:
        for slot, gpu in enumerate(self.machine.gpus):
            if gpu.uuid == uuid.decode() and not gpu.removed:
                return self._handle(slot, out)
        return int(pynvml.NVML_ERROR_NOT_FOUND)


def exported() -> tuple[str, ...]:
    """Return names of all symbols, in a fixed order."""
    return tuple(sorted(name for name, _ in _bodies()))


def _bodies() -> list[tuple[str, Any]]:
    """Return the marked methods by symbol name."""
    parts = (Library, *Library.__mro__[1:])
    return [(name, body) for part in parts for name, body in vars(part).items() if hasattr(body, "c_arguments")]
