"""The maximum a posteriori fit of the efficiency table to measured rows and to measured pairs.

log tok/s = log running - log sum over terms of exp(prior + tags) x seconds at the listed rate. The derivative of
the log of a sum is the share of each part, so the Jacobian is exact and a Gauss-Newton step costs one product.
"""

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.capacity import running_sequences
from benchmarks.forecast.performance.measurements import Measurements, Pairs
from benchmarks.forecast.performance.rows import DISAGGREGATED
from pertoken.forecast.candidates import Array
from pertoken.forecast.capacity import weight_bytes
from pertoken.forecast.efficiency import Efficiency, tag_names
from pertoken.forecast.terms import TERMS, seconds

MAX_STEPS = 100
"""Of a fit; it takes 10 to 30."""
LONGEST_STEP = 1.0
"""Largest change of one parameter in a step: the curvature holds no further."""
SHORTEST_STEP = 1e-3
"""Share of a step below which no rise of the posterior is expected."""
LISTED = ("weights", "experts", "kv_cache", "decode_flops", "prefill_flops", "prefill_attention", "all_reduce_bytes")
"""Terms at a listed rate: one that is exceeded counts against the parameters."""
MIN_GAIN = 0.1
"""Rise of the log posterior below which a fit has converged: far less than one measurement weighs."""


@cache
def design() -> dict[str, Any]:
    """Return the table of what may be adjusted."""
    return tomllib.loads((Path(__file__).parent / "design.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Parameters:
    """One entry per adjustable number: its terms, its tag (-1: the terms' own), and its prior."""

    terms: NDArray[np.bool_]
    """Shape (entries, number of `TERMS`)."""
    tag: NDArray[np.intp]
    mean: Array
    sd: Array


@cache
def parameters() -> Parameters:
    """Return all adjustable numbers, in a fixed order."""
    table = design()
    entries: list[tuple[tuple[str, ...], int, float, float]] = []
    for term, prior in table["priors"].items():
        entries.append(((term, *(name for name, like in table["like"].items() if like == term)), -1, *prior))
    for term, tags in table["adjusts"].items():
        for tag in tags:
            mean = table["means"].get(term, {}).get(tag, 0.0)
            entries.append(((term,), tag_names().index(tag), mean, table["spread"].get(tag, table["spread"]["other"])))
    terms, tag_places, means, sds = zip(*entries, strict=True)
    adjusted = np.array([[term in names for term in TERMS] for names in terms])
    return Parameters(adjusted, np.array(tag_places), np.array(means), np.array(sds))


def as_efficiency(values: Array) -> Efficiency:
    """Parameters as the table the forecast reads."""
    known = parameters()
    by_tag, own = np.zeros((len(tag_names()), len(TERMS))), known.tag < 0
    np.add.at(by_tag, known.tag[~own], values[~own, None] * known.terms[~own])
    return Efficiency(values[own] @ known.terms[own], by_tag)


class Evidence:
    """Rows and pairs ready for fitting: everything that does not depend on the parameters, computed once."""

    def __init__(self, measurements: Measurements, pairs: Pairs, kept: Path | None = None) -> None:
        """`kept`: folder in which fitted parameters are kept from run to run."""
        self.kept = kept
        self.scales = table = design()["evidence"]
        self.candidates = measurements.candidates
        self.running = running(measurements)
        self.seconds = seconds(self.candidates, self.running)
        self.log_tok_s = np.log(measurements.tok_s)
        self.known = known = parameters()
        self.holds = np.where(known.tag < 0, 1.0, self.candidates.tags[:, np.maximum(known.tag, 0)])
        clusters = _joined(measurements.column("source"), measurements.column("model"), measurements.column("gpu"))
        trusted = np.array([table["row_trust"].get(trust, 0.0) for trust in measurements.column("trust")])
        self.row_weight = trusted * np.isfinite(self.log_tok_s) * _share(clusters, table["most_per_cluster"])
        # A row on an unknown device or of an unknown model carries no information on the constants, nor does one of
        # several engines, or one whose weights exceed its devices: something in it is not as stated.
        misleading = ("the device", "the size", DISAGGREGATED)
        strange = np.array([any(doubt in doubts for doubt in misleading) for doubts in measurements.doubts])
        strange |= weight_bytes(self.candidates) > self.candidates.memory_bytes
        self.row_weight = _damped(self.row_weight * ~strange, measurements.column("source"), table["source_weight"])
        self.before, self.after = pairs.before, pairs.after
        self.log_ratio = self.log_tok_s[self.after] - self.log_tok_s[self.before]
        trusted = np.array([table["pair_trust"].get(trust, 0.0) for trust in pairs.column("trust")])
        clusters = _joined(*(pairs.column(name) for name in ("kind", "source", "model", "gpu_before")))
        self.pair_weight = trusted * np.isfinite(self.log_ratio) * _share(clusters, table["most_per_cluster"])
        self.pair_weight = self.pair_weight * np.isin(pairs.column("kind"), table["kinds"])
        self.pair_weight = _damped(self.pair_weight, pairs.column("source"), table["source_weight"])

    def file(self, without: NDArray[np.bool_] | None) -> Path | None:
        """Return the file that keeps what is fitted without some rows, named by all that the fit reads; or None."""
        if self.kept is None:
            return None
        out = np.zeros(len(self.running), dtype=bool) if without is None else without
        rows, pairs = self.row_weight * ~out, self.pair_weight * ~(out[self.before] | out[self.after])
        known = self.known
        arrays = map(_bytes, (rows, pairs, known.terms, known.tag, known.mean, known.sd))
        scales = repr([self.scales[name] for name in ("row_scale", "pair_scale", "faster_sd")]).encode()
        return self.kept / f"{sha256(b''.join((self._digest, scales, *arrays))).hexdigest()}.npy"

    @cached_property
    def _digest(self) -> bytes:
        arrays = (self.seconds, self.running, self.log_tok_s, self.holds, self.before, self.after)
        return sha256(b"".join(map(_bytes, arrays))).digest()

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


def fit(evidence: Evidence, without: NDArray[np.bool_] | None = None) -> Array:
    """Return the parameters of highest posterior density, from the priors to convergence.

    `without`: rows to leave out, and with them every pair that has one of them; shape (rows,).
    """
    file = evidence.file(without)
    if file is not None and file.exists():
        return np.asarray(np.load(file), dtype=float)
    values = _Problem(evidence, without).solve()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: another process may look for the same fit.
        part = file.with_suffix(f".{os.getpid()}.npy")
        np.save(part, values)
        part.replace(file)
    return values


@dataclass(frozen=True, slots=True)
class _State:
    """One set of parameters with what it predicts."""

    values: Array
    shares: Array
    """Share of each term in the time of each row."""
    row_error: Array
    pair_error: Array
    loss: float
    """Negative log posterior, up to a constant."""


class _Problem:
    """Rows and pairs of one fit, without the rows that are left out."""

    def __init__(self, evidence: Evidence, without: NDArray[np.bool_] | None) -> None:
        self.known, scales = evidence.known, evidence.scales
        self.row_scale, self.pair_scale = 2 * scales["row_scale"], 2 * scales["pair_scale"]
        self.faster_sd = scales["faster_sd"]
        keep = np.ones(len(evidence.running), dtype=bool) if without is None else ~without
        pairs = np.flatnonzero((evidence.pair_weight > 0) & keep[evidence.before] & keep[evidence.after])
        used = keep & (evidence.row_weight > 0)
        used[evidence.before[pairs]] = used[evidence.after[pairs]] = True
        rows = np.flatnonzero(used)
        place = np.cumsum(used) - 1
        self.before, self.after = place[evidence.before[pairs]], place[evidence.after[pairs]]
        self.row_weight, self.pair_weight = evidence.row_weight[rows], evidence.pair_weight[pairs]
        self.log_tok_s = np.where(self.row_weight > 0, evidence.log_tok_s[rows], 0.0)
        self.log_ratio = evidence.log_ratio[pairs]
        self.seconds, self.running = evidence.seconds[rows], evidence.running[rows]
        self.tags, self.holds = evidence.candidates.tags[rows], evidence.holds[rows].astype(np.float32)
        self.bounds = _bounds(self.known, self.tags, self.seconds)

    def solve(self) -> Array:
        """Take Gauss-Newton steps, each shortened until the posterior rises, until one gains next to nothing."""
        state = self._at(self.known.mean)
        for _ in range(MAX_STEPS):
            step = self._step(state)
            length = LONGEST_STEP / max(LONGEST_STEP, float(np.abs(step).max()))
            following = self._at(state.values + length * step)
            while following.loss > state.loss and length > SHORTEST_STEP:
                length /= 2
                following = self._at(state.values + length * step)
            gain = state.loss - following.loss
            if gain > 0:
                state = following
            if gain < MIN_GAIN:
                return state.values
        raise RuntimeError(f"the fit of the efficiency table did not converge in {MAX_STEPS} steps")

    def _at(self, values: Array) -> _State:
        table = as_efficiency(values)
        term_s = self.seconds * np.exp(table.base + self.tags @ table.by_tag)
        total = term_s.sum(axis=1)
        predicted = np.log(self.running / total)
        row_error = np.where(self.row_weight > 0, self.log_tok_s - predicted, 0.0)
        pair_error = self.log_ratio - (predicted[self.after] - predicted[self.before])
        # A Cauchy likelihood: its derivative is the weight that `_step` gives an error.
        loss = (
            2 * (self.row_weight * np.log1p((row_error / self.row_scale) ** 2)).sum()
            + 2 * (self.pair_weight * np.log1p((pair_error / self.pair_scale) ** 2)).sum()
            + (((values - self.known.mean) / self.known.sd) ** 2).sum() / 2
            + (np.minimum(self.bounds @ values, 0.0) ** 2).sum() / (2 * self.faster_sd**2)
        )
        return _State(values, term_s / total[:, None], row_error, pair_error, float(loss))

    def _step(self, state: _State) -> Array:
        # The derivative of the log of a sum is the share of each part. Single precision turns a step by a millionth,
        # which the next one corrects, and halves the time of a fit.
        row_slope = -(state.shares @ self.known.terms.T).astype(np.float32) * self.holds
        pair_slope = row_slope[self.after] - row_slope[self.before]
        information = np.diag(1 / self.known.sd**2)
        score = (self.known.mean - state.values) / self.known.sd**2
        for slope, error, weight, scale in (
            (row_slope, state.row_error, self.row_weight, self.row_scale),
            (pair_slope, state.pair_error, self.pair_weight, self.pair_scale),
        ):
            root = (np.sqrt(4 * weight / (1 + (error / scale) ** 2)) / scale).astype(np.float32)
            slope = slope * root[:, None]
            information = information + slope.T @ slope
            score = score + slope.T @ (root * error)
        faster = self.bounds @ state.values
        broken = self.bounds[faster < 0]
        information = information + broken.T @ broken / self.faster_sd**2
        score = score - broken.T @ faster[faster < 0] / self.faster_sd**2
        return np.asarray(np.linalg.solve(information, score), dtype=float)


def _bounds(known: Parameters, tags: Array, term_s: Array) -> Array:
    """Return the weights of the parameters in the logarithm of each listed rate over the reached one, for each set of
    tags that a row has: shape (sets, parameters)."""
    blocks = []
    for place, term in enumerate(TERMS):
        if term in LISTED:
            sets = np.unique(tags[term_s[:, place] > 0], axis=0)
            held = np.where(known.tag < 0, 1.0, sets[:, np.maximum(known.tag, 0)])
            blocks.append(np.unique(held * known.terms[:, place], axis=0))
    return np.concatenate(blocks)


def _bytes(values: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(values).tobytes()


def _joined(*columns: NDArray[np.str_]) -> list[str]:
    return ["|".join(cells) for cells in zip(*columns, strict=True)]


def _share(clusters: Sequence[str], most: float) -> Array:
    """Return a weight for each so that no cluster counts for more than `most` of its members."""
    _, place, sizes = np.unique(np.array(clusters), return_inverse=True, return_counts=True)
    return np.minimum(1.0, most / sizes[place])


def _damped(weights: Array, sources: NDArray[np.str_], most: float) -> Array:
    """Return weights of which those of a source beyond `most` count as a square root: its rows share its mistakes."""
    _, place = np.unique(sources, return_inverse=True)
    total = np.bincount(place, weights)
    return np.asarray(weights * np.sqrt(np.minimum(1.0, most / np.maximum(total, 1e-9)))[place])
