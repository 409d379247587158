"""What the agent reads on a real GPU, against what physics says, and what it costs the work on it.

`python -m benchmarks.gpu_check` needs an NVIDIA GPU and PyTorch; without them it says so and exits 2. It prints one
JSON object. Everything is measured in one run on the first GPU; the agent's overhead interleaved with and without it.
"""

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pynvml

from pertoken.agent.energy import energy_step
from pertoken.agent.probes import gpu
from pertoken.agent.probes.nvidia import NvidiaProbe
from pertoken.agent.readings import DeviceReading

WORK_S = 10.0
"""How long each known workload runs."""
ROUNDS = 6
"""With and without the agent, so many times each."""
STEPS = 200
Row = dict[str, Any]


def why_not() -> str | None:
    """Why there is nothing to check here; None if there is."""
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return f"no NVIDIA GPU can be read here: {error}"
    if not count:
        return "no NVIDIA GPU can be read here: the driver lists none"
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed here: it makes the known work"
    return None


def row(name: str, value: float | None, unit: str, method: str) -> Row:
    """One measured figure."""
    return {"name": name, "value": value, "unit": unit, "method": method}


def capability_rows(reading: DeviceReading) -> list[Row]:
    """What can be read (1) and what cannot (0), with the reason as its method."""
    gaps = {gap.metric: f"{gap.status}: {gap.reason}" for gap in reading.gaps}
    skipped = {"gaps", "uuid", "kind", "vendor", "name", "slot", "lost", "parent_uuid", "part_1e6", "energy_wraps_mj"}
    metrics = [name for name in DeviceReading.__slots__ if name not in skipped]
    return [
        row(f"capability.{name}", float(getattr(reading, name) is not None), "bool", gaps.get(name, "read"))
        for name in metrics
    ]


def energy_row(readings: Sequence[tuple[float, DeviceReading]]) -> Row:
    """Energy by counter over energy by integral, of readings at (monotonic) seconds."""
    counted = integral = 0
    for (before_s, before), (after_s, after) in pairwise(readings):
        step = energy_step(before, after, round((after_s - before_s) * 1000))
        if step.counter_mj is None or step.integral_mj is None:
            return row("energy.counter_to_integral", None, "ratio", step.note or "not both can be read")
        counted, integral = counted + step.counter_mj, integral + step.integral_mj
    return row("energy.counter_to_integral", counted / integral if integral else None, "ratio", "sums of 1 s steps")


def activity_rows(name: str, readings: Sequence[tuple[float, DeviceReading]]) -> list[Row]:
    """Median activity over a workload; the first two readings are of its start."""
    found = []
    for metric in ("sm_active_1e4", "tensor_active_1e4", "dram_active_1e4", "util_1e4", "power_mw"):
        values = [value for _, each in readings[2:] if (value := getattr(each, metric)) is not None]
        found.append(row(f"{name}.{metric}", statistics.median(values) if values else None, "as named", "median"))
    return found


def physics(rows: Sequence[Row]) -> list[Row]:
    """The targets: a matrix product works the tensor cores, a copy the memory, and idleness neither."""
    value = {each["name"]: each["value"] for each in rows}

    def target(name: str, high: str, low: str, least: float) -> Row:
        above, below = value.get(high), value.get(low)
        met = above is not None and below is not None and above > least and above > 2 * below
        return {"id": name, "value": above, "limit": least, "op": ">", "met": met}

    return [
        target("gpu.product_works_tensor_cores", "product.tensor_active_1e4", "copy.tensor_active_1e4", 5000),
        target("gpu.copy_works_memory", "copy.dram_active_1e4", "idle.dram_active_1e4", 5000),
    ]


def overhead_rows(without_ms: Sequence[float], with_ms: Sequence[float]) -> list[Row]:
    """Median step times of the rounds, and the agent's overhead as the median of their paired ratios."""
    ratios = [there / bare for bare, there in zip(without_ms, with_ms, strict=True)]
    return [
        row("step.without_agent", statistics.median(without_ms), "ms", "median of rounds' medians"),
        row("step.with_agent", statistics.median(with_ms), "ms", "median of rounds' medians, agent at 1 s"),
        row("step.overhead", statistics.median(ratios) - 1, "ratio", f"median of {len(ratios)} interleaved pairs"),
    ]


def latency_rows() -> list[Row]:
    """Median and worst time of each call of a tick."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    found = []
    for metric, calls in {**gpu.TICK, **gpu.SLOW}.items():
        times_us = []
        function = calls[0].function
        ask = getattr(pynvml, function) if isinstance(function, str) else function
        for _ in range(100):
            started = time.perf_counter()
            try:
                ask(handle, *calls[0].arguments)
            except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
                break
            times_us.append((time.perf_counter() - started) * 1e6)
        found.append(row(f"latency.{metric}", statistics.median(times_us) if times_us else None, "us", "median of 100"))
        found.append(row(f"latency.{metric}.worst", max(times_us, default=None), "us", "worst of 100"))
    pynvml.nvmlShutdown()
    return found


def readings_during(probe: NvidiaProbe, work: Callable[[], None]) -> list[tuple[float, DeviceReading]]:
    """The first GPU once a second while `work` is repeated for `WORK_S`."""
    found: list[tuple[float, DeviceReading]] = []
    end_s = time.monotonic() + WORK_S
    due_s = 0.0
    while time.monotonic() < end_s:
        work()
        if time.monotonic() >= due_s:
            devices, _ = probe.read(processes=False)
            found.append((time.monotonic(), devices[0]))
            due_s = time.monotonic() + 1
    return found


@contextmanager
def agent_running() -> Iterator[None]:
    """`pertoken agent` at 1 s on a database of its own."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "pertoken", "agent", "--db", folder, "--interval", "1s"], stderr=subprocess.DEVNULL
        )
        try:
            time.sleep(3)  # past its start
            yield
        finally:
            process.terminate()
            process.wait(60)


def step_ms(step: Callable[[], None]) -> float:
    """Median time of a step."""
    times = []
    for _ in range(STEPS):
        started = time.perf_counter()
        step()
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


def measure() -> dict[str, Any]:
    """All of it, on the first GPU."""
    import torch

    size = 8192
    a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    source = torch.empty(2**31, device="cuda", dtype=torch.uint8)
    sink = torch.empty_like(source)

    def product() -> None:
        for _ in range(20):
            torch.mm(a, b)
        torch.cuda.synchronize()

    def copy() -> None:
        for _ in range(20):
            sink.copy_(source)
        torch.cuda.synchronize()

    rows = latency_rows()
    probe = NvidiaProbe()
    busy: list[tuple[float, DeviceReading]] = []
    for name, work in (("idle", lambda: time.sleep(0.05)), ("product", product), ("copy", copy)):
        busy = readings_during(probe, work)
        rows += [*activity_rows(name, busy), {**energy_row(busy[2:]), "workload": name}]
    rows += capability_rows(busy[-1][1])
    probe.close()
    small = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(8):
            torch.mm(small, small)
        torch.cuda.synchronize()

    step_ms(step)
    bare, there = [], []
    for _ in range(ROUNDS):
        bare.append(step_ms(step))
        with agent_running():
            there.append(step_ms(step))
    rows += overhead_rows(bare, there)
    device = busy[-1][1]
    return {
        "name": "gpu_check",
        "machine": {
            "gpu": device.name,
            "driver": device.driver_version,
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "versions": {"torch": torch.__version__},
        },
        "rows": rows,
        "targets": physics(rows),
    }


def main() -> int:
    """Print the JSON; 2 if nothing can be checked here."""
    reason = why_not()
    if reason:
        print(f"gpu_check: {reason}", file=sys.stderr)
        return 2
    print(json.dumps(measure(), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
