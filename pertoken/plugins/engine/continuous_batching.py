"""Rule: enable batching where an engine serves one request after another."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import DOCTOR
from pertoken.rule import Evidence, Market, Proposal, Service, Skip, option, propose, rule, skip

BATCHES = (8, 32)
ENGINES = ("vllm", "dynamo-vllm", "sglang", "dynamo-sglang", "llama.cpp", "trtllm", "tgi", "lmdeploy")
"""Engines with a flag for the number of requests they batch."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 5)."""

    queue: float = option(1.0, "waiting requests (p95) at or above which requests queue", low=0)
    kv_full: float = option(0.9, "KV cache in use (p95) at or above which a batch does not fit", low=0, high=1)
    memory_full: float = option(
        0.9, "device memory in use (max) at or above which a batch's KV cache does not fit", low=0, high=1
    )


@rule("continuous-batching")
def continuous_batching(
    seen: Evidence, service: Service, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Batch requests where the engine serves them one after another.

    ## Why it saves
    A decode step reads all weights, for one request or for thirty. An engine limited to one sequence reads them again
    for every request. With continuous batching, requests join the running batch at every step and share each read.
    ## When it is wrong
    Without a queue there is nothing to batch: fewer or shared devices save more. Every slot needs its own KV cache, and
    each request's tokens come slightly slower: 12 % at 32 requests and 25 % at 128 in one public series.
    ## How to apply
    All engines that pertoken reads batch continuously unless they are limited to one sequence. vLLM: `--max-num-seqs
    8`. SGLang: `--max-running-requests 8`. llama.cpp: `--parallel 8` with `--ctx-size` eight times as large, and no
    `--no-cont-batching`. TensorRT-LLM: `--max_batch_size 8`. TGI and LMDeploy: `--max-batch-size 8`. Ollama:
    `OLLAMA_NUM_PARALLEL=8` in its environment.
    ## Sources
    1. Yu et al., Orca, OSDI 2022: iteration-level scheduling compared with static batches. Not verified.
    2. vLLM 0.32, SGLang 0.5.23, llama.cpp `common/arg.cpp`: continuous batching is on by default. Read in the code.
    3. caleta.io, Qwen2.5-Coder-32B in FP8 on an H100: $9.71 per million tokens at one request, $0.34 at 32. One
       vendor's series, and inconsistent at eight requests.
    4. Anyscale: up to 23 times the throughput of static batches. A vendor's figure, not verified.
    5. The thresholds, and starting with eight or 32 requests, are judgement.
    """
    limits = {deployment.max_num_seqs for deployment in service.deployments}
    if None in limits:
        yield skip("limit-unknown", f"its limit on batched requests is not known: {DOCTOR}")
        return
    if limits != {1}:
        shown = ", ".join(sorted(str(limit) for limit in limits))
        yield skip("batches-already", f"it already batches up to {shown} requests")
        return
    present = service.deployments[0]
    if present.engine not in ENGINES:
        yield skip(
            "no-flag",
            f"{present.engine} has no known flag that raises its limit of {present.max_num_seqs} request at a time",
        )
        return
    waiting = seen.waiting.p95
    device = market.accelerator(present.accelerator)
    together = sum(deployment.n_devices or 1 for deployment in service.deployments)
    if waiting < options.queue:
        yield skip("no-queue", f"{waiting:.1f} requests wait (p95), fewer than {options.queue:g}: nothing to batch")
    elif seen.has("kv_use") and seen.kv_use.p95 >= options.kv_full:
        yield skip("kv-cache-full", f"one request fills {seen.kv_use.p95:.0%} of its KV cache (p95): free memory first")
    elif (
        device is not None
        and seen.has("device_memory")
        and (used := seen.device_memory.max / device.memory_bytes / together) >= options.memory_full
        and present.gpu_memory_utilization is None  # an engine that reserves a share beforehand has its cache already
    ):
        yield skip("memory-full", f"{used:.0%} of the device memory is in use: no room for the cache of more requests")
    else:
        for batch in BATCHES:
            yield propose(service.but(max_num_seqs=batch), risk="latency", effort="medium")
