"""Errors of the triple folds by the share of sources that their tables may see."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.figures import macro_of, tables
from benchmarks.forecast.fit import Evidence
from benchmarks.forecast.folds import together
from benchmarks.forecast.nested import left_out
from benchmarks.forecast.performance.measurements import Measurements, Pairs
from benchmarks.report import Row
from pertoken.forecast.efficiency import Deviation

SHARES = (0.0, 0.25, 0.5, 1.0)
SEED = 0


def curve_rows(
    measurements: Measurements,
    pairs: Pairs,
    evidence: Evidence,
    prior: Deviation,
    rows: NDArray[np.bool_],
    progress: Callable[[str], None],
) -> list[Row]:
    """Return errors, as mean over kinds, by the share of sources in the fit, drawn once.

    A smaller share is part of a larger one. `rows`: pairs that count.
    """
    sources = measurements.column("source")
    names = np.random.default_rng(SEED).permutation(np.unique(sources))
    folds = [fold for fold in together(measurements, pairs) if rows[fold.pairs].any()]
    report = []
    for share in SHARES:
        n = round(share * len(names))

        def step(name: str, n: int = n) -> None:
            progress(f"{n} sources: {name}")

        hidden = ~np.isin(sources, names[:n])
        predicted = left_out(measurements, pairs, evidence, prior, folds, step, hidden).log_ratio
        mean = macro_of(tables(pairs, predicted, None, np.zeros(len(rows), dtype=bool), rows & np.isfinite(predicted)))
        for figure in ("median", "p90"):
            value = round(getattr(mean, figure), 4)
            report.append(Row("sources in the fit", f"{n}.{figure}", value, "ratio", "mean of kinds, triple folds"))
    return report
