"""Errors of the model near operating points."""

from dataclasses import replace

import numpy as np
import pytest

from pertoken.arrivals import Arrivals, fixed
from pertoken.evidence import OperatingPoint
from pertoken.forecast import calibration
from pertoken.forecast.calibration import MAX_SURPRISE, LoadErrors, load_errors, loads_of, log_times
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import efficiency, steady
from pertoken.forecast.host import MIN_POINTS, BusyMeasurements, Calibration, calibrate_all
from pertoken.forecast.served import resolve
from pertoken.forecast.serving import BeforeAfter, compare, forecast
from tests.forecast.builders import CHAT, LLAMA_8B, MARKET, latency

LOADS = np.log(np.column_stack([2.0 ** np.arange(8), np.full(8, 700.0), np.full(8, 250.0)]))


def missed(errors: LoadErrors, loads: Array) -> Array:
    return np.asarray(log_times([errors], loads[None])[0])


def test_errors_are_followed_near_points_and_forgotten_far_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "ERROR_LENGTH", 0.5)
    slow = np.where(np.arange(8) < 4, 0.0, 0.5)
    errors = load_errors(LOADS, slow)
    assert errors is not None
    assert missed(errors, LOADS) == pytest.approx(slow, abs=0.08)
    between = LOADS[5:6] + np.array([0.35, 0, 0])
    assert missed(errors, between)[0] == pytest.approx(0.5, abs=0.1)
    assert abs(missed(errors, LOADS[7:8] + np.array([5, 0, 0]))[0]) < 1e-6, "nothing is known that far away"


def test_points_that_the_model_explains_add_nothing_and_no_points_are_none() -> None:
    errors = load_errors(LOADS, np.zeros(8))
    assert errors is not None and not missed(errors, LOADS).any()
    assert load_errors(LOADS, np.full(8, np.nan)) is None


def test_errors_of_several_deployments_are_those_of_each_alone() -> None:
    errors = load_errors(LOADS, np.linspace(0, 0.7, 8))
    assert errors is not None
    some = np.stack([LOADS[:2], LOADS[6:]])
    together = log_times([errors, None], some)
    assert together[0] == pytest.approx(missed(errors, LOADS[:2])) and not together[1].any()
    assert log_times([errors, errors], LOADS[:2]) == pytest.approx(missed(errors, LOADS[:2]))


def test_a_minute_that_stalled_decides_no_more_than_the_largest_surprise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "ERROR_LENGTH", 0.5)
    stalled = np.where(np.arange(8) == 4, 9.0, 0.0)
    errors = load_errors(LOADS, stalled)
    assert errors is not None and errors.log_errors[4] == MAX_SURPRISE
    assert missed(errors, LOADS[4:5])[0] < 1.0


def chat_arrivals(requests_per_s: float) -> Arrivals:
    return Arrivals(requests_per_s, fixed(CHAT.prompt_len), fixed(CHAT.generated_len))


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
        (calibration,) = calibrate_all([BusyMeasurements(now, load, 700.0, points=points)], MARKET)
        assert isinstance(calibration, Calibration) and len(points) >= MIN_POINTS
        ratios = []
        for known in (calibration, replace(calibration, load_errors=None)):
            change = compare(now, now.but(max_num_seqs=64), load, MARKET, known)
            assert isinstance(change, BeforeAfter)
            ratios.append(change.ratio[1])
        results.append(ratios)
    (usual, plain), (slowed, unaware) = results
    assert usual == pytest.approx(plain, rel=0.1)
    assert slowed < 0.85 * unaware, "points show what no term does"


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
def test_latency_and_absolute_rates_follow_the_same_errors_as_ratios(factor: float) -> None:
    now = LLAMA_8B.but(max_num_seqs=64)
    load = replace(CHAT, running=8, waiting=0)
    points = points_of({2: 1.0, 4: 1.0, 8: 1.0, 16: 1.0, 32: factor, 64: factor})
    (calibration,) = calibrate_all([BusyMeasurements(now, load, 700.0, points=points)], MARKET)
    assert isinstance(calibration, Calibration)
    unaware = replace(calibration, load_errors=None)
    steps, plain = (forecast(now, load, MARKET, known) for known in (calibration, unaware))
    assert steps.saturated is not None and plain.saturated is not None
    slower = plain.saturated.tok_s[1] / steps.saturated.tok_s[1]
    assert slower > 1.15 if factor > 1 else slower < 0.87
    assert steps.saturated.tpot_ms[1] == pytest.approx(slower * plain.saturated.tpot_ms[1])
    arrivals = chat_arrivals(0.8 * steps.saturated.tok_s[1] / CHAT.generated_len)
    slow, fast = (latency(now, load, arrivals, known) for known in (calibration, unaware))
    assert slow.utilization / fast.utilization == pytest.approx(slower, rel=0.03), "one capacity, whoever asks"


def test_errors_near_points_do_not_move_forecasts_of_other_weights() -> None:
    load = replace(CHAT, running=8, waiting=0)
    points = points_of({2: 1.0, 4: 1.0, 8: 1.0, 16: 1.0, 32: 3.0, 64: 3.0})
    (calibration,) = calibrate_all([BusyMeasurements(LLAMA_8B, load, 700.0, points=points)], MARKET)
    assert isinstance(calibration, Calibration)
    quantized, arrivals = LLAMA_8B.but(weight_dtype="fp8"), chat_arrivals(2.0)
    known, unaware = (
        latency(quantized, load, arrivals, one) for one in (calibration, replace(calibration, load_errors=None))
    )
    assert known == unaware
    rates = [
        forecast(quantized, load, MARKET, one).saturated
        for one in (calibration, replace(calibration, load_errors=None))
    ]
    assert rates[0] is not None and rates[0] == rates[1]


def test_fewer_points_than_stand_for_a_window_correct_nothing() -> None:
    few = points_of({4: 1.0, 32: 2.0})
    (calibration,) = calibrate_all([BusyMeasurements(LLAMA_8B, CHAT, 100.0, points=few)], MARKET)
    assert isinstance(calibration, Calibration) and calibration.load_errors is None


def test_loads_differ_by_batch_context_and_length() -> None:
    c = resolve([LLAMA_8B], [CHAT], MARKET)
    expected = np.log([8, CHAT.prompt_len + CHAT.generated_len / 2, CHAT.generated_len])
    assert loads_of(c, np.array([8.0]))[0] == pytest.approx(expected)
