"""Widths of intervals, chosen on left-out pairs."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.fit import design
from benchmarks.forecast.folds import MACRO, MIN_SOURCES, Predicted, quantile, source_weights
from benchmarks.forecast.performance.measurements import Pairs
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import Intervals

FACTORS = (2.0, 1.5, 1.2, 1.1)
"""By which parts of the scale of intervals are changed, coarse to fine."""
MIN_FLOOR = 0.03
"""Of a log error: what repeats of a measurement on one engine version differ by."""
POINTS_FACTORS = (0.0, 0.25, 0.5, 0.75)
"""Factors on the disagreement of changes that rest on operating points, the narrowest intervals first."""
RESTART = 0.05
"""First value of a part of the scale that the search had set to 0."""


def half_widths(intervals: Intervals, pairs: Pairs, predicted: Predicted) -> Array:
    """Return half widths of the 80 % intervals of predicted log-ratios."""
    kinds, changes = pairs.column("kind"), version_changes(pairs)
    widths = np.full(len(kinds), np.nan)
    for kind in np.unique(kinds):
        rows = kinds == kind
        known = predicted.log_sd[rows], predicted.disagreement[rows], changes[rows]
        widths[rows] = intervals.half_width([kind], *known)
    return widths


def version_changes(pairs: Pairs) -> NDArray[np.bool_]:
    """Return whether the engine's version differs between the rows of each pair."""
    return np.asarray(pairs.column("same_engine_version") == "0")


def with_points(intervals: Intervals, pairs: Pairs, predicted: Predicted, rows: NDArray[np.intp]) -> Intervals:
    """Return intervals with the least factor `points` that holds enough of these pairs: changes of the load, predicted
    from several operating points each. Enough is a share of each kind, sources weighing the same."""
    kinds = pairs.column("kind")
    missed = np.abs(predicted.log_ratio - pairs.log_ratio)
    for factor in POINTS_FACTORS:
        narrower = replace(intervals, points=factor)
        half = half_widths(replace(narrower, disagreement=factor * intervals.disagreement), pairs, predicted)
        if all(
            np.average((missed <= half)[chosen], weights=source_weights(pairs, chosen))
            >= design()["interval"]["share_with_points"]
            for kind in set(kinds[rows])
            for chosen in [rows[kinds[rows] == kind]]
        ):
            return narrower
    return replace(intervals, points=1.0)


def widths(pairs: Pairs, predicted: Predicted, rows: NDArray[np.intp]) -> Intervals:
    """Return intervals that hold 80 % of unseen changes: grouped conformal, sources weighing the same.

    The scale is the one under which Laplace errors of these pairs are likeliest. A kind with enough sources has its
    own quantile, drawn towards that of all kinds. Others share one of all kinds, at a larger share, and at least their
    own.
    """
    rules = design()["interval"]
    kinds, sources = pairs.column("kind"), pairs.column("source")
    missed = np.abs(predicted.log_ratio - pairs.log_ratio)
    macro = rows[np.isin(kinds[rows], MACRO)]
    parts = np.column_stack(
        [np.ones(len(missed)), predicted.log_sd, predicted.disagreement, version_changes(pairs).astype(float)]
    )
    factors = _likeliest(parts[macro] ** 2, missed[macro], source_weights(pairs, macro))
    scaled = missed / np.sqrt(parts**2 @ factors**2)
    quantiles = {}

    def at(share: float, chosen: NDArray[np.intp]) -> float:
        n = len(set(sources[chosen]))
        # The fewer sources, the further the next one may be out: the usual conformal correction.
        corrected = min(1.0, share * (1 + 1 / n))
        return round(quantile(scaled[chosen], source_weights(pairs, chosen), corrected), 3)

    few, pooled = at(rules["share_of_few_sources"], macro), at(rules["share"], macro)
    for kind in sorted(set(kinds[rows])):
        chosen = rows[kinds[rows] == kind]
        n = len(set(sources[chosen]))
        if n >= MIN_SOURCES:
            # One bad source moves the quantile of a few: that of all kinds counts as much as `MIN_SOURCES` of them.
            own = at(rules["share"], chosen)
            quantiles[kind] = round((n * own + MIN_SOURCES * pooled) / (n + MIN_SOURCES), 3)
        else:
            # One source outside of the average is too little for any quantile: its largest error, and a judgement.
            alone = n < rules["min_sources"] and kind not in MACRO
            own = quantile(scaled[chosen], source_weights(pairs, chosen), 1.0 if alone else rules["share"])
            quantiles[kind] = round(max(few, own, rules["unmeasured_floor"] / factors[0] if alone else 0.0), 3)
    for kind, least in rules["judged"].items():
        quantiles[kind] = round(max(quantiles.get(kind, few), least / float(factors[0])), 3)
    quantiles["other"] = few
    floor, log_sd, disagreement, version = (round(float(factor), 4) for factor in factors)
    return Intervals(floor, log_sd, disagreement, version, quantiles, rules["unmeasured_floor"])


def _likeliest(squared: Array, missed: Array, weights: Array) -> Array:
    """Return factors of the parts of a scale, shape (parts,), by coordinate search; 0 for one that does not help."""

    def loss(factors: Array) -> float:
        scale = np.sqrt(squared @ factors**2)
        return float(np.sum(weights * (np.log(scale) + missed / scale)))

    best = np.full(squared.shape[1], 0.2)
    least = loss(best)
    for factor in FACTORS:
        improved = True
        while improved:
            improved = False
            for place in range(len(best)):
                for by in (factor, 1 / factor, 0.0):
                    trial = best.copy()
                    trial[place] = best[place] * by if by == 0.0 or best[place] > 0 else RESTART
                    trial[0] = max(trial[0], MIN_FLOOR)
                    if (value := loss(trial)) < least - 1e-9:
                        best, least, improved = trial, value, True
    return best
