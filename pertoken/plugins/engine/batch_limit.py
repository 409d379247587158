"""Rule: let an engine batch more requests, or fewer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pertoken.plugins.unknown import DOCTOR
from pertoken.rule import Evidence, Proposal, Service, Skip, option, propose, rule, skip

FACTORS = (2, 4)
SHRINK = (0.75, 0.5)
"""Parts of the requests that run now to which a batch is lowered."""


@dataclass(frozen=True)
class Options:
    """What a person may set; the defaults are judgement (Sources, 4)."""

    at_limit: float = option(
        0.9, "running requests, or tokens of a step (p95), over their limit from which it is what holds them back",
        low=0, high=1,
    )  # fmt: skip
    queue: float = option(1.0, "waiting requests (p95) from which there is something to batch", low=0)
    kv_full: float = option(
        0.9, "KV cache in use (p95) from which more sequences would only be preempted", low=0, high=1
    )
    preempted: float = option(
        0.1, "preemptions per request from which the batch is too large for the KV cache", low=0.001
    )


@rule("batch-limit")
def batch_limit(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Batch more requests where a limit makes them wait, fewer where the batch misses its objective or is preempted.

    ## Why it saves
    A step that reads all weights for one request reads them for thirty at almost the same time. Requests that wait
    behind a low limit (or a static batch) leave that unused: the same bill could serve them. Where instead more
    requests run than the KV cache holds, those that are preempted are computed twice; and tokens of requests that miss
    their objective are paid for and not wanted.
    ## When it is wrong
    Without a queue there is nothing to batch. With a full KV cache more sequences are only preempted: free memory
    first. Every request's tokens come a little slower in a larger batch; in a smaller one requests wait longer for
    their first token, and the demand may not be held.
    ## How to apply
    vLLM: `--max-num-seqs` and `--max-num-batched-tokens`, which must not be below it. SGLang:
    `--max-running-requests` and `--chunked-prefill-size`. llama.cpp: `--parallel`, with `--ctx-size` as many times as
    large, and `--batch-size`. TensorRT-LLM: `--max_batch_size` and `--max_num_tokens`. TGI: `--max-batch-size`.
    LMDeploy: `--max-batch-size`.
    ## Sources
    1. [K] Yu et al., Orca, OSDI 2022: iteration-level scheduling against static batches.
    2. [C] vLLM 0.32 `engine/arg_utils.py`: max_num_seqs and how it bounds a batch.
    3. [K] docs.vllm.ai, "Optimization and Tuning": preemptions mean that the KV cache is too small; a smaller batch is
       one of the remedies.
    4. The limits are judgement: at the limit nearly always, and somebody waiting; one request of ten preempted.
    """
    running = seen.running
    limits = {(deployment.max_num_seqs, deployment.max_num_batched_tokens) for deployment in service.deployments}
    limit, budget = limits.pop()
    if limits:
        shown = ", ".join(sorted(str(deployment.max_num_seqs) for deployment in service.deployments))
        yield skip("replicas-differ", f"its replicas have different limits on batched requests or tokens: {shown}")
        return
    if limit is None:
        yield skip("limit-unknown", f"its limit on batched requests is not known: {DOCTOR}")
        return
    if limit == 1:
        yield skip("one-at-a-time", "its limit is 1 request: the rule continuous-batching proposes to leave it")
        return
    if reason := _too_many(seen, service, options):
        lowered = list(_lowered(seen, service, limit, budget, options))
        yield from lowered
        if not lowered:
            yield skip("smallest-batch", f"{reason}, but {running.mean:.1f} requests run: it is no batch")
        return
    yield from _raised(seen, service, limit, budget, options)


def _too_many(seen: Evidence, service: Service, options: Options) -> str | None:
    """Return why fewer requests should run at a time; None where nothing measured speaks for it."""
    objective_ms = service.slo.tpot_p95_ms
    if objective_ms is not None and seen.has("tpot_s") and 1000 * seen.tpot_s.p95 > objective_ms:
        return f"its TPOT is {1000 * seen.tpot_s.p95:.0f} ms (p95), above its objective of {objective_ms:.0f} ms"
    if seen.has("preemptions") and seen.preemptions.mean > 0 and seen.has("requests_s") and seen.requests_s.mean > 0:
        share = seen.preemptions.mean / (3600 * seen.requests_s.mean)
        if share >= options.preempted:
            return f"{share:.0%} of its requests are preempted and computed again"
    return None


def _lowered(seen: Evidence, service: Service, limit: int, budget: int | None, options: Options) -> Iterator[Proposal]:
    """Yield smaller batches than run now; where steps are full of tokens also steps of half as many."""
    running = seen.running.mean / len(service.deployments)
    for part in SHRINK:
        if 1 <= (fewer := int(part * running)) < limit:
            yield propose(service.but(max_num_seqs=fewer), risk="latency", effort="medium")
    if budget is not None and _steps_full(seen, budget, options) and (half := max(budget // 2, limit)) < budget:
        yield propose(service.but(max_num_batched_tokens=half), risk="latency", effort="medium")


def _raised(
    seen: Evidence, service: Service, limit: int, budget: int | None, options: Options
) -> Iterator[Proposal | Skip]:
    running, waiting = seen.running.p95, seen.waiting.p95
    together = limit * len(service.deployments)
    at_limit = running >= options.at_limit * together
    steps_full = not at_limit and budget is not None and _steps_full(seen, budget, options)
    if not at_limit and not steps_full:
        yield skip(
            "below-limit",
            f"p95 of {running:.0f} running requests is below {options.at_limit:.0%} of its limit of {together}: the "
            "limit holds nothing back",
        )
    elif waiting < options.queue:
        full = f"its steps hold their {budget:,} tokens" if steps_full else f"it runs at its limit of {together}"
        yield skip(
            "no-queue",
            f"{full} but {waiting:.1f} requests wait (p95), fewer than {options.queue:g}: there is nothing to batch",
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
            yield propose(service.but(**_larger(limit, budget, factor, steps_full)), risk="latency", effort="medium")


def _larger(limit: int, budget: int | None, factor: int, steps_full: bool) -> dict[str, Any]:
    """Return the limit that holds requests back, raised; a step must have room for a token of each request."""
    if steps_full and budget is not None:
        return {"max_num_batched_tokens": factor * budget}
    more = {"max_num_seqs": factor * limit}
    return more | ({"max_num_batched_tokens": factor * limit} if budget is not None and budget < factor * limit else {})


def _steps_full(seen: Evidence, budget: int, options: Options) -> bool:
    """Return whether steps hold as many tokens as they may, as far as the engine counts them."""
    return seen.has("step_tokens") and seen.step_tokens.p95 >= options.at_limit * budget
