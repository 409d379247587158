"""Rule: compute attention with flash kernels."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import DOCTOR, computed_prompt, not_in_catalog, replicas_differ
from pertoken.rule import (
    Accelerator,
    Deployment,
    Evidence,
    Market,
    Proposal,
    Service,
    Skip,
    option,
    propose,
    rule,
    skip,
)

MIN_NVIDIA = (8, 0)
"""First compute capability that FlashAttention 2 supports."""
ANY_DEVICE = ("llama.cpp", "ollama")
"""Engines with flash attention of their own, for CPUs and for every device that they serve on."""
SWITCHES = ("vllm", "dynamo-vllm", "nim", "sglang", "dynamo-sglang", *ANY_DEVICE)
"""Engines with a setting for their attention kernels, by the catalog."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the default is judgement (Sources, 4)."""

    min_prompt: float = option(256, "computed tokens of a prompt (p95) below which attention takes little time", low=0)


@rule("attention-backend")
def attention_backend(seen: Evidence, service: Service, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Compute attention with flash kernels where a setting keeps an engine from them.

    ## Why it saves
    Plain attention writes the scores of every pair of tokens to memory and reads them back: its traffic grows with the
    square of the prompt. Flash attention computes them in tiles that stay on the chip. Generic fused kernels (Triton,
    FlexAttention, xFormers) do so too, but are not written for the device. How much it gains depends on prompt, model
    and device, and no public measurement covers it: the change is tried for some hours and compared.
    ## When it is wrong
    Engines choose flash attention where they can, so the setting may be there for a reason: a head size, a sliding
    window, a sink or a cache format that the flash kernels of this version lack. The server then does not start, or
    falls back and logs it. Devices before Ampere have no flash attention except in llama.cpp and Ollama. Short prompts
    spend little time in attention.
    ## How to apply
    vLLM: `--attention-backend FLASH_ATTN`, or remove `--attention-backend` and `VLLM_ATTENTION_BACKEND` so that it
    chooses. SGLang: `--attention-backend flashinfer`, or remove the flag. llama.cpp: `--flash-attn on`. Ollama:
    `OLLAMA_FLASH_ATTENTION=1`.
    ## Sources
    1. Dao et al., FlashAttention, arXiv 2205.14135, and FlashAttention-2, arXiv 2307.08691: exact attention in tiles;
       Ampere or newer.
    2. (code) vLLM 0.32.0, SGLang 0.5.23, llama.cpp `common/arg.cpp`: names of backends, and what is chosen without one.
    3. (unverified) That a setting was left from an older release is the usual reason; ask who set it.
    4. The length of a prompt is judgement: below it, attention takes a few percent of the FLOPs of its prefill.
    """
    present = service.deployments[0]
    words = "engine, accelerator or attention kernels"
    if differing := replicas_differ(service, words, "engine", "accelerator", "attention_backend"):
        yield differing
    elif present.engine not in SWITCHES:
        yield skip("engine-decides", f"{present.engine} has no known setting for its attention kernels")
    elif (
        refusal := _flash_already(present) or _device_refusal(present, market.accelerator(present.accelerator))
    ) is not None:
        yield refusal
    elif (computed := computed_prompt(seen)) < options.min_prompt:
        short = f"{computed:,.0f} tokens of a prompt (p95) are computed, fewer than {options.min_prompt:g}"
        yield skip("short-prompts", short)
    else:
        yield propose(
            service.but(attention_backend="flash"),
            risk="latency",
            effort="medium",
            against=(
                f"a setting asks for {present.attention_backend} attention: a model or a version may have needed it",
                f"{computed:,.0f} tokens of a prompt (p95) are computed: the gain grows with them",
                "no dollars: no measurement of both kernels under load, by device and prompt, is in the catalog",
            ),
        )


def _flash_already(deployment: Deployment) -> Skip | None:
    match deployment.attention_backend:
        case None:
            return skip("engine-chooses", "no setting was seen: the engine takes flash attention where it can")
        case "flash":
            return skip("already-flash", "its attention kernels are flash attention")
        case "plain" | "generic":
            return None
    return skip("backend-unknown", f"its attention kernels are not known: {DOCTOR}")


def _device_refusal(deployment: Deployment, device: Accelerator | None) -> Skip | None:
    """Return why the engine has no flash attention on its device that is better than what it runs; None if it has."""
    if deployment.engine in ANY_DEVICE:
        return None
    if device is None:
        return not_in_catalog(deployment, "whether it has flash attention is not known")
    if device.vendor == "nvidia":
        capability = tuple(int(part) for part in (device.compute_capability or "0.0").split("."))
        if capability >= MIN_NVIDIA:
            return None
        return skip("device-cannot", f"{device.name} ({device.compute_capability}) is older than Ampere")
    return skip(
        "vendor-decides", f"the attention kernels of {deployment.engine} on {device.name} differ by version and model"
    )
