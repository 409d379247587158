"""Calls on one GPU: identity, gauges, counters, field values, processes."""

import ctypes

import pynvml

from tests.standin_nvml.machine import Gpu, Slice, Wave
from tests.standin_nvml.symbols import OK, PTR, UINT, Driver, gpu_symbol, mig_symbol, put, text


class GpuCalls(Driver):
    """Calls on one GPU, or on one of its MIG devices."""

    @mig_symbol(PTR, UINT)
    def nvmlDeviceGetUUID(self, gpu: Gpu | Slice, out: int, size: int) -> int:
        return text(out, size, gpu.uuid)

    @mig_symbol(PTR, UINT)
    def nvmlDeviceGetName(self, gpu: Gpu | Slice, out: int, size: int) -> int:
        return text(out, size, gpu.name)

    @gpu_symbol(PTR)
    def nvmlDeviceGetPciInfo_v3(self, gpu: Gpu, out: int) -> int:
        pynvml.nvmlPciInfo_t.from_address(out).busId = f"00000000:{self.machine.gpus.index(gpu) + 1:02X}:00.0".encode()
        return OK

    @gpu_symbol(PTR)
    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: Gpu, out: int) -> int:
        return put(UINT, out, gpu.power_limit_mw)

    @mig_symbol(PTR)
    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu | Slice, out: int) -> int:
        memory = pynvml.c_nvmlMemory_t.from_address(out)
        memory.total, memory.used = gpu.memory_bytes, gpu.memory_used_bytes + _reserved(gpu)
        memory.free = memory.total - memory.used
        return OK

    @mig_symbol(PTR)
    def nvmlDeviceGetMemoryInfo_v2(self, gpu: Gpu | Slice, out: int) -> int:
        memory = pynvml.c_nvmlMemory_v2_t.from_address(out)
        if memory.version != pynvml.nvmlMemory_v2:
            return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        memory.total, memory.used, memory.reserved = gpu.memory_bytes, gpu.memory_used_bytes, _reserved(gpu)
        memory.free = memory.total - memory.used - memory.reserved
        return OK

    @gpu_symbol(PTR)
    def nvmlDeviceGetUtilizationRates(self, gpu: Gpu, out: int) -> int:
        if gpu.slices is not None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        pynvml.c_nvmlUtilization_t.from_address(out).gpu = round(gpu.util_percent.at(self.clock()))
        return OK

    @gpu_symbol(PTR)
    def nvmlDeviceGetPowerUsage(self, gpu: Gpu, out: int) -> int:
        return put(UINT, out, round((gpu.module_power_mw or gpu.power_mw).at(self.clock())))

    @gpu_symbol(PTR)
    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: Gpu, out: int) -> int:
        return put(ctypes.c_ulonglong, out, int(self.energy_mj(gpu, self.clock())))

    @gpu_symbol(UINT, PTR)
    def nvmlDeviceGetClockInfo(self, gpu: Gpu, kind: int, out: int) -> int:
        clocks = {
            pynvml.NVML_CLOCK_GRAPHICS: gpu.sm_clock_mhz,
            pynvml.NVML_CLOCK_SM: gpu.sm_clock_mhz,
            pynvml.NVML_CLOCK_MEM: gpu.memory_clock_mhz,
        }
        return put(UINT, out, clocks[kind]) if kind in clocks else int(pynvml.NVML_ERROR_NOT_SUPPORTED)

    @gpu_symbol(UINT, PTR)
    def nvmlDeviceGetTemperature(self, gpu: Gpu, sensor: int, out: int) -> int:
        return put(UINT, out, gpu.temperature_c)

    @gpu_symbol(PTR)
    def nvmlDeviceGetTemperatureV(self, gpu: Gpu, out: int) -> int:
        pynvml.c_nvmlTemperature_v1_t.from_address(out).temperature = gpu.temperature_c
        return OK

    @gpu_symbol(PTR)
    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: Gpu, out: int) -> int:
        return put(ctypes.c_ulonglong, out, gpu.throttle_reasons)

    @gpu_symbol(PTR, UINT, PTR)
    def nvmlDeviceGetP2PStatus(self, gpu: Gpu, other: int, index: int, out: int) -> int:
        linked = self.machine.nvlinks and index == pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        return put(UINT, out, pynvml.NVML_P2P_STATUS_OK if linked else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED)

    @gpu_symbol(PTR, PTR)
    def nvmlDeviceGetTopologyCommonAncestor(self, gpu: Gpu, other: int, out: int) -> int:
        # Four GPUs hang on each socket, two of them below one switch.
        slots = [self.machine.gpus.index(gpu), other % 100_000 // 100]
        level = pynvml.NVML_TOPOLOGY_SYSTEM
        for size, shared in ((4, pynvml.NVML_TOPOLOGY_NODE), (2, pynvml.NVML_TOPOLOGY_SINGLE)):
            level = shared if slots[0] // size == slots[1] // size else level
        return put(UINT, out, level)

    @mig_symbol(PTR, PTR)
    def nvmlDeviceGetComputeRunningProcesses_v3(self, gpu: Gpu | Slice, count: int, out: int | None) -> int:
        room = UINT.from_address(count).value
        put(UINT, count, len(gpu.processes))
        if room < len(gpu.processes):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        if out is not None:
            rows = (pynvml.c_nvmlProcessInfo_v3_t * len(gpu.processes)).from_address(out)
            for row, (pid, memory) in zip(rows, gpu.processes, strict=True):
                row.pid, row.gpuInstanceId, row.computeInstanceId = pid, 0xFFFFFFFF, 0xFFFFFFFF
                row.usedGpuMemory = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value if memory is None else memory
        return OK

    @gpu_symbol(ctypes.c_int, PTR)
    def nvmlDeviceGetFieldValues(self, gpu: Gpu, count: int, out: int) -> int:
        for entry in (pynvml.c_nvmlFieldValue_t * count).from_address(out):
            value = None if entry.fieldId in gpu.unsupported else self._field(gpu, entry.fieldId, entry.scopeId)
            entry.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if value is None else OK
            wide = entry.fieldId in (pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 3, 4)
            entry.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG if wide else pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            if value is not None:
                value = int(dict(gpu.lies).get(entry.fieldId, value))
                setattr(entry.value, "ullVal" if wide else "uiVal", value)
        return OK

    def _field(self, gpu: Gpu, field: int, scope: int) -> int | None:
        now_s = self.clock()
        power = (gpu.power_mw, gpu.module_power_mw, gpu.memory_power_mw)[scope]
        if field == pynvml.NVML_FI_DEV_POWER_INSTANT and power:
            return round(power.at(now_s))
        if field == pynvml.NVML_FI_DEV_POWER_AVERAGE and power and gpu.power_averaged:
            return round(mean(power, now_s - 1, now_s))
        if field == pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
            return int(self.energy_mj(gpu, now_s))
        if field in (pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL):
            return gpu.ecc_errors[field - pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL]
        return None

    @gpu_symbol(PTR, PTR, ctypes.c_ulonglong)
    def nvmlDeviceGetProcessUtilization(self, gpu: Gpu, out: int | None, count: int, since_us: int) -> int:
        seconds = [s for s in range(max(0, int(self.clock()) - 9), int(self.clock()) + 1) if s * 1_000_000 > since_us]
        samples = [(s, pid, percent) for s in seconds for pid, percent in gpu.process_sm]
        if gpu.slices is not None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if not samples:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        room = UINT.from_address(count).value
        put(UINT, count, len(samples))
        if out is None or room < len(samples):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        rows = (pynvml.c_nvmlProcessUtilizationSample_t * len(samples)).from_address(out)
        for row, (s, pid, percent) in zip(rows, samples, strict=True):
            row.pid, row.timeStamp, row.smUtil = pid, s * 1_000_000, percent
        return OK

    nvmlDeviceGetCurrentClocksThrottleReasons = nvmlDeviceGetCurrentClocksEventReasons
    nvmlDeviceGetComputeRunningProcesses_v2 = nvmlDeviceGetComputeRunningProcesses_v3


def _reserved(gpu: Gpu | Slice) -> int:
    return gpu.memory_reserved_bytes if isinstance(gpu, Gpu) else 0


def mean(wave: Wave, start_s: float, end_s: float) -> float:
    return (wave.integral(end_s) - wave.integral(start_s)) / (end_s - start_s)
