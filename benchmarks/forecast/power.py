"""Error of forecast energy, and the fit of `power.toml`: `python -m benchmarks.power --measurements M --pairs P`.

Watts of one device are fitted on every row that has them; ratios of joules per generated token are scored pair by
pair, beside *constant power*, with the measured ratio of tokens/s (`given tok/s`: watts alone) and with the forecast
one. Each GPU is also left out and the constants refitted. `--fit` prints the constants, and those of the rows whose
licence allows their redistribution.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.fit import running
from benchmarks.forecast.folds import Score, cluster_weights, clusters, loss, predict, score
from benchmarks.forecast.performance.cells import Cells
from benchmarks.forecast.performance.devices import device
from benchmarks.forecast.performance.measurements import BadFile, Measurements, Pairs, read
from benchmarks.report import Row, Target, report
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import deviation, efficiency, steady
from pertoken.forecast.power import (
    Busy,
    CandidateWatts,
    at_clock,
    busy_w,
    clock_bound,
    clock_constants,
    dynamic_share,
    fixed_w,
    full_w,
    idle_w,
    products_share,
    under_cap,
)

CAPPED = ("power_cap", "clock_lock")
"""Kinds of change that only slow the device down."""
NAMES = ("products", "exponent")
START = np.array([1.5, 0.4])
LEAST, MOST = np.array([0.0, 0.05]), np.array([8.0, 2.0])
TRIED = {
    "knee_exponent": tuple(range(5, 31)),
    "weight_only_memory_bound": tuple(round(0.05 * step, 2) for step in range(21)),
}
"""Constants of `[clock]` that are fitted to measured caps, and the values tried; the others are assumed."""
ROUNDS = 3
STEPS = 60
BINDING = 0.97
"""Of a cap: a device that draws less is not held by it."""
ROBUST = 0.3
"""Log errors beyond this count less (Huber): about what sources of one device differ by."""
MIN_ROWS = 5
"""Of one source and device, to weigh as much as others in the fit."""
LIMITS = ("idle_w", "limit_w", "full_w")
FREE = ("Apache-2.0", "MIT", "BSD-3-Clause", "BSD-2-Clause")


class Watts:
    """Power columns of a file of measurements, one entry per row; NaN where a row has none."""

    def __init__(self, measurements: Measurements) -> None:
        rows = measurements.rows
        self.measurements = measurements
        self.gpu = measurements.column("gpu")
        self.devices_n = _numbers(rows, "n_gpus")
        self.cap_w, clock = _numbers(rows, "power_limit_w"), _numbers(rows, "sm_clock_mhz")
        self.clock_share = clock / _highest(self.gpu, clock)
        limits = _highest(self.gpu, self.cap_w)
        accelerators = [device(gpu) for gpu in self.gpu]
        limit = np.array(
            [
                accelerator.tdp_w if accelerator and accelerator.tdp_w else cap
                for accelerator, cap in zip(accelerators, limits, strict=True)
            ]
        )
        names = [accelerator.name if accelerator else "" for accelerator in accelerators]
        idle, full = (
            np.array([of(*limit_names) for limit_names in zip(names, limit, strict=True)]) for of in (idle_w, full_w)
        )
        self.device = CandidateWatts(idle, limit, full)
        self.running = running(measurements)
        self.token_s = self.running / measurements.tok_s
        stated = measurements.joule_per_token * measurements.tok_s / self.devices_n
        watts = _numbers(rows, "power_w_per_gpu")
        self.seen_w = np.where(np.isfinite(watts), watts, stated)

    def fit_rows(self) -> NDArray[np.bool_]:
        """Rows with watts and without a cap, low-trust ones left out."""
        free = ~np.isfinite(self.cap_w) & ~np.isfinite(self.clock_share)
        known = np.isfinite(self.seen_w) & (self.seen_w > 0) & np.isfinite(self.device.limit_w)
        return np.asarray(
            known & free & np.isfinite(self.token_s) & (self.measurements.column("trust") != "low"), dtype=bool
        )

    def model_w(self, rows: NDArray[np.intp], token_s: Array, constants: Array | None = None) -> Array:
        """Watts of one device of these rows when a token takes `token_s`."""
        share = products_share(self.measurements.candidates.take(rows), self.running[rows], token_s)
        busy = None if constants is None else dict(zip(NAMES, constants, strict=True))
        return busy_w(self.of(rows), share, busy)

    def of(self, rows: NDArray[np.intp]) -> CandidateWatts:
        """Their devices."""
        return CandidateWatts(self.device.idle_w[rows], self.device.limit_w[rows], self.device.full_w[rows])


def _numbers(rows: Sequence[Cells], column: str) -> Array:
    return np.array([np.nan if (number := row.number(column)) is None else number for row in rows])


def _highest(labels: NDArray[np.str_], values: Array) -> Array:
    highest = {label: np.nanmax(values[labels == label], initial=-np.inf) for label in np.unique(labels)}
    return np.array([highest[label] if np.isfinite(highest[label]) else np.nan for label in labels])


@dataclass(frozen=True, slots=True)
class Drawn:
    """Measured watts of one device with the work they were drawn under, one entry per row."""

    device: CandidateWatts
    share: Array
    """Of the products in 16 bits."""
    watts: Array
    group: NDArray[np.str_]
    """Source and device: each weighs the same."""

    @classmethod
    def of(cls, watts: Watts, rows: NDArray[np.bool_]) -> "Drawn":
        """Those of public rows; a source with few of one device is left out."""
        sources = watts.measurements.column("source")
        group = np.array([f"{source} {gpu}" for source, gpu in zip(sources, watts.gpu, strict=True)])
        names, sizes = np.unique(group[rows], return_counts=True)
        places = np.flatnonzero(rows & np.isin(group, names[sizes >= MIN_ROWS]))
        candidates = watts.measurements.candidates.take(places)
        share = products_share(candidates, watts.running[places], watts.token_s[places])
        return cls(watts.of(places), share, watts.seen_w[places], group[places])

    def and_those(self, other: "Drawn") -> "Drawn":
        """Both together."""
        ends = self.device, other.device
        device = CandidateWatts(*(np.concatenate([getattr(end, name) for end in ends]) for name in LIMITS))
        share, watts = (
            np.concatenate([getattr(drawn, name) for drawn in (self, other)]) for name in ("share", "watts")
        )
        return Drawn(device, share, watts, np.concatenate([self.group, other.group]))

    def take(self, rows: NDArray[np.bool_]) -> "Drawn":
        """Some of them."""
        device = CandidateWatts(*(getattr(self.device, name)[rows] for name in LIMITS))
        return Drawn(device, self.share[rows], self.watts[rows], self.group[rows])

    def errors(self, constants: Array) -> Array:
        """Logarithms of predicted over measured watts."""
        busy = dict(zip(NAMES, constants, strict=True))
        return np.asarray(np.log(busy_w(self.device, self.share, busy) / self.watts))


def fit(watts: Watts, rows: NDArray[np.bool_]) -> Array:
    """Constants of `[busy]` from public rows."""
    return fit_drawn(Drawn.of(watts, rows))


def fit_drawn(drawn: Drawn) -> Array:
    """Constants of `[busy]`: damped Gauss-Newton on log watts, each source and device weighing the same, large errors
    less."""
    sizes = {group: (drawn.group == group).sum() for group in np.unique(drawn.group)}
    weight = np.array([1 / sizes[group] for group in drawn.group])

    def huber(error: Array) -> float:
        size = np.abs(error)
        return float((weight * np.where(size < ROBUST, size**2, 2 * ROBUST * size - ROBUST**2)).sum())

    at, damping = START.copy(), 1e-2
    best = huber(drawn.errors(at))
    for _ in range(STEPS):
        error = drawn.errors(at)
        slope = np.stack([(drawn.errors(at + step) - error) / 1e-5 for step in 1e-5 * np.eye(len(at))], axis=1)
        robust = weight * np.minimum(1.0, ROBUST / np.maximum(np.abs(error), 1e-12))
        normal = slope.T @ (slope * robust[:, None])
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), slope.T @ (robust * error))
        trial_values = np.clip(at - step, LEAST, MOST)
        if (now := huber(drawn.errors(trial_values))) < best:
            at, best, damping = trial_values, now, damping / 3
        else:
            damping = min(damping * 4, 1e6)
    return at


def uncapped_w(device: CandidateWatts, power_w: Array, clock_share: Array, clock: Busy | None = None) -> Array:
    """Return the watts at the highest clock of a device that draws `power_w` at a share of it, shape (n,)."""
    x = clock or clock_constants()
    fixed = fixed_w(x, device, power_w)
    free_w: Array = fixed + (power_w - fixed) / dynamic_share(x, np.clip(clock_share, x["least"], 1.0))
    return free_w


def log_ratios(
    watts: Watts,
    pairs: Pairs,
    log_tok_s: Array,
    constants: Array | None = None,
    clock: Mapping[str, float] | None = None,
) -> tuple[Array, Array]:
    """Logarithms of the ratios of output tokens/s and of joules per token, after over before; NaN where not known.

    `log_tok_s`: the forecast ratio of tokens/s; returned as it is but for changes that only slow the device down.
    Sees the whole "before" row, and of "after" only its configuration.
    """
    before, after = pairs.before, pairs.after
    here_s = watts.token_s[before]
    there_s = watts.running[after] / (watts.measurements.tok_s[before] * np.exp(log_tok_s))
    here_w = watts.model_w(before, here_s, constants)
    seen_w = np.where(np.isfinite(watts.seen_w[before]), watts.seen_w[before], here_w)
    carried = watts.model_w(after, there_s, constants) / here_w
    slows = np.isin(pairs.column("kind"), CAPPED)

    candidates = watts.measurements.candidates.take(before)
    bound = clock_bound(candidates, steady(candidates, efficiency(), watts.running[before]), clock)
    device = watts.of(before)
    cap = [np.where(np.isfinite(watts.cap_w[rows]), watts.cap_w[rows], np.inf) for rows in (before, after)]
    seen = np.isfinite(watts.clock_share[before])
    binding = seen_w >= BINDING * cap[0]
    share = np.where(seen, watts.clock_share[before], 1.0)
    free_w = np.where(binding & ~seen, np.maximum(seen_w, here_w), uncapped_w(device, seen_w, share, clock))
    share = np.where(binding & ~seen, under_cap(device, free_w, bound, cap[0], clock).clock_share, share)
    # A cap determines more than the clock measured under it; without one the clock was locked. What keeps
    # a clock below its highest and is not the cap stays in force.
    capped = under_cap(device, free_w, bound, cap[1], clock).clock_share
    capped = np.where(binding & (cap[1] > cap[0]), capped, np.minimum(capped, share))
    locked = np.where(np.isfinite(watts.clock_share[after]), watts.clock_share[after], 1.0)
    slowed_before = at_clock(device, free_w, bound, share, clock)
    slowed_after = at_clock(device, free_w, bound, np.where(np.isfinite(cap[1]), capped, locked), clock)
    tok_s = np.where(slows, np.log(slowed_before.slowdown / slowed_after.slowdown), log_tok_s)
    after_w = np.where(slows, slowed_after.power_w, seen_w * carried)
    devices = watts.devices_n[after] / watts.devices_n[before]
    return tok_s, np.log(after_w / seen_w * devices) - tok_s


def fit_clock(watts: Watts, pairs: Pairs, rows: NDArray[np.bool_]) -> dict[str, float]:
    """Constants of `[clock]` with the least errors of tokens/s of these pairs, clusters weighing the same: a search
    along each in turn."""
    some = pairs.take(np.flatnonzero(rows))
    weights = cluster_weights(clusters(some))
    constants = dict(clock_constants())

    def of(clock: Mapping[str, float]) -> float:
        return loss(log_ratios(watts, some, np.zeros(len(some.before)), clock=clock)[0] - some.log_ratio, weights)

    for _ in range(ROUNDS):
        for name, values in TRIED.items():
            losses = [of({**constants, name: value}) for value in values]
            constants[name] = values[int(np.argmin(losses))]
    return {name: constants[name] for name in TRIED}


def by_kind(pairs: Pairs, predicted: Array) -> dict[str, Score]:
    """Errors of ratios of joules per token by kind, low-trust pairs left out."""
    known = np.isfinite(pairs.log_energy_ratio) & (pairs.column("trust") != "low")
    known &= np.isfinite(predicted)
    labels, kinds = clusters(pairs), pairs.column("kind")
    scores = {}
    for kind in np.unique(kinds[known]):
        rows = known & (kinds == kind)
        never = np.zeros(rows.sum(), dtype=bool)
        scores[str(kind)] = score(pairs.log_energy_ratio[rows], predicted[rows], None, labels[rows], never)
    return scores


def without_each_gpu(watts: Watts, pairs: Pairs, log_tok_s: Array) -> Array:
    """Log-ratios of joules per token, with constants refitted without the GPU after the change."""
    logs = np.full(len(pairs.before), np.nan)
    rows = watts.fit_rows()
    for gpu in np.unique(watts.gpu[pairs.after]):
        held = watts.gpu[pairs.after] == gpu
        left = rows & (watts.gpu != gpu)
        if left.any():
            logs[held] = log_ratios(watts, pairs, log_tok_s, fit(watts, left))[1][held]
    return logs


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, score, and print one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.power", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measurements", type=Path, required=True, help="operating points, CSV")
    parser.add_argument("--pairs", type=Path, required=True, help="before/after pairs, CSV")
    parser.add_argument("--fit", action="store_true", help="print the constants on standard error")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    chosen = parser.parse_args(arguments)
    try:
        measurements, pairs = read(chosen.measurements, chosen.pairs)
    except BadFile as error:
        parser.exit(2, f"{error}\n")
    watts = Watts(measurements)
    rows = watts.fit_rows()
    forecast = predict(measurements, pairs, efficiency(), deviation()).log_ratio
    given = pairs.log_ratio
    devices = np.log(watts.devices_n[pairs.after] / watts.devices_n[pairs.before])
    predicted = {
        "constant power, given tok/s": devices - given,
        "model, given tok/s": log_ratios(watts, pairs, given)[1],
        "model without that GPU, given tok/s": without_each_gpu(watts, pairs, given),
        "constant power, forecast tok/s": devices - forecast,
        "model, forecast tok/s": log_ratios(watts, pairs, forecast)[1],
    }
    result_rows = [
        Row(
            name,
            f"{kind}.{figure}",
            round(getattr(score, figure), 4),
            "ratio",
            f"|predicted/measured - 1|; n={score.n}",
        )
        for name, logs in predicted.items()
        for kind, score in by_kind(pairs, logs).items()
        for figure in ("median", "p90")
    ]
    off = np.abs(np.log(watts.model_w(np.flatnonzero(rows), watts.token_s[rows]) / watts.seen_w[rows]))
    result_rows.append(
        Row("model", "watts.median", round(float(np.median(off)), 4), "|log ratio|", f"{rows.sum()} rows")
    )
    if chosen.fit:
        free = rows & np.isin(measurements.column("licence"), FREE)
        for name, which in (("all rows", rows), ("rows free to redistribute", free)):
            constants = ", ".join(f"{key} = {value:.3f}" for key, value in zip(NAMES, fit(watts, which), strict=True))
            print(f"{name} ({which.sum()}): {constants}", file=sys.stderr)
        capped = (pairs.column("kind") == "power_cap") & (pairs.column("trust") != "low")
        capped &= np.isfinite(pairs.log_ratio) & np.isfinite(watts.cap_w[pairs.before] + watts.cap_w[pairs.after])
        free = np.isin(measurements.column("licence"), FREE)
        for name, which in (("all caps", capped), ("caps free to redistribute", capped & free[pairs.before])):
            constants = ", ".join(f"{key} = {value}" for key, value in fit_clock(watts, pairs, which).items())
            print(f"{name} ({which.sum()}): {constants}", file=sys.stderr)
    means = {
        name: np.mean([score.median for score in by_kind(pairs, logs).values()]) for name, logs in predicted.items()
    }
    text = report(
        "power",
        result_rows,
        [
            Target(
                "power.energy_median_over_constant_power",
                round(float(means["model, given tok/s"] / means["constant power, given tok/s"]), 4),
                1.0,
                "<=",
            )
        ],
    )
    print(text)
    if chosen.json:
        chosen.json.write_text(f"{text}\n", encoding="utf-8")
