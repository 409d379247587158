"""The serving model as the queue sees it: what each step and each prompt of a deployment costs, replica by replica."""

from dataclasses import replace

import numpy as np

from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import Efficiency
from pertoken.forecast.queue.chain import Service
from pertoken.forecast.queue.load import Arrivals, Lengths
from pertoken.forecast.queue.queueing import UnderLoad, under_load
from pertoken.forecast.steady import PREFILL_AT, time_scale
from pertoken.forecast.terms import TERMS, prefill_seconds, seconds, total

POINTS = 12
"""Batches, spaced evenly by ratio, at which a step is computed; between them it is taken to be straight."""
DECODE_AT = tuple(place for place in range(len(TERMS)) if place not in PREFILL_AT)
"""Places of the terms of a step that are not of prompts."""


def service(
    c: Candidates,
    table: Efficiency,
    prompt: Lengths,
    generated: Lengths,
    limit: Array,
    chunk_tokens: Array | float = np.inf,
    shift: Array | float = 0.0,
) -> Service:
    """Return the step and prefill times of one replica of each candidate under these lengths.

    `limit`, shape (n,): sequences of the whole deployment that run at once, as memory and the engine allow.
    `chunk_tokens`: most prompt tokens of one engine step. `shift`: as for `steady`.
    """
    places = np.maximum(limit / c.dp, 1.0)
    running = np.maximum(places, 2.0)[:, None] ** (np.arange(POINTS) / (POINTS - 1))
    means = (np.broadcast_to(lengths.rows.mean(axis=1), (len(c),)) for lengths in (prompt, generated))
    mean = replace(c, **dict(zip(("prompt_len", "generated_len"), means, strict=True))).spread()
    scale = time_scale(c, table, shift)
    term_s = seconds(mean, running * mean.dp)
    decode = total(np.take(term_s, DECODE_AT, axis=-1) * np.take(scale, DECODE_AT, axis=-1)[:, None, :])
    tokens = np.broadcast_to(prompt.rows, (len(c), prompt.rows.shape[1]))
    prefill_s = prefill_seconds(replace(mean, prompt_len=tokens), 1.0)
    prefill = sum(part_s * scale[:, place, None] for place, part_s in zip(PREFILL_AT, prefill_s, strict=True))
    computed = prompt.rows * (1 - mean.cached_share)
    steps = np.maximum(1.0, np.ceil(computed / np.reshape(chunk_tokens, (-1, 1))))
    return Service(running, decode, np.maximum(prefill, 1e-9), steps, places)


def forecast_under(
    c: Candidates,
    table: Efficiency,
    arrivals: Arrivals,
    limit: Array,
    chunk_tokens: Array | float = np.inf,
    shift: Array | float = 0.0,
    shares: tuple[float, ...] = (0.5, 0.95),
) -> UnderLoad:
    """Steady states of whole deployments under one load: requests go to their replicas evenly and at random.

    Arguments as for `service`; `shares`: which quantiles of TTFT and TPOT.
    """
    replica = service(c, table, arrivals.prompt, arrivals.generated, limit, chunk_tokens, shift)
    one = under_load(replica, arrivals.requests_per_s / c.dp, arrivals.generated, shares)
    return replace(
        one,
        capacity_per_s=one.capacity_per_s * c.dp,
        running=one.running * c.dp,
        waiting=one.waiting * c.dp,
        tok_s=one.tok_s * c.dp,
    )
