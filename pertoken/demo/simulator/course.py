"""What one engine serves under its arrivals: tokens, busy time, requests running and waiting, and latencies."""

from dataclasses import dataclass

import numpy as np

from pertoken.demo.simulator.arrivals import Floats, Ints
from pertoken.demo.simulator.physics import Engine, while_any

PATIENCE_S = 45.0
"""Seconds that a client waits in the queue: requests beyond that leave."""
PREEMPTED = 0.12
"""Share of requests that are preempted while the KV cache alone limits the batch and all slots run."""
HARDLY_ANY = 1e-9


@dataclass(frozen=True, slots=True)
class Course:
    """One engine step by step. Rates and means are of each step's whole time unless they say otherwise."""

    ts: Ints
    step_s: int
    requests: Floats
    """That ended."""
    lost: Floats
    """That left the queue."""
    prompt_tokens: Floats
    cached_tokens: Floats
    generated_tokens: Floats
    busy: Floats
    """Share of the time."""
    running: Floats
    waiting: Floats
    cache_use: Floats
    preemptions: Floats
    tpot_s: Floats
    ttft_s: Floats
    queue_s: Floats
    e2e_s: Floats
    memory_share: Floats
    """Of the listed bandwidth, while it works."""
    products_share: Floats
    """Of the listed FLOP/s, while it works."""
    prefill_share: Floats
    """Of busy time."""


def course(of: Engine, ts: Ints, step_s: int, asked: Floats, silent: Floats | None = None) -> Course:
    """Return what an engine does with the requests of each step.

    `silent`: share of each step in which the engine is stuck: requests stay, and nothing is served.
    """
    prompt_len, generated_len, cached = of.c.prompt_len, of.c.generated_len, of.c.cached_share
    slots = of.slots
    peak_s = slots / of.token_s(slots) / generated_len  # requests a second of a full batch
    served, waiting, lost = _queued(asked / step_s, peak_s, slots, step_s)
    offered, _ = of.running(served * generated_len)
    together = np.minimum(slots, np.maximum(1.0, while_any(np.maximum(offered, HARDLY_ANY))))
    busy = np.minimum(1.0, np.where(offered >= slots, 1.0, -np.expm1(-offered)))
    token_s = of.token_s(together)
    prefill_s = of.prefill_s()
    queue_s = waiting / np.maximum(served, HARDLY_ANY)
    awake = 1.0 if silent is None else 1.0 - silent
    full = np.logical_and(of.limited_by_cache, offered > 0.85 * slots)
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
        cache_use=of.cache_use(offered) * (offered > 0),
        preemptions=np.round(PREEMPTED * n * full),
        tpot_s=token_s,
        ttft_s=queue_s + prefill_s + token_s,
        queue_s=queue_s,
        e2e_s=queue_s + prefill_s + generated_len * token_s,
        memory_share=of.memory_share(together),
        products_share=of.products_share(together),
        prefill_share=np.minimum(0.95, prefill_s * served / np.maximum(busy, HARDLY_ANY)),
    )


def _queued(rate: Floats, peak: Floats, slots: Floats, step_s: int) -> tuple[Floats, Floats, Floats]:
    """Return (requests served a second, mean requests waiting, requests lost) of each step.

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
