"""The maximum a posteriori fit of the efficiency table to measured rows and to measured pairs.

log tok/s = log running - log sum over terms of exp(prior + tags) x seconds at the listed rate. The derivative of
the log of a sum is the share of each part, so the Jacobian is exact and a Gauss-Newton step costs one product.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.performance.measurements import Measurements, Pairs
from pertoken.forecast.candidates import Array
from pertoken.forecast.capacity import running_sequences
from pertoken.forecast.efficiency import Efficiency, tag_names
from pertoken.forecast.terms import TERMS, seconds

STEPS = 12
REFIT_STEPS = 4
CLOSE_ENOUGH = 1e-2
LONGEST_STEP = 1.0


@cache
def design() -> dict[str, Any]:
    """The table of what may be adjusted."""
    return tomllib.loads((Path(__file__).parent / "design.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Parameters:
    """One entry per adjustable number: its term, its tag (-1: the term's own), and its prior."""

    term: NDArray[np.intp]
    tag: NDArray[np.intp]
    mean: Array
    sd: Array


@cache
def parameters() -> Parameters:
    """All adjustable numbers, in a fixed order."""
    table = design()
    found: list[tuple[int, int, float, float]] = []
    for place, term in enumerate(TERMS):
        found.append((place, -1, *table["priors"][term]))
    for place, term in enumerate(TERMS):
        for name in table["adjusts"][term]:
            for tag in table["groups"].get(name, [name]):
                mean = table["means"].get(term, {}).get(tag, 0.0)
                found.append((place, tag_names().index(tag), mean, table["spread"].get(tag, table["spread"]["other"])))
    term_places, tags, means, sds = zip(*found, strict=True)
    return Parameters(np.array(term_places), np.array(tags), np.array(means), np.array(sds))


def as_efficiency(values: Array) -> Efficiency:
    """Parameters as the table the forecast reads."""
    known = parameters()
    base, by_tag = np.zeros(len(TERMS)), np.zeros((len(tag_names()), len(TERMS)))
    own = known.tag < 0
    base[known.term[own]] = values[own]
    by_tag[known.tag[~own], known.term[~own]] = values[~own]
    return Efficiency(base, by_tag)


class Evidence:
    """Rows and pairs ready for fitting: everything that does not depend on the parameters, computed once."""

    def __init__(self, measurements: Measurements, pairs: Pairs) -> None:
        table = design()["evidence"]
        self.candidates = measurements.candidates
        self.running = running(measurements)
        self.seconds = seconds(self.candidates, self.running)
        self.log_tok_s = np.log(measurements.tok_s)
        known = parameters()
        self.holds = np.where(known.tag < 0, 1.0, self.candidates.tags[:, np.maximum(known.tag, 0)])
        clusters = _joined(measurements.column("source"), measurements.column("model"), measurements.column("gpu"))
        trusted = np.array([table["row_trust"].get(each, 0.0) for each in measurements.column("trust")])
        self.row_weight = trusted * np.isfinite(self.log_tok_s) * _share(clusters, table["most_per_cluster"])
        # What a row on a device or of a model that nobody knows says of the constants is nothing.
        strange = np.array(["device" in doubts or "size" in doubts for doubts in measurements.doubts])
        self.row_weight = self.row_weight * ~strange
        self.before, self.after = pairs.before, pairs.after
        self.log_ratio = self.log_tok_s[self.after] - self.log_tok_s[self.before]
        trusted = np.array([table["pair_trust"].get(each, 0.0) for each in pairs.column("trust")])
        clusters = _joined(*(pairs.column(name) for name in ("kind", "source", "model", "gpu_before")))
        self.pair_weight = trusted * np.isfinite(self.log_ratio) * _share(clusters, table["most_per_cluster"])
        self.pair_weight = self.pair_weight * np.isin(pairs.column("kind"), table["kinds"])

    def predict(self, values: Array, rows: NDArray[np.intp] | slice = slice(None)) -> tuple[Array, Array]:
        """(log tok/s, shares of the terms) of the rows under these parameters."""
        table = as_efficiency(values)
        term_s = self.seconds[rows] * np.exp(table.log_scale(self.candidates.tags[rows]))
        total = term_s.sum(axis=1)
        return np.log(self.running[rows] / total), term_s / total[:, None]


def running(measurements: Measurements) -> Array:
    """Sequences that ran in each row: as measured where that is known, else as many as were there and fit."""
    given = measurements.measured_batch & np.isfinite(measurements.candidates.concurrency)
    return np.where(given, measurements.candidates.concurrency, running_sequences(measurements.candidates))


def fit(
    evidence: Evidence,
    start: Array | None = None,
    without: NDArray[np.bool_] | None = None,
    steps: int = STEPS,
) -> Array:
    """Parameters of highest posterior density; `without` marks rows that are kept out, and pairs that touch them."""
    known, table = parameters(), design()["evidence"]
    keep = np.ones(len(evidence.running), dtype=bool) if without is None else ~without
    rows = np.flatnonzero(keep & (evidence.row_weight > 0))
    pairs = np.flatnonzero((evidence.pair_weight > 0) & keep[evidence.before] & keep[evidence.after])
    before, after = evidence.before[pairs], evidence.after[pairs]
    values = known.mean.copy() if start is None else start.copy()
    for _ in range(steps):
        predicted, shares = evidence.predict(values)
        slopes = -shares[:, known.term] * evidence.holds
        information, score = np.diag(1 / known.sd**2), (known.mean - values) / known.sd**2
        for slope, residual, weight, scale in (
            (slopes[rows], evidence.log_tok_s[rows] - predicted[rows], evidence.row_weight[rows], table["row_scale"]),
            (
                slopes[after] - slopes[before],
                evidence.log_ratio[pairs] - (predicted[after] - predicted[before]),
                evidence.pair_weight[pairs],
                table["pair_scale"],
            ),
        ):
            weight = weight / (1 + (residual / (2 * scale)) ** 2) / scale**2
            information = information + (slope * weight[:, None]).T @ slope
            score = score + slope.T @ (weight * residual)
        step = np.linalg.solve(information, score)
        longest = float(np.abs(step).max())
        values = values + step * (LONGEST_STEP / longest if longest > LONGEST_STEP else 1.0)
        if longest < CLOSE_ENOUGH:
            break
    return values


def _joined(*columns: NDArray[np.str_]) -> list[str]:
    return ["|".join(cells) for cells in zip(*columns, strict=True)]


def _share(clusters: Sequence[str], most: float) -> Array:
    """A weight for each so that no cluster counts for more than `most` of its members."""
    _, place, sizes = np.unique(np.array(clusters), return_inverse=True, return_counts=True)
    return np.minimum(1.0, most / sizes[place])
