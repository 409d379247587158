"""Rule: raise or lower the batch limit of an engine."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import DOCTOR
from pertoken.rule import Evidence, Proposal, Service, Skip, option, propose, rule, skip

FACTORS = (2, 4)
SHRINK = (0.75, 0.5)
"""Fractions of the presently running requests to which the batch limit is lowered."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 4)."""

    at_limit: float = option(
        0.9, "running requests, or tokens of a step (p95), over their limit at or above which the limit is reached",
        low=0, high=1,
    )  # fmt: skip
    queue: float = option(1.0, "waiting requests (p95) at or above which requests queue", low=0)
    kv_full: float = option(
        0.9, "KV cache in use (p95) at or above which more sequences would only be preempted", low=0, high=1
    )
    preempted: float = option(
        0.1, "preemptions per request at or above which the batch is too large for the KV cache", low=0.001
    )


@rule("batch-limit")
def batch_limit(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Raise the batch limit where requests queue behind it; lower it where latency or preemption suffers.

    ## Why it saves
    A decode step reads all weights once, whether it serves one request or thirty, so thirty requests take almost the
    same time. Requests that queue behind a low batch limit leave that capacity unused. The opposite case costs money
    too: when more requests run than the KV cache holds, preempted requests are computed twice, and tokens that miss
    their latency objective are paid for without being useful.
    ## When it is wrong
    Without a queue there is nothing to batch. With a full KV cache more sequences only cause preemptions: free memory
    first. A larger batch makes every token slightly slower. A smaller batch makes requests wait longer for their first
    token, and may not sustain the demand.
    ## How to apply
    vLLM: `--max-num-seqs` and `--max-num-batched-tokens`; the second must not be below the first. SGLang:
    `--max-running-requests` and `--chunked-prefill-size`. llama.cpp: `--parallel`, with `--ctx-size` multiplied by the
    same factor, and `--batch-size`. TensorRT-LLM: `--max_batch_size` and `--max_num_tokens`. TGI: `--max-batch-size`.
    LMDeploy: `--max-batch-size`.
    ## Sources
    1. (unverified) Yu et al., Orca, OSDI 2022: iteration-level scheduling compared with static batches.
    2. (code) vLLM 0.32 `engine/arg_utils.py`: max_num_seqs and how it bounds a batch.
    3. (unverified) docs.vllm.ai, "Optimization and Tuning": preemptions mean that the KV cache is too small; a smaller
       batch is one of the remedies.
    4. The thresholds are judgement: the limit is reached almost always while requests wait, or one request in ten is
       preempted.
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
        yield skip("one-at-a-time", "its limit is 1 request: see the rule continuous-batching")
        return
    if reason := _too_many(seen, service, options):
        lowered = list(_lowered(seen, service, limit, budget, options))
        yield from lowered
        if not lowered:
            yield skip(
                "smallest-batch", f"{reason}, but only {running.mean:.1f} requests run: there is no batch to shrink"
            )
        return
    yield from _raised(seen, service, limit, budget, options)


def _too_many(seen: Evidence, service: Service, options: Options) -> str | None:
    """Return why fewer requests should run at a time; None if no measurement supports it."""
    objective_ms = service.slo.tpot_p95_ms
    if objective_ms is not None and seen.has("tpot_s") and 1000 * seen.tpot_s.p95 > objective_ms:
        return f"its TPOT is {1000 * seen.tpot_s.p95:.0f} ms (p95), above its objective of {objective_ms:.0f} ms"
    if seen.has("preemptions") and seen.preemptions.mean > 0 and seen.has("requests_s") and seen.requests_s.mean > 0:
        share = seen.preemptions.mean / (3600 * seen.requests_s.mean)
        if share >= options.preempted:
            return f"{share:.0%} of its requests are preempted and computed again"
    return None


def _lowered(seen: Evidence, service: Service, limit: int, budget: int | None, options: Options) -> Iterator[Proposal]:
    """Yield smaller batch limits than the present batch; if steps reach their token budget, also half that budget."""
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
            "limit delays no request",
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


def _larger(limit: int, budget: int | None, factor: int, steps_full: bool) -> dict[str, int]:
    """Return the knobs with the limiting one raised; a step must have room for one token of each request."""
    if steps_full and budget is not None:
        return {"max_num_batched_tokens": factor * budget}
    more = {"max_num_seqs": factor * limit}
    return more | ({"max_num_batched_tokens": factor * limit} if budget is not None and budget < factor * limit else {})


def _steps_full(seen: Evidence, budget: int, options: Options) -> bool:
    """Return whether steps reach their token budget; False if the engine does not count tokens per step."""
    return seen.has("step_tokens") and seen.step_tokens.p95 >= options.at_limit * budget
