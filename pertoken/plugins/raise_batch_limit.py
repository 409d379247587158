"""Rule: let the engine batch more requests."""

from collections.abc import Iterator

from pertoken.rule import Evidence, Service, Skip, rule, skip

PINNED = 0.9
"""Running requests (p95) over the limit from which the limit is what holds them back."""
QUEUE = 1.0
"""Waiting requests (p95) from which there is something to batch."""
KV_FULL = 0.9
"""KV cache in use (p95) from which more sequences would only be preempted."""
FACTORS = (2, 4)


@rule("raise-batch-limit")
def raise_batch_limit(seen: Evidence, service: Service) -> Iterator[Service | Skip]:
    """Batch more requests where a limit makes them wait.

    ## Why it saves
    A step that reads all weights for one request reads them for thirty at almost the same time. Requests that wait
    behind a low limit (or a static batch) leave that unused: the same bill could serve them.
    ## When it is wrong
    Without a queue there is nothing to batch. With a full KV cache more sequences are only preempted: free memory
    first. Every request's tokens come a little slower: mind the latency objective.
    ## How to apply
    vLLM: `--max-num-seqs`. llama.cpp: `--parallel` with continuous batching (its default).
    ## Sources
    1. Yu et al., Orca, OSDI 2022: iteration-level scheduling against static batches.
    2. vLLM 0.32 `engine/arg_utils.py`: max_num_seqs and how it bounds a batch.
    3. docs.vllm.ai, "Optimization and Tuning": preemptions mean that the KV cache is too small.
    4. The three limits are judgement: at the limit nearly always, and somebody waiting.
    """
    running, waiting = seen.running.p95, seen.waiting.p95
    limits = {each.max_num_seqs for each in service.deployments}
    limit = limits.pop()
    if limits:
        yield skip("replicas-differ", "its replicas have different limits on batched requests")
        return
    if limit is None:
        yield skip("limit-unknown", "its limit on batched requests is not known")
        return
    together = limit * len(service.deployments)
    if running < PINNED * together:
        yield skip(
            "below-limit",
            f"p95 of {running:.0f} running requests is below its limit of {together}: the limit holds nothing back",
        )
    elif waiting < QUEUE:
        yield skip("no-queue", f"it runs at its limit of {together} but no requests wait: there is nothing to batch")
    elif seen.has("kv_use") and seen.kv_use.p95 >= KV_FULL:
        yield skip("kv-cache-full", f"its KV cache is {seen.kv_use.p95:.0%} full: more requests would be preempted")
    elif seen.has("preemptions") and seen.preemptions.mean > 0:
        yield skip("preemptions", "requests are preempted because the KV cache is full already")
    else:
        for factor in FACTORS:
            yield service.but(max_num_seqs=limit * factor)
