"""Answers with a number that is not true: the one number that a call answers is replaced, wherever it stands.

An integer is cut to the type of the answer, so that -1 is the largest number of it.
"""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from tests.standin_nvml.symbols import UINT

U64 = ctypes.c_ulonglong


def _scalar(kind: Any, at: int = 0) -> Callable[[tuple[Any, ...], float], None]:
    """Return the number is what the argument at this place points to."""

    def lie(given: tuple[Any, ...], number: float) -> None:
        kind.from_address(given[at]).value = int(number)

    return lie


def _fields(kind: Any, *names: str) -> Callable[[tuple[Any, ...], float], None]:
    """Return the number is in these fields of the struct that the first argument points to."""

    def lie(given: tuple[Any, ...], number: float) -> None:
        for name in names:
            setattr(kind.from_address(given[0]), name, int(number))

    return lie


def _rows(kind: Any, count_at: int, rows_at: int, *names: str) -> Callable[[tuple[Any, ...], float], None]:
    """Return the number is in these fields of each row of an answer."""

    def lie(given: tuple[Any, ...], number: float) -> None:
        if given[rows_at]:
            for row in (kind * UINT.from_address(given[count_at]).value).from_address(given[rows_at]):
                for name in names:
                    setattr(row, name, int(number))

    return lie


def _gpm(given: tuple[Any, ...], number: float) -> None:
    request = pynvml.c_nvmlGpmMetricsGet_t.from_address(given[0])
    for at in range(request.numMetrics):
        request.metrics[at].value = number


_EVENT_REASONS = _scalar(U64)
_PROCESSES = _rows(pynvml.c_nvmlProcessInfo_v3_t, 0, 1, "pid", "usedGpuMemory")
OF_A_GPU: Mapping[str, Callable[[tuple[Any, ...], float], None]] = {
    "nvmlDeviceGetEnforcedPowerLimit": _scalar(UINT),
    "nvmlDeviceGetMemoryInfo": _fields(pynvml.c_nvmlMemory_t, "total", "used"),
    "nvmlDeviceGetMemoryInfo_v2": _fields(pynvml.c_nvmlMemory_v2_t, "total", "used"),
    "nvmlDeviceGetUtilizationRates": _fields(pynvml.c_nvmlUtilization_t, "gpu"),
    "nvmlDeviceGetPowerUsage": _scalar(UINT),
    "nvmlDeviceGetTotalEnergyConsumption": _scalar(U64),
    "nvmlDeviceGetClockInfo": _scalar(UINT, 1),
    "nvmlDeviceGetTemperature": _scalar(UINT, 1),
    "nvmlDeviceGetTemperatureV": _fields(pynvml.c_nvmlTemperature_v1_t, "temperature"),
    "nvmlDeviceGetCurrentClocksEventReasons": _EVENT_REASONS,
    "nvmlDeviceGetCurrentClocksThrottleReasons": _EVENT_REASONS,
    "nvmlDeviceGetComputeRunningProcesses_v3": _PROCESSES,
    "nvmlDeviceGetProcessUtilization": _rows(
        pynvml.c_nvmlProcessUtilizationSample_t, 1, 0, "smUtil", "timeStamp", "pid"
    ),
    "nvmlDeviceGetMigMode": _scalar(UINT),
    "nvmlDeviceGetMaxMigDeviceCount": _scalar(UINT),
    "nvmlDeviceGetGpuInstanceId": _scalar(UINT),
    "nvmlDeviceGetComputeInstanceId": _scalar(UINT),
    "nvmlDeviceGetAttributes_v2": _fields(pynvml.c_nvmlDeviceAttributes, "computeInstanceSliceCount"),
}
"""C functions of one GPU, or of a MIG device, that answer a number."""
OF_THE_LIBRARY: Mapping[str, Callable[[tuple[Any, ...], float], None]] = {
    "nvmlDeviceGetCount_v2": _scalar(UINT),
    "nvmlGpmMetricsGet": _gpm,
}
"""C functions of no one GPU that answer a number."""
FIELD_IDS = (
    pynvml.NVML_FI_DEV_POWER_AVERAGE,
    pynvml.NVML_FI_DEV_POWER_INSTANT,
    pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
    pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
    pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
)
"""Field values that a lie can be of."""
