"""Forecasts of a host that went through a verified change."""

import math
from dataclasses import replace

from pertoken.catalog.market import load_market
from pertoken.forecast.calibration import Realised
from pertoken.forecast.host import BusyMeasurements, Calibration, calibrate_all
from pertoken.forecast.served import Load
from pertoken.forecast.serving import BeforeAfter, compare
from pertoken.state.deployment import Deployment, Placement

MARKET = load_market()
MODEL = MARKET.model("Llama-3.1-8B")
assert MODEL is not None
NOW = Deployment(MODEL, "vllm", placement=Placement(accelerator="NVIDIA H100 80GB HBM3"), tp=1, weight_dtype="bf16")
FP8 = NOW.but(weight_dtype="fp8")
LOAD = Load(generated_tok_s=100, prompt_len=500, generated_len=200, running=8)
MEASURED = BusyMeasurements(NOW, LOAD, busy_tok_s=480.0)
SLIGHT = Realised((("weight_dtype", "fp8"),), (1.08, 1.1, 1.12), "the receipt of its change")
"""With 16 bits a token takes 10 % more device time than it took with 8."""


def calibrated(*seen: BusyMeasurements) -> list[Calibration]:
    calibrations = calibrate_all(seen, MARKET)
    assert all(isinstance(calibration, Calibration) for calibration in calibrations), calibrations
    return [calibration for calibration in calibrations if isinstance(calibration, Calibration)]


def ratio(known: Calibration, to: Deployment = FP8) -> tuple[float, float, float]:
    change = compare(NOW, to, LOAD, MARKET, known)
    assert isinstance(change, BeforeAfter)
    return change.ratio


def test_a_verified_change_moves_the_forecast_of_its_undo_towards_the_measured_ratio() -> None:
    plain, with_receipt = map(ratio, calibrated(MEASURED, replace(MEASURED, realised=(SLIGHT,))))
    assert plain[1] > 1.2
    assert 1.1 - 0.03 < with_receipt[1] < plain[1] - 0.1
    assert with_receipt[2] / with_receipt[0] < plain[2] / plain[0]


def test_a_ratio_that_the_model_expected_keeps_the_forecast() -> None:
    (plain,) = calibrated(MEASURED)
    likely = ratio(plain)[1]
    expected = replace(SLIGHT, ratio=(likely / 1.02, likely, likely * 1.02))
    (known,) = calibrated(replace(MEASURED, realised=(expected,)))
    assert math.isclose(ratio(known)[1], likely, rel_tol=0.05)


def test_a_wide_ratio_hardly_moves_the_forecast() -> None:
    wide = replace(SLIGHT, ratio=(0.05, 1.1, 20.0))
    plain, known, sharp = map(
        ratio, calibrated(MEASURED, replace(MEASURED, realised=(wide,)), replace(MEASURED, realised=(SLIGHT,)))
    )
    assert abs(math.log(known[1] / plain[1])) < 0.2 * abs(math.log(sharp[1] / plain[1]))


def test_deployments_without_a_receipt_are_as_they_were_beside_one_with_it() -> None:
    (alone,) = calibrated(MEASURED)
    first, _, last = calibrated(MEASURED, replace(MEASURED, realised=(SLIGHT, SLIGHT)), MEASURED)
    assert (first.mean, first.covariance) == (alone.mean, alone.covariance) == (last.mean, last.covariance)


def test_a_configuration_that_the_model_does_not_know_is_left_out() -> None:
    strange = replace(SLIGHT, old_values=(("weight_dtype", "ternary"),))
    (alone,), (known,) = calibrated(MEASURED), calibrated(replace(MEASURED, realised=(strange,)))
    assert known == alone and known.receipts == ()


def test_a_calibration_names_the_receipts_it_rests_on() -> None:
    (known,) = calibrated(replace(MEASURED, realised=(SLIGHT,)))
    assert known.receipts == (
        "the forecast of this host is calibrated by the receipt of its change: +10.0% (+8.0% to +12.0%) device time "
        "per token since it ran with weight_dtype fp8",
    )


def test_fewer_devices_before_took_longer_for_the_same_device_time() -> None:
    two = replace(NOW, tp=2)
    assert math.isclose(replace(SLIGHT, old_values=(("tp", 1),), ratio=(1, 1, 1)).slower_before(two), 2.0)
