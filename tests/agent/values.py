"""Readings made by hand."""

from dataclasses import replace

from pertoken.agent.readings import DeviceProcess, DeviceReading, Endpoint, EngineReading, HostReading, ProbeReading
from pertoken.agent.rows.tick_state import Moment, TickState

START_MS = 1_790_000_000_000
"""Unix time of the first tick; the time since boot too, as the host of these values booted at 1970-01-01 00:00."""
HOST = HostReading(
    "gpu-1", "machine-1", "boot-1", START_MS - 10**7, "Linux", "CPU", 8, 2**36, 2500, 150, 2**30, 1000, 500
)
CPU = DeviceReading("cpu:machine-1", "cpu", "amd", "AMD EPYC", util_1e4=2500, memory_used_bytes=2**30)
ENDPOINT = Endpoint("llama.cpp", "http://127.0.0.1:8080", "process", 8080, 100, START_MS - 5_000, (100, 101))


def gpu(slot: int = 0, *pids: int, **more: object) -> DeviceReading:
    """Return a GPU on which these processes run, with 10 GB each."""
    processes = tuple(DeviceProcess(pid, 10**10) for pid in pids)
    values = {"slot": slot, "power_mw": 300_000, "energy_mj": 10**9, "processes": processes, **more}
    return DeviceReading(f"GPU-{slot}", "gpu", "nvidia", "NVIDIA H100 80GB HBM3", **values)


def probe(*devices: DeviceReading) -> ProbeReading:
    return ProbeReading(HOST, (*devices, CPU), driver_calls=9, cpu_ms=1, rss_bytes=1000)


def engine(generated: int, computed: int = 0, endpoint: Endpoint = ENDPOINT, **more: object) -> EngineReading:
    """Return a usable reading of a llama.cpp server with these counters."""
    reading = EngineReading(
        endpoint,
        served_model="tiny",
        version="b1",
        knobs={"max_num_seqs": 4},
        counters={"computed_tokens": computed, "cached_tokens": 0, "generated_tokens": generated},
        gauges={"running": 1.0, "waiting": 0.0},
    )
    return replace(reading, **more)  # type: ignore[arg-type]


def moment(n: int) -> Moment:
    """Return the n-th tick of 10 s; 0 is the baseline."""
    return Moment(START_MS // 1000 + 10 * n, START_MS + 10_000 * n, START_MS + 10_000 * n, 10)


def tick_state(**more: object) -> TickState:
    return TickState(watching_since_ms=START_MS, boot_ms=HOST.boot_ms, **more)  # type: ignore[arg-type]
