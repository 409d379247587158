"""Test whether errors of the forecast can be learned: those of left-out pairs are predicted from those of other pairs.

If the columns of the rows held a pattern that the forecast does not see, a kernel regression on them would find it. It
is asked for the errors of each left-out GPU, model or source from the errors of all others, kind by kind.
"""

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.figures import macro_of, tables
from benchmarks.forecast.fit import running
from benchmarks.forecast.folds import cluster_weights, clusters
from benchmarks.forecast.performance.measurements import Measurements, Pairs
from benchmarks.report import Row
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import efficiency
from pertoken.forecast.steady import steady

RIDGE = 10.0
"""How much smoother than the errors themselves what is foretold of them is; less does worse."""
MOST = 1.0
"""Largest error of a log-ratio that is learned from."""


def features(measurements: Measurements, pairs: Pairs) -> Array:
    """Batch, lengths, sizes, layout and shares of the terms before, the same as they change, and the tags of both."""
    c, ran = measurements.candidates, running(measurements)
    sizes = (ran, c.prompt_len, c.generated_len, c.params_active, c.params_total, c.tp, c.dp, c.weight_bits)
    state = steady(c, efficiency(), ran)
    slower = np.log(np.where(np.isfinite(measurements.tok_s), state.tok_s / measurements.tok_s, 1.0))
    rows = np.column_stack([*np.log(np.maximum(sizes, 1e-9)), state.shares, c.tags])
    columns = np.column_stack([rows[pairs.before], rows[pairs.after] - rows[pairs.before], slower[pairs.before]])
    return np.asarray((columns - columns.mean(axis=0)) / np.maximum(columns.std(axis=0), 1e-9))


def corrected(pairs: Pairs, columns: Array, predicted: Array, held: NDArray[np.str_]) -> Array:
    """Predicted log-ratios plus the error that pairs of the same kind and of other `held` values foretell."""
    out, kinds, labels = predicted.copy(), pairs.column("kind"), clusters(pairs)
    known = np.isfinite(predicted) & np.isfinite(pairs.log_ratio) & (pairs.column("trust") != "low")
    for kind in np.unique(kinds):
        rows = np.flatnonzero((kinds == kind) & known)
        if not len(rows):
            continue
        x, missed = columns[rows], np.clip(pairs.log_ratio[rows] - predicted[rows], -MOST, MOST)
        squared = np.maximum((x**2).sum(axis=1)[:, None] + (x**2).sum(axis=1) - 2 * x @ x.T, 0.0)
        alike = np.exp(-squared / max(float(np.median(squared)), 1e-9))
        spread = RIDGE * np.median(weights := cluster_weights(labels[rows])) / weights
        for value in np.unique(held[rows]):
            test = held[rows] == value
            if (~test).any():
                inner = alike[np.ix_(~test, ~test)] + np.diag(spread[~test])
                out[rows[test]] += alike[np.ix_(test, ~test)] @ np.linalg.solve(inner, missed[~test])
    return out


def learned_rows(measurements: Measurements, pairs: Pairs, fold: Array, rows: NDArray[np.bool_]) -> list[Row]:
    """Return macro errors of a fold if the errors of other sources' left-out pairs corrected them: `corrected`."""
    better = corrected(pairs, features(measurements, pairs), fold, pairs.column("source"))
    mean = macro_of(tables(pairs, better, None, np.zeros(len(rows), dtype=bool), rows))
    method = "kernel regression on the errors of the other sources' left-out pairs"
    return [
        Row("corrected by learned errors", f"macro.{figure}", round(getattr(mean, figure), 4), "ratio", method)
        for figure in ("median", "p90")
    ]
