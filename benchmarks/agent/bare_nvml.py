"""The least a monitor in Python can cost: `python -m benchmarks.agent.bare_nvml SECONDS` asks pynvml and keeps nothing.

Each tick asks every GPU what the agent asks of it each tick, in the ordinary way: four calls, its power and energy as
field values, and GPM. Ends with stdin, then prints `{"ticks": n}`.
"""

import json
import select
import sys
import time
from typing import Any

import pynvml

METRICS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("nvmlDeviceGetUtilizationRates", ()),
    ("nvmlDeviceGetMemoryInfo", (pynvml.nvmlMemory_v2,)),
    ("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_SM,)),
    ("nvmlDeviceGetCurrentClocksEventReasons", ()),
)
FIELDS = (
    pynvml.NVML_FI_DEV_POWER_AVERAGE,
    (pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_POWER_SCOPE_GPU),
    (pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_POWER_SCOPE_MODULE),
    (pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_POWER_SCOPE_MEMORY),
    pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
)
GPM = (
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
)


class BareGpu:
    """One GPU and its two GPM samples."""

    def __init__(self, slot: int) -> None:
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(slot)
        self._samples = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
        pynvml.nvmlGpmSampleGet(self._handle, self._samples[0])

    def read(self, request: Any) -> list[float]:
        """Everything once. `request` is the GPM struct, its metrics filled in."""
        values = [getattr(pynvml, name)(self._handle, *arguments) for name, arguments in METRICS]
        values += [field_value.value.ullVal for field_value in pynvml.nvmlDeviceGetFieldValues(self._handle, FIELDS)]
        request.sample1, request.sample2 = self._samples
        pynvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        self._samples = self._samples[1], self._samples[0]
        pynvml.nvmlGpmMetricsGet(request)
        return [*values, *(request.metrics[i].value for i in range(len(GPM)))]


def gpm_request() -> Any:
    """Return the struct that asks for `GPM`."""
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(GPM)
    for i, metric_id in enumerate(GPM):
        request.metrics[i].metricId = metric_id
    return request


def main() -> None:
    interval_s = float(sys.argv[1])
    pynvml.nvmlInit()
    gpus, request = [BareGpu(slot) for slot in range(pynvml.nvmlDeviceGetCount())], gpm_request()
    ticks, due_s = 0, time.monotonic() + interval_s
    while not select.select([sys.stdin], [], [], max(0.0, due_s - time.monotonic()))[0]:
        for gpu in gpus:
            gpu.read(request)
        ticks, due_s = ticks + 1, due_s + interval_s
    print(json.dumps({"ticks": ticks}), flush=True)
    pynvml.nvmlShutdown()


if __name__ == "__main__":
    main()
