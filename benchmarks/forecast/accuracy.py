"""How far the forecast is off: `python -m benchmarks.forecast --measurements M.csv --pairs P.csv [--out FILE]`.

For each pair the forecast sees the whole "before" row and the configuration of the "after" row, never its results,
and predicts the ratio of output tokens/s. Errors are |predicted/measured - 1|; every (source, model, GPU) cluster
weighs the same; pairs marked low-trust are left out; an abstention counts as no change. Beside the shipped table, each
GPU, model and source is left out in turn and the table refitted without it, from the other rows of the file and the
rows the repository carries, because a new host is like that.

A change that only slows a device down (a power cap, a locked clock) is what the power model makes of it. Where joules
per token were measured, their ratios are forecast and scored too, beside *no change* and *constant power*.

Predictions of the shipped table go to `--out` as CSV; progress and tables for people go to stderr; stdout is one JSON
object. `--skip-folds` leaves the refits out.
"""

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.baselines import baselines, noise_floor
from benchmarks.forecast.fit import Evidence, fit
from benchmarks.forecast.folds import FOLDS, MACRO, Predicted, Score, clusters, held, leave_out, macro, predict, score
from benchmarks.forecast.pairs import as_changes, reasons, slow_down
from benchmarks.forecast.performance.measurements import BadFile, Measurements, Pairs, read, with_carried
from benchmarks.forecast.power import Watts, by_kind, log_ratios
from benchmarks.forecast.residuals import corrected, features
from benchmarks.report import Row, Target, report
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import attenuation, deviation, efficiency, half_width, transfer

MUST = {
    "median": (0.11, "<="),
    "p90": (0.38, "<="),
    "coverage": (0.78, ">="),
    "sign": (0.90, ">="),
    "abstained": (0.10, "<="),
}
REACH = {
    "median": (0.05, "<="),
    "p90": (0.15, "<="),
    "coverage": (0.80, ">="),
    "sign": (0.95, ">="),
    "abstained": (0.10, "<="),
}
FIGURES = tuple(MUST)


def _kept(kind: str) -> Array:
    return transfer([kind])


def _damped(kind: str) -> float:
    return attenuation([kind])


def half_widths(pairs: Pairs, predicted: Predicted) -> Array:
    """Half widths of the 80 % intervals of log-ratios."""
    kinds = pairs.column("kind")
    found = np.zeros(len(kinds))
    for kind in np.unique(kinds):
        rows = kinds == kind
        found[rows] = half_width([kind], predicted.log_sd[rows])
    return found


def by_shipped_table(measurements: Measurements, pairs: Pairs, watts: Watts) -> tuple[Predicted, Array, list[str]]:
    """(predictions, half widths of their 80 % intervals, why a pair is not predicted or "")."""
    asked = as_changes(measurements, pairs)
    found = predict(measurements, asked, efficiency(), deviation(), _kept, damped=_damped)
    slow_down(watts, pairs, found)
    half = half_widths(asked, found)
    finite = np.isfinite(found.log_ratio) & (half < np.log(np.finfo(float).max) / 2)
    why = [
        reason or ("" if known else "its cells give no finite number")
        for reason, known in zip(reasons(measurements, pairs), finite, strict=True)
    ]
    return found, half, why


def tables(
    pairs: Pairs, predicted: Array, half: Array | None, abstained: NDArray[np.bool_], rows: NDArray[np.bool_]
) -> dict[str, Score]:
    """Scores by kind of the pairs marked in `rows`."""
    kinds, labels = pairs.column("kind"), clusters(pairs)
    found = {}
    for kind in dict.fromkeys([*MACRO, *sorted(set(kinds))]):
        chosen = np.flatnonzero((kinds == kind) & rows)
        if len(chosen):
            found[kind] = score(
                pairs.log_ratio[chosen],
                predicted[chosen],
                half[chosen] if half is not None else None,
                labels[chosen],
                abstained[chosen],
            )
    return found


def macro_of(scores: dict[str, Score]) -> Score:
    """The macro average over the kinds it is defined on."""
    return macro(found for kind, found in scores.items() if kind in MACRO)


def fold_predictions(
    known: tuple[Measurements, Pairs],
    pairs: Pairs,
    column: str,
    evidence: Evidence,
    start: Array,
    progress: Callable[[str], None],
) -> tuple[Predicted, list[str]]:
    """Predictions by tables that never saw the value, and the folds with no pair of a kind left to fit on.

    `known`: everything a refit may see, the scored rows first; `pairs`: what is scored.
    """
    measurements, others = known
    found, bare = Predicted.none(len(pairs.before)), []
    kinds, tested = pairs.column("kind"), held(pairs, column)
    groups = measurements.column(column)
    for value, refitted in leave_out(measurements, pairs, evidence, start, column, progress).items():
        only = np.flatnonzero(tested == value)
        part = predict(measurements, pairs, refitted, deviation(), _kept, only, _damped)
        found.log_ratio[only], found.log_sd[only] = part.log_ratio[only], part.log_sd[only]
        left = (groups[others.before] != value) & (groups[others.after] != value) & (others.column("trust") != "low")
        for kind in sorted(set(kinds[only]) & set(MACRO)):
            if not (left & (others.column("kind") == kind)).any():
                bare.append(f"{kind} without {column} {value}")
                found.log_ratio[only[kinds[only] == kind]] = np.nan
    return found, bare


def evidence_cuts(measurements: Measurements, pairs: Pairs) -> dict[str, NDArray[np.bool_]]:
    """Pairs by what is known of them: where errors differ between two cuts, that evidence is what is missing."""
    before, after = pairs.before, pairs.after
    mixture = measurements.candidates.n_experts > 0
    batch = np.isfinite(measurements.candidates.concurrency)
    same = pairs.column("same_engine_version") != "0"
    kinds, engines, places = pairs.column("kind"), measurements.column("engine"), pairs.column("gpu_after")
    sources = pairs.column("source")
    elsewhere = np.array(
        [
            bool(((kinds == kind) & (places == place) & (sources != source)).any())
            for kind, place, source in zip(kinds, places, sources, strict=True)
        ]
    )
    named = np.array([any(letter.isdigit() for letter in engine) for engine in engines])
    return {
        "engine version the same on both sides": same,
        "engine version changes too": ~same,
        "engine version named": named[after],
        "engine version not named": ~named[after],
        "dense model": ~mixture[after],
        "mixture of experts": mixture[after],
        "batch given": batch[before] & batch[after],
        "batch limited by memory or unknown": ~(batch[before] & batch[after]),
        "another source measured this kind of change on this device": elsewhere,
        "no other source did": ~elsewhere,
    }


def cut_rows(
    measurements: Measurements,
    pairs: Pairs,
    folds: list[Array],
    abstained: NDArray[np.bool_],
    trusted: NDArray[np.bool_],
) -> list[Row]:
    """Mean over left-out folds and kinds of the errors in each cut of the evidence."""
    rows = []
    for name, cut in evidence_cuts(measurements, pairs).items():
        scores = [
            macro_of(tables(pairs, fold, None, abstained, trusted & cut & np.isfinite(fold)))
            for fold in folds
            if (trusted & cut & np.isfinite(fold)).any()
        ]
        for figure in ("median", "p90"):
            value = float(np.mean([getattr(each, figure) for each in scores])) if scores else float("nan")
            given = None if np.isnan(value) else round(value, 4)
            rows.append(Row("what is missing", f"{name}.{figure}", given, "ratio", "mean of folds and of their kinds"))
    return rows


def learned_rows(measurements: Measurements, pairs: Pairs, folds: list[Array], trusted: NDArray[np.bool_]) -> list[Row]:
    """Macro errors of the left-out folds if the errors of other left-out pairs corrected them: `corrected`."""
    columns, nobody = features(measurements, pairs), np.zeros(len(trusted), dtype=bool)
    scores = []
    for column, fold in zip(FOLDS, folds, strict=False):
        better = corrected(pairs, columns, fold, held(pairs, column))
        scores.append(macro_of(tables(pairs, better, None, nobody, trusted & np.isfinite(fold))))
    method = "kernel regression on the errors of the other left-out pairs; mean of the folds"
    return [
        Row("corrected by learned errors", f"macro.{figure}", round(mean, 4), "ratio", method)
        for figure in ("median", "p90")
        if np.isfinite(mean := float(np.mean([getattr(each, figure) for each in scores])) if scores else np.nan)
    ]


def energy_tables(
    watts: Watts, pairs: Pairs, log_tok_s: Array, abstained: NDArray[np.bool_]
) -> dict[str, dict[str, Score]]:
    """Scores by kind of ratios of joules per generated token, on the pairs where they were measured and forecast."""
    with np.errstate(all="ignore"):
        forecast = log_ratios(watts, pairs, log_tok_s)[1]
        constant = np.log(watts.devices_n[pairs.after] / watts.devices_n[pairs.before]) - log_tok_s
    known = abstained | (np.isfinite(forecast) & np.isfinite(constant))
    ratios = {
        "energy per token": forecast,
        "energy per token, constant power": constant,
        "energy per token, no change": np.zeros(len(log_tok_s)),
    }
    return {
        name: by_kind(pairs, np.where(abstained, 0.0, np.where(known, each, np.nan))) for name, each in ratios.items()
    }


def print_energy(found: dict[str, dict[str, Score]]) -> None:
    """Median / p90 errors in percent, for people."""
    for name, scores in found.items():
        mean = macro(scores.values())
        print(f"\n{name}: mean of kinds {100 * mean.median:.1f} / {100 * mean.p90:.1f} %", file=sys.stderr)
        for kind, each in scores.items():
            print(f"  {kind:20} n={each.n:<5} {100 * each.median:5.1f} / {100 * each.p90:5.1f} %", file=sys.stderr)


def energy_rows(found: dict[str, dict[str, Score]]) -> list[Row]:
    """The same as rows of the report."""
    method = "|predicted/measured - 1| of J/token ratios, forecast tok/s, clusters equal, low-trust pairs out"
    return [
        Row(name, f"{kind}.{figure}", round(float(getattr(each, figure)), 4), "ratio", f"{method}; n={each.n}")
        for name, scores in found.items()
        for kind, each in [*scores.items(), ("mean of kinds", macro(scores.values()))]
        for figure in ("median", "p90")
        if np.isfinite(getattr(each, figure))
    ]


def write(path: Path, pairs: Pairs, predicted: Predicted, half: Array, why: list[str]) -> None:
    """One line for each pair, in the order of the file."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        out = csv.writer(lines)
        out.writerow(["before", "after", "kind", "predicted", "low80", "high80", "abstained", "reason"])
        for row, likely, width, reason in zip(pairs.rows, predicted.log_ratio, half, why, strict=True):
            numbers = ["", "", ""] if reason else [f"{np.exp(likely + each * width):.6g}" for each in (0, -1, 1)]
            out.writerow([row["before"], row["after"], row["kind"], *numbers, int(bool(reason)), reason])


def main() -> None:
    """Predict, score, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measurements", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="CSV of predictions")
    parser.add_argument("--skip-folds", action="store_true", help="do not refit without each GPU, model and source")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    try:
        measurements, pairs = read(options.measurements, options.pairs)
    except BadFile as error:
        parser.exit(2, f"{error}\n")

    def progress(step: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{step}", end="", file=sys.stderr, flush=True)

    watts = Watts(measurements)
    shipped, half, why = by_shipped_table(measurements, pairs, watts)
    abstained = np.array([bool(each) for each in why])
    if options.out:
        write(options.out, pairs, shipped, half, why)
    trusted = (pairs.column("trust") != "low") & np.isfinite(pairs.log_ratio)
    found = {"shipped table": tables(pairs, shipped.log_ratio, half, abstained, trusted)}
    same = pairs.column("same_engine_version") != "0"
    found["shipped table, same engine version"] = tables(pairs, shipped.log_ratio, half, abstained, trusted & same)
    nobody = np.zeros(len(abstained), dtype=bool)
    for name, ratios in baselines(measurements, pairs).items():
        found[name] = tables(pairs, ratios, None, nobody, trusted)
    bare: list[str] = []
    folds: list[Array] = []
    if not options.skip_folds and trusted.any():
        everything, others = with_carried(measurements, pairs)
        known = everything, as_changes(everything, others)
        asked = as_changes(measurements, pairs)
        evidence = Evidence(*known)
        start = fit(evidence)
        for column in FOLDS:
            fold, empty = fold_predictions(known, asked, column, evidence, start, progress)
            bare += empty
            slow_down(watts, pairs, fold)
            folds.append(fold.log_ratio)
            scored = trusted & np.isfinite(fold.log_ratio)
            found[f"without its {column}"] = tables(pairs, fold.log_ratio, half_widths(asked, fold), abstained, scored)
    progress("")
    print_tables(found, bare)
    energy = energy_tables(watts, pairs, shipped.log_ratio, abstained)
    print_energy(energy)
    rows = (
        as_rows(found, measurements, bare)
        + energy_rows(energy)
        + cut_rows(measurements, pairs, folds, abstained, trusted)
        + learned_rows(measurements, pairs, folds, trusted)
    )
    for row in rows:
        if row.subject in ("what is missing", "corrected by learned errors", "noise floor"):
            print(f"{row.subject}: {row.what} {row.value} {row.unit}", file=sys.stderr)
    text = report("forecast", rows, targets(found))
    if options.json:
        options.json.write_text(f"{text}\n", encoding="utf-8")
    print(text)


def print_tables(found: dict[str, dict[str, Score]], bare: list[str]) -> None:
    """Median / p90 errors in percent, for people."""
    for name, scores in found.items():
        mean = macro_of(scores)
        print(f"\n{name}: macro {_figures(mean)}", file=sys.stderr)
        for kind, each in scores.items():
            print(f"  {kind:20} n={each.n:<5} clusters={each.clusters:<3} {_figures(each)}", file=sys.stderr)
    for fold in bare:
        print(f"left out, nothing to fit on: {fold}", file=sys.stderr)


def _figures(each: Score) -> str:
    return (
        f"{100 * each.median:5.1f} / {100 * each.p90:5.1f} %  covers {100 * each.coverage:3.0f} %  "
        f"sign {100 * each.sign:3.0f} %  abstained {100 * each.abstained:.0f} %"
    )


def as_rows(found: dict[str, dict[str, Score]], measurements: Measurements, bare: list[str]) -> list[Row]:
    """Every figure as a row of the report."""
    rows = []
    method = "|predicted/measured - 1| of output tok/s ratios, clusters (source, model, GPU) equal, low-trust pairs out"
    for name, scores in found.items():
        for kind, each in [*scores.items(), ("macro", macro_of(scores))]:
            for figure in FIGURES:
                value = getattr(each, figure)
                given = None if np.isnan(value) else round(float(value), 4)
                rows.append(Row(name, f"{kind}.{figure}", given, "ratio", f"{method}; n={each.n}"))
    for name, (n, median, p90) in noise_floor(measurements).items():
        rows.append(Row("noise floor", f"{name}.median", round(median, 4), "max/min", f"{n} repeated configurations"))
        rows.append(Row("noise floor", f"{name}.p90", round(p90, 4), "max/min", f"{n} repeated configurations"))
    rows += [Row("folds", "left out", each, "", "no pair of this kind was left to fit on") for each in bare]
    rows += [
        Row("not better", f"{kind}.{figure}", None, "", "beside no change and additive, mean of the left-out folds")
        for figure in ("median", "p90")
        for kind in not_better(found, scored_by(found), figure)
    ]
    return rows


def scored_by(found: dict[str, dict[str, Score]]) -> list[str]:
    """The tables that limits hold for: those that never saw what they predict, where there are any."""
    return [name for name in found if name.startswith("without its ")] or ["shipped table"]


def not_better(found: dict[str, dict[str, Score]], names: list[str], figure: str) -> list[str]:
    """Kinds of change, of every one in the file, whose mean over these subjects is not below both *no change* and
    *additive*."""
    behind = []
    for kind, unchanged in found["no change"].items():
        ours = [getattr(found[name][kind], figure) for name in names if kind in found[name]]
        if ours and np.mean(ours) >= min(getattr(unchanged, figure), getattr(found["additive"][kind], figure)):
            behind.append(kind)
    return behind


def targets(found: dict[str, dict[str, Score]]) -> list[Target]:
    """The limits on the mean of the leave-one-out figures; on the shipped table's where those were not asked for."""
    names = scored_by(found)
    means = [macro_of(found[name]) for name in names]
    out = []
    for level, limits in (("must", MUST), ("reach", REACH)):
        for figure, (limit, op) in limits.items():
            value = float(np.mean([getattr(each, figure) for each in means]))
            out.append(Target(f"forecast.{level}.{figure}", None if np.isnan(value) else value, limit, op))
    for figure in ("median", "p90"):
        behind = not_better(found, names, figure)
        out.append(Target(f"forecast.must.kinds_not_better_{figure}", float(len(behind)), 0.0, "<="))
    return out
