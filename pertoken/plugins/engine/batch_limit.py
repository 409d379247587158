"""Rule: let an engine batch more requests."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.rule import Evidence, Proposal, Service, Skip, option, propose, rule, skip

FACTORS = (2, 4)


@dataclass(frozen=True)
class Options:
    """What a person may set; the defaults are judgement (Sources, 4)."""

    at_limit: float = option(
        0.9, "running requests (p95) over the limit from which it is what holds them back", low=0, high=1
    )
    queue: float = option(1.0, "waiting requests (p95) from which there is something to batch", low=0)
    kv_full: float = option(
        0.9, "KV cache in use (p95) from which more sequences would only be preempted", low=0, high=1
    )


@rule("batch-limit")
def batch_limit(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Batch more requests where a limit makes them wait.

    ## Why it saves
    A step that reads all weights for one request reads them for thirty at almost the same time. Requests that wait
    behind a low limit (or a static batch) leave that unused: the same bill could serve them.
    ## When it is wrong
    Without a queue there is nothing to batch. With a full KV cache more sequences are only preempted: free memory
    first. Every request's tokens come a little slower: mind the latency objective.
    ## How to apply
    vLLM: `--max-num-seqs`. SGLang: `--max-running-requests`. llama.cpp: `--parallel`, with `--ctx-size` as many times
    as large. TensorRT-LLM: `--max_batch_size`. TGI and LMDeploy: `--max-batch-size`.
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
        shown = ", ".join(sorted(str(each.max_num_seqs) for each in service.deployments))
        yield skip("replicas-differ", f"its replicas have different limits on batched requests: {shown}")
        return
    if limit is None:
        yield skip("limit-unknown", "its limit on batched requests is not known")
        return
    if limit == 1:
        yield skip("one-at-a-time", "its limit is 1 request: the rule continuous-batching proposes to leave it")
        return
    together = limit * len(service.deployments)
    if running < options.at_limit * together:
        yield skip(
            "below-limit",
            f"p95 of {running:.0f} running requests is below {options.at_limit:.0%} of its limit of {together}: the "
            "limit holds nothing back",
        )
    elif waiting < options.queue:
        yield skip(
            "no-queue",
            f"it runs at its limit of {together} but {waiting:.1f} requests wait (p95), fewer than {options.queue:g}: "
            "there is nothing to batch",
        )
    elif seen.has("kv_use") and seen.kv_use.p95 >= options.kv_full:
        yield skip(
            "kv-cache-full",
            f"its KV cache is {seen.kv_use.p95:.0%} full (p95), at or above {options.kv_full:.0%}: more requests would "
            "be preempted",
        )
    elif seen.has("preemptions") and seen.preemptions.mean > 0:
        per_hour = seen.preemptions.mean
        yield skip("preemptions", f"{per_hour:.2g} requests an hour are preempted: the KV cache is full already")
    else:
        for factor in FACTORS:
            yield propose(service.but(max_num_seqs=limit * factor), risk="latency", effort="medium")
