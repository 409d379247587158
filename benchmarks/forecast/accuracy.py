"""Error of the forecast: `python -m benchmarks.forecast --measurements M.csv --pairs P.csv [--out FILE]`.

For each pair the forecast sees the whole "before" row and the configuration of the "after" row, never its results,
and predicts the ratio of output tokens/s. Errors are |predicted/measured - 1|; every (source, model, GPU) cluster
weighs the same; pairs marked low-trust are left out; an abstention counts as no change.

The figures that count are those of unseen pairs: pairs of the half of the sources that judges (`folds.judges`), each by
a table refitted without its source, its model and its GPUs together. Which adjustments the table has was chosen on the
other half. Beside them stand the shipped table, and baselines that read no table, a rule of thumb among them.

A change that only slows a device down (a power cap, a locked clock) is what the power model makes of it. Where joules
per token were measured, their ratios are forecast and scored too, beside *no change* and *constant power*.

With `--out` the pairs are only predicted: the shipped table's predictions go to that file as CSV, nothing is refitted
or scored, and no result of an "after" row is read. Progress and tables for people go to stderr; stdout is one JSON
object. `--skip-folds` scores the shipped table without refits; with `--keep`
a later run fits only what changed.
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
    UNSEEN,
    as_rows,
    energy_rows,
    energy_tables,
    print_energy,
    print_tables,
    regimes,
    tables,
    targets,
)
from benchmarks.forecast.fit import Evidence, running
from benchmarks.forecast.fit_table import prior
from benchmarks.forecast.folds import (
    Predicted,
    few_of_each_source,
    half_widths,
    judges,
    left_out,
    predict,
    together,
    unfounded,
)
from benchmarks.forecast.pairs import as_changes, reasons, slow_down
from benchmarks.forecast.performance.measurements import BadFile, Measurements, Pairs, read, with_carried
from benchmarks.forecast.power import Watts
from benchmarks.report import Row, report
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import deviation, efficiency, intervals, path_sources

Bools = NDArray[np.bool_]


def by_shipped_table(measurements: Measurements, pairs: Pairs, watts: Watts) -> tuple[Predicted, Array, list[str]]:
    """Return predictions, half widths of their 80 % intervals, and why a pair is not predicted or ""."""
    asked = as_changes(measurements, pairs)
    predicted = predict(measurements, asked, efficiency(), deviation())
    slow_down(watts, pairs, predicted)
    uncovered = np.array([not path_sources(path) for path in measurements.paths])
    half = widened(half_widths(asked, predicted), uncovered[pairs.before] | uncovered[pairs.after])
    why = reasons(measurements, pairs)
    for place, likely in enumerate(predicted.log_ratio):
        if not why[place] and not np.isfinite(likely):
            why[place] = "its cells give no finite number"
    return predicted, half, why


def widened(half: Array, uncovered: Bools) -> Array:
    """Return half widths that are at least those of unmeasured kinds where kernels are not covered."""
    return np.asarray(np.where(uncovered, np.maximum(half, intervals().unmeasured), half))


def write(path: Path, pairs: Pairs, predicted: Predicted, half: Array, why: list[str]) -> None:
    """Write one line for each pair, in the order of the file."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        out = csv.writer(lines)
        out.writerow(["before", "after", "kind", "predicted", "low80", "high80", "abstained", "reason"])
        for row, likely, width, reason in zip(pairs.rows, predicted.log_ratio, half, why, strict=True):
            numbers = ["", "", ""] if reason else [f"{np.exp(likely + sign * width):.6g}" for sign in (0, -1, 1)]
            out.writerow([row["before"], row["after"], row["kind"], *numbers, int(bool(reason)), reason])


def unseen(
    measurements: Measurements,
    pairs: Pairs,
    watts: Watts,
    judged: Bools,
    progress: Callable[[str], None],
    kept: Path | None = None,
    published: Pairs | None = None,
) -> tuple[Predicted, Array]:
    """Return predictions of the pairs that judge, by tables that saw nothing like them, and their half widths.

    Predictions are NaN for other pairs, and for those beyond the folds that are refitted of each source. `published`:
    the pairs that tables are fitted to, if these are others.
    """
    everything, others = with_carried(measurements, pairs if published is None else published)
    asked = as_changes(measurements, pairs)
    evidence = Evidence(everything, as_changes(everything, others), kept)
    folds = few_of_each_source(pairs, together(everything, asked), judged)
    predicted = left_out(everything, asked, evidence, prior(), folds, progress)
    slow_down(watts, pairs, predicted)
    return predicted, widened(half_widths(asked, predicted), unfounded(measurements, pairs))


def stated(measurements: Measurements, pairs: Pairs) -> Bools:
    """Return whether model, engine, device and format of both rows of each pair are stated and covered by a source
    other than that of the pair."""
    known = np.array([not doubts for doubts in measurements.doubts]) & (measurements.column("weight_dtype") != "")
    return np.asarray(known[pairs.before] & known[pairs.after] & ~unfounded(measurements, pairs))


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
    judged = counted
    if not options.skip_folds and counted.any():
        judged = counted & np.array([judges(str(source)) for source in pairs.column("source")])
        predicted, widths = unseen(measurements, pairs, watts, judged, progress, options.keep)
        judged &= np.isfinite(predicted.log_ratio)
        is_stated = stated(measurements, pairs)
        text = (
            measurements.candidates.image_flops[pairs.before] + measurements.candidates.image_flops[pairs.after]
        ) == 0
        engines = measurements.column("engine")
        one_version = engines[pairs.before] == engines[pairs.after]
        for name, rows in {
            UNSEEN: judged,
            f"{UNSEEN}, stated": judged & is_stated,
            f"{UNSEEN}, stated text": judged & is_stated & text,
            f"{UNSEEN}, stated text, one engine version": judged & is_stated & text & one_version,
            f"{UNSEEN}, physics only": judged & ~is_stated,
            **{
                f"{UNSEEN}, {regime}": judged & rows
                for regime, rows in regimes(running(measurements)[pairs.after]).items()
            },
        }.items():
            tables_of[name] = tables(pairs, predicted.log_ratio, widths, abstained, rows)
    for name, ratios in baselines(measurements, pairs).items():
        tables_of[name] = tables(pairs, ratios, None, np.zeros(len(abstained), dtype=bool), judged)
    progress("")
    print_tables(tables_of)
    energy = energy_tables(watts, pairs, shipped.log_ratio, abstained)
    print_energy(energy)
    publish(report("forecast", as_rows(tables_of, measurements) + energy_rows(energy), targets(tables_of)))
