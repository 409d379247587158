"""Step and prefill times of one replica, from the serving model, and steady states of whole deployments."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pertoken.arrivals import Arrivals, Lengths
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import Efficiency
from pertoken.forecast.load_errors import LoadErrors, loads_of, log_times
from pertoken.forecast.queue.chain import Service
from pertoken.forecast.queue.queueing import UnderLoad, under_load
from pertoken.forecast.steady import PREFILL_AT, time_scale
from pertoken.forecast.terms import TERMS, prefill_seconds, seconds, total

POINTS = 12
"""Batch sizes, evenly spaced in the logarithm, at which a step is computed. Between them it is linear."""
DECODE_AT = tuple(index for index in range(len(TERMS)) if index not in PREFILL_AT)
"""Indices of the terms of a decode step in `TERMS`."""
MIN_STEP = 0.1
"""Least share of the model's decode step that errors near measured points may leave of it, so that it stays above 0
where most of a step is prefill: a judgement."""


def service(
    c: Candidates,
    table: Efficiency,
    prompt: Lengths,
    generated: Lengths,
    limit: Array,
    chunk_tokens: Array | float = np.inf,
    shift: Array | float = 0.0,
    missed: Array | None = None,
) -> Service:
    """Return the step and prefill times of one replica of each candidate under these lengths.

    `limit`, shape (n,): sequences of the whole deployment that memory and the engine allow to run at once.
    `chunk_tokens`: maximum prompt tokens of one engine step. `shift`: as for `steady`. `missed`: see `missed_steps`.
    """
    limit_per_replica = np.maximum(limit / c.dp, 1.0)
    running, mean = batches(c, limit), _at_means(c, prompt, generated)
    scale = time_scale(c, table, shift)
    term_s = seconds(mean, running * mean.dp)
    decode = total(np.take(term_s, DECODE_AT, axis=-1) * np.take(scale, DECODE_AT, axis=-1)[:, None, :])
    if missed is not None:
        # What a token takes in all is measured; its share of prefill is left as it is.
        more = total(term_s * scale[:, None, :]) * np.expm1(missed)
        decode = np.maximum(decode + more, MIN_STEP * decode)
    tokens = np.broadcast_to(prompt.rows, (len(c), prompt.rows.shape[1]))
    prefill_s = prefill_seconds(replace(mean, prompt_len=tokens), 1.0)
    prefill = sum(part_s * scale[:, index, None] for index, part_s in zip(PREFILL_AT, prefill_s, strict=True))
    computed = prompt.rows * (1 - mean.cached_share)
    steps = np.maximum(1.0, np.ceil(computed / np.reshape(chunk_tokens, (-1, 1))))
    return Service(running, decode, np.maximum(prefill, 1e-9), steps, limit_per_replica)


def batches(c: Candidates, limit: Array) -> Array:
    """Return the batches of one replica at which steps are computed, up to a `limit` as for `service`, shape
    (n, `POINTS`).
    """
    return np.asarray(np.maximum(limit / c.dp, 2.0)[:, None] ** (np.arange(POINTS) / (POINTS - 1)))


def missed_steps(
    c: Candidates, prompt: Lengths, generated: Lengths, limit: Array, errors: Sequence[LoadErrors | None]
) -> Array:
    """Return the log of the measured time of a token over the model's at `batches`, as known from points near them.

    Arguments as for `service`; `errors` of each candidate. Shape (n, `POINTS`).
    """
    mean = _at_means(c, prompt, generated)
    return log_times(errors, loads_of(mean, batches(c, limit) * mean.dp))


def _at_means(c: Candidates, prompt: Lengths, generated: Lengths) -> Candidates:
    """Return the candidates under requests of mean lengths, spread over batches."""
    means = (np.broadcast_to(lengths.rows.mean(axis=1), (len(c),)) for lengths in (prompt, generated))
    return replace(c, **dict(zip(("prompt_len", "generated_len"), means, strict=True))).spread()


def forecast_under(
    c: Candidates,
    table: Efficiency,
    arrivals: Arrivals,
    limit: Array,
    chunk_tokens: Array | float = np.inf,
    shift: Array | float = 0.0,
    missed: Array | None = None,
    shares: tuple[float, ...] = (0.5, 0.95),
) -> UnderLoad:
    """Return steady states of whole deployments under one load, spread evenly and at random over their replicas.

    Arguments as for `service`; `shares`: quantiles of TTFT and TPOT to compute.
    """
    replica_service = service(c, table, arrivals.prompt, arrivals.generated, limit, chunk_tokens, shift, missed)
    replica_state = under_load(replica_service, arrivals.requests_per_s / c.dp, arrivals.generated, shares)
    return replace(
        replica_state,
        capacity_per_s=replica_state.capacity_per_s * c.dp,
        running=replica_state.running * c.dp,
        waiting=replica_state.waiting * c.dp,
        tok_s=replica_state.tok_s * c.dp,
    )
