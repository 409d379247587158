"""Calls that list the MIG devices a GPU is divided into."""

import pynvml

from tests.standin_nvml.machine import Gpu, Slice
from tests.standin_nvml.symbols import OK, PTR, UINT, Driver, gpu_symbol, mig_symbol, put


class MigCalls(Driver):
    """MIG mode and devices."""

    @gpu_symbol(PTR, PTR)
    def nvmlDeviceGetMigMode(self, gpu: Gpu, current: int, pending: int) -> int:
        return put(UINT, current, int(gpu.slices is not None)) or put(UINT, pending, int(gpu.slices is not None))

    @gpu_symbol(PTR)
    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: Gpu, out: int) -> int:
        return put(UINT, out, 7)

    @gpu_symbol(UINT, PTR)
    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, index: int, out: int) -> int:
        if index >= len(gpu.slices or ()):
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        return put(PTR, out, self.handle(gpu, index + 1))

    @mig_symbol(PTR)
    def nvmlDeviceGetGpuInstanceId(self, mig: Slice, out: int) -> int:
        return put(UINT, out, mig.gpu_instance)

    @mig_symbol(PTR)
    def nvmlDeviceGetComputeInstanceId(self, mig: Slice, out: int) -> int:
        return put(UINT, out, mig.compute_instance)

    @mig_symbol(PTR)
    def nvmlDeviceGetAttributes_v2(self, mig: Slice, out: int) -> int:
        attributes = pynvml.c_nvmlDeviceAttributes.from_address(out)
        attributes.gpuInstanceSliceCount = attributes.computeInstanceSliceCount = mig.compute_slices
        return OK
