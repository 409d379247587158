"""What a host's own measurements say of the model: deviations of each term's log time, shared by before and after.

A deployment deviates from the fitted table group by group of terms, and in all times together. What was measured on
it is explained by the deviations that are likeliest a priori (a Gaussian prior, a few Gauss-Newton steps), so one
operating point already tells something: a decode slower than expected at batch one says more of weights and launches
than of products. What the measurement leaves open stays in the covariance, and so in the interval of a ratio.
"""

from dataclasses import dataclass

import numpy as np

from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import Deviation, Efficiency
from pertoken.forecast.steady import Steady, steady

STEPS = 4
MOST_DEVIATION = 3.0
"""Largest log deviation of one group that is believed."""


@dataclass(frozen=True, slots=True)
class Posterior:
    """Deviations of candidates, one row each. Coordinates: `Deviation.names`."""

    mean: Array
    """Shape (n, groups)."""
    covariance: Array
    """Shape (n, groups, groups)."""


def posterior(c: Candidates, table: Efficiency, prior: Deviation, running: Array, seen_token_s: Array) -> Posterior:
    """Deviations that explain what was seen on each candidate.

    `seen_token_s`, shape (n, observations): measured seconds per generated token of one sequence with `running`
    sequences; NaN where not measured. `running`: shape (n,) for all, or (n, observations).
    """
    n, observations = seen_token_s.shape
    precision = 1 / np.maximum(prior.sd, 1e-6) ** 2
    at = running if running.ndim == 2 else np.repeat(running[:, None], observations, axis=1)
    mean = np.zeros((n, len(precision)))
    known = np.isfinite(seen_token_s)
    target = np.log(np.where(known, seen_token_s, 1.0))
    information = np.tile(np.diag(precision), (n, 1, 1))
    for _ in range(STEPS if known.any() else 0):
        information = np.tile(np.diag(precision), (n, 1, 1))
        score = -mean * precision
        for column in range(observations):
            state: Steady = steady(c, table, at[:, column], mean @ prior.groups)
            slope = state.shares @ prior.groups.T * known[:, column : column + 1] / prior.noise
            residual = (target[:, column] - np.log(state.token_s)) * known[:, column] / prior.noise
            information += slope[:, :, None] * slope[:, None, :]
            score += slope * residual[:, None]
        step = np.linalg.solve(information, score[:, :, None])[:, :, 0]
        mean = np.clip(mean + step, -MOST_DEVIATION, MOST_DEVIATION)
    return Posterior(mean, np.linalg.inv(information).astype(float))


@dataclass(frozen=True, slots=True)
class Ratio:
    """Log-ratios of generated tokens/s, after over before, one row each."""

    log_ratio: Array
    log_sd: Array
    """Of what the measurement left open, before any conformal widening."""
    before: Steady
    after: Steady


def ratio(
    before: Candidates,
    after: Candidates,
    table: Efficiency,
    prior: Deviation,
    running: tuple[Array, Array],
    known: Posterior,
    kept: tuple[Array, Array],
) -> Ratio:
    """How the rate changes from `before` to `after`, row by row, both under what is `known` of one deployment.

    `running`: sequences before and after. `kept`: shares of each deviation that hold before and after, each of shape
    (groups,) or (n, groups); what is lost of it is as uncertain as it was a priori. Before and after
    swapped give the negative.
    """
    here = steady(before, table, running[0], known.mean * kept[0] @ prior.groups)
    there = steady(after, table, running[1], known.mean * kept[1] @ prior.groups)
    slope_here, slope_there = here.shares @ prior.groups.T, there.shares @ prior.groups.T
    change = slope_there * kept[1] - slope_here * kept[0]
    left_open = np.einsum("ni,nij,nj->n", change, known.covariance, change)
    lost = sum(
        ((slope * prior.sd) ** 2 * (1 - np.square(share))).sum(axis=1)
        for slope, share in zip((slope_here, slope_there), kept, strict=True)
    )
    variance = np.maximum(left_open, 0.0) + lost + 2 * prior.noise**2
    return Ratio(np.log(there.tok_s / here.tok_s), np.sqrt(variance), here, there)
