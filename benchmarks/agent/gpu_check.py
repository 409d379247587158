"""Agent readings on a real GPU compared with physics, and their cost to the work on it.

`python -m benchmarks.gpu_check [--out FILE]` needs an NVIDIA GPU and PyTorch; without them it states that and exits
2. It
prints one JSON object. Everything is measured in one run on the first GPU; the agent's overhead interleaved with and
without it.
"""

import argparse
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pynvml

from benchmarks.report import Row, Target, report
from pertoken.agent.probes.nvidia import gpu
from pertoken.agent.probes.nvidia.probe import NvidiaProbe
from pertoken.agent.readings import DeviceReading, energy_step

WORK_S = 10.0
"""How long each known workload runs."""
ROUNDS = 6
"""Repeats with the agent, and without it."""
STEPS = 200
ACTIVE = 0.5
"""Least activity of what a workload is made to work."""
APART = 2.0
"""Largest time of a workload that is not, as a multiple of that."""
_SCALES = {
    "sm_active_1e4": ("sm_active", 1e-4, "ratio"),
    "tensor_active_1e4": ("tensor_active", 1e-4, "ratio"),
    "dram_active_1e4": ("dram_active", 1e-4, "ratio"),
    "util_1e4": ("util", 1e-4, "ratio"),
    "power_mw": ("power", 1e-3, "W"),
}
"""Metric of a reading -> how it is reported: name, factor, unit."""


def why_not() -> str | None:
    """Return why there is nothing to check here; None if there is."""
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


def capability_rows(reading: DeviceReading) -> list[Row]:
    """Return a row for each metric: 1 if it can be read, else 0 with the reason as its method."""
    unavailable = {missing.metric: f"{missing.status}: {missing.reason}" for missing in reading.unavailable}
    skipped = {"unavailable", "uuid", "kind", "vendor", "name", "slot", "lost", "silent_s", "parent_uuid", "part_1e6"}
    metrics = [name for name in DeviceReading._fields if name not in {*skipped, "energy_wraps_mj"}]
    return [
        Row("capability", name, float(getattr(reading, name) is not None), "bool", unavailable.get(name, "read"))
        for name in metrics
    ]


def energy_row(workload: str, readings: Sequence[tuple[float, DeviceReading]]) -> Row:
    """Energy by counter over energy by integral, of readings at (monotonic) seconds."""
    counted = integral = 0
    what = "energy_counter_to_integral"
    for (before_s, before), (after_s, after) in pairwise(readings):
        step = energy_step(before, after, round((after_s - before_s) * 1000))
        if step.counter_mj is None or step.integral_mj is None:
            return Row(workload, what, None, "ratio", step.fault or "not both can be read")
        counted, integral = counted + step.counter_mj, integral + step.integral_mj
    return Row(workload, what, counted / integral if integral else None, "ratio", "sums of 1 s steps")


def activity_rows(workload: str, readings: Sequence[tuple[float, DeviceReading]]) -> list[Row]:
    """Median activity over a workload; the first two readings are of its start."""
    rows = []
    for metric, (name, factor, unit) in _SCALES.items():
        values = [value for _, reading in readings[2:] if (value := getattr(reading, metric)) is not None]
        median = statistics.median(values) * factor if values else None
        rows.append(Row(workload, name, median, unit, f"median of {len(values)} readings at 1 s"))
    return rows


def physics(rows: Sequence[Row]) -> list[Target]:
    """Return the targets: a matrix product loads the tensor cores, a copy loads the memory, and neither loads the
    other."""
    value = {(row.subject, row.what): row.value for row in rows}
    checks = []
    for name, metric, high, low in (
        ("product_works_tensor_cores", "tensor_active", "product", "copy"),
        ("copy_works_memory", "dram_active", "copy", "idle"),
    ):
        above, below = (
            measured if isinstance(measured := value.get((one, metric)), float) else None for one in (high, low)
        )
        times = above / max(below, 1e-4) if above is not None and below is not None else None
        checks.append(Target(f"gpu.{name}", above, ACTIVE, ">="))
        checks.append(Target(f"gpu.{name}_alone", times, APART, ">="))
    return checks


def overhead_rows(without_ms: Sequence[float], with_ms: Sequence[float]) -> list[Row]:
    """Median step times of the rounds, and the agent's overhead as the median of their paired ratios."""
    ratios = [with_ms_of_round / bare for bare, with_ms_of_round in zip(without_ms, with_ms, strict=True)]
    medians = f"median of {len(ratios)} rounds' medians of {STEPS} steps"
    return [
        Row("step", "without_agent", statistics.median(without_ms), "ms", medians),
        Row("step", "with_agent", statistics.median(with_ms), "ms", f"{medians}, agent at 1 s"),
        Row("step", "overhead", statistics.median(ratios) - 1, "ratio", f"median of {len(ratios)} interleaved pairs"),
    ]


def latency_rows() -> list[Row]:
    """Median and worst time of each call of a tick."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    rows = []
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
        function = f"of 100 calls of {calls[0].function}"
        rows.append(
            Row("latency", metric, statistics.median(times_us) if times_us else None, "us", f"median {function}")
        )
        rows.append(Row("latency", f"{metric}_worst", max(times_us, default=None), "us", f"worst {function}"))
    pynvml.nvmlShutdown()
    return rows


def readings_during(probe: NvidiaProbe, work: Callable[[], None]) -> list[tuple[float, DeviceReading]]:
    """Return the first GPU once a second while `work` is repeated for `WORK_S`."""
    timed_readings: list[tuple[float, DeviceReading]] = []
    end_s = time.monotonic() + WORK_S
    due_s = 0.0
    while time.monotonic() < end_s:
        work()
        if time.monotonic() >= due_s:
            devices, _ = probe.read(processes=False)
            timed_readings.append((time.monotonic(), devices[0]))
            due_s = time.monotonic() + 1
    return timed_readings


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


def measure() -> list[Row]:
    """Return all of it, on the first GPU."""
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
        rows += [*activity_rows(name, busy), energy_row(name, busy[2:])]
    rows += capability_rows(busy[-1][1])
    probe.close()
    small = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(8):
            torch.mm(small, small)
        torch.cuda.synchronize()

    step_ms(step)
    bare, readings_later = [], []
    for _ in range(ROUNDS):
        bare.append(step_ms(step))
        with agent_running():
            readings_later.append(step_ms(step))
    rows += overhead_rows(bare, readings_later)
    device = busy[-1][1]
    return [
        Row("machine", "gpu", device.name, "name", "the driver's"),
        Row("machine", "driver", device.driver_version, "version", "the driver's"),
        *rows,
    ]


def main() -> int:
    """Print the JSON; 2 if nothing can be checked here."""
    parser = argparse.ArgumentParser(description="what the agent reads on a real GPU, and what it costs the work on it")
    parser.add_argument("--out", type=Path, help="a file to write the JSON to, too")
    out: Path | None = parser.parse_args().out
    reason = why_not()
    if reason:
        print(f"gpu_check: {reason}", file=sys.stderr)
        return 2
    rows = measure()
    text = report("gpu_check", rows, physics(rows))
    print(text)
    if out:
        out.write_text(text + "\n")
    return 0
