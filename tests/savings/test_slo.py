"""Objectives for latency: what was measured times the ratio of two forecasts, judged; and why where it cannot be."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pertoken.evidence import Evidence
from pertoken.forecast.latency import Latency
from pertoken.forecast.serving import Range
from pertoken.provenance import Provenance
from pertoken.savings.context import Forecasts
from pertoken.savings.load import measured_load
from pertoken.savings.slo import (
    NO_OBJECTIVE,
    Latencies,
    judged,
    latencies,
    times,
    unchanged,
    worst_of,
)
from pertoken.state.deployment import Deployment
from pertoken.state.service import Slo
from tests.deployments import MARKET
from tests.savings.fleets import llama, low_batch

LLAMA_70B = llama(1, (1, 2))
FP8 = LLAMA_70B.but(weight_dtype="fp8")
AFTER = Latency((80, 100, 120), (300, 400, 500), (20, 25, 30), (30, 40, 50), utilization=0.5)
MEASURED: dict[str, Range] = {
    "ttft_p50_ms": (90, 90, 90),
    "ttft_p95_ms": (350, 350, 350),
    "tpot_p50_ms": (22, 22, 22),
    "tpot_p95_ms": (35, 35, 35),
}


def asked(seen: Evidence, slo: Slo = Slo(), replicas: int = 1, to: Deployment = FP8, **more: Any) -> Latencies:  # noqa: B008
    known, load = Forecasts(), measured_load(seen)
    requests = known.arrivals(seen)
    present: Any = requests
    if not isinstance(requests, Exception):
        calibration = known.calibration(LLAMA_70B, load, MARKET)
        present = known.present(LLAMA_70B, load, requests.arrivals, calibration, MARKET)
        more |= {"provenance": requests.provenance, "notes": requests.assumptions}
    forecast, fewest = partial(known.latency, market=MARKET), partial(known.replicas, market=MARKET)
    return latencies(present, to, slo, replicas, forecast=forecast, fewest=fewest, **more)


@pytest.mark.parametrize(
    ("slo", "wanted"),
    [
        (Slo(), NO_OBJECTIVE),
        (Slo(ttft_p95_ms=500, tpot_p95_ms=50), "pass"),
        (Slo(ttft_p95_ms=499), "near_miss"),
        (Slo(ttft_p95_ms=334), "near_miss"),
        (Slo(ttft_p95_ms=332), "fail"),
        (Slo(ttft_p95_ms=500, ttft_p50_ms=80), "fail"),
        (Slo(tpot_p95_ms=50, tpot_p50_ms=29), "near_miss"),
    ],
)
def test_the_worst_objective_is_the_verdict(slo: Slo, wanted: str) -> None:
    word, sentence = judged(AFTER, MEASURED, slo)
    assert word == wanted
    assert (sentence is None) == (wanted in (NO_OBJECTIVE, "pass"))


def test_a_miss_names_the_quantile_its_forecast_the_slo_and_what_is_measured_now() -> None:
    _, sentence = judged(AFTER, MEASURED, Slo(ttft_p95_ms=300))
    expected = "TTFT p95 would be about 400 ms (300 to 500), with an SLO of 300 ms and 350 ms measured now"
    assert sentence == expected


def test_a_likely_overload_is_never_a_pass() -> None:
    word, sentence = judged(replace(AFTER, overloaded=0.3), MEASURED, Slo(ttft_p95_ms=1000))
    assert word == "near_miss" and sentence is not None and "in 30% of what is likely it is overloaded" in sentence


def test_an_objective_of_a_figure_that_was_not_measured_is_unknown_whatever_the_others_are() -> None:
    only_tpot = {"tpot_p95_ms": MEASURED["tpot_p95_ms"]}
    word, sentence = judged(AFTER, only_tpot, Slo(ttft_p95_ms=9000, tpot_p95_ms=50))
    assert word == "unknown" and sentence is not None and sentence.startswith("TTFT p95 was not measured")
    assert judged(AFTER, only_tpot, Slo(tpot_p95_ms=50))[0] == "pass"
    assert judged(AFTER, only_tpot, Slo(ttft_p95_ms=9000, tpot_p95_ms=20))[0] == "fail"


def test_unknown_is_worse_than_a_near_miss_and_better_than_a_failure() -> None:
    words = ["near_miss", "unknown", "pass", NO_OBJECTIVE]
    assert worst_of((word, None) for word in words)[0] == "unknown"
    assert worst_of((word, None) for word in [*words, "fail"])[0] == "fail"
    assert worst_of([]) == (NO_OBJECTIVE, None)


def test_a_change_that_touches_no_latency_passes_and_states_what_is_missed_already() -> None:
    assert unchanged(MEASURED, Slo()) == (NO_OBJECTIVE, None)
    assert unchanged(MEASURED, Slo(ttft_p95_ms=400)) == ("pass", None)
    word, sentence = unchanged(MEASURED, Slo(ttft_p95_ms=300))
    assert word == "pass" and sentence == "TTFT p95 is 350 ms now, with an SLO of 300 ms: this change leaves it"


def test_the_latency_after_is_what_was_measured_times_the_ratio_of_the_forecasts() -> None:
    usual, twice = asked(low_batch(ttft_s=0.3)), asked(low_batch(ttft_s=0.6))
    for latency, ttft_ms in ((usual, 300), (twice, 600)):
        assert latency.before is not None and latency.before.ttft_p95_ms == pytest.approx((ttft_ms,) * 3)
    assert usual.after is not None and usual.after.ttft_p95_ms is not None
    assert twice.after is not None and twice.after.ttft_p95_ms is not None
    assert usual.after.ttft_p95_ms[1] < 300
    ratio = usual.after.ttft_p95_ms[1] / 300
    assert twice.after.ttft_p95_ms[1] / 600 == pytest.approx(ratio, rel=0.1)


@pytest.mark.parametrize("slowdown", [(1.0, 1.0, 1.0), (1.2, 1.5, 2.0)])
@pytest.mark.parametrize("generated_tok_s", [100, 1000, 4000])
@pytest.mark.parametrize("to", [LLAMA_70B, FP8, LLAMA_70B.but(max_num_seqs=8)])
def test_likely_figures_fail_exactly_the_objectives_that_whole_latencies_fail(
    to: Deployment, generated_tok_s: float, slowdown: Range
) -> None:
    seen = low_batch(generated_tok_s=generated_tok_s, requests_s=generated_tok_s / 400, ttft_s=0.4, tpot_s=0.03)
    limits = [Slo()]
    limits += [Slo(ttft_p95_ms=400 * share, tpot_p50_ms=5e3) for share in (0.1, 0.5, 0.8, 0.9, 1.1, 1.4, 2.5, 50)]
    limits += [Slo(tpot_p95_ms=30 * share) for share in (0.1, 0.5, 0.8, 0.9, 1.1, 1.4, 2.5, 50)]
    rows = [asked(seen, slo, to=to, slowdown=slowdown) for slo in limits]
    assert Forecasts().failing(rows, MARKET) == [row.verdict[0] == "fail" for row in rows]


def test_a_change_of_nothing_is_exactly_as_measured() -> None:
    same = asked(low_batch(ttft_s=0.3), Slo(ttft_p95_ms=301, tpot_p95_ms=29), to=LLAMA_70B)
    assert same.before is not None and same.after is not None
    assert same.after.ttft_p95_ms == same.before.ttft_p95_ms and same.after.tpot_p95_ms == same.before.tpot_p95_ms
    assert same.verdict == ("pass", None)


def test_the_present_is_judged_by_what_was_measured_though_its_forecast_is_overloaded() -> None:
    """A forecast that cannot serve what was served without a queue is too low by as much."""
    seen = low_batch(generated_tok_s=4000, requests_s=10, prompt_tok_s=16000, ttft_s=0.4, tpot_s=0.058)
    same = asked(seen, Slo(ttft_p95_ms=500, tpot_p95_ms=60), to=LLAMA_70B)
    assert same.present is not None and same.present.utilization > 1 and same.present.load_share < 1
    assert same.verdict == ("pass", None)
    better = asked(seen, Slo(ttft_p95_ms=500, tpot_p95_ms=60))
    assert better.after is not None and better.after.refusal is None and better.after.tpot_p95_ms is not None
    assert better.after.tpot_p95_ms[1] < 58


def test_an_overloaded_deployment_is_compared_where_its_forecast_waits_as_long_as_was_measured() -> None:
    seen = low_batch(generated_tok_s=4000, requests_s=10, prompt_tok_s=16000, waiting=90.0, ttft_s=30.0)
    present, calm = asked(seen).present, asked(low_batch(generated_tok_s=4000, requests_s=10, ttft_s=0.4)).present
    assert present is not None and calm is not None
    assert present.load_share > calm.load_share


def test_fewer_bits_answer_sooner_and_both_are_forecast_of_one_load() -> None:
    latency = asked(low_batch(ttft_s=0.3))
    assert latency.unknown is None and latency.before is not None and latency.after is not None
    assert latency.before.tpot_p95_ms is not None and latency.after.tpot_p95_ms is not None
    assert latency.after.tpot_p95_ms[1] < latency.before.tpot_p95_ms[1]
    assert latency.after.utilization < latency.before.utilization
    assert latency.provenance is Provenance.ASSUMED  # the spread of lengths
    assert "TPOT is the time between two tokens, as vllm measures it, before and after" in latency.assumptions


def test_a_slowdown_that_the_forecast_does_not_know_lengthens_every_figure() -> None:
    usual = asked(low_batch(ttft_s=0.3), to=LLAMA_70B)
    slower = asked(low_batch(ttft_s=0.3), to=LLAMA_70B, slowdown=(1.2, 1.5, 2.0))
    for name in ("ttft_p95_ms", "tpot_p95_ms"):
        before, after = getattr(usual.after, name), getattr(slower.after, name)
        assert after[1] >= 1.5 * before[1] and after[0] < 1.5 * before[1] < after[2]


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
    latency = asked(seen, Slo(tpot_p95_ms=50))
    assert latency.before is None and latency.after is None
    assert latency.unknown is not None and latency.unknown.startswith(
        "prompt length was not measured: needs an engine that"
    )
    assert latency.verdict == ("unknown", latency.unknown)


def test_ranges_of_a_product_contain_its_factors_and_grow_by_both() -> None:
    assert times((90, 100, 120), (1, 1, 1)) == pytest.approx((90, 100, 120))
    low, likely, high = times((50, 100, 200), (0.5, 1, 2))
    assert likely == 100 and 25 < low < 50 and 200 < high < 400
