"""Error of the forecast: `python -m benchmarks.forecast --measurements M.csv --pairs P.csv [--out FILE]`.

For each pair the forecast sees the whole "before" row and the configuration of the "after" row, never its results,
and predicts the ratio of output tokens/s. Errors are |predicted/measured - 1|; every (source, model, GPU) cluster
weighs the same; pairs marked low-trust are left out; an abstention counts as no change.

The figures that count come from nested folds (`nested.py`): the table that judges a pair is refitted from the priors
without its source, its model and its GPUs together, and everything tuned is chosen on pairs of other sources. Beside
them stand the shipped table and tables refitted without the GPU, the model or the source alone, from the rows of the
file and the rows the repository carries.

A change that only slows a device down (a power cap, a locked clock) is what the power model makes of it. Where joules
per token were measured, their ratios are forecast and scored too, beside *no change* and *constant power*.

With `--out` the pairs are only predicted: the shipped table's predictions go to that file as CSV, nothing is refitted
or scored, and no result of an "after" row is read. Progress and tables for people go to stderr; stdout is one JSON
object. `--skip-folds` scores the shipped table without refits; with `--keep` a later run fits only what changed.
"""

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.baselines import baselines
from benchmarks.forecast.figures import (
    NESTED,
    as_rows,
    coverage_rows,
    cut_rows,
    energy_rows,
    energy_tables,
    print_energy,
    print_tables,
    tables,
    targets,
)
from benchmarks.forecast.fit import Evidence
from benchmarks.forecast.fit_table import prior
from benchmarks.forecast.folds import FOLDS, Predicted, Score, apart, predict
from benchmarks.forecast.missing.curve import curve_rows
from benchmarks.forecast.missing.residuals import learned_rows
from benchmarks.forecast.missing.sources import source_rows
from benchmarks.forecast.nested import left_out, nested
from benchmarks.forecast.pairs import as_changes, reasons, slow_down
from benchmarks.forecast.performance.measurements import BadFile, Measurements, Pairs, read, with_carried
from benchmarks.forecast.power import Watts
from benchmarks.forecast.tune import half_widths
from benchmarks.report import Row, report
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import deviation, efficiency, intervals, is_too_wide, path_sources


def by_shipped_table(measurements: Measurements, pairs: Pairs, watts: Watts) -> tuple[Predicted, Array, list[str]]:
    """Return predictions, half widths of their 80 % intervals, and why a pair is not predicted or ""."""
    asked = as_changes(measurements, pairs)
    predicted = predict(measurements, asked, efficiency(), deviation())
    slow_down(watts, pairs, predicted)
    half = half_widths(intervals(), asked, predicted)
    why = reasons(measurements, pairs)
    for place, ends in enumerate(zip(pairs.before, pairs.after, strict=True)):
        missing = sorted({str(path) for end in ends if not path_sources(path := measurements.paths[end])})
        if not why[place] and missing:
            why[place] = f"no public measurement covers these kernels: {', '.join(missing)}"
        elif not why[place] and not np.isfinite(predicted.log_ratio[place]):
            why[place] = "its cells give no finite number"
        elif not why[place] and is_too_wide(half[place]):
            why[place] = "its 80 % interval is too wide to be an estimate"
    return predicted, half, why


def write(path: Path, pairs: Pairs, predicted: Predicted, half: Array, why: list[str]) -> None:
    """Write one line for each pair, in the order of the file."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        out = csv.writer(lines)
        out.writerow(["before", "after", "kind", "predicted", "low80", "high80", "abstained", "reason"])
        for row, likely, width, reason in zip(pairs.rows, predicted.log_ratio, half, why, strict=True):
            numbers = ["", "", ""] if reason else [f"{np.exp(likely + sign * width):.6g}" for sign in (0, -1, 1)]
            out.writerow([row["before"], row["after"], row["kind"], *numbers, int(bool(reason)), reason])


def fold_scores(
    measurements: Measurements,
    pairs: Pairs,
    watts: Watts,
    counted: NDArray[np.bool_],
    abstained: NDArray[np.bool_],
    progress: Callable[[str], None],
    kept: Path | None = None,
) -> tuple[dict[str, dict[str, Score]], Array, NDArray[np.bool_], list[Row]]:
    """Return scores of the nested and of the three plain folds, the nested log-ratios, which of them are abstained,
    and the tuned values as rows of the report."""
    everything, others = with_carried(measurements, pairs)
    evidence = Evidence(everything, as_changes(everything, others), kept)
    asked = as_changes(measurements, pairs)

    def slowed(predicted: Predicted) -> None:
        slow_down(watts, pairs, predicted)

    judged = nested(everything, asked, evidence, prior(), counted & ~abstained, slowed, progress)
    abstained = abstained | judged.unfounded
    silent = abstained | is_too_wide(judged.half)
    ratios = judged.predicted.log_ratio
    scores = {NESTED: tables(asked, ratios, judged.half, silent, counted & np.isfinite(ratios))}
    for column in FOLDS:
        predicted = left_out(everything, asked, evidence, prior(), apart(everything, asked, column), progress)
        slowed(predicted)
        half = judged.half_widths(asked, predicted)
        quiet = abstained | is_too_wide(half)
        rows = counted & np.isfinite(predicted.log_ratio)
        scores[f"without its {column}"] = tables(asked, predicted.log_ratio, half, quiet, rows)
    curve = curve_rows(everything, asked, evidence, prior(), counted & ~abstained, progress)
    held = coverage_rows(asked, ratios, judged.half, silent, counted & np.isfinite(ratios))
    return scores, ratios, silent, [*judged.rows(), *held, *curve]


def main() -> None:
    """Predict, score, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measurements", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="only predict, and write the predictions to this file as CSV")
    parser.add_argument("--skip-folds", action="store_true", help="score the shipped table without refits")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep fitted tables in this folder, and use them")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    try:
        measurements, pairs = read(options.measurements, options.pairs)
    except BadFile as error:
        parser.exit(2, f"{error}\n")

    def progress(step: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{step}", end="", file=sys.stderr, flush=True)

    def publish(text: str) -> None:
        if options.json:
            options.json.write_text(f"{text}\n", encoding="utf-8")
        print(text)

    watts = Watts(measurements)
    shipped, half, why = by_shipped_table(measurements, pairs, watts)
    abstained = np.array([bool(reason) for reason in why])
    if options.out:
        write(options.out, pairs, shipped, half, why)
        method = "predicted by the shipped table, not scored"
        counts = {"predicted": int((~abstained).sum()), "abstained": int(abstained.sum())}
        publish(report("forecast", [Row("pairs", what, n, "pairs", method) for what, n in counts.items()], []))
        return
    counted = (pairs.column("trust") != "low") & np.isfinite(pairs.log_ratio)
    tables_of = {"shipped table": tables(pairs, shipped.log_ratio, half, abstained, counted)}
    same = pairs.column("same_engine_version") != "0"
    tables_of["shipped table, same engine version"] = tables(pairs, shipped.log_ratio, half, abstained, counted & same)
    none_abstained = np.zeros(len(abstained), dtype=bool)
    for name, ratios in baselines(measurements, pairs).items():
        tables_of[name] = tables(pairs, ratios, None, none_abstained, counted)
    more: list[Row] = []
    if not options.skip_folds and counted.any():
        refused = np.array([bool(reason) for reason in reasons(measurements, pairs)])
        scores, fold, silent, more = fold_scores(measurements, pairs, watts, counted, refused, progress, options.keep)
        tables_of |= scores
        rows = counted & np.isfinite(fold)
        more += cut_rows(measurements, pairs, fold, silent, rows) + learned_rows(measurements, pairs, fold, rows)
        more += source_rows(measurements, pairs, fold, silent, rows)
    progress("")
    print_tables(tables_of)
    energy = energy_tables(watts, pairs, shipped.log_ratio, abstained)
    print_energy(energy)
    for row in more:
        print(f"{row.subject}: {row.what} {row.value} {row.unit}", file=sys.stderr)
    publish(report("forecast", as_rows(tables_of, measurements) + energy_rows(energy) + more, targets(tables_of)))
