"""Rates of this machine's CPUs by weight format and threads, measured with a small model."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks.site.configurations import cpu_name
from benchmarks.site.models import Shape, write
from benchmarks.site.server import Server, ServerSettings
from pertoken.agent.load_probe.client import Client
from pertoken.agent.load_probe.run import run
from pertoken.agent.load_probe.script import Step
from pertoken.catalog.market import Accelerator, MeasuredRates
from pertoken.forecast.measured.cpu import cpu_accelerator, measured_rates

RATES = Shape("rates", 1024, 16, 4, 6, 3072, 512)
"""Served by no configuration; large enough that its weights do not fit in the caches of a core."""
STEPS = (Step(128, 1, 1, 2), Step(384, 1, 1, 2), Step(16, 24, 1, 3), Step(384, 24, 1, 3))
SECONDS = 20.0
TRIES = 3
"""On a busy machine a long prompt may seem faster than a short one."""


def accelerator(rates: dict[str, MeasuredRates], threads: int) -> Accelerator:
    """Return this machine's CPUs as hardware of the catalog."""
    memory_bytes = psutil.virtual_memory().total
    return cpu_accelerator(cpu_name(threads), rates, memory_bytes, datetime.now(UTC).date())


def rates_by_dtype(
    folder: Path,
    dtypes: Sequence[str],
    threads: int,
    shape: Shape,
    clients: Callable[[Server], Client],
    progress: Callable[[str], None],
) -> dict[str, MeasuredRates]:
    """Return bandwidth and rate of matrix products by weight dtype. Raises ValueError where they cannot be measured."""
    rates_of = {}
    for dtype in dtypes:
        progress(f"measuring {dtype} on {threads} threads")
        file = write(folder / f"{shape.name}-{dtype}.gguf", shape, dtype)
        with Server(ServerSettings(str(file), shape.name, 1, shape.context, threads, "fp16")) as server:
            for _ in range(TRIES):
                rates = measured_rates(shape.model(), dtype, run(clients(server), None, STEPS, SECONDS).points)
                if rates is not None:
                    break
            else:
                raise ValueError(f"the rates of {dtype} cannot be measured here: the machine is too busy")
        rates_of[dtype] = rates
    return rates_of
