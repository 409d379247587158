"""Origin of large errors of left-out pairs: their sources, and what their rows do not state."""

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.figures import macro_of, tables
from benchmarks.forecast.folds import MACRO, cluster_weights, clusters
from benchmarks.forecast.performance.measurements import Measurements, Pairs
from benchmarks.report import Row
from pertoken.forecast.candidates import Array

LARGE = 0.35
"""Relative error that the p90 of the mean over kinds is to stay below."""
STATED = ("input_tokens", "output_tokens", "batch_or_concurrency", "weight_dtype")
"""Columns without which a configuration has to be guessed."""
SHOWN = 8
"""Sources reported, those first whose pairs raise the p90 most."""
Flags = NDArray[np.bool_]


def stated(measurements: Measurements) -> Flags:
    """Return whether each row states its lengths, batch, weight dtype and engine version, and needed no guess."""
    whole = [
        all(row[name] for name in STATED) and any(letter.isdigit() for letter in row["engine"]) and not doubts
        for row, doubts in zip(measurements.rows, measurements.doubts, strict=True)
    ]
    return np.array(whole)


def shares_of_large_errors(pairs: Pairs, log_ratio: Array, silent: Flags, rows: Flags) -> dict[str, float]:
    """Return by source the share of all pairs that are its own and off by more than `LARGE`, as mean over the kinds.

    Within a kind all clusters weigh the same; a pair that is not predicted counts as no change.
    """
    kinds, sources, labels = pairs.column("kind"), pairs.column("source"), clusters(pairs)
    off = np.abs(np.expm1(np.where(silent, 0.0, log_ratio) - pairs.log_ratio)) > LARGE
    shares = dict.fromkeys(map(str, np.unique(sources[rows])), 0.0)
    present = [kind for kind in MACRO if ((kinds == kind) & rows).any()]
    for kind in present:
        chosen = np.flatnonzero((kinds == kind) & rows)
        weights = cluster_weights(labels[chosen])
        weights /= weights.sum() * len(present)
        for source in np.unique(sources[chosen]):
            shares[str(source)] += float((weights * off[chosen])[sources[chosen] == source].sum())
    return shares


def source_rows(measurements: Measurements, pairs: Pairs, log_ratio: Array, silent: Flags, rows: Flags) -> list[Row]:
    """Return the sources with most large errors, and errors of pairs with and without stated configurations."""
    shares = shares_of_large_errors(pairs, log_ratio, silent, rows)
    report = [Row("large errors", "all", round(sum(shares.values()), 4), "share", f"of pairs off by over {LARGE:g}")]
    sources = pairs.column("source")
    for source in sorted(shares, key=lambda name: (-shares[name], name))[:SHOWN]:
        without = _errors(pairs, log_ratio, silent, rows & (sources != source))
        report.append(Row("large errors", f"{source}.share", round(shares[source], 4), "share", "of all pairs"))
        report += [
            Row("large errors", f"{source}.{figure}", _rounded(value), "ratio", "mean of kinds without its pairs")
            for figure, value in zip(("median", "p90"), without, strict=True)
        ]
    known = stated(measurements)
    both = known[pairs.before] & known[pairs.after]
    for name, cut in (("stated", both), ("not stated", ~both)):
        few = shares_of_large_errors(pairs, np.where(cut, log_ratio, pairs.log_ratio), silent & cut, rows)
        report.append(Row("configuration", f"{name}.share", round(sum(few.values()), 4), "share", "large errors"))
        report += [
            Row("configuration", f"{name}.{figure}", _rounded(value), "ratio", f"mean of kinds; n={(rows & cut).sum()}")
            for figure, value in zip(("median", "p90"), _errors(pairs, log_ratio, silent, rows & cut), strict=True)
        ]
    return report


def _errors(pairs: Pairs, log_ratio: Array, silent: Flags, rows: Flags) -> tuple[float, float]:
    """Return median and p90 of the mean over the kinds of these pairs."""
    mean = macro_of(tables(pairs, log_ratio, None, silent, rows))
    return mean.median, mean.p90


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 4)
