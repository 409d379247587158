"""The least any monitor in Python can cost: `python -m benchmarks.bare_nvml SECONDS` asks pynvml and keeps nothing.

Each tick asks every GPU what the agent asks: 8 metrics, and the process list (two driver calls). Ends with stdin,
then prints `{"ticks": n, "calls": n, "cpu_s": s}`: driver calls, and the CPU time all ticks took.
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
    ("nvmlDeviceGetPowerUsage", ()),
    ("nvmlDeviceGetTotalEnergyConsumption", ()),
    ("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_SM,)),
    ("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_MEM,)),
    ("nvmlDeviceGetTemperatureV", (pynvml.NVML_TEMPERATURE_GPU,)),
    ("nvmlDeviceGetCurrentClocksEventReasons", ()),
)


def tick(gpus: list[Any]) -> int:
    """Ask everything once; returns the driver calls made."""
    calls = 0
    for gpu in gpus:
        for function, arguments in METRICS:
            getattr(pynvml, function)(gpu, *arguments)
        calls += len(METRICS) + (2 if pynvml.nvmlDeviceGetComputeRunningProcesses(gpu) else 1)
    return calls


def main() -> None:
    interval_s = float(sys.argv[1])
    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(slot) for slot in range(pynvml.nvmlDeviceGetCount())]
    ticks = calls = 0
    start_s, due_s = time.process_time(), time.monotonic() + interval_s
    while not select.select([sys.stdin], [], [], max(0.0, due_s - time.monotonic()))[0]:
        calls += tick(gpus)
        ticks, due_s = ticks + 1, due_s + interval_s
    print(json.dumps({"ticks": ticks, "calls": calls, "cpu_s": time.process_time() - start_s}), flush=True)
    pynvml.nvmlShutdown()


if __name__ == "__main__":
    main()
