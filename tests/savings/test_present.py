"""The present latency of a deployment: as measured, beside its forecast at a comparable load."""

import pytest

from pertoken.evidence import Evidence, NotMeasured
from pertoken.forecast.latency import LatencyQuery
from pertoken.savings.context import Forecasts
from pertoken.savings.load import measured_load
from pertoken.savings.sensitivity import under_load
from pertoken.savings.slo import PresentLatency, presents
from pertoken.state.service import Slo
from tests.deployments import MARKET
from tests.savings.fleets import llama, low_batch

BUSY = {"generated_tok_s": 4000.0, "requests_s": 10.0, "prompt_tok_s": 16000.0}


def queried(seen: Evidence) -> LatencyQuery:
    run, now, load = Forecasts(), llama(1, (1, 2)), measured_load(seen)
    requests = run.arrivals(seen)
    assert not isinstance(requests, Exception)
    return LatencyQuery(now, load.load, requests.arrivals, run.calibration(now, load, MARKET))


def present(seen: Evidence) -> PresentLatency:
    (known,) = presents([(queried(seen), measured_load(seen).latency_ms)], MARKET)
    assert isinstance(known, PresentLatency)
    return known


def test_a_deployment_with_spare_capacity_is_compared_at_its_p95_demand() -> None:
    query = queried(low_batch(ttft_s=0.3))
    (known,) = presents([(query, {"ttft_p95_ms": (300.0, 300.0, 300.0)})], MARKET)
    assert isinstance(known, PresentLatency)
    assert known.query is query and known.load_share == 1 and known.utilization < 0.5


def test_limits_are_in_milliseconds_of_the_forecast() -> None:
    known = present(low_batch(ttft_s=0.3))
    slo = Slo(ttft_p95_ms=600.0, tpot_p95_ms=30.0)
    ttft_ms, tpot_ms = known.tail_limits(slo)
    assert ttft_ms is not None and tpot_ms is not None
    assert ttft_ms == pytest.approx(2 * known.forecast.ttft_p95_ms)
    assert tpot_ms == pytest.approx(30 / 28 * known.forecast.tpot_p95_ms)
    assert known.refusal_limits(slo) == pytest.approx((None, 1.2 * ttft_ms, None, 1.2 * tpot_ms))


def test_a_change_is_refused_only_beyond_the_present_latency_where_that_misses_already() -> None:
    known = present(low_batch(ttft_s=0.3))
    _, ttft_ms, _, _ = known.refusal_limits(Slo(ttft_p95_ms=10.0))
    assert ttft_ms == pytest.approx(known.forecast.ttft_p95_ms, rel=0.01)


def test_a_figure_that_was_not_measured_refuses_nothing() -> None:
    known = present(low_batch())
    assert known.factor("ttft_p95_ms") is None
    assert known.refusal_limits(Slo(ttft_p95_ms=1.0)) == (None, None, None, None)


def test_a_forecast_that_is_overloaded_is_compared_where_it_waits_as_long_as_was_measured() -> None:
    query = queried(low_batch(**BUSY))
    asked = [(query, {"ttft_p95_ms": (ttft_ms,) * 3}) for ttft_ms in (300.0, 3000.0, 300_000.0)]
    known = [present for present in presents(asked, MARKET) if isinstance(present, PresentLatency)]
    assert all(present.utilization > 1 and present.load_share < 1 for present in known)
    assert all(present.forecast.refusal is None for present in known)
    shares = [present.load_share for present in known]
    assert shares == sorted(shares) and shares[0] < shares[-1]
    assert shares[-1] * known[-1].utilization == pytest.approx(0.995)


def test_several_are_forecast_together_as_each_is_alone() -> None:
    seen = [low_batch(ttft_s=0.3), low_batch(**BUSY, ttft_s=0.3), low_batch(**BUSY, ttft_s=300.0)]
    asked = [(queried(one), measured_load(one).latency_ms) for one in seen]
    together = presents(asked, MARKET)
    assert [known.forecast for known in together if isinstance(known, PresentLatency)] == [
        known.forecast for one in asked for known in presents([one], MARKET) if isinstance(known, PresentLatency)
    ]


def assumed(traffic: float, **measured: float) -> tuple[PresentLatency, PresentLatency]:
    """One deployment at its measured load, and at a multiple of it."""
    run, now, seen = Forecasts(), llama(1, (1, 2)), low_batch(**{"ttft_s": 0.3, **measured})
    known = []
    for evidence in (seen, under_load(seen, traffic)):
        load, requests = run.load(evidence), run.arrivals(evidence)
        assert not isinstance(requests, NotMeasured)
        calibration = run.calibration(now, load, MARKET)
        known.append(run.present(now, load, requests.arrivals, calibration, MARKET))
    return known[0], known[1]


@pytest.mark.parametrize("traffic", [0.5, 4.0])
def test_the_latency_at_an_assumed_load_is_the_measured_one_times_the_ratio_of_forecasts(traffic: float) -> None:
    measured, more = assumed(traffic)
    for name in ("ttft_p95_ms", "tpot_p95_ms"):
        ratio = getattr(more.forecast, name) / getattr(measured.forecast, name)
        assert more.measured[name][1] == pytest.approx(measured.measured[name][1] * ratio)
        assert more.factor(name) == measured.factor(name)
        assert (ratio > 1) is (traffic > 1)


def test_an_assumed_load_that_overloads_a_deployment_excuses_no_slower_change() -> None:
    measured, overloaded = assumed(60.0, busy=0.9)
    assert overloaded.forecast.refusal is not None and overloaded.utilization > 1
    assert overloaded.measured == measured.measured
    slo = Slo(ttft_p95_ms=400.0)
    assert overloaded.refusal_limits(slo) == pytest.approx(measured.refusal_limits(slo))
