"""Steady state of candidates at a number of running sequences: tokens per second, and the share of each term in the
time."""

from dataclasses import dataclass

import numpy as np

from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import Efficiency
from pertoken.forecast.terms import PREFILL, TERMS, seconds, total

PREFILL_AT = tuple(map(TERMS.index, PREFILL))
"""Places of the terms of prompts."""


@dataclass(frozen=True, slots=True)
class Steady:
    """One row for each candidate."""

    running: Array
    token_s: Array
    """Seconds from one token of a sequence to its next, each carrying its share of others' prefills."""
    term_s: Array
    """The same by term, shape (n, number of `TERMS`)."""

    @property
    def tok_s(self) -> Array:
        """Generated tokens/s of the whole deployment."""
        return self.running / self.token_s

    @property
    def shares(self) -> Array:
        """Share of each term in the time, shape (n, number of `TERMS`); rows sum to 1."""
        return self.term_s / self.token_s[:, None]


def steady(c: Candidates, table: Efficiency, running: Array, shift: Array | float = 0.0) -> Steady:
    """Steady state with `running` sequences, shape (n,).

    `shift` is added to the logarithm of each term's time: what calibration found, shape (n, number of `TERMS`).
    """
    return steady_scaled(c, running, time_scale(c, table, shift))


def slowed(state: Steady, factor: Array) -> Steady:
    """Return a steady state in which a token takes `factor` times as long, shape (n,), and each term of it."""
    return Steady(state.running, state.token_s * factor, state.term_s * factor[:, None])


def time_scale(c: Candidates, table: Efficiency, shift: Array | float = 0.0) -> Array:
    """Return the factor on the listed time of each term, shape (n, number of `TERMS`); `shift` as for `steady`."""
    return np.asarray(np.exp(table.log_scale(c.tags) + shift))


def steady_scaled(c: Candidates, running: Array, scale: Array) -> Steady:
    """Return `steady` with the factors of `time_scale`, which are the same for any number of sequences."""
    term_s = seconds(c, running) * scale
    return Steady(running, total(term_s), term_s)


def first_token_weights(c: Candidates) -> Array:
    """Return how often each term of a step of one sequence is in its time to first token, shape (n, number of `TERMS`).

    A step carries one token's share of a prefill; pipeline stages are passed one after another.
    """
    steps = np.maximum(c.generated_len, 1.0) / np.maximum(c.accepted_len, 1.0)
    weights = np.ones((len(c), len(TERMS)))
    weights[:, PREFILL_AT] = (steps * c.pp)[:, None]
    return weights * c.accepted_len[:, None]


def first_token_scaled(c: Candidates, scale: Array) -> Array:
    """Return the seconds to the first token of a request without queueing: its prefill and one step, shape (n,).

    `scale`: the factors of `time_scale`.
    """
    return total(seconds(c, np.ones(len(c))) * scale * first_token_weights(c))
