"""Objectives for latency: what is forecast under the p95 demand, judged; and why where it cannot be."""

from functools import partial

import pytest

from pertoken.evidence import Evidence
from pertoken.forecast.queue.latency import Latency
from pertoken.forecast.serving import Calibration, Point
from pertoken.provenance import Provenance
from pertoken.savings.forecasts import Forecasts
from pertoken.savings.load import measured_load
from pertoken.savings.slo import Latencies, latencies, verdict
from pertoken.state.service import Slo
from tests.deployments import MARKET
from tests.savings.fleets import llama, low_batch

LLAMA_70B = llama(1, (1, 2))
POINT = Point(concurrency=4, tok_s=(90, 100, 110), tpot_ms=(20, 25, 30), ttft_ms=(80, 100, 120))
KNOWN = Latency((80, 100, 120), (300, 400, 500), (20, 25, 30), (30, 40, 50), utilization=0.5)
FP8 = LLAMA_70B.but(weight_dtype="fp8")


def asked(seen: Evidence, slo: Slo = Slo(), replicas: int = 1) -> Latencies:  # noqa: B008
    known = Forecasts()
    return latencies(
        *(LLAMA_70B, FP8, measured_load(seen), known.arrivals(seen), Calibration(), slo, replicas),
        forecast=partial(known.latency, market=MARKET),
        fewest=partial(known.replicas, market=MARKET),
    )


@pytest.mark.parametrize(
    ("slo", "wanted"),
    [
        (Slo(), "unknown"),
        (Slo(ttft_p95_ms=500, tpot_p95_ms=50), "pass"),
        (Slo(ttft_p95_ms=499), "near_miss"),
        (Slo(ttft_p95_ms=334), "near_miss"),
        (Slo(ttft_p95_ms=332), "fail"),
        (Slo(ttft_p95_ms=500, ttft_p50_ms=80), "fail"),
        (Slo(tpot_p95_ms=50, tpot_p50_ms=29), "near_miss"),
    ],
)
def test_the_worst_objective_is_the_verdict(slo: Slo, wanted: str) -> None:
    worst, miss = verdict(KNOWN, POINT, slo)
    assert worst == wanted
    assert (miss is None) == (wanted in ("unknown", "pass"))


def test_a_miss_names_the_quantile_its_forecast_and_the_slo() -> None:
    _, miss = verdict(KNOWN, POINT, Slo(ttft_p95_ms=300))
    assert miss == "TTFT p95 would be about 400 ms (300 to 500), with an SLO of 300 ms"


def test_a_likely_overload_is_never_a_pass() -> None:
    from dataclasses import replace

    worst, miss = verdict(replace(KNOWN, overloaded=0.3), POINT, Slo(ttft_p95_ms=1000))
    assert worst == "near_miss" and miss is not None and "in 30% of what is likely it is overloaded" in miss


def test_without_quantiles_a_mean_can_miss_an_objective_for_the_tail_and_cannot_keep_it() -> None:
    known = asked(low_batch())
    nothing = Latencies(None, known.forecast, known.fewest, unknown="prompt_len was not measured: ...")
    assert nothing.verdict(POINT, Slo(tpot_p95_ms=1000)) == ("unknown", None)
    worst, miss = nothing.verdict(POINT, Slo(tpot_p95_ms=10))
    assert worst == "fail" and miss is not None and miss.startswith("mean TPOT")


def test_fewer_bits_answer_sooner_and_both_are_forecast_of_one_load() -> None:
    latencies = asked(low_batch())
    assert latencies.unknown is None and latencies.before is not None and latencies.after is not None
    assert latencies.before.tpot_p95_ms is not None and latencies.after.tpot_p95_ms is not None
    assert latencies.after.tpot_p95_ms[1] < latencies.before.tpot_p95_ms[1]
    assert latencies.after.utilization < latencies.before.utilization
    assert latencies.provenance is Provenance.ASSUMED  # the spread of lengths


def test_the_fewest_copies_hold_what_all_replicas_get() -> None:
    busy = low_batch(generated_tok_s=1000)
    one, all_of_them = asked(busy), asked(busy, replicas=8)
    assert one.replicas is not None and all_of_them.replicas is not None
    for alone, together in zip(one.replicas, all_of_them.replicas, strict=True):
        assert alone is not None and together is not None and alone < together <= 8 * alone
    note = "each of its 8 replicas gets as many requests"
    assert note in all_of_them.assumptions and note not in one.assumptions
    before, after = all_of_them.replicas
    assert before is not None and after is not None and after < before


def test_latencies_of_an_engine_without_lengths_are_unknown_with_the_missing_metric() -> None:
    seen = Evidence(
        {name: series for name, series in low_batch().items() if not name.endswith("_len") and name != "requests_s"}
    )
    latencies = asked(seen)
    assert latencies.before is None and latencies.after is None
    assert latencies.unknown is not None and latencies.unknown.startswith(
        "prompt length was not measured: needs an engine that"
    )
