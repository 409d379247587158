"""Rule: keep the KV cache of earlier turns in host memory."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import hardly_busy, replicas_differ
from pertoken.rule import Evidence, Proposal, Service, Skip, counted, option, propose, rule, skip

GIB = 2**30
ENGINES = ("vllm", "dynamo-vllm", "nim", "sglang", "dynamo-sglang", "trtllm", "llama.cpp")
"""Engines with an option for KV cache offload (Sources, 2 and 3)."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 5)."""

    min_busy: float = option(0.05, "busy share below which there is no time to save", low=0, high=1)
    min_prompt_tokens: float = option(
        2.0, "computed prompt tokens per generated token below which decode dominates, not prefill", low=0
    )
    outlives: float = option(
        0.5,
        "time between two uses of a block (p95) over the time it stays in the cache, above which it may be evicted",
        low=0,
    )
    of_host: float = option(0.5, "share of the host's free memory to use", low=0.01, high=0.9)
    min_gib: float = option(16.0, "minimum GiB per replica: below it host memory adds little", low=1)


@rule("offload-kv")
def offload_kv(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Keep KV cache blocks in host memory that are reused after the device has evicted them.

    ## Why it saves
    Between two turns of a conversation or an agent the device evicts its KV cache for other requests, and the whole
    history is prefilled again. Reading it back from host memory takes a fraction of that time: PCIe transfers a token's
    cache many times faster than prefill computes it.
    ## When it is wrong
    Without reuse, offloading costs 3 to 14 % of the throughput. No engine counts reuse after eviction, so no saving is
    stated, only the gain as a function of the share that is reused. First enable the prefix cache on the device, and
    route the requests of one conversation to one replica. Models with latent attention (MLA) have a small cache, which
    vLLM does not offload.
    ## How to apply
    vLLM: `--kv-offloading-size GiB --kv-offloading-backend native`. SGLang: `--enable-hierarchical-cache` with
    `--hicache-size` in GB per rank. TensorRT-LLM: `host_cache_size` of `kv_cache_config`. llama.cpp: `--cache-ram MiB`.
    Try it on one replica for a week and compare the share of prompt tokens that hit the cache (vLLM:
    `external_prefix_cache_hits`).
    ## Sources
    1. (calculated) The device keeps a block for about as long as it takes to write as many tokens as its cache holds.
    2. (code) vLLM 0.32 `config/cache.py`, `--kv-cache-metrics`; SGLang 0.5.23 hierarchical cache.
    3. (unverified) TensorRT-LLM `host_cache_size`; (code) llama.cpp `--cache-ram`, 8 GiB by default.
    4. (measured) published pairs: 1.6 to 1.8 times the throughput with reuse, 0.86 to 0.97 without, up to 1.21 from the
       additional capacity alone.
    5. The thresholds are judgement.
    """
    present, *others = service.deployments
    if refusal := hardly_busy(seen, options.min_busy):
        yield refusal
        return
    if service.isolation == "tenant":
        yield skip(
            "isolated",
            f'isolation = "tenant": the tenants of its {counted(len(others) + 1, "replica")} must not share a cache',
        )
        return
    knobs = ("model", "engine", "enable_prefix_caching", "kv_offload_bytes", "weight_dtype")
    if refusal := replicas_differ(service, "model, engine, caching or offload", *knobs):
        yield refusal
        return
    if present.engine not in ENGINES:
        yield skip(
            "engine-cannot",
            f"{present.engine} has no known option to offload the KV cache of {counted(len(others) + 1, 'replica')}",
        )
        return
    if present.kv_offload_bytes:
        yield skip("offloads-already", f"it already keeps {present.kv_offload_bytes / GIB:.0f} GiB in host memory")
        return
    if present.model.n_kv_heads == 1:
        values = present.model.kv_values_per_layer or 0
        yield skip("small-cache", f"{present.model.name} caches only {values:.0f} values per token and layer")
        return
    if present.enable_prefix_caching is not True:
        state = "off" if present.enable_prefix_caching is False else "not known to be on"
        reason = f"the prefix cache of its {counted(len(others) + 1, 'replica')} is {state}: enable it first"
        yield skip("prefix-cache-off", reason)
        return
    computed, generated = seen.computed_tok_s.mean, seen.generated_tok_s.mean
    if computed < options.min_prompt_tokens * generated:
        yield skip(
            "answers-dominate",
            f"it computes {computed:.0f} prompt tokens/s and generates {generated:.0f}: below "
            f"{options.min_prompt_tokens:g} to one, decode dominates",
        )
        return
    kept_s = _kept_s(seen)
    gap_s = seen.kv_reuse_gap_s.p95
    if gap_s < options.outlives * kept_s:
        yield skip(
            "kept-long-enough",
            f"blocks are reused within {gap_s:.0f} s (p95), and the device keeps them for about {kept_s:.0f} s",
        )
        return
    size = int(seen.host_memory_free.p50 * options.of_host / len(service.deployments) / GIB)
    if size < options.min_gib:
        yield skip("host-memory-short", f"its host has {size} GiB per replica to spare, below {options.min_gib:g}")
        return
    yield propose(service.but(kv_offload_bytes=size * GIB), risk="latency", effort="medium")


def _kept_s(seen: Evidence) -> float:
    """Return how long the device keeps a block, seconds: cached tokens over tokens written per second.

    Cached tokens are estimated from running requests: their tokens over the share of the cache in use.
    """
    running = seen.running.mean * (seen.prompt_len.mean + seen.generated_len.mean / 2)
    written = (seen.computed_tok_s.mean + seen.generated_tok_s.mean) / max(seen.busy.mean, 1e-9)
    return running / max(seen.kv_use.mean, 1e-3) / max(written, 1e-9)
