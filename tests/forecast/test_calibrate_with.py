"""Pairs calibrated on further rows of the same deployment, none of which shows the result."""

import numpy as np
import pytest

from benchmarks.forecast.calibrate_with import SAME, others, predict_with
from benchmarks.forecast.folds import predict
from benchmarks.forecast.performance.measurements import CARRIED, FILES, Measurements, Pairs, read
from pertoken.forecast.efficiency import attenuation, deviation, efficiency


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


def test_without_further_rows_a_pair_is_predicted_from_its_before_row(public: tuple[Measurements, Pairs]) -> None:
    measurements, pairs = public
    plain = predict(measurements, pairs, efficiency(), deviation())
    predicted = predict_with(measurements, pairs, [np.empty(0, np.intp)] * len(pairs.before))
    damped = np.array([attenuation([kind]) for kind in pairs.column("kind")])
    assert predicted.log_ratio == pytest.approx(plain.log_ratio * damped, nan_ok=True)
