"""Errors of the model near operating points."""

from dataclasses import replace

import numpy as np
import pytest

from pertoken.evidence import OperatingPoint
from pertoken.forecast.efficiency import efficiency
from pertoken.forecast.host import MIN_POINTS, Calibration, Measured, calibrate_all
from pertoken.forecast.measured.load_errors import correction, load_errors, loads_of
from pertoken.forecast.served import resolve
from pertoken.forecast.serving import Change, compare
from pertoken.forecast.steady import steady
from tests.forecast.builders import CHAT, LLAMA_8B, MARKET

LOADS = np.log(np.column_stack([2.0 ** np.arange(8), np.full(8, 700.0), np.full(8, 250.0)]))


def test_errors_are_followed_near_points_and_forgotten_far_from_them() -> None:
    slow = np.where(np.arange(8) < 4, 0.0, 0.5)
    errors = load_errors(LOADS, slow, sd=0.5, length=0.5)
    assert errors is not None
    assert errors.at(LOADS) == pytest.approx(slow, abs=0.08)
    between = LOADS[5:6] + np.array([0.35, 0, 0])
    assert errors.at(between)[0] == pytest.approx(0.5, abs=0.1)
    assert abs(errors.at(LOADS[7:8] + np.array([5, 0, 0]))[0]) < 1e-6, "nothing is known that far away"


def test_points_that_the_model_explains_add_nothing_and_no_points_are_none() -> None:
    errors = load_errors(LOADS, np.zeros(8))
    assert errors is not None and not errors.at(LOADS).any()
    assert load_errors(LOADS, np.full(8, np.nan)) is None and load_errors(LOADS, np.ones(8), sd=0) is None


def test_a_change_and_its_reverse_are_corrected_by_opposite_amounts() -> None:
    errors = load_errors(LOADS, np.linspace(0, 0.7, 8))
    onward, back = correction([errors], LOADS[:1], LOADS[7:]), correction([errors], LOADS[7:], LOADS[:1])
    assert onward[0] < -0.3 and onward == pytest.approx(-back)
    assert not correction([None], LOADS[:1], LOADS[7:]).any()


def points_of(slower: dict[int, float]) -> tuple[OperatingPoint, ...]:
    """Return points at these batches, each slower than the table by a factor."""
    many = list(slower)
    c = resolve([LLAMA_8B] * len(many), [CHAT] * len(many), MARKET)
    token_s = steady(c, efficiency(), np.array(many, dtype=float)).token_s * np.array(list(slower.values()))
    return tuple(
        OperatingPoint(60 * n, float(batch), float(s), CHAT.prompt_len, CHAT.generated_len)
        for n, (batch, s) in enumerate(zip(many, token_s, strict=True))
    )


def test_a_batch_from_which_a_host_is_slow_is_not_forecast_to_pay() -> None:
    now = LLAMA_8B.but(max_num_seqs=8)
    load = replace(CHAT, running=8, waiting=100)
    results = []
    for slow in (1.0, 3.0):
        points = points_of({2: 1.0, 4: 1.0, 8: 1.0, 16: 1.0, 32: slow, 64: slow})
        (calibration,) = calibrate_all([Measured(now, load, 700.0, points=points)], MARKET)
        assert isinstance(calibration, Calibration) and len(points) >= MIN_POINTS
        ratios = []
        for known in (calibration, replace(calibration, load_errors=None)):
            change = compare(now, now.but(max_num_seqs=64), load, MARKET, known)
            assert isinstance(change, Change)
            ratios.append(change.ratio[1])
        results.append(ratios)
    (usual, plain), (slowed, unaware) = results
    assert usual == pytest.approx(plain, rel=0.1)
    assert slowed < 0.85 * unaware, "points show what no term does"


def test_fewer_points_than_stand_for_a_window_correct_nothing() -> None:
    few = points_of({4: 1.0, 32: 2.0})
    (calibration,) = calibrate_all([Measured(LLAMA_8B, CHAT, 100.0, points=few)], MARKET)
    assert isinstance(calibration, Calibration) and calibration.load_errors is None


def test_loads_differ_by_batch_context_and_length() -> None:
    c = resolve([LLAMA_8B], [CHAT], MARKET)
    expected = np.log([8, CHAT.prompt_len + CHAT.generated_len / 2, CHAT.generated_len])
    assert loads_of(c, np.array([8.0]))[0] == pytest.approx(expected)
