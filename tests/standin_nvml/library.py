"""The library object: C function pointers by symbol name, as `ctypes.CDLL` would give them.

Each method of `Library` that is marked with its C arguments is one exported symbol. Struct layouts and return codes
are NVML's own, as the real `pynvml` has them.
"""

import ctypes
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from tests.standin_nvml.machine import Gpu, Machine, Slice, Wave

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


def mig_symbol(*arguments: Any) -> Callable[[Body], Body]:
    """As `gpu_symbol`, for calls that a MIG device answers too; the body is given the `Slice` then."""

    def mark(body: Body) -> Body:
        body.c_arguments, body.per_gpu, body.per_slice = (_PTR, *arguments), True, True  # type: ignore[attr-defined]
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
        self._samples: dict[int, tuple[float, Gpu | Slice] | None] = {}
        """GPM samples by their address: when they were taken, of what."""
        self._told_s: dict[str, float] = {}
        """UUIDs of GPUs whose Xids are waited for -> up to when they were told."""
        self._symbols = {
            name: ctypes.CFUNCTYPE(ctypes.c_int, *body.c_arguments)(self._entry(name, body))
            for name, body in vars(Library).items()
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
        power = gpu.module_power_mw or gpu.power_mw
        if gpu.energy_reset_at_s is not None and t >= gpu.energy_reset_at_s:
            return power.integral(t) - power.integral(gpu.energy_reset_at_s)
        return gpu.energy_start_mj + power.integral(t)

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
        if not part:
            return int(body(self, gpu, *given))
        if part > len(gpu.slices or ()):
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if not hasattr(body, "per_slice"):
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return int(body(self, (gpu.slices or ())[part - 1], *given))

    def _lost(self, gpu: Gpu) -> bool:
        if gpu.removed:
            return True
        if gpu.lost_after is None or gpu.uuid in self.recovered:
            return False
        return sum(n for (_, uuid), n in self.gpu_calls.items() if uuid == gpu.uuid) >= gpu.lost_after

    def _present(self) -> list[int]:
        """Slots that are listed."""
        return [slot for slot, gpu in enumerate(self.machine.gpus) if not gpu.removed]

    def _handle(self, slot: int, out: int) -> int:
        if self._lost(self.machine.gpus[slot]):
            return int(pynvml.NVML_ERROR_GPU_IS_LOST)
        return _put(_PTR, out, self.lives * 100_000 + slot * 100)

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
        return _put(_UINT, out, len(self._present()))

    @symbol(_UINT, _PTR)
    def nvmlDeviceGetHandleByIndex_v2(self, index: int, out: int) -> int:
        present = self._present()
        return self._handle(present[index if self.lives == 1 else len(present) - 1 - index], out)

    @symbol(ctypes.c_char_p, _PTR)
    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, out: int) -> int:
        for slot, gpu in enumerate(self.machine.gpus):
            if gpu.uuid == uuid.decode() and not gpu.removed:
                return self._handle(slot, out)
        return int(pynvml.NVML_ERROR_NOT_FOUND)

    # -- one GPU -------------------------------------------------------------------------------------------------

    @mig_symbol(_PTR, _UINT)
    def nvmlDeviceGetUUID(self, gpu: Gpu | Slice, out: int, size: int) -> int:
        return _text(out, size, gpu.uuid)

    @mig_symbol(_PTR, _UINT)
    def nvmlDeviceGetName(self, gpu: Gpu | Slice, out: int, size: int) -> int:
        return _text(out, size, gpu.name)

    @gpu_symbol(_PTR)
    def nvmlDeviceGetPciInfo_v3(self, gpu: Gpu, out: int) -> int:
        pynvml.nvmlPciInfo_t.from_address(out).busId = f"00000000:{self.machine.gpus.index(gpu) + 1:02X}:00.0".encode()
        return OK

    @gpu_symbol(_PTR)
    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: Gpu, out: int) -> int:
        return _put(_UINT, out, gpu.power_limit_mw)

    @mig_symbol(_PTR)
    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu | Slice, out: int) -> int:
        memory = pynvml.c_nvmlMemory_t.from_address(out)
        memory.total, memory.used = gpu.memory_bytes, gpu.memory_used_bytes + _reserved(gpu)
        memory.free = memory.total - memory.used
        return OK

    @mig_symbol(_PTR)
    def nvmlDeviceGetMemoryInfo_v2(self, gpu: Gpu | Slice, out: int) -> int:
        memory = pynvml.c_nvmlMemory_v2_t.from_address(out)
        if memory.version != pynvml.nvmlMemory_v2:
            return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        memory.total, memory.used, memory.reserved = gpu.memory_bytes, gpu.memory_used_bytes, _reserved(gpu)
        memory.free = memory.total - memory.used - memory.reserved
        return OK

    @gpu_symbol(_PTR)
    def nvmlDeviceGetUtilizationRates(self, gpu: Gpu, out: int) -> int:
        if gpu.slices is not None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        pynvml.c_nvmlUtilization_t.from_address(out).gpu = round(gpu.util_percent.at(self.clock()))
        return OK

    @gpu_symbol(_PTR)
    def nvmlDeviceGetPowerUsage(self, gpu: Gpu, out: int) -> int:
        return _put(_UINT, out, round((gpu.module_power_mw or gpu.power_mw).at(self.clock())))

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

    @mig_symbol(_PTR, _PTR)
    def nvmlDeviceGetComputeRunningProcesses_v3(self, gpu: Gpu | Slice, count: int, out: int | None) -> int:
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

    @gpu_symbol(ctypes.c_int, _PTR)
    def nvmlDeviceGetFieldValues(self, gpu: Gpu, count: int, out: int) -> int:
        for entry in (pynvml.c_nvmlFieldValue_t * count).from_address(out):
            value = None if entry.fieldId in gpu.unsupported else self._field(gpu, entry.fieldId, entry.scopeId)
            entry.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if value is None else OK
            wide = entry.fieldId in (pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 3, 4)
            entry.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG if wide else pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            if value is not None:
                setattr(entry.value, "ullVal" if wide else "uiVal", value)
        return OK

    def _field(self, gpu: Gpu, field: int, scope: int) -> int | None:
        now_s = self.clock()
        power = (gpu.power_mw, gpu.module_power_mw, gpu.memory_power_mw)[scope]
        if field == pynvml.NVML_FI_DEV_POWER_INSTANT and power:
            return round(power.at(now_s))
        if field == pynvml.NVML_FI_DEV_POWER_AVERAGE and power and gpu.power_averaged:
            return round(_mean(power, now_s - 1, now_s))
        if field == pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
            return int(self.energy_mj(gpu, now_s))
        if field in (pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL):
            return gpu.ecc_errors[field - pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL]
        return None

    @gpu_symbol(_PTR, _PTR, ctypes.c_ulonglong)
    def nvmlDeviceGetProcessUtilization(self, gpu: Gpu, out: int | None, count: int, since_us: int) -> int:
        seconds = [s for s in range(max(0, int(self.clock()) - 9), int(self.clock()) + 1) if s * 1_000_000 > since_us]
        told = [(s, pid, percent) for s in seconds for pid, percent in gpu.process_sm]
        if gpu.slices is not None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if not told:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        room = _UINT.from_address(count).value
        _put(_UINT, count, len(told))
        if out is None or room < len(told):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        rows = (pynvml.c_nvmlProcessUtilizationSample_t * len(told)).from_address(out)
        for row, (s, pid, percent) in zip(rows, told, strict=True):
            row.pid, row.timeStamp, row.smUtil = pid, s * 1_000_000, percent
        return OK

    # -- MIG -----------------------------------------------------------------------------------------------------

    @gpu_symbol(_PTR, _PTR)
    def nvmlDeviceGetMigMode(self, gpu: Gpu, current: int, pending: int) -> int:
        return _put(_UINT, current, int(gpu.slices is not None)) or _put(_UINT, pending, int(gpu.slices is not None))

    @gpu_symbol(_PTR)
    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: Gpu, out: int) -> int:
        return _put(_UINT, out, 7)

    @gpu_symbol(_UINT, _PTR)
    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, index: int, out: int) -> int:
        if index >= len(gpu.slices or ()):
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        return _put(_PTR, out, self.lives * 100_000 + self.machine.gpus.index(gpu) * 100 + index + 1)

    @mig_symbol(_PTR)
    def nvmlDeviceGetGpuInstanceId(self, mig: Slice, out: int) -> int:
        return _put(_UINT, out, mig.gpu_instance)

    @mig_symbol(_PTR)
    def nvmlDeviceGetAttributes_v2(self, mig: Slice, out: int) -> int:
        attributes = pynvml.c_nvmlDeviceAttributes.from_address(out)
        attributes.gpuInstanceSliceCount = attributes.computeInstanceSliceCount = mig.compute_slices
        return OK

    # -- GPM -----------------------------------------------------------------------------------------------------

    @gpu_symbol(_PTR)
    def nvmlGpmQueryDeviceSupport(self, gpu: Gpu, out: int) -> int:
        pynvml.c_nvmlGpmSupport_t.from_address(out).isSupportedDevice = int(gpu.gpm != "no")
        return OK

    @symbol(_PTR)
    def nvmlGpmSampleAlloc(self, out: int) -> int:
        self._samples[0x1000 + len(self._samples)] = None
        return _put(_PTR, out, 0x1000 + len(self._samples) - 1)

    @symbol(_PTR)
    def nvmlGpmSampleFree(self, sample: int) -> int:
        self._samples[sample] = None
        return OK

    @gpu_symbol(_PTR)
    def nvmlGpmSampleGet(self, gpu: Gpu, sample: int) -> int:
        if gpu.gpm == "lies" or sample not in self._samples:
            return int(pynvml.NVML_ERROR_UNKNOWN)
        self._samples[sample] = self.clock(), gpu
        return OK

    @gpu_symbol(_UINT, _PTR)
    def nvmlGpmMigSampleGet(self, gpu: Gpu, instance: int, sample: int) -> int:
        mig = next((each for each in gpu.slices or () if each.gpu_instance == instance), None)
        if mig is None:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        self._samples[sample] = self.clock(), mig
        return OK

    @symbol(_PTR)
    def nvmlGpmMetricsGet(self, out: int) -> int:
        request = pynvml.c_nvmlGpmMetricsGet_t.from_address(out)
        if request.version != pynvml.NVML_GPM_METRICS_GET_VERSION:
            return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        samples = [self._samples.get(ctypes.cast(each, _PTR).value or 0) for each in (request.sample1, request.sample2)]
        if samples[0] is None or samples[1] is None or samples[0][0] >= samples[1][0]:
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        for i in range(request.numMetrics):
            metric = request.metrics[i]
            wave = _gpm(samples[1][1], metric.metricId)
            metric.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if wave is None else OK
            if wave is not None:
                metric.value = _mean(wave, samples[0][0], samples[1][0])
        return OK

    # -- events --------------------------------------------------------------------------------------------------

    @symbol(_PTR)
    def nvmlEventSetCreate(self, out: int) -> int:
        return _put(_PTR, out, 0x77)

    @gpu_symbol(ctypes.c_ulonglong, _PTR)
    def nvmlDeviceRegisterEvents(self, gpu: Gpu, kinds: int, events: int) -> int:
        self._told_s.setdefault(gpu.uuid, self.clock())
        return OK

    @symbol(_PTR, _PTR, _UINT)
    def nvmlEventSetWait_v2(self, events: int, out: int, timeout_ms: int) -> int:
        end_s = time.monotonic() + timeout_ms / 1000
        while True:
            for slot, gpu in enumerate(self.machine.gpus):
                since_s, now_s = self._told_s.get(gpu.uuid, float("inf")), self.clock()
                for at_s, xid in gpu.xids:
                    if since_s < at_s <= now_s:
                        self._told_s[gpu.uuid] = at_s
                        event = pynvml.c_nvmlEventData_t.from_address(out)
                        ctypes.c_void_p.from_address(out).value = self.lives * 100_000 + slot * 100
                        event.eventType, event.eventData = pynvml.nvmlEventTypeXidCriticalError, xid
                        return OK
            if self.reloaded or not self.initialised:
                return int(pynvml.NVML_ERROR_UNINITIALIZED)
            if time.monotonic() >= end_s:
                return int(pynvml.NVML_ERROR_TIMEOUT)
            threading.Event().wait(0.01)

    @symbol(_PTR)
    def nvmlEventSetFree(self, events: int) -> int:
        return OK

    nvmlDeviceGetCurrentClocksThrottleReasons = nvmlDeviceGetCurrentClocksEventReasons
    nvmlDeviceGetComputeRunningProcesses_v2 = nvmlDeviceGetComputeRunningProcesses_v3


def exported() -> tuple[str, ...]:
    """Names of all symbols, in a fixed order."""
    return tuple(sorted(name for name, body in vars(Library).items() if hasattr(body, "c_arguments")))


def _reserved(gpu: Gpu | Slice) -> int:
    return gpu.memory_reserved_bytes if isinstance(gpu, Gpu) else 0


def _mean(wave: Wave, start_s: float, end_s: float) -> float:
    return (wave.integral(end_s) - wave.integral(start_s)) / (end_s - start_s)


def _gpm(of: Gpu | Slice, metric: int) -> Wave | None:
    if metric == pynvml.NVML_GPM_METRIC_SM_UTIL:
        return of.sm_percent
    if isinstance(of, Slice):
        return None
    return {
        pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: of.occupancy_percent,
        pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: of.tensor_percent,
        pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: of.dram_percent,
        pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: of.nvlink_mib_s,
        pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: of.nvlink_mib_s,
    }.get(metric)


def _put(kind: Any, out: int, value: int) -> int:
    kind.from_address(out).value = value
    return OK


def _text(out: int, size: int, value: str) -> int:
    raw = value.encode() + b"\0"
    if len(raw) > size:
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    ctypes.memmove(out, raw, len(raw))
    return OK
