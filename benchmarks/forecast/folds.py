"""How the forecast does on pairs it was not fitted on: predictions fold by fold, errors by kind, and what they say
of intervals and of how much of a deployment's deviation outlives a change."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.fit import REFIT_STEPS, Evidence, as_efficiency, fit, running
from benchmarks.forecast.performance.measurements import Measurements, Pairs
from pertoken.forecast.calibration import per_token, posterior, ratio
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import Deviation, Efficiency

FOLDS = ("gpu", "model", "source")
"""Columns of which each value is left out in turn."""
MACRO = (
    "quantize_fp8",
    "quantize_int8",
    "quantize_int4",
    "quantize_fp4",
    "move_gpu",
    "tp_change",
    "raise_batch",
    "raise_batch_far",
    "smaller_model",
)
"""Kinds of change that the macro average is taken over."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """Log-ratios of pairs and what was left open of them; NaN where nothing was predicted."""

    log_ratio: Array
    log_sd: Array

    @classmethod
    def none(cls, n: int) -> "Predicted":
        """Nothing predicted yet of n pairs."""
        return cls(np.full(n, np.nan), np.full(n, np.nan))


def predict(
    measurements: Measurements,
    pairs: Pairs,
    table: Efficiency,
    prior: Deviation,
    kept: Callable[[str], Array],
    only: NDArray[np.intp] | None = None,
    damped: Callable[[str], float] = lambda kind: 1.0,
) -> Predicted:
    """Ratios of pairs from the whole "before" row and the configuration of "after".

    `kept` gives the share of each deviation that outlives a change of a kind, `damped` its attenuation.
    """
    places = np.arange(len(pairs.before)) if only is None else only
    found = Predicted.none(len(pairs.before))
    if not len(places):
        return found
    here, there = pairs.before[places], pairs.after[places]
    ran = running(measurements)
    before, after = measurements.candidates.take(here), measurements.candidates.take(there)
    seen = per_token(prior, (ran / measurements.tok_s)[here], ran[here])
    known = posterior(before, table, prior, [seen])
    kinds = pairs.column("kind")[places]
    shares = np.array([kept(kind) for kind in kinds])
    result = ratio(before, after, table, prior, (ran[here], ran[there]), known, (np.ones_like(shares), shares))
    found.log_ratio[places] = result.log_ratio * np.array([damped(kind) for kind in kinds])
    found.log_sd[places] = result.log_sd
    return found


def leave_out(
    measurements: Measurements,
    pairs: Pairs,
    evidence: Evidence,
    start: Array,
    column: str,
    progress: Callable[[str], None],
) -> Mapping[str, Efficiency]:
    """The table refitted without each value of a measurements column that some pair goes to, by that value."""
    groups = measurements.column(column)
    found = {}
    values = np.unique(held(pairs, column))
    for place, each in enumerate(values, 1):
        progress(f"without {column} {each} ({place}/{len(values)})")
        found[str(each)] = as_efficiency(fit(evidence, start, without=groups == each, steps=REFIT_STEPS))
    return found


def held(pairs: Pairs, column: str) -> NDArray[np.str_]:
    """The value of a measurements column that each pair tests: of devices the one it goes to."""
    return pairs.column("gpu_after" if column == "gpu" else column)


def loss(errors: Array, weights: Array) -> float:
    """What is made least where constants are chosen on pairs: median, ninth decile and mean of log errors.

    An error of 1 or more counts as 1, and so does one that is not known.
    """
    known = np.where(np.isfinite(errors), np.minimum(np.abs(errors), 1.0), 1.0)
    return 2 * quantile(known, weights, 0.5) + quantile(known, weights, 0.9) / 4 + _mean(known, weights)


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of one kind of change: shares of 1, each cluster weighing the same."""

    n: int
    clusters: int
    median: float
    p90: float
    sign: float
    coverage: float
    abstained: float


def clusters(pairs: Pairs) -> NDArray[np.str_]:
    """(source, model, GPU) of each pair: pairs of one cluster share their errors."""
    return np.array(
        [
            "|".join(each)
            for each in zip(*(pairs.column(name) for name in ("source", "model", "gpu_before")), strict=True)
        ]
    )


def cluster_weights(labels: NDArray[np.str_]) -> Array:
    """A weight for each so that all clusters weigh the same."""
    _, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return np.asarray(1 / sizes[place], dtype=float)


def quantile(values: Array, weights: Array, share: float) -> float:
    """The weighted quantile: the least value that at least `share` of the weight is at or below."""
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weights[order])
    return float(values[order][min(np.searchsorted(upto, share * upto[-1]), len(values) - 1)])


def score(
    measured: Array, predicted: Array, half: Array | None, labels: NDArray[np.str_], abstained: NDArray[np.bool_]
) -> Score:
    """Errors of log-ratios; an abstention counts as no change in the errors and as nothing in coverage and sign."""
    weights = cluster_weights(labels)
    given = np.where(abstained, 0.0, predicted)
    errors = np.abs(np.expm1(given - measured))
    said = ~abstained
    large = said & (np.abs(np.expm1(measured)) > 0.1)
    covered = np.abs(given - measured) <= half if half is not None else np.zeros(len(measured), dtype=bool)
    return Score(
        n=len(measured),
        clusters=len(set(labels)),
        median=quantile(errors, weights, 0.5),
        p90=quantile(errors, weights, 0.9),
        sign=_mean((np.sign(given) == np.sign(measured))[large], weights[large]),
        coverage=_mean(covered[said], weights[said]) if half is not None else float("nan"),
        abstained=_mean(abstained, weights),
    )


def _mean(values: NDArray[np.bool_] | Array, weights: Array) -> float:
    return float(np.average(values, weights=weights)) if len(values) else float("nan")


def macro(scores: Iterable[Score]) -> Score:
    """The plain mean over kinds."""
    found = list(scores)
    mean = {}
    for name in ("median", "p90", "sign", "coverage", "abstained"):
        known = [value for each in found if not np.isnan(value := getattr(each, name))]
        mean[name] = float(np.mean(known)) if known else float("nan")
    return Score(n=sum(each.n for each in found), clusters=sum(each.clusters for each in found), **mean)
