"""The library object: C function pointers by symbol name, as `ctypes.CDLL` would give them.

Each method of `Library` that is marked with its C arguments is one exported symbol. Struct layouts and return codes
are NVML's own, as the real `pynvml` has them.
"""

import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from tests.standin_nvml.machine import Gpu, Machine

Clock = Callable[[], float]
Body = TypeVar("Body", bound=Callable[..., int])
_PTR, _UINT = ctypes.c_void_p, ctypes.c_uint
OK: int = pynvml.NVML_SUCCESS


def symbol(*arguments: Any) -> Callable[[Body], Body]:
    """Exported under the method's own name with these C arguments."""

    def mark(body: Body) -> Body:
        body.c_arguments = arguments  # type: ignore[attr-defined]
        return body

    return mark


def gpu_symbol(*arguments: Any) -> Callable[[Body], Body]:
    """As `symbol`, with a device handle before the arguments; the body is given the GPU."""

    def mark(body: Body) -> Body:
        body.c_arguments, body.per_gpu = (_PTR, *arguments), True  # type: ignore[attr-defined]
        return body

    return mark


class Library:
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
        self.unloaded = False
        """No kernel driver: nothing answers, until this is unset and the library initialised anew."""
        self.failing: dict[str, int] = {}
        """C functions that answer this error code just now."""
        self.recovered: set[str] = set()
        """UUIDs of GPUs that are lost no longer."""
        self._symbols = {
            name: ctypes.CFUNCTYPE(ctypes.c_int, *body.c_arguments)(self._entry(name, body))
            for name, body in vars(type(self)).items()
            if hasattr(body, "c_arguments")
        }

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            return super().__getattribute__(name)
        if name in self.machine.without or name not in self._symbols:
            raise AttributeError(name)
        return self._symbols[name]

    def energy_mj(self, gpu: Gpu, t: float) -> float:
        """What the energy counter of `gpu` truly stands at, `t` seconds on the clock."""
        if gpu.energy_reset_at_s is not None and t >= gpu.energy_reset_at_s:
            return gpu.power_mw.integral(t) - gpu.power_mw.integral(gpu.energy_reset_at_s)
        return gpu.energy_start_mj + gpu.power_mw.integral(t)

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
            if name == "nvmlInitWithFlags":
                return int(body(self, *given))
            after = self.machine.reload_after
            if after is not None and self.lives == 1 and self.calls.total() > after:
                self.reloaded = True
            if self.reloaded or not self.initialised:
                return int(pynvml.NVML_ERROR_UNINITIALIZED)
            return self._on_gpu(name, body, *given) if hasattr(body, "per_gpu") else int(body(self, *given))

        return call

    def _on_gpu(self, name: str, body: Any, handle: int, *given: Any) -> int:
        life, slot = divmod(handle, 1000)
        if life != self.lives:
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        gpu = self.machine.gpus[slot]
        if self._lost(gpu):
            return int(pynvml.NVML_ERROR_GPU_IS_LOST)
        self.gpu_calls[name, gpu.uuid] += 1
        if name in self.failing:
            return self.failing[name]
        if name in gpu.unsupported:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return int(body(self, gpu, *given))

    def _lost(self, gpu: Gpu) -> bool:
        if gpu.lost_after is None or gpu.uuid in self.recovered:
            return False
        return sum(n for (_, uuid), n in self.gpu_calls.items() if uuid == gpu.uuid) >= gpu.lost_after

    def _handle(self, slot: int, out: int) -> int:
        if self._lost(self.machine.gpus[slot]):
            return int(pynvml.NVML_ERROR_GPU_IS_LOST)
        return _put(_PTR, out, self.lives * 1000 + slot)

    # -- the library ---------------------------------------------------------------------------------------------

    @symbol(_UINT)
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

    @symbol(_PTR, _UINT)
    def nvmlSystemGetDriverVersion(self, out: int, size: int) -> int:
        return _text(out, size, self.machine.driver_version)

    @symbol(_PTR)
    def nvmlDeviceGetCount_v2(self, out: int) -> int:
        return _put(_UINT, out, len(self.machine.gpus))

    @symbol(_UINT, _PTR)
    def nvmlDeviceGetHandleByIndex_v2(self, index: int, out: int) -> int:
        return self._handle(index if self.lives == 1 else len(self.machine.gpus) - 1 - index, out)

    @symbol(ctypes.c_char_p, _PTR)
    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, out: int) -> int:
        for slot, gpu in enumerate(self.machine.gpus):
            if gpu.uuid == uuid.decode():
                return self._handle(slot, out)
        return int(pynvml.NVML_ERROR_NOT_FOUND)

    # -- one GPU -------------------------------------------------------------------------------------------------

    @gpu_symbol(_PTR, _UINT)
    def nvmlDeviceGetUUID(self, gpu: Gpu, out: int, size: int) -> int:
        return _text(out, size, gpu.uuid)

    @gpu_symbol(_PTR, _UINT)
    def nvmlDeviceGetName(self, gpu: Gpu, out: int, size: int) -> int:
        return _text(out, size, gpu.name)

    @gpu_symbol(_PTR)
    def nvmlDeviceGetPciInfo_v3(self, gpu: Gpu, out: int) -> int:
        pynvml.nvmlPciInfo_t.from_address(out).busId = f"00000000:{self.machine.gpus.index(gpu) + 1:02X}:00.0".encode()
        return OK

    @gpu_symbol(_PTR)
    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: Gpu, out: int) -> int:
        return _put(_UINT, out, gpu.power_limit_mw)

    @gpu_symbol(_PTR)
    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu, out: int) -> int:
        memory = pynvml.c_nvmlMemory_t.from_address(out)
        memory.total, memory.used = gpu.memory_bytes, gpu.memory_used_bytes + gpu.memory_reserved_bytes
        memory.free = memory.total - memory.used
        return OK

    @gpu_symbol(_PTR)
    def nvmlDeviceGetMemoryInfo_v2(self, gpu: Gpu, out: int) -> int:
        memory = pynvml.c_nvmlMemory_v2_t.from_address(out)
        if memory.version != pynvml.nvmlMemory_v2:
            return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        memory.total, memory.used, memory.reserved = (
            gpu.memory_bytes,
            gpu.memory_used_bytes,
            gpu.memory_reserved_bytes,
        )
        memory.free = memory.total - memory.used - memory.reserved
        return OK

    @gpu_symbol(_PTR)
    def nvmlDeviceGetUtilizationRates(self, gpu: Gpu, out: int) -> int:
        pynvml.c_nvmlUtilization_t.from_address(out).gpu = round(gpu.util_percent.at(self.clock()))
        return OK

    @gpu_symbol(_PTR)
    def nvmlDeviceGetPowerUsage(self, gpu: Gpu, out: int) -> int:
        return _put(_UINT, out, round(gpu.power_mw.at(self.clock())))

    @gpu_symbol(_PTR)
    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: Gpu, out: int) -> int:
        return _put(ctypes.c_ulonglong, out, int(self.energy_mj(gpu, self.clock())))

    @gpu_symbol(_UINT, _PTR)
    def nvmlDeviceGetClockInfo(self, gpu: Gpu, kind: int, out: int) -> int:
        clocks = {
            pynvml.NVML_CLOCK_GRAPHICS: gpu.sm_clock_mhz,
            pynvml.NVML_CLOCK_SM: gpu.sm_clock_mhz,
            pynvml.NVML_CLOCK_MEM: gpu.memory_clock_mhz,
        }
        return _put(_UINT, out, clocks[kind]) if kind in clocks else int(pynvml.NVML_ERROR_NOT_SUPPORTED)

    @gpu_symbol(ctypes.c_int, _PTR)
    def nvmlDeviceGetFieldValues(self, gpu: Gpu, count: int, out: int) -> int:
        for row in (pynvml.c_nvmlFieldValue_t * count).from_address(out):
            row.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
            if row.fieldId == pynvml.NVML_FI_DEV_POWER_INSTANT:
                row.nvmlReturn, row.valueType = OK, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
                row.value.uiVal = round(gpu.power_mw.at(self.clock()))
        return OK

    @gpu_symbol(_UINT, _PTR)
    def nvmlDeviceGetTemperature(self, gpu: Gpu, sensor: int, out: int) -> int:
        return _put(_UINT, out, gpu.temperature_c)

    @gpu_symbol(_PTR)
    def nvmlDeviceGetTemperatureV(self, gpu: Gpu, out: int) -> int:
        pynvml.c_nvmlTemperature_v1_t.from_address(out).temperature = gpu.temperature_c
        return OK

    @gpu_symbol(_PTR)
    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: Gpu, out: int) -> int:
        return _put(ctypes.c_ulonglong, out, gpu.throttle_reasons)

    @gpu_symbol(_PTR, _PTR)
    def nvmlDeviceGetComputeRunningProcesses_v3(self, gpu: Gpu, count: int, out: int | None) -> int:
        room = _UINT.from_address(count).value
        _put(_UINT, count, len(gpu.processes))
        if room < len(gpu.processes):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        if out is not None:
            rows = (pynvml.c_nvmlProcessInfo_v3_t * len(gpu.processes)).from_address(out)
            for row, (pid, memory) in zip(rows, gpu.processes, strict=True):
                row.pid, row.gpuInstanceId, row.computeInstanceId = pid, 0xFFFFFFFF, 0xFFFFFFFF
                row.usedGpuMemory = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value if memory is None else memory
        return OK

    nvmlDeviceGetCurrentClocksThrottleReasons = nvmlDeviceGetCurrentClocksEventReasons
    nvmlDeviceGetComputeRunningProcesses_v2 = nvmlDeviceGetComputeRunningProcesses_v3


def _put(kind: Any, out: int, value: int) -> int:
    kind.from_address(out).value = value
    return OK


def _text(out: int, size: int, value: str) -> int:
    raw = value.encode() + b"\0"
    if len(raw) > size:
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    ctypes.memmove(out, raw, len(raw))
    return OK
