"""Calls of GPM: samples of a GPU or a MIG instance, and the means between two of them."""

import ctypes

import pynvml

from tests.standin_nvml.gpu_calls import mean
from tests.standin_nvml.machine import Gpu, Slice, Wave
from tests.standin_nvml.symbols import OK, PTR, UINT, Driver, gpu_symbol, put, symbol


class GpmCalls(Driver):
    """Samples by their address: when they were taken, of what."""

    _samples: dict[int, tuple[float, Gpu | Slice] | None]

    @gpu_symbol(PTR)
    def nvmlGpmQueryDeviceSupport(self, gpu: Gpu, out: int) -> int:
        pynvml.c_nvmlGpmSupport_t.from_address(out).isSupportedDevice = int(gpu.gpm != "no")
        return OK

    @symbol(PTR)
    def nvmlGpmSampleAlloc(self, out: int) -> int:
        self._samples[0x1000 + len(self._samples)] = None
        return put(PTR, out, 0x1000 + len(self._samples) - 1)

    @symbol(PTR)
    def nvmlGpmSampleFree(self, sample: int) -> int:
        self._samples[sample] = None
        return OK

    @gpu_symbol(PTR)
    def nvmlGpmSampleGet(self, gpu: Gpu, sample: int) -> int:
        if gpu.gpm == "lies" or sample not in self._samples:
            return int(pynvml.NVML_ERROR_UNKNOWN)
        self._samples[sample] = self.clock(), gpu
        return OK

    @gpu_symbol(UINT, PTR)
    def nvmlGpmMigSampleGet(self, gpu: Gpu, instance: int, sample: int) -> int:
        mig = next((device for device in gpu.slices or () if device.gpu_instance == instance), None)
        if mig is None:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        self._samples[sample] = self.clock(), mig
        return OK

    @symbol(PTR)
    def nvmlGpmMetricsGet(self, out: int) -> int:
        request = pynvml.c_nvmlGpmMetricsGet_t.from_address(out)
        if request.version != pynvml.NVML_GPM_METRICS_GET_VERSION:
            return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        samples = [
            self._samples.get(ctypes.cast(sample, PTR).value or 0) for sample in (request.sample1, request.sample2)
        ]
        if samples[0] is None or samples[1] is None or samples[0][0] >= samples[1][0]:
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        for i in range(request.numMetrics):
            metric = request.metrics[i]
            wave = _gpm(samples[1][1], metric.metricId)
            metric.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if wave is None else OK
            if wave is not None:
                metric.value = mean(wave, samples[0][0], samples[1][0])
        return OK


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
