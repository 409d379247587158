from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.forecast.fit import fit
from benchmarks.forecast.folds import MAX_FOLDS_OF_SOURCE, few_of_each_source, judges, together, unfounded
from benchmarks.forecast.performance.measurements import Measurements, Pairs, read
from tests.forecast.test_accuracy import DATA, few

Rows = tuple[Measurements, Pairs]


@pytest.fixture(scope="module")
def rows() -> Rows:
    return read(DATA / "measurements.csv", DATA / "pairs.csv")


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


def test_few_folds_of_a_large_source_are_refitted(rows: Rows) -> None:
    measurements, pairs = rows
    sources = pairs.column("source")
    folds = few_of_each_source(pairs, together(measurements, pairs), np.ones(len(sources), dtype=bool))
    counts = np.unique([sources[fold.pairs[0]] for fold in folds], return_counts=True)[1]
    assert counts.max() == MAX_FOLDS_OF_SOURCE


def test_about_half_of_the_sources_judge_and_a_name_decides_which(rows: Rows) -> None:
    sources = sorted(set(rows[0].column("source")))
    judging = [source for source in sources if judges(str(source))]
    assert 0.3 < len(judging) / len(sources) < 0.7
    assert judging == [source for source in sources if judges(str(source))]


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
