"""Pairs calibrated on further rows of the same deployment, none of which shows the result."""

import numpy as np
import pytest

from benchmarks.forecast import calibrate_with
from benchmarks.forecast.calibrate_with import (
    SAME,
    others,
    predict_in_folds,
    predict_with,
    scores_by_n,
)
from benchmarks.forecast.fit import Evidence
from benchmarks.forecast.folds import predict, refit, together
from benchmarks.forecast.performance.measurements import CARRIED, FILES, Measurements, Pairs, read
from pertoken.forecast.efficiency import deviation, efficiency


@pytest.fixture(scope="module")
def public() -> tuple[Measurements, Pairs]:
    measurements, pairs = read(CARRIED / FILES[0], CARRIED / FILES[1])
    return measurements, pairs.take(np.arange(0, len(pairs.before), 60))


def test_further_rows_are_of_the_same_deployment_and_never_an_end_of_the_pair(
    public: tuple[Measurements, Pairs],
) -> None:
    measurements, pairs = public
    further = others(measurements, pairs, 3)
    assert {len(rows) for rows in further} == {0, 3}
    for rows, before, after in zip(further, pairs.before, pairs.after, strict=True):
        assert before not in rows and after not in rows
        for row in rows:
            assert all(measurements.rows[row][name] == measurements.rows[before][name] for name in SAME)


def test_more_pairs_than_one_chunk_are_predicted_as_each_alone(
    public: tuple[Measurements, Pairs], monkeypatch: pytest.MonkeyPatch
) -> None:
    measurements, pairs = public
    further = others(measurements, pairs, 3)
    whole = predict_with(measurements, pairs, further)
    monkeypatch.setattr(calibrate_with, "CHUNK", 7)
    assert predict_with(measurements, pairs, further).log_ratio == pytest.approx(whole.log_ratio, nan_ok=True)


def test_a_pair_in_a_fold_is_predicted_by_a_table_without_its_source_model_and_gpu(
    public: tuple[Measurements, Pairs],
) -> None:
    measurements, pairs = public
    pairs = pairs.take(np.arange(0, len(pairs.before), 25))
    further = others(measurements, pairs, 1)
    (predicted,) = predict_in_folds(measurements, pairs, {1: further}).values()
    fold = together(measurements, pairs)[0]
    table = refit(Evidence(measurements, pairs), fold)
    alone = predict_with(measurements, pairs, further, table, fold.pairs)
    assert predicted.log_ratio[fold.pairs] == pytest.approx(alone.log_ratio[fold.pairs], nan_ok=True)


def test_without_further_rows_a_pair_is_predicted_from_its_before_row(public: tuple[Measurements, Pairs]) -> None:
    measurements, pairs = public
    plain = predict(measurements, pairs, efficiency(), deviation())
    predicted = predict_with(measurements, pairs, [np.empty(0, np.intp)] * len(pairs.before))
    assert predicted.log_ratio == pytest.approx(plain.log_ratio, nan_ok=True)


def test_scores_with_and_without_further_rows_are_of_the_same_pairs(public: tuple[Measurements, Pairs]) -> None:
    scores = scores_by_n(*public, [3])
    assert scores.keys() == {"3 points", "0 of 3"}
    assert scores["3 points"].keys() == scores["0 of 3"].keys() >= {"raise_batch"}
    assert all(scores["3 points"][kind].n == score.n for kind, score in scores["0 of 3"].items())
    assert scores["3 points"]["raise_batch"].half_width > 1
