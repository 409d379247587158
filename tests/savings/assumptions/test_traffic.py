"""Evidence at another load."""

import pytest

from pertoken.evidence import OperatingPoint
from pertoken.savings.load import measured_load
from pertoken.savings.sensitivity import under_load
from pertoken.testing.builders import Week, series
from pertoken.testing.builders import evidence as measured


def test_more_traffic_fills_idle_time_first_and_batches_then() -> None:
    seen = measured(requests_s=2, generated_tok_s=100, busy=0.6, running=4, ttft_s=0.2, power_w=300)
    half, double = under_load(seen, 1.5), under_load(seen, 2)
    assert (half.requests_s.mean, half.generated_tok_s.mean, half.running.mean) == (3, 150, 4)
    assert half.busy.mean == pytest.approx(0.9)
    assert double.busy.mean == 1
    assert double.running.mean == pytest.approx(4 * 1.2)
    assert (double.ttft_s.mean, double.power_w.mean) == (0.2, 300)


def test_more_traffic_scales_the_hours_of_a_week_and_busy_time_to_at_most_all() -> None:
    hours = tuple(float(hour % 2) * 0.8 for hour in range(168))
    seen = measured(busy=series(0.4, p95=0.8, hours=hours), requests_s=series(1.0, hours=hours))
    more = under_load(seen, 1.5)
    assert set(more.hours.busy) == {0.0, 1.0}
    assert max(requests_ for requests_ in more.hours.requests_s if requests_ is not None) == pytest.approx(1.2)
    assert more.busy.p99 == 1.0
    assert isinstance(seen.busy.distribution, Week)


@pytest.mark.parametrize("traffic", [0.5, 1.5, 3.0])
def test_a_forecast_at_an_assumed_load_stays_calibrated_on_the_measured_one(traffic: float) -> None:
    at = OperatingPoint(ts=0, running=4.0, token_s=0.01, prompt_len=100.0, generated_len=50.0)
    seen = measured(requests_s=2, generated_tok_s=100, busy=0.9, running=4, busy_generated_tok_s=110, tpot_s=0.01)
    seen = seen.with_points([at])
    assumed = under_load(under_load(seen, 2.0), traffic)
    assert assumed.measured is seen and seen.measured is seen
    load = measured_load(assumed)
    assert load.load.generated_tok_s == pytest.approx(200 * traffic)
    assert load.calibrated_on == measured_load(seen) and load.calibrated_on.evidence.operating_points() == (at,)
