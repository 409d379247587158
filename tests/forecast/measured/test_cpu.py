"""CPUs are forecast from what a probe measured on them, and only in formats that it measured."""

from dataclasses import replace
from datetime import date

import pytest

from pertoken.catalog.market import MeasuredRates
from pertoken.evidence import OperatingPoint
from pertoken.forecast.host import calibrate
from pertoken.forecast.measured.cpu import cpu_accelerator, measured_rates
from pertoken.forecast.served import Abstained, Load
from pertoken.forecast.serving import compare, forecast
from pertoken.state.deployment import Deployment
from pertoken.state.model import Model
from pertoken.state.placement import Placement
from tests.forecast.builders import H100, MARKET

MODEL = Model("tiny", 10**9, 10**9, n_layers=16, n_kv_heads=8, head_dim=64)
ON_CPU = Deployment(
    MODEL, "llama.cpp", placement=Placement(accelerator="Some CPU"), weight_dtype="fp16", max_num_seqs=4
)


def prompt(tokens: float, ttft_s: float) -> OperatingPoint:
    return OperatingPoint(0, 1.0, None, tokens, 1.0, ttft_s=ttft_s, probed=True)


def batch(running: float, token_s: float, prompt_len: float = 100.0) -> OperatingPoint:
    return OperatingPoint(1, running, token_s, prompt_len, 48.0, cached_share=1.0, probed=True)


# 100 GFLOP/s: 20 ms a token in prefill and in a step; reading 2 GB at 20 GB/s takes 100 ms.
PROBED = [prompt(100, 2.1), prompt(500, 10.1), *(batch(n, 0.1 + 0.02 * n) for n in (1, 2, 4))]


def test_the_slope_of_ttft_is_the_rate_of_products_and_the_rest_of_a_step_is_reading() -> None:
    rates = measured_rates(MODEL, "fp16", PROBED)
    assert rates is not None
    assert rates.flops == pytest.approx(1e11) and rates.memory_bytes_per_s == pytest.approx(2e10)
    assert measured_rates(MODEL, "fp16", PROBED[1:]) is None
    assert measured_rates(MODEL, "fp16", PROBED[:2]) is None


def test_steps_at_a_long_context_show_the_rate_of_attention_which_slows_long_contexts_down() -> None:
    """Each cached token takes 4 x 16 layers x hidden size FLOPs: 0.1 ms here, so 1.46 GFLOP/s."""
    rates = measured_rates(MODEL, "fp16", [*PROBED, batch(1, 0.12 + 0.0001 * 700, 800.0)])
    hidden_size = (10**9 / (12 * 16)) ** 0.5
    assert rates is not None and rates.attention_flops == pytest.approx(4 * 16 * hidden_size / 0.0001)
    without = measured_rates(MODEL, "fp16", [*PROBED, batch(1, 0.119, 800.0)])
    assert without is not None and without.attention_flops is None

    def tpot_ms(prompt_len: int, kv_dtype: str, known: MeasuredRates) -> float:
        market = MARKET.with_measured([cpu_accelerator("Some CPU", {"fp16": known}, 2**36, date(2026, 11, 22))])
        load = Load(0, prompt_len, 10, running=1, cached_share=1.0)
        running = forecast(ON_CPU.but(kv_dtype=kv_dtype), load, market).running
        assert running is not None
        return running.tpot_ms[1]

    increases = [tpot_ms(1000, kv, rates) - tpot_ms(100, kv, rates) for kv in ("fp16", "int8")]
    assert all(60 < ms < 250 for ms in increases)  # 90 ms of products, by the table's factor on reading the cache
    assert tpot_ms(1000, "fp16", without) > 1.1 * tpot_ms(100, "fp16", without)


def test_a_wider_batch_reuses_unpacked_weights_on_cpus() -> None:
    rates = measured_rates(MODEL, "fp16", PROBED)
    assert rates is not None
    market = MARKET.with_measured([cpu_accelerator("Some CPU", {"fp16": rates}, 2**36, date(2026, 11, 22))])

    def token_ms(running: int) -> float:
        at = forecast(ON_CPU.but(max_num_seqs=8), Load(0, 10, 100, running=running, cached_share=1.0), market).running
        assert at is not None
        return at.tpot_ms[1]

    one, two, eight = map(token_ms, (1, 2, 8))
    assert (eight - two) / 6 < 0.9 * (two - one)


def test_a_cache_in_8_bits_slows_long_prompts_on_cpus_down() -> None:
    rates = measured_rates(MODEL, "fp16", PROBED)
    assert rates is not None
    market = MARKET.with_measured([cpu_accelerator("Some CPU", {"fp16": rates}, 2**36, date(2026, 11, 22))])

    def per_token_ms(tokens: int, kv_dtype: str) -> float:
        running = forecast(ON_CPU.but(kv_dtype=kv_dtype), Load(0, tokens, 1, running=1), market).running
        assert running is not None
        return running.ttft_ms[1] / tokens

    wide, narrow = (per_token_ms(2000, kv) / per_token_ms(200, kv) for kv in ("fp16", "int8"))
    assert wide < 1.2 < narrow


def test_a_probe_makes_cpus_known_and_forecasts_of_other_batches_follow_it() -> None:
    rates = measured_rates(MODEL, "fp16", PROBED)
    assert rates is not None
    market = MARKET.with_measured([cpu_accelerator("Some CPU", {"fp16": rates}, 2**36, date(2026, 11, 22))])
    load = Load(0, 200, 100, running=3)
    with pytest.raises(Abstained, match="CPUs"):
        forecast(ON_CPU, load, MARKET)
    known = calibrate(ON_CPU, load, market, busy_tok_s=8, points=PROBED)
    at = forecast(ON_CPU, load, market, known).running
    # Each token of three requests carries 3 / 100 of a prefill of 200 tokens at 20 ms each.
    assert at is not None and at.tpot_ms[1] == pytest.approx(160 + 120, rel=0.12)
    assert at.tok_s[0] < 3 / 0.28 < at.tok_s[2]
    with pytest.raises(Abstained, match="int8"):
        forecast(ON_CPU.but(weight_dtype="int8"), load, market, known)


def test_two_points_of_a_slow_probe_count_too() -> None:
    """A server that is half as fast as its CPUs were: a prompt alone shows that, and a batch of one does."""
    rates = measured_rates(MODEL, "fp16", PROBED)
    assert rates is not None
    market = MARKET.with_measured([cpu_accelerator("Some CPU", {"fp16": rates}, 2**36, date(2026, 11, 22))])
    load = Load(0, 200, 100, running=1)
    decode, few = replace(load, cached_share=1.0), [prompt(100, 4.2), batch(1, 0.24)]
    known = calibrate(ON_CPU, decode, market, busy_tok_s=1 / 0.24, points=few)
    assert known.probed == 2
    at = forecast(ON_CPU, load, market, known).running
    without = forecast(ON_CPU, load, market, calibrate(ON_CPU, decode, market, busy_tok_s=1 / 0.24)).running
    assert at is not None and without is not None
    assert at.ttft_ms[1] - at.tpot_ms[1] == pytest.approx(8200, rel=0.15)
    assert without.ttft_ms[1] < 0.75 * at.ttft_ms[1]


def test_a_move_between_cpus_and_accelerators_is_not_predicted_from_either() -> None:
    rates = measured_rates(MODEL, "fp16", PROBED)
    assert rates is not None
    market = MARKET.with_measured([cpu_accelerator("Some CPU", {"fp16": rates}, 2**36, date(2026, 11, 22))])
    load = Load(0, 200, 100, running=3)
    known = calibrate(ON_CPU, load, market, busy_tok_s=8, points=PROBED)
    for other in (H100, Placement(accelerator="L4")):
        with pytest.raises(Abstained, match="between CPUs and accelerators"):
            compare(ON_CPU, ON_CPU.on(other), load, market, known)
