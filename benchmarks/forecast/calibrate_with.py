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
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.figures import macro_of, tables
from benchmarks.forecast.fit import Evidence, running
from benchmarks.forecast.folds import Predicted, Score, macro, together, unfounded
from benchmarks.forecast.nested import GROUPS, grouped, mean_loss, refitted
from benchmarks.forecast.pairs import as_changes, reasons
from benchmarks.forecast.performance.measurements import CARRIED, FILES, BadFile, Measurements, Pairs, read
from benchmarks.forecast.tune import half_widths, with_points
from benchmarks.report import Row, report
from pertoken.forecast.calibration import POINT_SD, per_token, posterior, ratio
from pertoken.forecast.candidates import COLUMNS
from pertoken.forecast.efficiency import Efficiency, deviation, efficiency, intervals, is_too_wide, rows_times
from pertoken.forecast.host import LOAD_KINDS, MIN_POINTS
from pertoken.forecast.measured.load_errors import ERROR_LENGTH, ERROR_SD, load_errors, loads_of, log_times
from pertoken.forecast.steady import steady

SAME = ("source", "model", "gpu", "engine", "weight_dtype", "kv_dtype", "n_gpus", "tp", "pp")
"""Columns in which the rows of one deployment are alike."""
SEED = 0
CHUNK = 500
"""Pairs that are computed side by side."""
Near = tuple[float, float]
"""Standard deviation and length of errors near points."""
SHIPPED: Near = ERROR_SD, ERROR_LENGTH
NO_ERRORS: Near = 0.0, ERROR_LENGTH
NEAR = (*((sd, length) for sd in (0.3, ERROR_SD, 0.8) for length in (1.0, ERROR_LENGTH, 3.0)), NO_ERRORS)
"""Those that are tried; with `--folds` each group of sources is judged by the one that did best on changes of the load
of the other groups."""
NEAR_POINTS = "errors near points: "
"""Prefix of the rows of the report that name what groups of sources chose."""


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
    near: Near = SHIPPED,
) -> Predicted:
    """Return ratios of pairs calibrated on the "before" row and further rows, none of them the "after" row.

    `table`: the shipped one by default. `only`: pairs to predict; others are NaN. `near`: standard deviation and length
    of errors near points.
    """
    predicted = Predicted.none(len(pairs.before))
    all_places = np.arange(len(pairs.before)) if only is None else only
    for start in range(0, len(all_places), CHUNK):
        places = all_places[start : start + CHUNK]
        few = [points[int(place)] for place in places]
        part = _predicted(measurements, pairs.take(places), few, table or efficiency(), near)
        for field in fields(Predicted):
            getattr(predicted, field.name)[places] = getattr(part, field.name)
    return predicted


def predict_in_folds(
    measurements: Measurements,
    pairs: Pairs,
    points: Mapping[int, Points],
    kept: Path | None = None,
    near: Sequence[Near] = (SHIPPED,),
) -> dict[int, list[Predicted]]:
    """Return `predict_with` for each number of further rows and each of `near`, by tables that saw nothing like the
    pair."""
    folds = together(measurements, pairs)
    predicted = {n: [Predicted.none(len(pairs.before)) for _ in near] for n in points}
    for fold, table in zip(folds, refitted(Evidence(measurements, pairs, kept), folds), strict=True):
        for n, rows in points.items():
            for place, one in enumerate(near):
                predicted[n][place].put(fold.pairs, predict_with(measurements, pairs, rows, table, fold.pairs, one))
    return predicted


def best_of_groups(pairs: Pairs, tried: Sequence[Predicted], rows: NDArray[np.intp]) -> list[int]:
    """Return, for each group of sources, the place of the predictions that do best on these `rows` of other groups."""
    group = grouped(pairs, rows)
    losses = [
        [mean_loss(pairs, predicted.log_ratio, rows[group[rows] != one]) for predicted in tried]
        for one in range(GROUPS)
    ]
    return [int(np.argmin(of_group)) for of_group in losses]


def of_groups(pairs: Pairs, tried: Sequence[Predicted], places: Sequence[int], rows: NDArray[np.intp]) -> Predicted:
    """Return, for each group of sources, the predictions at its place; `places` and `rows` as of `best_of_groups`."""
    group = grouped(pairs, rows)
    chosen = Predicted.none(len(group))
    for one, place in enumerate(places):
        chosen.put(np.flatnonzero(group == one), tried[place])
    return chosen


def _predicted(measurements: Measurements, pairs: Pairs, points: Points, table: Efficiency, near: Near) -> Predicted:
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
        load_errors(loads[owner == one], log_errors[owner == one], *near) if 1 + len(more) >= MIN_POINTS else None
        for one, more in enumerate(points)
    ]
    missed_before, missed_after = (log_times(errors, loads_of(*end)) for end in zip((before, after), at, strict=True))
    log_ratio = result.log_ratio + missed_before - missed_after
    return Predicted(log_ratio, result.log_sd, np.abs(result.log_ratio - result.table_log_ratio))


def scores_by_n(
    measurements: Measurements, pairs: Pairs, counts: Sequence[int], in_folds: bool = False, kept: Path | None = None
) -> tuple[dict[str, dict[str, Score]], dict[int, list[Near]]]:
    """Return the scores by kind for each number of further rows, beside those without any on the same pairs, and what
    was chosen for each group of sources.
    """
    asked = as_changes(measurements, pairs)
    abstained = np.array([bool(reason) for reason in reasons(measurements, pairs)])
    trusted = (pairs.column("trust") != "low") & np.isfinite(pairs.log_ratio)
    points = {n: others(measurements, pairs, n) for n in counts}
    points[0] = [np.empty(0, np.intp)] * len(pairs.before)
    if in_folds:
        abstained |= unfounded(measurements, pairs)
        tried_by_n = predict_in_folds(measurements, asked, points, kept, NEAR)
    else:
        tried_by_n = {
            n: [predict_with(measurements, asked, rows, near=near) for near in (SHIPPED, NO_ERRORS)]
            for n, rows in points.items()
        }
    without = tried_by_n[0][0]
    load = np.isin(asked.column("kind"), list(LOAD_KINDS))
    scores, chosen_of = {}, {}
    for n in counts:
        rows = trusted & np.array([len(point) == n for point in points[n]]) & np.isfinite(without.log_ratio)
        judged = np.flatnonzero(rows & load & ~abstained)
        tried = tried_by_n[n]
        several = in_folds and 1 + n >= MIN_POINTS
        places = best_of_groups(asked, tried, judged) if several else [0] * GROUPS
        chosen_of[n] = [NEAR[place] for place in places] if several else []
        by_points, terms = of_groups(asked, tried, places, judged), tried[-1]
        # As `Calibration.for_change`: what changes more than the load rests on the "before" row alone.
        chosen = Predicted(
            *(
                np.where(load, getattr(by_points, name), getattr(without, name))
                for name in ("log_ratio", "log_sd", "disagreement")
            )
        )
        half, half_of_terms = (half_widths(intervals(), asked, predicted) for predicted in (chosen, terms))
        if n >= MIN_POINTS:
            half = np.where(load, load_widths(asked, by_points, judged), half)
            half_of_terms = np.where(load, load_widths(asked, terms, judged), half_of_terms)
        for name, predicted, widths in (
            (f"{n} points", chosen, half),
            (f"{n} points, terms alone", terms, half_of_terms),
            (f"{n} points, for every kind", by_points, half_widths(intervals(), asked, by_points)),
            (f"0 of {n}", without, half_widths(intervals(), asked, without)),
        ):
            scores[name] = tables(pairs, predicted.log_ratio, widths, abstained | is_too_wide(widths), rows)
    return scores, chosen_of


def load_widths(pairs: Pairs, predicted: Predicted, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return half widths of changes of the load that rest on points: the factor on the disagreement is chosen for each
    group of sources on these `rows` of the other groups."""
    group = grouped(pairs, rows)
    half = np.full(len(group), np.nan)
    for one in range(GROUPS):
        tuned = with_points(intervals(), pairs, predicted, rows[group[rows] != one])
        own = replace(tuned, disagreement=tuned.points * tuned.disagreement)
        half = np.where(group == one, half_widths(own, pairs, predicted), half)
    return half


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
    by_name, near = scores_by_n(measurements, pairs, options.calibrate_with, options.folds, options.keep)
    rows = [
        Row(
            f"{n} points",
            f"{NEAR_POINTS}a size of {sd:g} and a distance of {length:g}",
            count,
            "groups",
            f"of {GROUPS}",
        )
        for n, chosen in near.items()
        for (sd, length), count in Counter(chosen).items()
    ]
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
