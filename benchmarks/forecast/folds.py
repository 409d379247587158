"""Folds of public measurements: what each leaves out, tables refitted without it, and errors by kind of change."""

import math
import multiprocessing
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.fit import Evidence, as_efficiency, fit, running
from benchmarks.forecast.performance.measurements import Measurements, Pairs
from pertoken.forecast.calibration import per_token, posterior, ratio
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import Deviation, Efficiency, intervals

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


FIGURES = ("median", "p90", "coverage", "half_width", "sign", "abstained")
"""Of a `Score`, in the order they are reported."""
MAX_FOLDS_OF_SOURCE = 8
"""Of the folds that are refitted: more of a large source add time and little else."""


def judges(source: str) -> bool:
    """Return whether a source is of the half that judges; which adjustments the fit has was chosen on the others."""
    return sha256(source.encode()).digest()[0] % 2 == 1


@dataclass(frozen=True, slots=True)
class Predicted:
    """Log-ratios of pairs with what their intervals depend on; NaN where nothing was predicted."""

    log_ratio: Array
    log_sd: Array
    """What the measured row before the change leaves open."""
    disagreement: Array
    """Difference between the calibrated log-ratio and that of the table alone."""

    @classmethod
    def none(cls, n: int) -> "Predicted":
        """Return n pairs of which nothing is predicted yet."""
        return cls(np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan))

    def put(self, index: NDArray[np.intp], other: "Predicted") -> None:
        """Copy the predictions of these pairs from `other`."""
        for field in fields(self):
            getattr(self, field.name)[index] = getattr(other, field.name)[index]


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows that a fit must not see, and the pairs that its table is judged on."""

    name: str
    rows: NDArray[np.bool_]
    pairs: NDArray[np.intp]


def predict(
    measurements: Measurements,
    pairs: Pairs,
    table: Efficiency,
    prior: Deviation,
    only: NDArray[np.intp] | None = None,
) -> Predicted:
    """Return ratios of pairs from the whole "before" row and the configuration of "after"."""
    places = np.arange(len(pairs.before)) if only is None else only
    predicted = Predicted.none(len(pairs.before))
    if not len(places):
        return predicted
    before_rows, after_rows = pairs.before[places], pairs.after[places]
    ran = running(measurements)
    before, after = measurements.candidates.take(before_rows), measurements.candidates.take(after_rows)
    seen = per_token(prior, (ran / measurements.tok_s)[before_rows], ran[before_rows])
    known = posterior(before, table, prior, [seen])
    result = ratio(before, after, table, prior, (ran[before_rows], ran[after_rows]), known)
    predicted.log_ratio[places] = result.log_ratio
    predicted.log_sd[places] = result.log_sd
    predicted.disagreement[places] = np.abs(result.log_ratio - result.table_log_ratio)
    return predicted


def apart(measurements: Measurements, pairs: Pairs, column: str) -> list[Fold]:
    """Return a fold for each value of a measurements column that some pair is about."""
    groups, tested = measurements.column(column), held(pairs, column)
    return [Fold(f"{column} {value}", groups == value, np.flatnonzero(tested == value)) for value in np.unique(tested)]


def together(measurements: Measurements, pairs: Pairs) -> list[Fold]:
    """Return folds without every row that shares the source, the model or the GPU of either row of their pairs."""
    columns = [measurements.column(name) for name in ("source", "model", "gpu")]
    members: defaultdict[tuple[tuple[str, ...], ...], list[int]] = defaultdict(list)
    for place, (before, after) in enumerate(zip(pairs.before, pairs.after, strict=True)):
        members[tuple(tuple(sorted({str(column[before]), str(column[after])})) for column in columns)].append(place)
    return [
        Fold(
            ", ".join(" and ".join(values) for values in key),
            np.logical_or.reduce([np.isin(column, values) for column, values in zip(columns, key, strict=True)]),
            np.array(places),
        )
        for key, places in sorted(members.items())
    ]


def refit(evidence: Evidence, fold: Fold) -> Efficiency:
    """Return the table fitted from the priors without the rows of a fold."""
    return as_efficiency(fit(evidence, without=fold.rows))


def few_of_each_source(pairs: Pairs, folds: Sequence[Fold], counted: NDArray[np.bool_]) -> list[Fold]:
    """Return at most `MAX_FOLDS_OF_SOURCE` folds with counted pairs of each source, spread evenly.

    They are spread evenly over the folds of a source.
    """
    of_source: defaultdict[str, list[Fold]] = defaultdict(list)
    sources = pairs.column("source")
    for fold in folds:
        if counted[fold.pairs].any():
            of_source[str(sources[fold.pairs[0]])].append(fold)
    chosen = []
    for members in of_source.values():
        places = np.linspace(0, len(members) - 1, min(len(members), MAX_FOLDS_OF_SOURCE)).round().astype(int)
        chosen += [members[place] for place in places]
    return chosen


def left_out(
    measurements: Measurements,
    pairs: Pairs,
    evidence: Evidence,
    prior: Deviation,
    folds: Sequence[Fold],
    progress: Callable[[str], None],
) -> Predicted:
    """Return raw predictions of the pairs of these folds."""
    predicted = Predicted.none(len(pairs.rows))
    for place, (fold, table) in enumerate(zip(folds, refitted(evidence, folds), strict=True), 1):
        progress(f"without {fold.name[:60]} ({place}/{len(folds)})")
        predicted.put(fold.pairs, predict(measurements, pairs, table, prior, fold.pairs))
    return predicted


def refitted(evidence: Evidence, folds: Sequence[Fold]) -> Iterator[Efficiency]:
    """Yield the table refitted without each fold, from a process on each core."""
    with multiprocessing.get_context("fork").Pool(initializer=_share, initargs=(evidence,)) as pool:
        yield from pool.imap(_refit, folds)


_shared: Evidence


def _share(evidence: Evidence) -> None:
    global _shared
    _shared = evidence


def _refit(fold: Fold) -> Efficiency:
    return refit(_shared, fold)


def unfounded(measurements: Measurements, pairs: Pairs) -> NDArray[np.bool_]:
    """Return whether a row of each pair runs kernels that no other source ran."""
    sources: defaultdict[str, set[str]] = defaultdict(set)
    named = measurements.column("source")
    for path, source in zip(measurements.paths, named, strict=True):
        sources[str(path)].add(str(source))
    return np.array(
        [
            any(not sources[str(measurements.paths[end])] - {str(named[before]), str(named[after])} for end in ends)
            for ends in zip(pairs.before, pairs.after, strict=True)
            for before, after in [ends]
        ]
    )


def held(pairs: Pairs, column: str) -> NDArray[np.str_]:
    """Return the value of a measurements column that each pair tests: of devices the one it goes to."""
    return pairs.column("gpu_after" if column == "gpu" else column)


def loss(errors: Array, weights: Array) -> float:
    """Return the loss that constants are chosen by: a sum of median, ninth decile and mean of log errors.

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
    half_width: float
    """Median of high over likely of the intervals."""
    abstained: float


def clusters(pairs: Pairs) -> NDArray[np.str_]:
    """(source, model, GPU) of each pair: pairs of one cluster share their errors."""
    return np.array(
        ["|".join(key) for key in zip(*(pairs.column(name) for name in ("source", "model", "gpu_before")), strict=True)]
    )


def cluster_weights(labels: NDArray[np.str_]) -> Array:
    """Return a weight for each so that all clusters weigh the same."""
    _, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return np.asarray(1 / sizes[place], dtype=float)


def quantile(values: Array, weights: Array, share: float) -> float:
    """Return the weighted quantile: the least value that at least `share` of the weight is at or below."""
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
    answered = ~abstained
    large = answered & (np.abs(np.expm1(measured)) > 0.1)
    covered = np.abs(given - measured) <= half if half is not None else np.zeros(len(measured), dtype=bool)
    return Score(
        n=len(measured),
        clusters=len(set(labels)),
        median=quantile(errors, weights, 0.5),
        p90=quantile(errors, weights, 0.9),
        sign=_mean((np.sign(given) == np.sign(measured))[large], weights[large]),
        coverage=_mean(covered[answered], weights[answered]) if half is not None else float("nan"),
        half_width=math.exp(quantile(half[answered], weights[answered], 0.5))
        if half is not None and answered.any()
        else math.nan,
        abstained=_mean(abstained, weights),
    )


def _mean(values: NDArray[np.bool_] | Array, weights: Array) -> float:
    return float(np.average(values, weights=weights)) if len(values) else float("nan")


def macro(scores: Iterable[Score]) -> Score:
    """Return the plain mean over kinds."""
    all_scores = list(scores)
    mean = {}
    for name in FIGURES:
        known = [value for score in all_scores if not np.isnan(value := getattr(score, name))]
        mean[name] = float(np.mean(known)) if known else float("nan")
    return Score(n=sum(score.n for score in all_scores), clusters=sum(score.clusters for score in all_scores), **mean)


def half_widths(pairs: Pairs, predicted: Predicted) -> Array:
    """Return half widths of the 80 % intervals of predicted log-ratios."""
    kinds = pairs.column("kind")
    widths = np.full(len(kinds), np.nan)
    for kind in np.unique(kinds):
        rows = kinds == kind
        widths[rows] = intervals().half_width([kind], predicted.log_sd[rows], predicted.disagreement[rows])
    return widths
