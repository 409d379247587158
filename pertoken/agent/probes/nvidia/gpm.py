"""Activity of SMs, tensor cores, memory and NVLink of a GPU between two readings: NVML's GPM, Hopper and newer.

It takes no profiling lock, so profilers are not disturbed. Some virtual GPUs report that they support it while no
sample can be had (dcgm-exporter #701), so the first two live samples decide. Source: nvml.h 12.9, nvmlGpm*.
"""

from math import isfinite
from struct import Struct
from typing import Any

import pynvml

from pertoken.agent.probes.nvidia.nvml import NONSENSE, NOT_SUPPORTED, Call, Fault, Nvml, NvmlFault, Scope, fault_of
from pertoken.agent.readings import Unavailable

METRICS = {
    "sm_active_1e4": (pynvml.NVML_GPM_METRIC_SM_UTIL, 100),
    "sm_occupancy_1e4": (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, 100),
    "tensor_active_1e4": (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, 100),
    "dram_active_1e4": (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, 100),
    "nvlink_rx_mib_s": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, 1),
    "nvlink_tx_mib_s": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, 1),
}
"""Our word -> NVML's id, and what its percent or MiB/s are multiplied by."""
_ANSWER = Struct("4xid24x" * len(METRICS))
"""Of each `nvmlGpmMetric_t` its error and its value; read through `pynvml`, they cost more than the call."""
SHORTEST_S, LONGEST_S = 0.1, 150.0
"""Windows: the hardware refreshes within 100 ms; after an outage or a pause a mean would be meaningless."""
_SUPPORT = Call("nvmlGpmQueryDeviceSupport", lambda support: bool(support.isSupportedDevice))
_ALLOC, _FREE = Call("nvmlGpmSampleAlloc"), Call("nvmlGpmSampleFree")
_SAMPLE, _MIG_SAMPLE = Call("nvmlGpmSampleGet"), Call("nvmlGpmMigSampleGet")
_METRICS = Call("nvmlGpmMetricsGet")
_OLDER = Fault(Scope.CALL, "unsupported", "GPUs older than Hopper do not report it (no GPM)")
_LIES = Fault(
    Scope.CALL,
    "unsupported",
    "the driver claims that this GPU reports it (GPM), but gives no sample, as on shared virtual GPUs",
)
_BEGINS = Fault(Scope.MOMENT, "failing", "it is a mean between two readings, and a new window has just begun", "wait")


class GpmRequest:
    """The 19 KB struct that metrics of one GPU and its MIG devices are asked with, its ids filled in once."""

    def __init__(self) -> None:
        self._struct = pynvml.c_nvmlGpmMetricsGet_t()
        self._struct.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._struct.numMetrics = len(METRICS)
        for at, (metric_id, _) in enumerate(METRICS.values()):
            self._struct.metrics[at].metricId = metric_id

    def ask(self, nvml: Nvml, owner: str, before: Any, now: Any) -> list[tuple[int, float]]:
        """Return (error code, value) of each metric between two samples. Raises NvmlFault."""
        self._struct.sample1, self._struct.sample2 = before, now
        nvml.ask(owner, _METRICS, self._struct)
        answer = _ANSWER.unpack_from(self._struct, pynvml.c_nvmlGpmMetricsGet_t.metrics.offset)
        return list(zip(answer[::2], answer[1::2], strict=True))


class Gpm:
    """The two samples of one GPU, or of one of its MIG instances, and what lies between them."""

    def __init__(self, owner: str, request: GpmRequest, gpu_instance: int | None = None) -> None:
        self._owner, self._request, self._instance = owner, request, gpu_instance
        self._samples: tuple[Any, Any] | None = None
        self._taken_s: float | None = None
        """When the first of them was taken; None: it is not to be measured from."""
        self._proven = False

    def read(self, nvml: Nvml, handle: Any, now_s: float) -> tuple[dict[str, int], dict[str, Unavailable]]:
        """Return means since the reading before, and gaps. `handle` is of the GPU, `now_s` monotonic.

        Raises NvmlFault if the device or the library fails.
        """
        try:
            return self._read(nvml, handle, now_s)
        except NvmlFault as error:
            self._taken_s = None
            if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
                raise
            fault = error.fault
            if not self._proven and fault.code is not None:
                fault = _LIES
                nvml.refuse(self._owner, _SUPPORT, fault)
            return {}, {metric: fault.missing(metric) for metric in METRICS}

    def free(self, nvml: Nvml) -> None:
        """Give the samples back."""
        for sample in self._samples or ():
            nvml.ask(self._owner, _FREE, sample)
        self._samples = self._taken_s = None

    def _read(self, nvml: Nvml, handle: Any, now_s: float) -> tuple[dict[str, int], dict[str, Unavailable]]:
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
        before, now = self._samples
        if self._instance is None:
            nvml.ask(self._owner, _SAMPLE, handle, now)
        else:
            nvml.ask(self._owner, _MIG_SAMPLE, handle, self._instance, now)
        self._samples, self._taken_s = (now, before), now_s
        if window_s is None or window_s > LONGEST_S:
            return {}, {metric: _BEGINS.missing(metric) for metric in METRICS}
        answer = self._request.ask(nvml, self._owner, before, now)
        self._proven = True
        values, unavailable = {}, {}
        for (metric, (_, scale)), (code, value) in zip(METRICS.items(), answer, strict=True):
            if code == pynvml.NVML_SUCCESS and isfinite(value):
                values[metric] = round(value * scale)
            elif code == pynvml.NVML_SUCCESS:
                unavailable[metric] = NONSENSE.missing(metric)
            else:
                known = NOT_SUPPORTED if code == pynvml.NVML_ERROR_INVALID_ARGUMENT else fault_of(code)
                unavailable[metric] = known.missing(metric)
        return values, unavailable
