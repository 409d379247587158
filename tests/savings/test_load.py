from dataclasses import replace

import pytest

from pertoken.evidence import Evidence, NotMeasured, Series
from pertoken.provenance import Provenance
from pertoken.savings.load import measured_arrivals, measured_latency, measured_load
from tests.savings.fleets import evidence, low_batch


def test_the_load_is_measured_and_its_demand_is_the_95th_percentile() -> None:
    bursty = Series(mean=40, p50=35, p95=90, max=120, n=1440, provenance=Provenance.COUNTER)
    measured = measured_load(Evidence(dict(low_batch().items()) | {"generated_tok_s": bursty}))
    load = measured.load
    assert (load.generated_tok_s, load.running, load.prompt_len, load.generated_len) == (90, 2, 1600, 400)
    assert (measured.busy, measured.busy_tok_s, measured.tpot_ms) == (0.6, 66, 28)
    assert measured.assumptions == () and measured.provenance is Provenance.INTEGRAL


def test_without_prompt_lengths_the_ratio_of_the_counters_gives_them() -> None:
    known = {name: series.mean for name, series in low_batch().items() if name != "prompt_len"}
    load = measured_load(evidence(**known))
    assert load.load.prompt_len == 1600
    assert load.assumptions == ("1600 tokens per prompt, from the ratio of prompt to generated tokens",)


def test_without_any_length_or_prompt_counter_both_are_listed_as_assumed() -> None:
    load = measured_load(evidence(generated_tok_s=40, busy_generated_tok_s=66, running=2, busy=0.6))
    assert (load.load.prompt_len, load.load.generated_len, load.load.waiting) == (1155, 211, 0)
    assert len(load.assumptions) == 2 and load.provenance is Provenance.ASSUMED


def test_running_requests_that_nobody_counts_follow_from_the_rate_and_the_time_of_a_token() -> None:
    known = {name: series.mean for name, series in low_batch().items() if name != "running"}
    load = measured_load(evidence(**known))
    assert load.load.running == pytest.approx(66 * 0.028)
    assert load.assumptions == ("1.8 requests running while busy, from tokens/s and TPOT",)
    with pytest.raises(NotMeasured, match="running"):
        measured_load(evidence(**{name: mean for name, mean in known.items() if name != "tpot_s"}))


def test_no_generated_tokens_means_no_load() -> None:
    with pytest.raises(NotMeasured, match="generated_tok_s"):
        measured_load(evidence(running=2, busy=1, busy_generated_tok_s=1))


def test_activity_comes_from_engine_counters_where_the_driver_has_none() -> None:
    means = {name: series.mean for name, series in low_batch().items() if name not in ("dram_active", "tensor_active")}
    load = measured_load(evidence(**means, mbu=0.5, mfu=0.04))
    assert (load.memory_active, load.gemm_active) == (0.5, 0.04)
    both = measured_load(evidence(**means, dram_active=0.3, mbu=0.9, mfu=0.0))
    assert (both.memory_active, both.gemm_active) == (0.5, None)


def test_requests_arrive_at_the_p95_demand_with_the_lengths_of_the_histograms() -> None:
    lengths = Series(150, 130, 200, 200, 10, Provenance.COUNTER, ((100.0, 0.0), (200.0, 10.0), (float("inf"), 0.0)))
    known = dict(low_batch().items()) | {"prompt_len": lengths, "generated_len": lengths}
    arrivals = measured_arrivals(Evidence(known))
    for asked in (arrivals.arrivals.prompt, arrivals.arrivals.generated):
        assert 100 <= asked.tokens.min() < asked.tokens.max() <= 200
    assert arrivals.arrivals.requests_per_s == pytest.approx(40 / arrivals.arrivals.generated.mean)
    assert arrivals.assumptions == () and arrivals.provenance is Provenance.INTEGRAL


def test_without_histograms_tokens_over_requests_give_the_mean_and_the_spread_is_assumed() -> None:
    arrivals = measured_arrivals(evidence(generated_tok_s=40, prompt_tok_s=160, requests_s=0.1))
    assert arrivals.arrivals.prompt.mean == pytest.approx(1600, rel=0.01)
    assert arrivals.arrivals.generated.mean == pytest.approx(400, rel=0.01)
    assert arrivals.arrivals.generated.tokens.std() > 100
    assert arrivals.provenance is Provenance.ASSUMED
    assert all("spread as in a published conversation trace" in assumption for assumption in arrivals.assumptions)
    assert len(arrivals.assumptions) == 2


def test_an_engine_without_counts_of_requests_or_lengths_is_not_measured_with_the_remedy() -> None:
    with pytest.raises(NotMeasured, match="prompt_len was not measured: needs an engine that counts requests"):
        measured_arrivals(evidence(generated_tok_s=40, prompt_tok_s=160))


def test_the_chance_of_a_drafted_token_follows_from_counted_drafts() -> None:
    """Four drafted, of which 1.4 are accepted: a + a² + a³ + a⁴ = 1.4."""
    known = {name: series.mean for name, series in low_batch().items()}
    acceptance = measured_load(evidence(**known, spec_acceptance_rate=0.35, spec_acceptance_length=2.4)).load.acceptance
    assert acceptance is not None and sum(acceptance**n for n in (1, 2, 3, 4)) == pytest.approx(1.4)
    assert measured_load(low_batch()).load.acceptance is None


def test_images_that_the_engine_decodes_are_counted_and_their_size_is_assumed() -> None:
    known = {name: series.mean for name, series in low_batch().items()}
    measured = measured_load(evidence(**known, media_per_request=1.5, media_hit_rate=0.2))
    assert measured.load.images == pytest.approx(1.2) and measured.load.image_size is None
    (assumption,) = measured.assumptions
    assert assumption.startswith("each of 1.2 media items per request is an image of 1024 x 1024 pixels")
    assert "counts images, videos and sounds together" in assumption
    assert measured.provenance is Provenance.ASSUMED
    assert measured_load(evidence(**known, media_per_request=0.0)).load.images == 0


def test_a_host_that_is_idle_in_most_minutes_still_has_arrivals() -> None:
    rare = Series(mean=2, p50=0, p95=0, max=300, n=1440, provenance=Provenance.COUNTER)
    arrivals = measured_arrivals(Evidence(dict(low_batch().items()) | {"generated_tok_s": rare}))
    assert arrivals.arrivals.requests_per_s == pytest.approx(2 / 400, rel=0.01)


def test_latency_quantiles_are_measured_with_the_interval_of_their_sample() -> None:
    buckets = ((0.1, 500.0), (0.2, 400.0), (0.4, 80.0), (0.8, 20.0))
    series = Series(0.13, 0.1, 0.325, 0.8, 1000, Provenance.COUNTER, buckets)
    few, many = (measured_latency(Evidence({"ttft_s": replace(series, n=n)})) for n in (40, 100_000))
    assert set(few) == {"ttft_p50_ms", "ttft_p95_ms"}
    for known in (few, many):
        low, likely, high = known["ttft_p95_ms"]
        assert likely == 325 and low <= likely <= high
    assert few["ttft_p95_ms"][2] - few["ttft_p95_ms"][0] > 5 * (many["ttft_p95_ms"][2] - many["ttft_p95_ms"][0])


def test_a_latency_that_was_not_measured_is_absent() -> None:
    assert set(measured_latency(low_batch())) == {"tpot_p50_ms", "tpot_p95_ms"}
    assert measured_latency(evidence(tpot_s=0.0)) == {}
