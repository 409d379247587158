"""Rule: store the KV cache in fewer bits."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import (
    DOCTOR,
    FP8_KV,
    SIXTEEN_BIT_OR_MORE,
    not_in_catalog,
    replicas_differ,
    stores_kv_in_fp8,
)
from pertoken.rule import (
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

INT8 = ("llama.cpp", "ollama", "lmdeploy")
"""Engines that store the cache in 8-bit integers, on any device."""
OWN_DEFAULT = ("llama.cpp", "ollama", "lmdeploy")
"""Engines with a 16-bit cache unless a flag sets another; the cache of others may follow the checkpoint."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement, from Sources, 3."""

    kv_full: float = option(0.85, "KV cache in use (p50) at or above which it delays requests", low=0, high=1)
    kv_half: float = option(
        0.5, "KV cache in use (p95) below which preemptions have another cause than its size", low=0, high=1
    )


@rule("quantize-kv")
def quantize_kv(seen: Evidence, service: Service, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Store the KV cache in 8 bits where it is full.

    ## Why it saves
    With half the bytes per token the cache holds twice the tokens: requests that waited for cache space, or were
    preempted and computed again, join the same steps. Each step also reads half as many bytes of cache.
    ## When it is wrong
    While the cache has free space, nothing waits for it. Models with latent attention (MLA) already have a small cache.
    Devices older than Ada and CDNA3 unpack FP8 slowly, and some attention backends lack it: check the engine's log and
    your own latency. Long contexts lose the most quality: run your own evaluation.
    ## How to apply
    vLLM: `--kv-cache-dtype fp8`. SGLang: `--kv-cache-dtype fp8_e4m3`. TGI on CUDA: `--kv-cache-dtype fp8_e4m3fn`.
    TensorRT-LLM: `kv_cache_config.dtype: fp8` in its configuration file. llama.cpp: `-ctk q8_0 -ctv q8_0` with flash
    attention. Ollama: `OLLAMA_KV_CACHE_TYPE=q8_0` with `OLLAMA_FLASH_ATTENTION=1`. LMDeploy: `--quant-policy 8`.
    ## Sources
    1. (code) vLLM 0.32.0 `config/cache.py`, SGLang 0.5.23 `srt/server_args`: dtypes of the cache.
    2. (vendor) Baseten: about twice the tokens in the same memory, at unchanged quality.
    3. (calculated) A 70B model at 8k tokens with a batch limited by the cache: 20 to 35 % lower cost per token.
    4. (vendor) SGLang documentation, "Quantized KV Cache": backends that do not fuse dequantization are slow.
    5. (unverified) The settings of TensorRT-LLM and LMDeploy: verify them in your version.
    """
    present, *others = service.deployments
    words = "model, engine, accelerator, weights or KV cache"
    if refusal := replicas_differ(service, words, "model", "engine", "accelerator", "weight_dtype", "kv_dtype"):
        yield refusal
        return
    dtype = _format(present, market)
    if isinstance(dtype, Skip):
        yield dtype
        return
    used = seen.kv_use.p50
    preempted = seen.preemptions.mean if seen.has("preemptions") else None
    if used < options.kv_full and not preempted:
        counted = "preemptions are not counted" if preempted is None else "0 requests were preempted"
        yield skip(
            "kv-cache-room", f"its KV cache is {used:.0%} full (p50), below {options.kv_full:.0%}, and {counted}"
        )
        return
    if used < options.kv_full and seen.kv_use.p95 < options.kv_half:
        yield skip(
            "kv-cache-room",
            f"{preempted:.2g} requests an hour were preempted, but its KV cache is {seen.kv_use.p95:.0%} full (p95), "
            f"below {options.kv_half:.0%}: bursts fill it, not its size",
        )
        return
    quantized = service.but(kv_dtype=dtype)
    yield propose(quantized, risk="quality", effort="medium")
    if others:
        yield propose(quantized.resized(), risk="quality", effort="medium")


def _format(deployment: Deployment, market: Market) -> str | Skip:
    """Return the 8-bit format in which the engine can store the cache on this device, or a refusal."""
    may_be_set = deployment.kv_dtype is None and deployment.engine not in OWN_DEFAULT
    if deployment.kv_dtype == "other" or (may_be_set and deployment.weight_dtype not in SIXTEEN_BIT_OR_MORE):
        return skip(
            "dtype-unknown", f"the dtype of its KV cache is not known, and a quantized checkpoint may set it: {DOCTOR}"
        )
    if deployment.kv_dtype is not None and deployment.kv_dtype not in SIXTEEN_BIT_OR_MORE:
        return skip("already-quantized", f"its KV cache is already in {deployment.kv_dtype}")
    values = deployment.model.kv_values_per_layer
    if deployment.model.n_kv_heads == 1 and values is not None:
        return skip("small-cache", f"{deployment.model.name} caches only {values:.0f} values per token and layer")
    if deployment.engine in INT8:
        return "int8"
    if deployment.engine not in FP8_KV:
        return skip("engine-cannot", f"{deployment.engine} has no known setting that stores the KV cache in 8 bits")
    device = market.accelerator(deployment.accelerator)
    if device is None:
        return not_in_catalog(deployment, "which formats it computes in is not known")
    if not stores_kv_in_fp8(deployment.engine, device):
        capability = f" ({device.compute_capability})" if device.compute_capability else ""
        return skip(
            "no-format",
            f"{deployment.engine} on {device.name}{capability} has no fast attention over a KV cache in FP8",
        )
    return "fp8"
