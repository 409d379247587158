"""Constants chosen on left-out pairs: the attenuation of kinds of change and the widths of intervals."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.fit import design
from benchmarks.forecast.folds import MACRO, MIN_SOURCES, Predicted, quantile, source_weights
from benchmarks.forecast.performance.measurements import Pairs
from benchmarks.forecast.power import CAPPED
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import Intervals

SLOPES = tuple(round(0.5 + 0.05 * step, 2) for step in range(11))
MIN_GAIN = 0.005
"""Share by which an attenuation must lower the error of its kind to be taken."""
FACTORS = (2.0, 1.5, 1.2, 1.1)
"""By which parts of the scale of intervals are changed, coarse to fine."""
MIN_FLOOR = 0.03
"""Of a log error: what repeats of a measurement on one engine version differ by."""
RESTART = 0.05
"""First value of a part of the scale that the search had set to 0."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """Values chosen on pairs that no table they were judged by had seen."""

    attenuation: Mapping[str, float]
    intervals: Intervals

    def apply(self, pairs: Pairs, raw: Predicted, rows: NDArray[np.intp]) -> tuple[Predicted, Array]:
        """Return attenuated predictions of these pairs and the half widths of their intervals."""
        slopes = np.array([self.attenuation.get(kind, 1.0) for kind in pairs.column("kind")])
        predicted = Predicted.none(len(slopes))
        predicted.put(rows, Predicted(slopes * raw.log_ratio, raw.log_sd, raw.disagreement))
        return predicted, half_widths(self.intervals, pairs, predicted)


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


def tune(pairs: Pairs, raw: Predicted, rows: NDArray[np.intp], measured: Callable[[Predicted], None]) -> Tuned:
    """Return the values that suit these left-out pairs best; `measured` puts in what the power model predicts."""
    slopes = attenuations(pairs, raw, rows)
    plain = Intervals(MIN_FLOOR, 0.0, 0.0, 0.0, {"other": 1.0}, design()["interval"]["unmeasured_floor"])
    predicted, _ = Tuned(slopes, plain).apply(pairs, raw, rows)
    measured(predicted)
    return Tuned(slopes, widths(pairs, predicted, rows[np.isfinite(predicted.log_ratio[rows])]))


def attenuations(pairs: Pairs, raw: Predicted, rows: NDArray[np.intp]) -> dict[str, float]:
    """Return the slope of measured on predicted log-ratios of least absolute error, of kinds with enough sources."""
    factors = {}
    kinds, sources = pairs.column("kind"), pairs.column("source")
    for kind in sorted(set(kinds[rows]) - set(CAPPED)):
        chosen = rows[kinds[rows] == kind]
        if len(set(sources[chosen])) < MIN_SOURCES:
            continue
        weights = source_weights(pairs, chosen)

        def error(slope: float, chosen: NDArray[np.intp] = chosen, weights: Array = weights) -> float:
            missed = np.abs(slope * raw.log_ratio[chosen] - pairs.log_ratio[chosen])
            return float(np.average(np.minimum(missed, 1.0), weights=weights))

        best = min(SLOPES, key=error)
        if error(best) < error(1.0) * (1 - MIN_GAIN):
            factors[kind] = best
    return factors


def widths(pairs: Pairs, predicted: Predicted, rows: NDArray[np.intp]) -> Intervals:
    """Return intervals that hold 80 % of unseen changes: grouped conformal, sources weighing the same.

    The scale is the one under which Laplace errors of these pairs are likeliest. A kind with enough sources has its
    own quantile. Others share one of all kinds, at a larger share, and at least their own.
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

    few = at(rules["share_of_few_sources"], macro)
    for kind in sorted(set(kinds[rows])):
        chosen = rows[kinds[rows] == kind]
        n = len(set(sources[chosen]))
        if n >= MIN_SOURCES:
            quantiles[kind] = at(rules["share"], chosen)
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
