"""The serving model as the queue sees it: what each step and each prompt of a deployment costs, replica by replica."""

from dataclasses import replace

import numpy as np

from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import Efficiency
from pertoken.forecast.queue.chain import Service
from pertoken.forecast.queue.load import Arrivals, Lengths
from pertoken.forecast.queue.queueing import UnderLoad, under_load
from pertoken.forecast.steady import PREFILL, first_token_s, steady

POINTS = 12
"""Batches, spaced evenly by ratio, at which a step is computed; between them it is taken to be straight."""


def service(
    c: Candidates,
    table: Efficiency,
    prompt: Lengths,
    generated: Lengths,
    limit: Array,
    chunk_tokens: Array | float = np.inf,
    shift: Array | float = 0.0,
) -> Service:
    """What one replica of each candidate takes for its work under these lengths.

    `limit`, shape (n,): sequences of the whole deployment that run at once, as memory and the engine allow.
    `chunk_tokens`: most prompt tokens of one engine step. `shift`: as for `steady`.
    """
    places = np.maximum(limit / c.dp, 1.0)
    running = np.maximum(places, 2.0)[:, None] ** (np.arange(POINTS) / (POINTS - 1))
    means = (np.broadcast_to(each.rows.mean(axis=1), (len(c),)) for each in (prompt, generated))
    mean = replace(c, **dict(zip(("prompt_len", "generated_len"), means, strict=True)))
    n = len(c)
    batches = _repeated(mean, POINTS)
    term_s = steady(batches, table, (running * c.dp[:, None]).ravel(), _repeated_shift(shift, POINTS)).term_s
    decode = np.delete(term_s, PREFILL, axis=1).sum(axis=1).reshape(n, POINTS)
    tokens = np.broadcast_to(prompt.rows, (n, prompt.rows.shape[1]))
    prompts = replace(_repeated(mean, tokens.shape[1]), prompt_len=tokens.ravel())
    prefill = _prefill_s(prompts, table, _repeated_shift(shift, tokens.shape[1])).reshape(tokens.shape)
    computed = prompt.rows * (1 - c.cached_share[:, None])
    steps = np.maximum(1.0, np.ceil(computed / np.reshape(chunk_tokens, (-1, 1))))
    return Service(running, decode, np.maximum(prefill, 1e-9), steps, places)


def _repeated(c: Candidates, times: int) -> Candidates:
    return c.take(np.repeat(np.arange(len(c)), times))


def _repeated_shift(shift: Array | float, times: int) -> Array | float:
    """Return a shift for candidates that are repeated: one of all of them stays as it is."""
    return np.repeat(shift, times, axis=0) if isinstance(shift, np.ndarray) and len(shift) > 1 else shift


def _prefill_s(c: Candidates, table: Efficiency, shift: Array | float) -> Array:
    """Device seconds of one prompt: of its first token, less the step that every token takes."""
    alone = steady(c, table, c.dp, shift).term_s * c.accepted_len[:, None]
    prefill: Array = first_token_s(c, table, shift) - np.delete(alone, PREFILL, axis=1).sum(axis=1)
    return prefill / c.pp


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
