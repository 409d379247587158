"""Rates of this machine's CPUs by weight format and threads, measured with models that no configuration serves."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks.site.configurations import cpu_name
from benchmarks.site.engines.engine import SETTLE_S, Engine
from benchmarks.site.engines.server import Server, ServerSettings
from benchmarks.site.models import Shape
from pertoken.advisor.probed import cpu_accelerator, measured_rates
from pertoken.agent.load_probe import Client, ProbeStep, run
from pertoken.catalog.market import Accelerator, MeasuredRates
from pertoken.evidence import OperatingPoint
from pertoken.state.deployment import Model

SLOTS = 8
PROMPTS = (ProbeStep(128, 1, 1, 1), ProbeStep(384, 1, 1, 1))
STEPS = (*PROMPTS, *(ProbeStep(16, 24, batch, 1) for batch in (1, 2, 4, SLOTS)), ProbeStep(384, 24, 1, 1))
STEPS_MIXTURE = (*PROMPTS, ProbeStep(16, 24, 1, 1))
SECONDS = 30.0
"""The most that one turn of one model may take."""
TURNS = 3
"""Times each model is measured, in turns with the others: the speed of a machine changes within minutes."""


def accelerator(engine: Engine, rates: dict[str, MeasuredRates], threads: int) -> Accelerator:
    """Return this machine's CPUs as hardware of the catalog."""
    memory_bytes = psutil.virtual_memory().total
    of_engine = {(engine.name, dtype): rate for dtype, rate in rates.items()}
    return cpu_accelerator(cpu_name(threads), of_engine, memory_bytes, datetime.now(UTC).date())


def rates_by_dtype(
    folder: Path,
    engine: Engine,
    threads: int,
    shapes: Sequence[Shape],
    clients: Callable[[Server], Client],
    progress: Callable[[str], None],
) -> dict[str, MeasuredRates]:
    """Return rates of the CPUs by weight dtype. Raises ValueError where they cannot be measured.

    `shapes`: a dense model and, if any, a MoE model. All are served side by side and measured in turns, so that all
    formats have the same minutes.
    """
    models = [(dtype, shape) for dtype in engine.weight_dtypes for shape in shapes]
    measured: dict[tuple[str, Shape], list[OperatingPoint]] = {model: [] for model in models}
    with ExitStack() as stack:
        of_model = {}
        for dtype, shape in models:
            path = str(engine.write(folder, shape, dtype))
            settings = ServerSettings(path, SLOTS, shape.context, threads, engine.kv_dtypes[0])
            of_model[dtype, shape] = clients(stack.enter_context(Server(engine.command(settings))))
        for turn in range(TURNS):
            progress(f"measuring {threads} threads, turn {turn + 1}")
            for model, client in of_model.items():
                if engine.stays:
                    time.sleep(SETTLE_S)
                steps = STEPS_MIXTURE if model[1].experts else STEPS
                measured[model] += run(client, None, steps, SECONDS).points
    rates = {
        dtype: _rates(engine, dtype, {shape: measured[dtype, shape] for shape in shapes})
        for dtype in engine.weight_dtypes
    }
    # Attention multiplies no weights, so its rate is that of all formats.
    attention = [rate.attention_flops for rate in rates.values() if rate.attention_flops is not None]
    shared = statistics.median(attention) if attention else None
    return {dtype: replace(rate, attention_flops=shared) for dtype, rate in rates.items()}


def _rates(engine: Engine, dtype: str, points: Mapping[Shape, Sequence[OperatingPoint]]) -> MeasuredRates:
    (dense, rates), *others = (
        (shape, _of_prompts(shape, engine, dtype, of_shape)) for shape, of_shape in points.items()
    )
    assert not dense.experts
    for mixture, with_experts in others:
        rates = replace(rates, expert_flops=expert_flops(rates, with_experts, mixture.model(head=False)))
    return rates


def _of_prompts(shape: Shape, engine: Engine, dtype: str, points: Sequence[OperatingPoint]) -> MeasuredRates:
    """Return rates of which that of prompts is without the output head, which their last token passes alone.

    The head is a third of these small models.
    """
    rates = measured_rates(shape.model(), engine.name, dtype, medians(points))
    if rates is None:
        raise ValueError(f"the rates of {dtype} cannot be measured here: the machine is too busy")
    whole, computed = shape.params(shape.used), shape.params(shape.used, head=False)
    return replace(rates, flops=rates.flops * computed / whole)


def medians(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Return one point for each batch and length of prompts, with the median of its times."""
    alike: dict[tuple[float, float, bool], list[OperatingPoint]] = defaultdict(list)
    for point in points:
        alike[point.running, point.prompt_len, point.token_s is None].append(point)

    def median(times: Iterable[float | None]) -> float | None:
        known = [time for time in times if time is not None]
        return statistics.median(known) if known else None

    return [
        replace(
            group[0],
            token_s=median(point.token_s for point in group),
            ttft_s=median(point.ttft_s for point in group),
        )
        for group in alike.values()
    ]


def expert_flops(of_dense: MeasuredRates, of_mixture: MeasuredRates, model: Model) -> float | None:
    """Return the rate of a prompt's products with experts, from rates of a dense model and of this MoE model.

    It is at most that of other products. None where the MoE model does not show it.
    """
    if model.params_active is None or model.params_total is None or not model.n_experts or not model.n_experts_active:
        return None
    one = (model.params_total - model.params_active) / max(model.n_experts - model.n_experts_active, 1)
    share = one * model.n_experts_active / model.params_active
    slower = 1 / of_mixture.flops - (1 - share) / of_dense.flops
    return min(share / slower, of_dense.flops) if share > 0 and slower > 0 else None
