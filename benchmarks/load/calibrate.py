"""Calibration of a configuration on one of its runs: the deviations that explain what the finite run showed.

The prior is that of the product (`Deviation`: groups of terms that deviate together), the model is the run that is
played, and the search is Gauss-Newton with numeric slopes. A run is no steady state, so that its mean tokens per second
and times are not taken for one of them.
"""

import numpy as np

from benchmarks.load.engine import request_s
from benchmarks.load.predict import Configuration, Known
from benchmarks.load.runs import Run
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import deviation

STEPS = 8
NUDGE = 0.04
SHORTEST = 0.05
"""Share of a step that is tried last when longer ones explain less."""
ENOUGH = 0.01
"""Relative gain below which the search ends."""
NOISE = np.array([0.03, 0.03, 0.1, 0.06, 0.15])
"""Standard deviations of the logarithms of tokens/s, TPOT p50, TTFT p50, TPOT p90 and TTFT p90 of one run beyond what
deviations explain: a judgement; single draws of the arrivals differ by about as much."""
OVERHEADS_SD, WEIGHTS_SD = 0.5, 0.3
"""Largest prior standard deviations of two groups. The product's are of changes between deployments that were
measured at both ends; at one operating point such freedom moves time between weights and overheads at random."""
REQUEST_SD = 0.5
"""Of the logarithm of what a request takes beside the engine."""


def prior_sd() -> Array:
    """Return standard deviations of the groups of terms, and last of a request's own time."""
    groups = deviation()
    most = {"weights": WEIGHTS_SD, "overheads": OVERHEADS_SD, "links": OVERHEADS_SD}
    sd = [min(prior, most.get(name, np.inf)) for name, prior in zip(groups.names, groups.sd, strict=True)]
    return np.array([*sd, REQUEST_SD])


def calibrate(configuration: Configuration, run: Run) -> Known:
    """Return the calibration of a configuration by one run. Raises ValueError if none of its times was measured."""
    measured = np.log(np.array([*run.measured[:3], *run.p90]))
    seen = np.isfinite(measured)
    if not seen[:3].any():
        raise ValueError(f"{run.id}: nothing was measured")
    sd, noise = prior_sd(), NOISE[seen]

    def figures(known: Array) -> Array:
        played = configuration.figures(run, configuration.engine(Known(known[:-1])), request_s() * np.exp(known[-1]))
        return np.asarray(played[:5][seen])

    def missed(known: Array, predicted: Array) -> float:
        return float(np.square((measured[seen] - predicted) / noise).sum() + np.square(known / sd).sum())

    known = np.zeros(len(sd))
    predicted = figures(known)
    loss = missed(known, predicted)
    for _ in range(STEPS):
        nudges = NUDGE * np.eye(len(known))
        slope = np.stack([(figures(known + nudge) - predicted) / NUDGE for nudge in nudges], axis=1) / noise[:, None]
        normal = slope.T @ slope + np.diag(1 / sd**2)
        step = np.linalg.solve(normal, slope.T @ ((measured[seen] - predicted) / noise) - known / sd**2)
        share, before = 1.0, loss
        while share >= SHORTEST:
            tried = known + share * step
            tried_figures = figures(tried)
            if (now := missed(tried, tried_figures)) < loss:
                known, predicted, loss = tried, tried_figures, now
                break
            share /= 2.5
        if before - loss < ENOUGH * before:
            break
    groups, request = known[:-1], float(known[-1])
    return Known(groups, request, _power(configuration, run, groups))


def _power(configuration: Configuration, run: Run, groups: Array) -> float | None:
    """Return the logarithm of measured over modelled watts; None where they were not measured."""
    if not run.measured[3] > 0:
        return None
    likely = configuration.figures(run, configuration.engine(Known(groups)), request_s())
    return float(np.log(run.measured[3] / configuration.watts(likely, 0.0)))
