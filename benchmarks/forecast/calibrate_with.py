"""Errors of pairs whose deployment is known from several operating points: `--calibrate-with N`.

For each pair, N other rows of the same source, model, GPU, engine and format as its "before" row stand for minutes of
that deployment, as `calibrate` takes them. Rows that the forecast cannot distinguish from the "after" row are left out.
Errors stand beside those with the "before" row alone, on the same pairs: those with N such rows. With `--folds` each
pair is judged by a table refitted without its source, its model and its GPUs; otherwise by the shipped table, which saw
its rows. Widths are the shipped
ones; of changes of the load, the factor on what calibration changed is chosen on pairs of other sources.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.figures import macro_of, tables
from benchmarks.forecast.fit import Evidence, running
from benchmarks.forecast.folds import Predicted, Score, half_widths, macro, refitted, together, unfounded
from benchmarks.forecast.pairs import as_changes, reasons
from benchmarks.forecast.performance.measurements import CARRIED, FILES, BadFile, Measurements, Pairs, read
from benchmarks.report import Row, report
from pertoken.forecast.calibration import POINT_SD, load_errors, loads_of, log_times, per_token, posterior, ratio
from pertoken.forecast.candidates import COLUMNS
from pertoken.forecast.efficiency import Efficiency, deviation, efficiency, rows_times, steady
from pertoken.forecast.host import LOAD_KINDS, MIN_POINTS

SAME = ("source", "model", "gpu", "engine", "weight_dtype", "kv_dtype", "n_gpus", "tp", "pp")
"""Columns in which the rows of one deployment are alike."""
SEED = 0
CHUNK = 500
"""Pairs that are computed side by side."""


def others(measurements: Measurements, pairs: Pairs, n: int) -> list[NDArray[np.intp]]:
    """Return `n` other rows of the deployment of each pair's "before" row, drawn once; empty where there are fewer."""
    columns = [getattr(measurements.candidates, name) for name in COLUMNS]
    ran = running(measurements)
    seen = np.column_stack([*columns, ran, measurements.candidates.tags])
    keys = list(zip(*(measurements.column(name) for name in SAME), strict=True))
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        if np.isfinite(measurements.tok_s[place]) and measurements.rows[place]["trust"] != "low":
            alike[key].append(place)
    random = np.random.default_rng(SEED)
    others = []
    for before, after in zip(pairs.before, pairs.after, strict=True):
        rows = np.array([place for place in alike[keys[before]] if place not in (before, after)], dtype=np.intp)
        if len(rows):
            rows = rows[~(seen[rows] == seen[after]).all(axis=1)]
        rows = random.permutation(rows)
        others.append(rows[:n] if len(rows) >= n else rows[:0])
    return others


Points = Sequence[NDArray[np.intp]]
"""Further rows of each pair."""


def predict_with(
    measurements: Measurements,
    pairs: Pairs,
    points: Points,
    table: Efficiency | None = None,
    only: NDArray[np.intp] | None = None,
) -> Predicted:
    """Return ratios of pairs calibrated on the "before" row and further rows, none of them the "after" row.

    `table`: the shipped one by default. `only`: pairs to predict; others are NaN.
    """
    predicted = Predicted.none(len(pairs.before))
    all_places = np.arange(len(pairs.before)) if only is None else only
    for start in range(0, len(all_places), CHUNK):
        places = all_places[start : start + CHUNK]
        few = [points[int(place)] for place in places]
        part = _predicted(measurements, pairs.take(places), few, table or efficiency())
        for field in fields(Predicted):
            getattr(predicted, field.name)[places] = getattr(part, field.name)
    return predicted


def predict_in_folds(
    measurements: Measurements, pairs: Pairs, points: Mapping[int, Points], kept: Path | None = None
) -> dict[int, Predicted]:
    """Return `predict_with` for each number of further rows, by tables that saw nothing like the pair."""
    folds = together(measurements, pairs)
    predicted = {n: Predicted.none(len(pairs.before)) for n in points}
    for fold, table in zip(folds, refitted(Evidence(measurements, pairs, kept), folds), strict=True):
        for n, rows in points.items():
            predicted[n].put(fold.pairs, predict_with(measurements, pairs, rows, table, fold.pairs))
    return predicted


def _predicted(measurements: Measurements, pairs: Pairs, points: Points, table: Efficiency) -> Predicted:
    prior, ran = deviation(), running(measurements)
    owner = np.repeat(np.arange(len(points)), [1 + len(point) for point in points])
    rows = np.concatenate([[before, *more] for before, more in zip(pairs.before, points, strict=True)]).astype(np.intp)
    seen = per_token(prior, (ran / measurements.tok_s)[rows], ran[rows])
    alone = np.array([not len(more) for more in points])[owner]
    seen = replace(seen, seconds=np.where(alone, np.nan, seen.seconds), log_sd=POINT_SD)
    single = per_token(prior, np.where(alone, (ran / measurements.tok_s)[rows], np.nan), ran[rows])
    known = posterior(measurements.candidates.take(rows), table, prior, [seen, single], owner)
    before, after = (measurements.candidates.take(ends) for ends in (pairs.before, pairs.after))
    at = ran[pairs.before], ran[pairs.after]
    counts = np.array([1.0 + len(more) for more in points])
    result = ratio(before, after, table, prior, at, known, counts)
    seen_at = measurements.candidates.take(rows)
    modelled = steady(seen_at, table, ran[rows], rows_times(known.mean[owner], prior.groups))
    loads, log_errors = loads_of(seen_at, ran[rows]), np.log(seen.seconds / modelled.token_s)
    errors = [
        load_errors(loads[owner == one], log_errors[owner == one]) if 1 + len(more) >= MIN_POINTS else None
        for one, more in enumerate(points)
    ]
    missed_before, missed_after = (log_times(errors, loads_of(*end)) for end in zip((before, after), at, strict=True))
    log_ratio = result.log_ratio + missed_before - missed_after
    return Predicted(log_ratio, result.log_sd, np.abs(result.log_ratio - result.table_log_ratio))


def scores_by_n(
    measurements: Measurements, pairs: Pairs, counts: Sequence[int], in_folds: bool = False, kept: Path | None = None
) -> dict[str, dict[str, Score]]:
    """Return the scores by kind for each number of further rows, beside those without any on the same pairs."""
    asked = as_changes(measurements, pairs)
    abstained = np.array([bool(reason) for reason in reasons(measurements, pairs)])
    trusted = (pairs.column("trust") != "low") & np.isfinite(pairs.log_ratio)
    points = {n: others(measurements, pairs, n) for n in counts}
    points[0] = [np.empty(0, np.intp)] * len(pairs.before)
    if in_folds:
        abstained |= unfounded(measurements, pairs)
        predicted_by_n = predict_in_folds(measurements, asked, points, kept)
    else:
        predicted_by_n = {n: predict_with(measurements, asked, rows) for n, rows in points.items()}
    without = predicted_by_n[0]
    load = np.isin(asked.column("kind"), list(LOAD_KINDS))
    scores = {}
    for n in counts:
        rows = trusted & np.array([len(point) == n for point in points[n]]) & np.isfinite(without.log_ratio)
        by_points = predicted_by_n[n]
        # As `Calibration.for_change`: what changes more than the load rests on the "before" row alone, and points bear
        # out what they change of a load.
        agreed = replace(by_points, disagreement=np.zeros(len(load)))
        chosen = Predicted(
            *(np.where(load, getattr(agreed, field.name), getattr(without, field.name)) for field in fields(Predicted))
        )
        for name, predicted in ((f"{n} points", chosen), (f"0 of {n}", without)):
            scores[name] = tables(pairs, predicted.log_ratio, half_widths(asked, predicted), abstained, rows)
    return scores


def main() -> None:
    """Print errors by number of points and kind as one JSON object, and a table on standard error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast", description=__doc__)
    parser.add_argument("--calibrate-with", type=int, action="append", required=True, metavar="N", help="repeatable")
    parser.add_argument("--measurements", type=Path, default=CARRIED / FILES[0])
    parser.add_argument("--pairs", type=Path, default=CARRIED / FILES[1])
    parser.add_argument("--folds", action="store_true", help="judge each pair by a table that saw nothing like it")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep fitted tables in this folder, and use them")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    try:
        measurements, pairs = read(options.measurements, options.pairs)
    except BadFile as error:
        parser.exit(2, f"{error}\n")
    by_name = scores_by_n(measurements, pairs, options.calibrate_with, options.folds, options.keep)
    rows: list[Row] = []
    for name, scores in by_name.items():
        of_load = macro(score for kind, score in scores.items() if kind in LOAD_KINDS)
        for kind, score in [*scores.items(), ("load", of_load), ("macro", macro_of(scores))]:
            print(f"{name:28} {kind:20} n={score.n:<5} {score.median:6.1%} / {score.p90:6.1%}", file=sys.stderr)
            for figure in ("median", "p90", "coverage", "half_width", "abstained"):
                value = getattr(score, figure)
                given = None if np.isnan(value) else round(float(value), 4)
                rows.append(Row(name, f"{kind}.{figure}", given, "ratio", f"clusters equal; n={score.n}"))
    text = report("calibrate_with", rows, [])
    print(text)
    if options.json:
        options.json.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
