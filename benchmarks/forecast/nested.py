"""Nested folds: pairs judged by tables and tuned values that saw neither their source, nor their model, nor their GPU.

The table of a pair is refitted without every row that shares its source, its model or a GPU. What is tuned, the widths
of intervals, is chosen for each group of sources on the pairs of the other groups, as predicted by tables that saw no
row of the group either.
"""

import multiprocessing
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.fit import Evidence
from benchmarks.forecast.folds import (
    MACRO,
    Fold,
    Predicted,
    cluster_weights,
    clusters,
    loss,
    predict,
    refit,
    together,
    unfounded,
)
from benchmarks.forecast.performance.measurements import Measurements, Pairs
from benchmarks.forecast.tune import half_widths, widths
from benchmarks.report import Row
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import Deviation, Efficiency, Intervals

GROUPS = 4
"""Of sources: what is tuned for one is chosen on the others."""
MAX_FOLDS_OF_SOURCE = 8
"""Inner folds that values are tuned on."""


@dataclass(frozen=True, slots=True)
class Nested:
    """Pairs predicted in nested folds."""

    predicted: Predicted
    half: Array
    """Half widths of the 80 % intervals."""
    unfounded: NDArray[np.bool_]
    """Whether a row of a pair runs kernels that no other source ran."""
    group: NDArray[np.intp]
    """The group of each pair's source."""
    tuned: tuple[Intervals, ...]
    """The intervals chosen for each group of sources."""

    def half_widths(self, pairs: Pairs, predicted: Predicted) -> Array:
        """Return half widths of predictions as tuned on the other groups of sources."""
        return _half_widths(pairs, predicted, self.group, self.tuned)

    def rows(self) -> list[Row]:
        """Return what was tuned as rows of the report: its range over the groups."""
        values: defaultdict[str, list[float]] = defaultdict(list)
        for tuned in self.tuned:
            scale = asdict(tuned)
            quantiles = scale.pop("quantiles")
            del scale["points"]  # chosen where there are points: `calibrate_with`
            for title, row in (("interval", scale), ("quantile", quantiles)):
                for name, value in row.items():
                    values[f"{title} {name}"].append(float(value))
        return [
            Row("tuned in nested folds", f"{name}.{end.__name__}", end(best), "", f"{len(best)} groups of sources")
            for name, best in values.items()
            for end in (min, max)
        ]


def grouped(pairs: Pairs, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the group of each pair's source; groups hold about as many clusters of these `rows`."""
    sources, labels = pairs.column("source"), clusters(pairs)
    sizes = {source: len(set(labels[rows[sources[rows] == source]])) for source in sorted(set(sources))}
    held, group = [0] * GROUPS, {}
    for source in sorted(sizes, key=lambda source: (-sizes[source], source)):
        group[source] = int(np.argmin(held))
        held[group[source]] += sizes[source]
    return np.array([group[source] for source in sources])


def few_of_each_source(pairs: Pairs, folds: Sequence[Fold], counted: NDArray[np.bool_]) -> list[Fold]:
    """Return at most `MAX_FOLDS_OF_SOURCE` folds with counted pairs of each source, spread evenly.

    Sources weigh the same in what is tuned, so that more folds of a large one add time and little else.
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
    also: NDArray[np.bool_] | None = None,
) -> Predicted:
    """Return raw predictions of the pairs of these folds."""
    predicted = Predicted.none(len(pairs.rows))
    for place, (fold, table) in enumerate(zip(folds, refitted(evidence, folds, also), strict=True), 1):
        progress(f"without {fold.name[:60]} ({place}/{len(folds)})")
        predicted.put(fold.pairs, predict(measurements, pairs, table, prior, fold.pairs))
    return predicted


def refitted(evidence: Evidence, folds: Sequence[Fold], also: NDArray[np.bool_] | None = None) -> Iterator[Efficiency]:
    """Yield the table refitted without each fold, from a process on each core."""
    _ = evidence.designs  # computed once, before the processes share them
    with multiprocessing.get_context("fork").Pool(initializer=_share, initargs=(evidence, also)) as pool:
        yield from pool.imap(_refit, folds)


_shared: tuple[Evidence, NDArray[np.bool_] | None]


def _share(evidence: Evidence, also: NDArray[np.bool_] | None) -> None:
    global _shared
    _shared = evidence, also


def _refit(fold: Fold) -> Efficiency:
    evidence, also = _shared
    return refit(evidence, fold, also)


def nested(
    measurements: Measurements,
    pairs: Pairs,
    evidence: Evidence,
    prior: Deviation,
    counted: NDArray[np.bool_],
    slow_down: Callable[[Predicted], None],
    progress: Callable[[str], None],
) -> Nested:
    """Return what nested folds predict of every pair.

    `counted`: pairs that tuned values may be chosen on. `slow_down` puts in what the power model predicts.
    """
    folds = together(measurements, pairs)
    raw = Predicted.none(len(pairs.rows))
    silent = unfounded(measurements, pairs)
    group = grouped(pairs, np.flatnonzero(counted))
    sources = measurements.column("source")
    chosen = []
    for one in range(GROUPS):
        unseen = np.isin(sources, np.unique(pairs.column("source")[group == one]))
        others = few_of_each_source(pairs, [fold for fold in folds if (group[fold.pairs] != one).all()], counted)

        def step(fold: str, one: int = one) -> None:
            progress(f"group {one + 1} of {GROUPS}: {fold}")

        inner = left_out(measurements, pairs, evidence, prior, others, step, unseen)
        slow_down(inner)
        rows = np.flatnonzero((group != one) & counted & ~silent & np.isfinite(inner.log_ratio))
        chosen.append(widths(pairs, inner, rows))
    raw = left_out(measurements, pairs, evidence, prior, folds, progress)
    slow_down(raw)
    return Nested(raw, _half_widths(pairs, raw, group, chosen), silent, group, tuple(chosen))


def mean_loss(pairs: Pairs, log_ratio: Array, rows: NDArray[np.intp]) -> float:
    """Return the mean over kinds of the loss of these pairs, clusters weighing the same."""
    kinds, labels = pairs.column("kind")[rows], clusters(pairs)[rows]
    errors = np.expm1(log_ratio[rows] - pairs.log_ratio[rows])
    losses = [
        loss(errors[of_kind], cluster_weights(labels[of_kind])) for kind in MACRO if (of_kind := kinds == kind).any()
    ]
    return float(np.mean(losses)) if losses else float("nan")


def _half_widths(pairs: Pairs, predicted: Predicted, group: NDArray[np.intp], chosen: Sequence[Intervals]) -> Array:
    by_group = np.array([half_widths(tuned, pairs, predicted) for tuned in chosen])
    return np.asarray(by_group[group, np.arange(len(group))])
