from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.forecast.figures import coverage_rows
from benchmarks.forecast.fit import fit
from benchmarks.forecast.folds import Predicted, quantile, source_weights, together, unfounded
from benchmarks.forecast.nested import MAX_FOLDS_OF_SOURCE, few_of_each_source, grouped
from benchmarks.forecast.performance.cells import Cells
from benchmarks.forecast.performance.measurements import Measurements, Pairs, measured, paired, read
from benchmarks.forecast.tune import half_widths, widths, with_points
from tests.forecast.test_accuracy import DATA, few

Rows = tuple[Measurements, Pairs]
CHANCE = np.random.default_rng(7)


@pytest.fixture(scope="module")
def rows() -> Rows:
    return read(DATA / "measurements.csv", DATA / "pairs.csv")


def invented(n_sources: int, errors: float = 0.1) -> tuple[Pairs, Predicted]:
    """Pairs of one kind of change, ten from each source; errors are Laplace, those of the second half three times as
    wide, which their disagreement reports."""
    lines, changes = [], []
    for place in range(10 * n_sources):
        source = f"s{place % n_sources}"
        line = {"source": source, "model": f"m{place}", "gpu": "H100-SXM", "engine": "vllm", "weight_dtype": "bf16"}
        lines += [{**line, "key": f"{end}{place}"} for end in "ab"]
        changes.append({**line, "kind": "move_gpu", "before": f"a{place}", "after": f"b{place}"})
    pairs = paired(measured(lines).rows, changes)
    doubt = np.where(np.arange(len(changes)) % 20 < 10, 0.0, 3 * errors)
    likely = CHANCE.normal(0, 0.5, len(changes))
    measured_ratio = likely + CHANCE.laplace(0, np.hypot(errors, doubt))
    pairs.log_ratio[:] = measured_ratio
    return pairs, Predicted(likely, np.zeros(len(changes)), doubt)


def test_a_fold_leaves_out_every_row_that_shares_the_source_a_model_or_a_gpu_of_its_pairs(rows: Rows) -> None:
    measurements, pairs = rows
    folds = together(measurements, pairs)
    assert sorted(np.concatenate([fold.pairs for fold in folds])) == list(range(len(pairs.rows)))
    for column in ("source", "model", "gpu"):
        cells = measurements.column(column)
        for fold in folds[::20]:
            ends = {*cells[pairs.before[fold.pairs]], *cells[pairs.after[fold.pairs]]}
            assert fold.rows[np.isin(cells, list(ends))].all()


def test_rows_that_a_fit_leaves_out_change_no_digit_of_it(rows: Rows) -> None:
    evidence, other = few(rows), few(rows)
    without = rows[0].column("gpu") == "H100-SXM"
    other.log_tok_s = np.where(without, 9.0, other.log_tok_s)
    touched = without[other.before] | without[other.after]
    other.log_ratio = np.where(touched, 5.0, other.log_ratio)
    assert without.any() and (fit(evidence, without) == fit(other, without)).all()


def test_kernels_that_no_other_source_ran_are_unfounded(rows: Rows) -> None:
    measurements, pairs = rows
    one = pairs.column("source") == pairs.column("source")[0]
    assert not unfounded(measurements, pairs).all()
    alone = measurements.paths.astype("<U40")
    alone[measurements.column("source") == pairs.column("source")[0]] = "kernels of this source"
    is_unfounded = unfounded(replace(measurements, paths=alone), pairs)
    assert is_unfounded[one].all() and not is_unfounded[~one].all()


def test_sources_weigh_the_same_and_clusters_within_one_too(rows: Rows) -> None:
    pairs = rows[1]
    chosen = np.flatnonzero(pairs.column("kind") == "move_gpu")
    weights, sources = source_weights(pairs, chosen), pairs.column("source")[chosen]
    assert np.allclose([weights[sources == source].sum() for source in np.unique(sources)], 1.0)


def test_groups_of_sources_are_disjoint_and_inner_folds_few(rows: Rows) -> None:
    measurements, pairs = rows
    group = grouped(pairs, np.arange(len(pairs.rows)))
    sources = pairs.column("source")
    assert all(len(set(group[sources == source])) == 1 for source in np.unique(sources)) and len(set(group)) > 2
    folds = few_of_each_source(pairs, together(measurements, pairs), np.ones(len(group), dtype=bool))
    counts = np.unique([sources[fold.pairs[0]] for fold in folds], return_counts=True)[1]
    assert counts.max() == MAX_FOLDS_OF_SOURCE


def test_tuned_intervals_hold_eighty_percent_of_new_sources_and_widen_with_disagreement() -> None:
    pairs, predicted = invented(20)
    tuned = widths(pairs, predicted, np.arange(len(pairs.rows)))
    assert tuned.disagreement > 0.5 and tuned.floor > 0.05
    others, new = invented(40)
    half = half_widths(tuned, others, new)
    assert 0.78 < np.mean(np.abs(new.log_ratio - others.log_ratio) <= half) < 0.93


def test_a_kept_fit_is_used_until_its_evidence_changes(rows: Rows, tmp_path: Path) -> None:
    evidence = few(rows)
    evidence.kept = tmp_path / "kept"
    sources = rows[0].column("source")
    fitted = fit(evidence, sources == sources[0])
    (file,) = evidence.kept.iterdir()
    np.save(file, np.zeros(len(fitted)))
    assert not fit(evidence, sources == sources[0]).any(), "it was read from the file"
    assert fit(evidence).any(), "other rows are another fit"
    evidence.row_weight = evidence.row_weight * 0.9
    assert fit(evidence, sources == sources[0]).any(), "other evidence is another fit"


def test_intervals_are_counted_by_source() -> None:
    pairs, predicted = invented(10, errors=0.01)
    half = np.where(pairs.column("source") == "s3", 0.0, 10.0)
    everything = np.ones(len(half), dtype=bool)
    shares = {row.what: row.value for row in coverage_rows(pairs, predicted.log_ratio, half, ~everything, everything)}
    assert (shares["mean"], shares["below"]) == (0.9, 0.1) and shares["sd"] == pytest.approx(0.3)
    assert shares["lowest tenth"] == pytest.approx(0.9)


def test_points_narrow_intervals_only_as_far_as_enough_is_held() -> None:
    pairs, predicted = invented(20)
    everything = np.arange(len(pairs.rows))
    tuned = widths(pairs, predicted, everything)
    assert with_points(tuned, pairs, predicted, everything).points > 0.5, "errors are as large as their disagreement"
    exact = replace(predicted, log_ratio=pairs.log_ratio.copy())
    assert with_points(tuned, pairs, exact, everything) == replace(tuned, points=0.0)


def test_the_quantile_of_a_kind_of_few_sources_is_drawn_towards_that_of_all_kinds() -> None:
    pairs, predicted = invented(60)
    place = np.arange(len(pairs.rows))
    few_sources = np.isin(pairs.column("source"), [f"s{n}" for n in range(6)])
    named = tuple(
        {**row, "kind": "tp_change" if few else "move_gpu"} for row, few in zip(pairs.rows, few_sources, strict=True)
    )
    two = replace(pairs, rows=tuple(Cells(row) for row in named))
    two.log_ratio[few_sources] = (predicted.log_ratio + 4 * (two.log_ratio - predicted.log_ratio))[few_sources]
    quantiles = widths(two, predicted, place).quantiles
    scaled = np.abs(two.log_ratio - predicted.log_ratio) / half_widths(widths(two, predicted, place), two, predicted)
    own = quantiles["tp_change"] * quantile(scaled[few_sources], np.ones(few_sources.sum()), 0.8 * (1 + 1 / 6))
    assert quantiles["move_gpu"] < quantiles["tp_change"] < own


def test_the_share_of_a_quantile_is_corrected_for_few_sources() -> None:
    multiples = []
    for n in (5, 50):
        pairs, predicted = invented(n)
        intervals = widths(pairs, predicted, np.arange(len(pairs.rows)))
        scaled = np.abs(pairs.log_ratio - predicted.log_ratio) / half_widths(intervals, pairs, predicted)
        multiples.append(quantile(scaled, np.ones(len(scaled)), 0.8))
    assert multiples[0] < multiples[1] <= 1.001
