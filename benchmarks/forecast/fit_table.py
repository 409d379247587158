"""Fit the forecast's efficiency table: `python -m benchmarks.fit_forecast PATH [--out efficiency.toml]`.

PATH is a folder with `measurements.csv` and `pairs.csv`. The same files always give the same table. Three steps:
the constants, by maximum a posteriori on rows and pairs; how much of a deployment's own deviation outlives each kind
of change, on pairs that were left out; how wide intervals must be to hold 80 % of those. It prints what changed
against the shipped table, and how far ratios move if only rows under a licence that allows copying are used.
"""

import argparse
import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.fit import Evidence, as_efficiency, design, fit, parameters
from benchmarks.forecast.folds import (
    FOLDS,
    MACRO,
    Predicted,
    cluster_weights,
    clusters,
    held,
    leave_out,
    loss,
    predict,
    quantile,
)
from benchmarks.forecast.pairs import as_changes, reasons, slow_down
from benchmarks.forecast.performance.measurements import BadFile, Measurements, Pairs, measured, read
from benchmarks.forecast.power import CAPPED, Watts
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import Deviation, efficiency, table, tag_names
from pertoken.forecast.terms import OVERHEAD_S, TERMS

SHIPPED = Path(__file__).parents[2] / "pertoken/forecast/efficiency.toml"
LICENSED = ("Apache-2.0", "MIT", "BSD-3-Clause", "BSD-2-Clause")
SHARES = (1.0, 0.6, 0.2)
"""Shares of a deviation that are tried for each kind of change, the most trusting first."""
LEAST_GAIN = 0.02
"""By how much a smaller share must lower a kind's loss, as a share of it, to be taken."""
FEWEST_CLUSTERS = 3
"""Of (source, model, GPU) that shares, attenuations and intervals narrower than a judgement may rest on."""
SLOPES = tuple(round(0.5 + 0.05 * step, 2) for step in range(11))
LEAST_SLOPE_GAIN = 0.005
"""The same for an attenuation."""


def prior() -> Deviation:
    """Deviations of single deployments, from the design."""
    rows = design()["deviation"]["groups"]
    groups = np.array([[float(term in _terms(row)) for term in TERMS] for row in rows.values()])
    sd = np.array([row["sd"] for row in rows.values()])
    return Deviation(tuple(rows), groups, sd, design()["deviation"]["noise"], design()["deviation"]["misfit"])


def _terms(row: Mapping[str, Any]) -> tuple[str, ...]:
    return TERMS if row["terms"] == ["all"] else tuple(row["terms"])


def held_out(
    measurements: Measurements, pairs: Pairs, evidence: Evidence, start: Array, progress: Callable[[str], None]
) -> Callable[[Callable[[str], Array], str | None], list[Predicted]]:
    """A function of (shares kept by kind, one kind or all) to predictions of every fold, each by tables that never
    saw the value of that fold's column."""
    kinds = pairs.column("kind")
    tables = {column: leave_out(measurements, pairs, evidence, start, column, progress) for column in FOLDS}
    columns = {column: held(pairs, column) for column in FOLDS}

    def by_fold(kept: Callable[[str], Array], kind: str | None) -> list[Predicted]:
        found = []
        for column in FOLDS:
            fold = Predicted.none(len(kinds))
            for value, refitted in tables[column].items():
                only = np.flatnonzero((columns[column] == value) & ((kinds == kind) if kind else True))
                part = predict(measurements, pairs, refitted, prior(), kept, only)
                fold.log_ratio[only], fold.log_sd[only] = part.log_ratio[only], part.log_sd[only]
            found.append(fold)
        return found

    return by_fold


def transfers(
    pairs: Pairs,
    counted: NDArray[np.bool_],
    by_fold: Callable[[Callable[[str], Array], str | None], list[Predicted]],
    progress: Callable[[str], None],
) -> dict[str, dict[str, float]]:
    """Share of each deviation that stays, by kind; what is not named stays whole."""
    names = prior().names
    found: dict[str, dict[str, float]] = {}
    labels, kinds = clusters(pairs), pairs.column("kind")
    for kind in sorted(set(kinds)):
        rows = np.flatnonzero((kinds == kind) & counted)
        if len(set(labels[rows])) < FEWEST_CLUSTERS:
            continue
        progress(f"what outlives {kind}")
        weights = cluster_weights(labels[rows])

        def over_folds(shares: Array, kind: str = kind, rows: Any = rows, weights: Array = weights) -> float:
            folds = by_fold(lambda _: shares, kind)
            return sum(loss(fold.log_ratio[rows] - pairs.log_ratio[rows], weights) for fold in folds)

        shares, least = np.ones(len(names)), over_folds(np.ones(len(names)))
        for place in (names.index(each) for each in design()["touches"].get(kind, names)):
            for share in SHARES[1:]:
                trial = shares.copy()
                trial[place] = share
                if (value := over_folds(trial)) < least * (1 - LEAST_GAIN):
                    shares, least = trial, value
        if (shares < 1).any():
            found[kind] = {name: float(share) for name, share in zip(names, shares, strict=True) if share < 1}
    return found


def attenuations(pairs: Pairs, counted: NDArray[np.bool_], folds: list[Predicted]) -> dict[str, float]:
    """What measured log-ratios are of predicted ones on pairs left out, by kind: the slope of least absolute error,
    clusters weighing the same; 1 where that is nearly as good. `other`, for kinds of too few clusters: their mean."""
    found = {}
    labels, kinds = clusters(pairs), pairs.column("kind")
    for kind in sorted(set(kinds)):
        rows = np.flatnonzero((kinds == kind) & counted)
        if kind in CAPPED or len(set(labels[rows])) < FEWEST_CLUSTERS:
            continue
        weights = cluster_weights(labels[rows])

        def over_folds(slope: float, rows: Any = rows, weights: Array = weights) -> float:
            errors = [np.abs(slope * fold.log_ratio[rows] - pairs.log_ratio[rows]) for fold in folds]
            return float(sum(np.average(np.minimum(each, 1.0), weights=weights) for each in errors))

        best = min(SLOPES, key=over_folds)
        found[kind] = best if over_folds(best) < over_folds(1.0) * (1 - LEAST_SLOPE_GAIN) else 1.0
    found["other"] = round(float(np.mean(list(found.values()))), 2)
    return found


def errors(
    pairs: Pairs, counted: NDArray[np.bool_], folds: list[Predicted], measurements: Measurements, absolute: Array
) -> dict[str, dict[str, float]]:
    """What intervals of each kind must be so that 80 % of left-out pairs lie within, each cluster weighing the same."""
    rules, found = design()["interval"], {}
    labels, kinds = clusters(pairs), pairs.column("kind")
    for kind in sorted(set(kinds)):
        rows = np.flatnonzero((kinds == kind) & counted)
        if not len(rows):
            continue
        n = len(set(labels[rows]))
        weights = np.tile(cluster_weights(labels[rows]), len(folds))
        error = np.concatenate([np.abs(fold.log_ratio[rows] - pairs.log_ratio[rows]) for fold in folds])
        sd = np.concatenate([fold.log_sd[rows] for fold in folds])
        # The fewer clusters, the further the next one may be out: the usual conformal correction.
        share = min(1.0, rules["share"] * (1 + 1 / n))
        floor = rules["floor"]
        per_sd = quantile(np.sqrt(np.maximum(error**2 - floor**2, 0.0)) / sd, weights, share)
        if per_sd > rules["most_per_sd"]:
            # What the calibration left open does not tell these errors apart: they share one width.
            per_sd = 1.0
            floor = quantile(np.sqrt(np.maximum(error**2 - sd**2, rules["floor"] ** 2)), weights, share)
        if n < FEWEST_CLUSTERS:
            floor = max(floor, rules["others_floor"])
        per_sd = max(per_sd, rules["least_per_sd"])
        found[kind] = {"floor": round(floor, 3), "per_sd": round(per_sd, 3), "n": len(rows), "clusters": n}
    found["other"] = {
        "floor": rules["others_floor"],
        "per_sd": float(np.median([row["per_sd"] for row in found.values()])),
    }
    rows = np.flatnonzero((measurements.column("trust") != "low") & np.isfinite(absolute))
    found["absolute"] = {"p80": round(float(np.expm1(np.quantile(np.abs(absolute[rows]), 0.8))), 3), "n": len(rows)}
    return found


def text(
    values: Array,
    kept: Mapping[str, Mapping[str, float]],
    slopes: Mapping[str, float],
    widths: Mapping[str, Mapping[str, float]],
    evidence: Evidence,
    as_of: str,
) -> str:
    """The table as TOML."""
    known, least = parameters(), design()["evidence"]["least_adjustment"]
    lines = [
        "# What engines reach of their hardware: written by `python -m benchmarks.fit_forecast`, never by hand.",
        "# base and by.TAG: logarithms of how much longer a term takes than at its listed rate (for overheads, than",
        f"# its unit); adjustments below {least} are left out. The base is a dense model in 16 bits on Hopper under",
        "# TensorRT-LLM. deviation: how far single deployments are from that, as standard deviations of log times.",
        "# transfer: share of such a deviation that outlives a change. attenuation: what measured log-ratios are of",
        "# predicted ones on deployments left out of the fit. error: the 80 % interval of a log-ratio is",
        "# hypot(floor, per_sd x what the calibration left open), wide enough for 80 % of pairs left out of the fit.",
        "",
        f"tags = [{', '.join(map(_quoted, tag_names()))}]",
        "",
        "[fit]",
        f"rows = {int((evidence.row_weight > 0).sum())}",
        f"pairs = {int((evidence.pair_weight > 0).sum())}",
        f"parameters = {len(values)}",
        f'as_of = "{as_of}"',
        f'source = "public measurements, {", ".join(design()["evidence"]["sources"])}"',
    ]
    for place, term in enumerate(TERMS):
        own = values[(known.term == place) & (known.tag < 0)][0]
        unit = f"{OVERHEAD_S[term]:g} s" if term in OVERHEAD_S else "listed rate"
        lines += ["", f"[terms.{term}]", f'unit = "{unit}"', f"base = {own:.3f}"]
        adjusted = [
            f"{_quoted(tag_names()[tag])} = {value:.3f}"
            for tag, value in zip(known.tag[known.term == place], values[known.term == place], strict=True)
            if tag >= 0 and abs(value) >= least
        ]
        if adjusted:
            lines.append(f"by = {{ {', '.join(adjusted)} }}")
    lines += ["", "[deviation]", f"noise = {prior().noise}", f"misfit = {prior().misfit}", "", "[deviation.groups]"]
    for name, row in design()["deviation"]["groups"].items():
        lines.append(f"{name} = {{ sd = {row['sd']}, terms = [{', '.join(map(_quoted, _terms(row)))}] }}")
    lines += ["", "[attenuation]", *(f"{kind} = {slope}" for kind, slope in slopes.items())]
    for title, rows in (("transfer", kept), ("error", widths)):
        lines += ["", f"[{title}]"]
        lines += [
            f"{kind} = {{ {', '.join(f'{key} = {value}' for key, value in row.items())} }}"
            for kind, row in rows.items()
        ]
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return f'"{name}"'


def licensed(measurements: Measurements, pairs: Pairs) -> tuple[Measurements, Pairs]:
    """Only rows that may be copied, and pairs of two of them."""
    places = np.flatnonzero(np.isin(measurements.column("licence"), LICENSED))
    moved = np.full(len(measurements.rows), -1)
    moved[places] = np.arange(len(places))
    keep = np.flatnonzero((moved[pairs.before] >= 0) & (moved[pairs.after] >= 0))
    kept = Pairs(
        rows=tuple(pairs.rows[place] for place in keep),
        before=moved[pairs.before[keep]],
        after=moved[pairs.after[keep]],
        log_ratio=pairs.log_ratio[keep],
        log_energy_ratio=pairs.log_energy_ratio[keep],
    )
    return measured([measurements.rows[place] for place in places]), kept


def differences(measurements: Measurements, pairs: Pairs, all_rows: Array, some: Array) -> list[str]:
    """How far ratios of each kind move between two fits: the median and the ninth decile of the cluster-weighted
    difference, in percent."""
    lines, kinds, labels = [], pairs.column("kind"), clusters(pairs)
    everything = np.ones(len(prior().names))
    one, other = (
        predict(measurements, pairs, as_efficiency(values), prior(), lambda _: everything).log_ratio
        for values in (all_rows, some)
    )
    for kind in MACRO:
        rows = np.flatnonzero((kinds == kind) & np.isfinite(one) & np.isfinite(other))
        if len(rows):
            moved, weights = np.abs(np.expm1(other[rows] - one[rows])), cluster_weights(labels[rows])
            half, most = (100 * quantile(moved, weights, share) for share in (0.5, 0.9))
            lines.append(f"  {kind}: median {half:.1f} %, p90 {most:.1f} %")
    return lines


def write_rows(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Rows as they were read."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        out = csv.DictWriter(lines, fieldnames=list(rows[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, print the differences, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="folder with measurements.csv and pairs.csv")
    parser.add_argument(
        "--out", type=Path, default=SHIPPED, help="where the table is written (default: the shipped one)"
    )
    parser.add_argument(
        "--as-of", default=None, help="date the measurements were collected (default: the shipped one's)"
    )
    parser.add_argument("--licensed", type=Path, help="folder to write the rows that may be copied to, and their pairs")
    options = parser.parse_args(arguments)
    try:
        measurements, told = read(options.path / "measurements.csv", options.path / "pairs.csv")
    except BadFile as error:
        parser.exit(2, f"{error}\n")
    pairs = as_changes(measurements, told)
    as_of = options.as_of or table()["fit"]["as_of"]

    def progress(step: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{step}", end="", file=sys.stderr, flush=True)

    progress("fitting all rows")
    evidence = Evidence(measurements, pairs)
    values = fit(evidence)
    by_fold = held_out(measurements, pairs, evidence, values, progress)
    watts = Watts(measurements)
    counted = (pairs.column("trust") != "low") & np.isfinite(pairs.log_ratio)
    counted &= np.array([not why for why in reasons(measurements, pairs)])
    kept = transfers(pairs, counted, by_fold, progress)
    names = prior().names
    raw = by_fold(lambda kind: np.array([kept.get(kind, {}).get(name, 1.0) for name in names]), None)
    slopes = attenuations(pairs, counted, raw)
    damping = np.array([slopes.get(kind, slopes["other"]) for kind in pairs.column("kind")])
    folds = [Predicted(damping * each.log_ratio, each.log_sd) for each in raw]
    for fold in folds:
        slow_down(watts, pairs, fold)
    absolute = evidence.log_tok_s - evidence.predict(values)[0]
    widths = errors(pairs, counted, folds, measurements, absolute)
    some_measurements, some_pairs = licensed(measurements, told)
    if options.licensed:
        write_rows(options.licensed / "measurements.csv", some_measurements.rows)
        write_rows(options.licensed / "pairs.csv", some_pairs.rows)
    progress("fitting licensed rows only")
    some = fit(Evidence(some_measurements, as_changes(some_measurements, some_pairs)))
    progress("")
    shipped = efficiency()
    moved = (
        np.abs(as_efficiency(values).by_tag - shipped.by_tag).max(),
        np.abs(as_efficiency(values).base - shipped.base).max(),
    )
    print(f"against the shipped table: base moves by up to {moved[1]:.3f}, adjustments by up to {moved[0]:.3f} (log)")
    print(f"licensed rows only ({len(some_measurements.rows)} of {len(measurements.rows)}): ratios move by")
    print("\n".join(differences(measurements, pairs, values, some)))
    options.out.write_text(text(values, kept, slopes, widths, evidence, as_of), encoding="utf-8")
