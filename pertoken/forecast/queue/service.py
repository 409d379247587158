"""The serving model as the queue sees it: what each step and each prompt of a deployment costs, replica by replica."""

from dataclasses import replace

import numpy as np

from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import Efficiency
from pertoken.forecast.queue.load import Arrivals, Lengths
from pertoken.forecast.queue.queueing import Service, UnderLoad, under_load
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
    mean = replace(c, prompt_len=np.full(len(c), prompt.mean), generated_len=np.full(len(c), generated.mean))
    decode = np.empty_like(running)
    for column in range(POINTS):
        term_s = steady(mean, table, running[:, column] * c.dp, shift).term_s
        decode[:, column] = np.delete(term_s, PREFILL, axis=1).sum(axis=1)
    prefill = np.stack(
        [_prefill_s(replace(mean, prompt_len=np.full(len(c), each)), table, shift) for each in prompt.tokens], axis=1
    )
    computed = prompt.tokens[None, :] * (1 - c.cached_share[:, None])
    steps = np.maximum(1.0, np.ceil(computed / np.reshape(chunk_tokens, (-1, 1))))
    return Service(running, decode, np.maximum(prefill, 1e-9), steps, places)


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
    its = service(c, table, arrivals.prompt, arrivals.generated, limit, chunk_tokens, shift)
    one = under_load(its, arrivals.requests_per_s / c.dp, arrivals.generated, shares)
    return replace(
        one,
        capacity_per_s=one.capacity_per_s * c.dp,
        running=one.running * c.dp,
        waiting=one.waiting * c.dp,
        tok_s=one.tok_s * c.dp,
    )
