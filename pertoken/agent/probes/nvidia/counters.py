"""Power, energy and memory errors of a GPU by NVML field values: many in one driver call, each with its own error.

Scopes of power: 0 the GPU, 1 the whole module (with the CPU of a GH200), 2 the memory. Source: nvml.h 12.9.
"""

from __future__ import annotations

from ctypes import Array, Structure
from dataclasses import dataclass, replace
from math import isfinite, nan
from struct import Struct
from typing import NamedTuple

import pynvml

from pertoken.agent.probes.nvidia.nvml import (
    NONSENSE,
    NOT_SUPPORTED,
    DriverCall,
    DriverFault,
    FaultScope,
    Nvml,
    NvmlFault,
    fault_of,
)
from pertoken.agent.readings import MAX_PID, DeviceProcess, Unavailable, scrambled


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field value."""

    metric: str
    field_id: int
    scope: int = 0


AVERAGE = Field("power_average_mw", pynvml.NVML_FI_DEV_POWER_AVERAGE)
INSTANT = Field("power_instant_mw", pynvml.NVML_FI_DEV_POWER_INSTANT)
MODULE = Field("power_module_mw", pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_POWER_SCOPE_MODULE)
MEMORY = Field("power_memory_mw", pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_POWER_SCOPE_MEMORY)
ENERGY = Field("energy_mj", pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION)
TICK = (AVERAGE, INSTANT, MODULE, MEMORY, ENERGY)
"""Read every time."""
SLOW = (
    Field("ecc_corrected", pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL),
    Field("ecc_uncorrected", pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL),
)
"""Read in the same call when the processes are."""
ALL = (*TICK, *SLOW)
_POWER, _ENERGY = DriverCall[int]("nvmlDeviceGetPowerUsage"), DriverCall[int]("nvmlDeviceGetTotalEnergyConsumption")
_ENTRY = Struct("@24xII8x")
"""`nvmlFieldValue_t`: the type of its value, and its error."""
_VALUE_OFFSET = 32
_NUMBER = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: Struct("d"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: Struct("I"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: Struct("L"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: Struct("Q"),
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: Struct("q"),
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: Struct("i"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: Struct("H"),
}


class FieldRequest:
    """Structs of a request for some fields of one GPU, with their ids filled in once.

    `pynvml` fills them in again each time and reads them through Python: that costs more than all other calls.
    """

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.fields = fields
        self._entries = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for entry, field in zip(self._entries, fields, strict=True):
            entry.fieldId, entry.scopeId = field.field_id, field.scope

    def ask(self, handle: object) -> list[tuple[int, int | None]]:
        """Return (error code, value) of each field; None for a value that is no number. Raises `pynvml.NVMLError`."""
        function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        pynvml._nvmlCheckReturn(function(handle, len(self.fields), self._entries))
        return [
            (code, None if code else _number(kind, self._entries, index * _ENTRY.size + _VALUE_OFFSET))
            for index, (kind, code) in enumerate(_ENTRY.iter_unpack(self._entries))
        ]


def _number(kind: int, entries: Array[Structure], offset: int) -> int | None:
    """Return the value of a field by its type; None for NaN, infinity and types that NVML does not define."""
    number = _NUMBER.get(kind)
    value = number.unpack_from(entries, offset)[0] if number is not None else nan
    return int(value) if isfinite(value) else None


_VALUES = DriverCall[list[tuple[int, int | None]]](lambda handle, request: request.ask(handle))
Requests = dict[tuple[Field, ...], FieldRequest]
"""Requests of one GPU by their fields, made when they are first needed."""


def read_fields(
    nvml: Nvml, uuid: str, handle: object, fields: tuple[Field, ...], requests: Requests
) -> tuple[dict[str, int | str], dict[str, Unavailable]]:
    """Return values by metric with their `power_source` and `energy_source`, and the gaps in them.

    `power_mw` is the GPU's 1 s average where it has one, since an integral needs the mean over a second. Else it is
    the power at the instant, else the plain reading. Drivers without field values, and GPUs without these, are
    asked the older calls. Raises NvmlFault if the device or the library fails.
    """
    values, unavailable = _values(nvml, uuid, handle, fields, requests)
    module = MODULE.metric in values
    average = values.pop(AVERAGE.metric, None)
    hidden = unavailable.pop(AVERAGE.metric, None)
    if average is not None:
        values |= {"power_mw": average, "power_source": "average, gpu"}
    elif INSTANT.metric in values:
        values |= {"power_mw": values[INSTANT.metric], "power_source": "instant, gpu"}
    elif hidden:
        # The plain reading covers the whole module, where there is one.
        _fall_back(nvml, uuid, handle, _POWER, "power_mw", values, unavailable)
        if "power_mw" in values:
            values["power_source"] = "usage, module" if module else "usage, gpu"
    if ENERGY.metric in unavailable:
        _fall_back(nvml, uuid, handle, _ENERGY, ENERGY.metric, values, unavailable)
    if ENERGY.metric in values:
        values["energy_source"] = "module" if module else "gpu"
    return values, unavailable


def _values(
    nvml: Nvml, uuid: str, handle: object, fields: tuple[Field, ...], requests: Requests
) -> tuple[dict[str, int | str], dict[str, Unavailable]]:
    refused = nvml.refusals(uuid)
    unavailable = {field.metric: refused[field].missing(field.metric) for field in fields if field in refused}
    values: dict[str, int | str] = {}
    offered = tuple(field for field in fields if field not in refused)
    if not offered:
        return values, unavailable
    request = requests.get(offered) or requests.setdefault(offered, FieldRequest(offered))
    try:
        answer = nvml.ask(uuid, _VALUES, handle, request)
    except NvmlFault as error:
        fault = error.of_call()
        return values, unavailable | {field.metric: fault.missing(field.metric) for field in offered}
    for field, (code, value) in zip(offered, answer, strict=True):
        if value is not None:
            values[field.metric] = value
            continue
        fault = _fault_of_part(code) if code else NONSENSE
        if fault.scope is FaultScope.CALL:
            nvml.refuse(uuid, field, fault)
        unavailable[field.metric] = fault.missing(field.metric)
    return values, unavailable


def _fault_of_part(code: int) -> DriverFault:
    # Drivers that do not know a field, a scope or a metric call it an invalid argument.
    return NOT_SUPPORTED if code == pynvml.NVML_ERROR_INVALID_ARGUMENT else fault_of(code)


def _fall_back(
    nvml: Nvml,
    uuid: str,
    handle: object,
    call: DriverCall[int],
    metric: str,
    values: dict[str, int | str],
    unavailable: dict[str, Unavailable],
) -> None:
    try:
        values[metric] = nvml.ask(uuid, call, handle)
        unavailable.pop(metric, None)
    except NvmlFault as error:
        unavailable[metric] = error.of_call().missing(metric)


METRICS = {
    "sm_active_1e4": (pynvml.NVML_GPM_METRIC_SM_UTIL, 100),
    "sm_occupancy_1e4": (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, 100),
    "tensor_active_1e4": (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, 100),
    "dram_active_1e4": (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, 100),
    "nvlink_rx_mib_s": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, 1),
    "nvlink_tx_mib_s": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, 1),
}
"""Our word -> NVML's id, and the factor of its percent or MiB/s."""
_ANSWER = Struct("4xid24x" * len(METRICS))
"""Error and value of each `nvmlGpmMetric_t`; reading them through `pynvml` costs more than the call."""
SHORTEST_S, LONGEST_S = 0.1, 150.0
"""Windows: the hardware refreshes within 100 ms; after an outage or a pause a mean would be meaningless."""
_SUPPORT = DriverCall("nvmlGpmQueryDeviceSupport", lambda support: bool(support.isSupportedDevice))
_ALLOC, _FREE = DriverCall[object]("nvmlGpmSampleAlloc"), DriverCall[object]("nvmlGpmSampleFree")
_SAMPLE, _MIG_SAMPLE = DriverCall[object]("nvmlGpmSampleGet"), DriverCall[object]("nvmlGpmMigSampleGet")
_METRICS = DriverCall[object]("nvmlGpmMetricsGet")
_OLDER = DriverFault(FaultScope.CALL, "unsupported", "GPUs older than Hopper do not report it (no GPM)")
_LIES = DriverFault(
    FaultScope.CALL,
    "unsupported",
    "the driver claims that this GPU reports it (GPM), but gives no sample, as on shared virtual GPUs",
)
_BEGINS = DriverFault(
    FaultScope.MOMENT, "failing", "it is a mean between two readings, and a new window has just begun", "wait"
)


class GpmRequest:
    """Struct (19 KB) of a request for metrics of one GPU and its MIG devices, with its ids filled in once."""

    def __init__(self) -> None:
        self._struct = pynvml.c_nvmlGpmMetricsGet_t()
        self._struct.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._struct.numMetrics = len(METRICS)
        for index, (metric_id, _) in enumerate(METRICS.values()):
            self._struct.metrics[index].metricId = metric_id

    def ask(self, nvml: Nvml, owner: str, first: object, second: object) -> list[tuple[int, float]]:
        """Return (error code, value) of each metric between two samples. Raises NvmlFault."""
        self._struct.sample1, self._struct.sample2 = first, second
        nvml.ask(owner, _METRICS, self._struct)
        answer = _ANSWER.unpack_from(self._struct, pynvml.c_nvmlGpmMetricsGet_t.metrics.offset)
        return list(zip(answer[::2], answer[1::2], strict=True))


class Gpm:
    """Two samples of one GPU or of one of its MIG instances, and the means between them."""

    def __init__(self, owner: str, request: GpmRequest, gpu_instance: int | None = None) -> None:
        self._owner, self._request, self._instance = owner, request, gpu_instance
        self._samples: tuple[object, object] | None = None
        self._taken_s: float | None = None
        """Time of the first sample; None: it is no start of a window."""
        self._proven = False

    def read(self, nvml: Nvml, handle: object, now_s: float) -> tuple[dict[str, int], dict[str, Unavailable]]:
        """Return means since the previous reading, and gaps. `handle` is of the GPU, `now_s` monotonic.

        Raises NvmlFault if the device or the library fails.
        """
        try:
            return self._read(nvml, handle, now_s)
        except NvmlFault as error:
            self._taken_s = None
            fault = error.of_call()
            if not self._proven and fault.code is not None:
                fault = _LIES
                nvml.refuse(self._owner, _SUPPORT, fault)
            return {}, {metric: fault.missing(metric) for metric in METRICS}

    def free(self, nvml: Nvml) -> None:
        """Release the samples."""
        for sample in self._samples or ():
            nvml.ask(self._owner, _FREE, sample)
        self._samples = self._taken_s = None

    def _read(self, nvml: Nvml, handle: object, now_s: float) -> tuple[dict[str, int], dict[str, Unavailable]]:
        if self._samples is None:
            if not nvml.ask(self._owner, _SUPPORT, handle):
                nvml.refuse(self._owner, _SUPPORT, _OLDER)
                raise NvmlFault(_OLDER)
            self._samples = nvml.ask(self._owner, _ALLOC), nvml.ask(self._owner, _ALLOC)
        elif refusal := nvml.refusals(self._owner).get(_SUPPORT):
            raise NvmlFault(refusal)
        window_s = now_s - self._taken_s if self._taken_s is not None else None
        if window_s is not None and window_s < SHORTEST_S:
            return {}, {metric: _BEGINS.missing(metric) for metric in METRICS}
        first, second = self._samples
        if self._instance is None:
            nvml.ask(self._owner, _SAMPLE, handle, second)
        else:
            nvml.ask(self._owner, _MIG_SAMPLE, handle, self._instance, second)
        self._samples, self._taken_s = (second, first), now_s
        if window_s is None or window_s > LONGEST_S:
            return {}, {metric: _BEGINS.missing(metric) for metric in METRICS}
        answer = self._request.ask(nvml, self._owner, first, second)
        self._proven = True
        values, unavailable = {}, {}
        for (metric, (_, scale)), (code, value) in zip(METRICS.items(), answer, strict=True):
            if code == pynvml.NVML_SUCCESS and isfinite(value):
                values[metric] = round(value * scale)
            elif code == pynvml.NVML_SUCCESS:
                unavailable[metric] = NONSENSE.missing(metric)
            else:
                unavailable[metric] = _fault_of_part(code).missing(metric)
        return values, unavailable


class _SmSample(NamedTuple):
    pid: int
    time_us: int
    percent: int


_PROCESSES = tuple(
    DriverCall(
        f"nvmlDeviceGetComputeRunningProcesses{version}",
        lambda rows: tuple(DeviceProcess(row.pid, row.usedGpuMemory) for row in rows),
        sized=True,
    )
    for version in ("", "_v2")
)
_SM_TIME = DriverCall(
    "nvmlDeviceGetProcessUtilization",
    lambda rows: [_SmSample(row.pid, row.timeStamp, row.smUtil) for row in rows if row.timeStamp <= _MAX_US],
    sized=True,
)
_MAX_US = 2**53
"""Microseconds of the year 2255: after a later sample, none would ever be newer."""
_SCRAMBLED = Unavailable(
    "processes",
    "failing",
    "the driver's process list makes no sense (drivers near 535.43 changed its layout unannounced)",
    "update the NVIDIA driver",
)


@dataclass(frozen=True, slots=True)
class GpuProcesses:
    """Processes on a GPU; `missing` where they are unknown. `seen_us` goes into the next reading."""

    processes: tuple[DeviceProcess, ...]
    seen_us: int
    missing: Unavailable | None = None


def read_processes(nvml: Nvml, uuid: str, handle: object, memory_bytes: int | None, seen_us: int) -> GpuProcesses:
    """Return the processes on a GPU (or MIG device); SM time only where several share it.

    `seen_us` is the newest sample of SM time already counted, driver's microseconds. Raises NvmlFault if the device
    or the library fails.
    """
    try:
        processes = nvml.first(uuid, _PROCESSES, handle)
    except NvmlFault as error:
        return GpuProcesses((), seen_us, error.of_call().missing("processes"))
    if scrambled(processes, memory_bytes):
        return GpuProcesses((), seen_us, _SCRAMBLED)
    if len(processes) < 2:
        return GpuProcesses(processes, seen_us)
    return _with_sm_time(nvml, uuid, handle, processes, seen_us)


def _with_sm_time(
    nvml: Nvml, uuid: str, handle: object, processes: tuple[DeviceProcess, ...], seen_us: int
) -> GpuProcesses:
    try:
        samples = nvml.ask(uuid, _SM_TIME, handle, seen_us)
    except NvmlFault as error:
        if error.of_call().code not in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS):
            return GpuProcesses(processes, seen_us)
        samples = []  # nobody computed
    newest_us = max([seen_us, *(sample.time_us for sample in samples)])
    time_by_pid = dict.fromkeys((process.pid for process in processes), 0)
    for sample in samples:
        if sample.time_us <= seen_us:
            continue
        if sample.pid in time_by_pid and sample.percent <= 100:
            time_by_pid[sample.pid] += sample.percent
        elif sample.pid in time_by_pid or 0 < sample.pid <= MAX_PID:
            # Times cannot be assigned: a share that cannot be, a pid of another namespace, or one that ended.
            return GpuProcesses(processes, newest_us)
    timed = tuple(replace(process, sm_time=time_by_pid[process.pid]) for process in processes)
    return GpuProcesses(timed, newest_us)
