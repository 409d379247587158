"""Operation of one engine under its arrivals: tokens, busy time, running and waiting requests, latencies."""

from dataclasses import dataclass

import numpy as np

from pertoken.demo.simulator.arrivals import Floats, Ints
from pertoken.demo.simulator.physics import Engine, while_any

PATIENCE_S = 45.0
"""Longest wait of a client in the queue; after it the request is lost."""
PREEMPTED = 0.12
"""Share of requests preempted while the KV cache limits the batch and all slots are in use."""
HARDLY_ANY = 1e-9


@dataclass(frozen=True, slots=True)
class Course:
    """Operation of one engine, step by step. Rates and means are over the whole step unless noted."""

    ts: Ints
    step_s: int
    requests: Floats
    """Finished requests."""
    lost: Floats
    """Requests whose client stopped waiting."""
    prompt_tokens: Floats
    cached_tokens: Floats
    generated_tokens: Floats
    busy: Floats
    """Share of the step."""
    running: Floats
    waiting: Floats
    cache_use: Floats
    preemptions: Floats
    tpot_s: Floats
    ttft_s: Floats
    queue_s: Floats
    e2e_s: Floats
    memory_share: Floats
    """Share of the listed bandwidth, while busy."""
    gemm_share: Floats
    """Share of the listed FLOP/s, while busy."""
    prefill_share: Floats
    """Share of busy time."""


def course(served_by: Engine, ts: Ints, step_s: int, asked: Floats, silent: Floats | None = None) -> Course:
    """Return the operation of an engine under the requests of each step.

    `silent`: share of each step in which the engine is stuck: it serves nothing, and requests keep running.
    """
    prompt_len, generated_len, cached = served_by.c.prompt_len, served_by.c.generated_len, served_by.c.cached_share
    slots = served_by.slots
    peak_s = slots / served_by.token_s(slots) / generated_len  # requests a second of a full batch
    served, waiting, lost = _queued(asked / step_s, peak_s, slots, step_s)
    offered, _ = served_by.running(served * generated_len)
    together = np.minimum(slots, np.maximum(1.0, while_any(np.maximum(offered, HARDLY_ANY))))
    busy = np.minimum(1.0, np.where(offered >= slots, 1.0, -np.expm1(-offered)))
    token_s = served_by.token_s(together)
    prefill_s = served_by.prefill_s()
    queue_s = waiting / np.maximum(served, HARDLY_ANY)
    awake = 1.0 if silent is None else 1.0 - silent
    full = np.logical_and(served_by.limited_by_cache, offered > 0.85 * slots)
    n = np.round(served * step_s * awake)
    return Course(
        ts=ts,
        step_s=step_s,
        requests=n,
        lost=np.round(lost),
        prompt_tokens=np.round(n * prompt_len),
        cached_tokens=np.round(n * prompt_len * cached),
        generated_tokens=np.round(n * generated_len),
        busy=np.where(n > 0, busy * awake, 0.0),
        running=np.where(n > 0, offered * awake, 0.0) + (0.0 if silent is None else silent * np.minimum(3.0, slots)),
        waiting=np.where(n > 0, waiting * awake, 0.0),
        cache_use=served_by.cache_use(offered) * (offered > 0),
        preemptions=np.round(PREEMPTED * n * full),
        tpot_s=token_s,
        ttft_s=queue_s + prefill_s + token_s,
        queue_s=queue_s,
        e2e_s=queue_s + prefill_s + generated_len * token_s,
        memory_share=served_by.memory_share(together),
        gemm_share=served_by.gemm_share(together),
        prefill_share=np.minimum(0.95, prefill_s * served / np.maximum(busy, HARDLY_ANY)),
    )


def _queued(rate: Floats, peak: Floats, slots: Floats, step_s: int) -> tuple[Floats, Floats, Floats]:
    """Return (requests served per second, mean requests waiting, requests lost) of each step.

    Below the peak the queue is that of many servers (Sakasegawa, 1977); above it the queue grows until clients leave.
    """
    load = np.minimum(rate / peak, 0.995)
    short = np.minimum(load ** np.sqrt(2 * (slots + 1)) / (1 - load), 3 * slots)
    served, lost = np.minimum(rate, peak), np.zeros(len(rate))
    longest = PATIENCE_S * peak
    waiting = np.minimum(short, longest)
    backlog = 0.0
    for at in np.flatnonzero(rate >= 0.995 * peak):
        before = backlog if at and rate[at - 1] >= 0.995 * peak[at - 1] else 0.0
        backlog = min(before + max(0.0, rate[at] - peak[at]) * step_s, longest[at])
        lost[at] = max(0.0, before + (rate[at] - peak[at]) * step_s - backlog)
        waiting[at] = max(waiting[at], (before + backlog) / 2)
    return served, waiting, lost
