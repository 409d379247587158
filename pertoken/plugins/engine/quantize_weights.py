"""Rule: store weights in fewer bits."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import (
    DOCTOR,
    FILE_FORMATS,
    SIXTEEN_BIT_OR_MORE,
    encoder_refusal,
    not_in_catalog,
    replicas_differ,
    smaller_formats,
)
from pertoken.rule import Evidence, Market, Proposal, Service, Skip, option, propose, rule, skip


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the default is judgement, from Sources 1 and 3."""

    few_running: float = option(16.0, "maximum running requests per device for 4-bit weights", low=0)


@rule("quantize-weights")
def quantize_weights(seen: Evidence, service: Service, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Store weights in 8 or 4 bits, on fewer devices or replicas where these suffice.

    ## Why it saves
    Every decode step reads all weights, so half the bytes take up to half the time at a small batch. The freed memory
    holds more sequences. A model that needed two devices may fit on one, or four replicas become two: hosts that become
    entirely free leave the bill.
    ## When it is wrong
    On devices older than Ada FP8 saves only memory; on devices older than Blackwell the same holds for FP4. 4-bit
    weights with 16-bit activations are slower than 8 bits under load. Small models, long reasoning and code lose the
    most quality: run your own evaluation.
    ## How to apply
    vLLM: serve a checkpoint quantized by llm-compressor, or `--quantization fp8`. llama.cpp: a Q8_0 or Q4_K_M file.
    Where your evaluation fails in 4 bits, prefer a checkpoint whose publisher trained it with quantization (QAT), or
    train one: it costs GPU hours, which no saving here contains.
    ## Sources
    1. "Give Me BF16 or Give Me Death?", arXiv 2411.02355: W8A8 suits high load, W4A16 few concurrent requests.
    2. vLLM 0.32 `config/`: quantization methods by hardware.
    3. vllm-project/vllm#44529: W4A16 slower than BF16 on an H100 under load.
    """
    if refusal := encoder_refusal(seen, "vectors and scores of other weights do not match those that are stored"):
        yield refusal
        return
    running = seen.running.mean
    present = service.deployments[0]
    words = "model, engine, accelerator, weights or ranks"
    if refusal := replicas_differ(service, words, "model", "engine", "accelerator", "weight_dtype", "tp", "pp"):
        yield refusal
        return
    if present.weight_dtype is None:
        yield skip("dtype-unknown", f"the dtype of its weights is not known: {DOCTOR}")
        return
    if present.weight_dtype not in SIXTEEN_BIT_OR_MORE:
        yield skip("already-quantized", f"its weights are already in {present.weight_dtype}")
        return
    device = market.accelerator(present.accelerator)
    if device is None and present.engine == "llama.cpp":  # it supports each of its formats on any device, CPUs included
        for dtype in FILE_FORMATS:
            yield propose(service.but(weight_dtype=dtype), risk="quality", effort="medium")
        return
    if device is None:
        yield not_in_catalog(present, "which formats it computes in is not known")
        return
    per_device = running / sum(deployment.n_devices or 1 for deployment in service.deployments)
    computed = smaller_formats(present.engine, device, few=per_device <= options.few_running)
    not_run = {dtype: market.not_run(present.engine, dtype, present.accelerator) for dtype in computed}
    formats = [dtype for dtype, reason in not_run.items() if reason is None]
    for reason in filter(None, not_run.values()):
        yield skip("format-not-run", reason)
    if not computed:
        yield skip(
            "no-format",
            f"{device.name} computes in no 8-bit format, and {per_device:.1f} running requests per device are more "
            f"than the {options.few_running:g} up to which 4 bits gain",
        )
    for dtype in formats:
        fewest = market.fewest_ranks(present.model, dtype, device, present.pp or 1) or present.tp or 1
        layouts = [service.but(weight_dtype=dtype)]
        ranks = (present.tp or 1) // 2
        while ranks >= fewest:
            layouts.append(service.but(weight_dtype=dtype, tp=ranks))
            ranks //= 2
        for layout in layouts:
            yield propose(layout, risk="quality", effort="medium")
            if len(service.deployments) > 1:
                yield propose(layout.resized(), risk="quality", effort="medium")
