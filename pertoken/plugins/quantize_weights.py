"""Rule: store weights in fewer bits."""

from collections.abc import Iterator

from pertoken.catalog.market import Accelerator, Market
from pertoken.rule import WEIGHT_BYTES, Deployment, Evidence, Skip, rule, skip

SIXTEEN_BIT_OR_MORE = ("bf16", "fp16", "fp32")
FEW_RUNNING = 16
"""Requests per device up to which 4-bit weights gain speed (Sources, 1 and 3; the limit is judgement)."""


@rule("quantize-weights")
def quantize_weights(seen: Evidence, now: Deployment, market: Market) -> Iterator[Deployment | Skip]:
    """Store weights in 8 or 4 bits, on fewer devices where they then fit.

    ## Why it saves
    Every decode step reads all weights, so half the bytes is up to half the time of a small batch. Freed memory holds
    more sequences, and a model that needed two devices may fit one: that device leaves the bill.
    ## When it is wrong
    FP8 before Ada, and FP4 before Blackwell, only save memory. 4-bit weights with 16-bit activations are slower than
    8 bits under load. Small models, long reasoning and code lose the most quality: run your own evaluation.
    ## How to apply
    vLLM: serve a checkpoint quantized by llm-compressor, or `--quantization fp8`. llama.cpp: a Q8_0 or Q4_K_M file.
    ## Sources
    1. "Give Me BF16 or Give Me Death?", arXiv 2411.02355: W8A8 suits load, W4A16 few requests.
    2. vLLM 0.32 `config/`: quantization methods by hardware.
    3. vllm-project/vllm#44529: W4A16 slower than BF16 on an H100 under load.
    """
    running = seen.running.mean
    if now.weight_dtype is None:
        yield skip("the dtype of its weights is not known")
        return
    if now.weight_dtype not in SIXTEEN_BIT_OR_MORE:
        yield skip(f"weights are quantized already ({now.weight_dtype})")
        return
    device = market.accelerator(now.accelerator)
    if device is None:
        yield skip("its device is not in the catalog: which formats it computes in is not known")
        return
    formats = _formats(now.engine, device, running / (now.n_devices or 1))
    if not formats:
        yield skip(f"{device.name} computes in no 8-bit format, and {running:.0f} running requests are too many for 4")
    for dtype in formats:
        yield now.but(weight_dtype=dtype)
        ranks = (now.tp or 1) // 2
        weights = (now.model.params_total or 0) * WEIGHT_BYTES[dtype] / (now.pp or 1)
        # At the least: scales come on top, so that only layouts that cannot hold the weights at all are left out.
        while ranks >= 1 and 0 < weights < ranks * device.memory_bytes:
            yield now.but(weight_dtype=dtype, tp=ranks)
            ranks //= 2


def _formats(engine: str, device: Accelerator, running: float) -> list[str]:
    if engine == "llama.cpp":
        return ["int8", "int4"]
    formats = []
    if device.fp8_flops is not None:
        formats.append("fp8")
    elif device.int8_flops is not None and device.int8_flops > device.fp16_flops:
        formats.append("int8")
    if device.fp4_flops is not None:
        formats.append("fp4")
    if running <= FEW_RUNNING:
        formats.append("int4")
    return formats
