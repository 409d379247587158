"""CPUs as hardware of the catalog: their rates by weight format, from the points of a probe."""

import math
from collections.abc import Mapping, Sequence
from datetime import date

from pertoken.catalog.market import CPU_ARCH, Accelerator, MeasuredRates
from pertoken.evidence import OperatingPoint
from pertoken.forecast.formats import gguf_format, weight_format
from pertoken.state.model import Model

MIN_CONTEXTS_APART = 128
"""Tokens between two contexts from which their steps differ by more than their noise: a judgement."""
MIN_READING_SHARE = 0.2
"""Minimum share of a step assumed for reading weights, where GEMMs seem to take all of it."""


def measured_rates(model: Model, weight_dtype: str, points: Sequence[OperatingPoint]) -> MeasuredRates | None:
    """Return the memory bandwidth and the rate of matrix products that points of a probe show.

    The rate is 2 FLOPs for each active parameter and token over the slope of the time to first token; the bandwidth is
    the bytes of active weights over what is left of a step of one request. None where the points or the model show
    neither. The rate of attention is known where steps of one request were measured at a short and a long context.
    """
    form = weight_format(gguf_format(weight_dtype))
    prompts = sorted((point.prompt_len, point.ttft_s) for point in points if point.ttft_s is not None)
    alone = [(point, point.token_s) for point in points if point.token_s is not None and point.running == 1]
    steps = [step_s for _, step_s in alone]
    if form is None or model.params_active is None or len(prompts) < 2 or not steps:
        return None
    (few, fast_s), (many, slow_s) = prompts[0], prompts[-1]
    if many <= few or slow_s <= fast_s:
        return None
    flops = 2 * model.params_active * (many - few) / (slow_s - fast_s)
    step_s = min(steps)
    reading_s = max(step_s - 2 * model.params_active / flops, MIN_READING_SHARE * step_s)
    contexts = [(point.prompt_len + point.generated_len / 2, step_s) for point, step_s in alone]
    attention = _attention_flops(model, min(contexts), max(contexts))
    return MeasuredRates(model.params_active * form.bits / 8 / reading_s, flops, attention)


def _attention_flops(model: Model, short: tuple[float, float], long: tuple[float, float]) -> float | None:
    """Return the rate of one query's products with the cache, from two (context, seconds of a step); None if unknown.

    They are 4 FLOPs for each layer, cached token and value of the hidden size.
    """
    tokens, longer_s = long[0] - short[0], long[1] - short[1]
    if model.n_layers is None or model.params_active is None or tokens < MIN_CONTEXTS_APART or longer_s <= 0:
        return None
    hidden_size = math.sqrt(model.params_active / (12 * model.n_layers))
    return 4 * model.n_layers * hidden_size * tokens / longer_s


def cpu_accelerator(name: str, rates: Mapping[str, MeasuredRates], memory_bytes: int, as_of: date) -> Accelerator:
    """Return CPUs of this name as hardware, with at least one measured rate by weight dtype."""
    flops = max(rate.flops for rate in rates.values())
    return Accelerator(
        name=name,
        reported_names=(),
        vendor="",
        arch=CPU_ARCH,
        compute_capability=None,
        memory_bytes=memory_bytes,
        memory_bytes_per_s=max(rate.memory_bytes_per_s for rate in rates.values()),
        fp16_flops=flops,
        fp8_flops=None,
        int8_flops=flops,
        fp4_flops=None,
        tdp_w=None,
        interconnect="",
        interconnect_bytes_per_s=None,
        source="measured on the host by a probe",
        as_of=as_of,
        confidence="measured",
        measured=rates,
    )
