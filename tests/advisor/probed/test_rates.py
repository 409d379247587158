"""CPUs are forecast from what a probe measured on them, and only in formats that it measured."""

from dataclasses import replace
from datetime import date

import pytest

from benchmarks.calibrate import calibrate
from benchmarks.site.hardware import expert_flops
from pertoken.advisor.probed import cpu_accelerator, measured_rates
from pertoken.catalog.market import Market, MeasuredRates
from pertoken.evidence import OperatingPoint
from pertoken.forecast.host import carried, tier_of
from pertoken.forecast.served import Abstained, Load
from pertoken.forecast.serving import BeforeAfter, compare, forecast
from pertoken.forecast.tiers import tiers
from pertoken.state.deployment import Deployment, Model, Placement
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
    rates = measured_rates(MODEL, "llama.cpp", "fp16", PROBED)
    assert rates is not None
    assert rates.flops == pytest.approx(1e11) and rates.memory_bytes_per_s == pytest.approx(2e10)
    # A first prompt that something else delayed, and one that was lucky, move the rate by what a request may take.
    for ttft_s, beside_s in ((4.0, 0.22), (0.5, 0.0)):
        noisy = measured_rates(MODEL, "llama.cpp", "fp16", [prompt(100, ttft_s), *PROBED[1:]])
        assert noisy is not None and noisy.flops == pytest.approx(1e12 / (10.1 - beside_s))
    assert measured_rates(MODEL, "llama.cpp", "fp16", PROBED[1:]) is None
    assert measured_rates(MODEL, "llama.cpp", "fp16", PROBED[:2]) is None


def test_steps_at_a_long_context_show_the_rate_of_attention_which_slows_long_contexts_down() -> None:
    """Each cached token takes 4 x 16 layers x hidden size FLOPs: 0.1 ms here, so 1.46 GFLOP/s."""
    rates = measured_rates(MODEL, "llama.cpp", "fp16", [*PROBED, batch(1, 0.12 + 0.0001 * 700, 800.0)])
    hidden_size = (10**9 / (12 * 16)) ** 0.5
    assert rates is not None and rates.attention_flops == pytest.approx(4 * 16 * hidden_size / 0.0001)
    without = measured_rates(MODEL, "llama.cpp", "fp16", [*PROBED, batch(1, 0.119, 800.0)])
    assert without is not None and without.attention_flops is None

    def tpot_ms(prompt_len: int, kv_dtype: str, known: MeasuredRates) -> float:
        market = MARKET.with_measured(
            [cpu_accelerator("Some CPU", {("llama.cpp", "fp16"): known}, 2**36, date(2026, 11, 22))]
        )
        load = Load(0, prompt_len, 10, running=1, cached_share=1.0)
        running = forecast(ON_CPU.but(kv_dtype=kv_dtype), load, market).running
        assert running is not None
        return running.tpot_ms[1]

    increases = [tpot_ms(1000, kv, rates) - tpot_ms(100, kv, rates) for kv in ("fp16", "int8")]
    assert all(60 < ms < 250 for ms in increases)  # 90 ms of products, by the table's factor on reading the cache
    assert tpot_ms(1000, "fp16", without) > 1.1 * tpot_ms(100, "fp16", without)


def test_batches_show_what_a_sequence_and_four_together_add_to_a_step() -> None:
    """Kernels that multiply one sequence in 40 ms and four together in 80 ms, beside 100 ms of reading."""
    points = [*PROBED[:2], *(batch(n, s) for n, s in ((1, 0.14), (2, 0.18), (4, 0.18), (8, 0.26)))]
    rates = measured_rates(MODEL, "llama.cpp", "fp16", points)
    assert rates is not None and rates.memory_bytes_per_s == pytest.approx(2e10)
    assert rates.row_flops == pytest.approx(5e10) and rates.tile_flops == pytest.approx(1e11)
    few = measured_rates(MODEL, "llama.cpp", "fp16", [*PROBED[:2], batch(1, 0.14)])
    assert few is not None and few.row_flops is None and few.tile_flops is None
    market = MARKET.with_measured(
        [cpu_accelerator("Some CPU", {("llama.cpp", "fp16"): rates}, 2**36, date(2026, 11, 22))]
    )

    def token_s(running: float) -> float:
        load = Load(0, 100, 48, running=running, cached_share=1.0)
        at = forecast(ON_CPU.but(max_num_seqs=8), load, market).running
        assert at is not None
        return at.tpot_ms[1] / 1000

    # A cache that is read and launches come on top; three sequences take longer than four, as they did when measured.
    steps_s = [token_s(n) for n in (1, 2, 3, 4, 5, 8)]
    expected_s = [0.14, 0.18, 0.22, 0.18, 0.22, 0.26]
    assert [took - steps_s[0] for took in steps_s] == pytest.approx([s - 0.14 for s in expected_s], abs=0.03)
    assert steps_s[0] == pytest.approx(0.14, rel=0.15)
    assert token_s(4.5) == pytest.approx((steps_s[3] + steps_s[4]) / 2, rel=0.01)


def test_a_prompts_products_with_experts_have_a_rate_of_their_own() -> None:
    """Half of what a token passes is in experts, which are multiplied at a third of the rate."""
    mixture = Model("mixture", 4 * 10**8, 10**8, n_layers=16, n_experts=14, n_experts_active=2)
    dense = MeasuredRates(2e10, 9e10, row_flops=3e10)
    of_mixture = MeasuredRates(2e10, 1 / (0.5 / 9e10 + 0.5 / 3e10))
    assert expert_flops(dense, of_mixture, mixture) == pytest.approx(3e10)
    assert expert_flops(dense, MeasuredRates(2e10, 1e11), mixture) == 9e10
    assert expert_flops(dense, MeasuredRates(2e10, 1e12), mixture) is None
    assert expert_flops(dense, of_mixture, MODEL) is None
    known = Model("mixture", 4 * 10**8, 10**8, 16, n_kv_heads=8, head_dim=64, n_experts=14, n_experts_active=2)

    def ttft_ms(rate: float | None) -> float:
        rates = {("llama.cpp", "fp16"): replace(dense, expert_flops=rate)}
        market = MARKET.with_measured([cpu_accelerator("Some CPU", rates, 2**36, date(2026, 11, 22))])
        at = forecast(replace(ON_CPU, model=known), Load(0, 1000, 10, running=1), market).running
        assert at is not None
        return at.ttft_ms[1] - at.tpot_ms[1]

    # Another 1000 tokens x 2 FLOPs x 50 million parameters / (1 / 30 - 1 / 90 GFLOP/s).
    assert ttft_ms(3e10) - ttft_ms(None) == pytest.approx(2222, rel=0.01)


def test_the_bytes_that_a_step_reads_are_those_of_the_engine_s_own_format() -> None:
    """What llama.cpp calls 4 bits has 4.85, with its scales; what vLLM runs has 4.5."""
    blocks, groups = (measured_rates(MODEL, engine, "int4", PROBED) for engine in ("llama.cpp", "vllm"))
    assert blocks is not None and groups is not None
    assert blocks.memory_bytes_per_s / groups.memory_bytes_per_s == pytest.approx(4.85 / 4.5)


def test_each_engine_on_the_same_cpus_has_rates_of_its_own() -> None:
    """Kernels of llama.cpp and of vLLM differ, whatever the dtype is called."""
    by_engine = {("ollama", "fp16"): MeasuredRates(2e10, 9e10), ("vllm", "fp16"): MeasuredRates(1e10, 9e10)}
    cpus = cpu_accelerator("Some CPU", by_engine, 2**36, date(2026, 11, 22))

    def step_ms(engine: str, market: Market) -> float:
        running = forecast(ON_CPU.but(engine=engine), Load(0, 100, 10, running=1), market).running
        assert running is not None
        return running.tpot_ms[1]

    both = MARKET.with_measured([cpus])
    # 2 GB of weights are read at 20 and at 10 GB/s.
    assert step_ms("vllm", both) - step_ms("llama.cpp", both) == pytest.approx(100, rel=0.01)
    sglang = {**by_engine, ("sglang", "fp16"): MeasuredRates(5e9, 9e10)}
    all_three = MARKET.with_measured([cpu_accelerator("Some CPU", sglang, 2**36, date(2026, 11, 22))])
    assert step_ms("vllm", all_three) == step_ms("vllm", both) < step_ms("sglang", all_three)
    one = cpu_accelerator("Some CPU", {("vllm", "fp16"): MeasuredRates(1e10, 9e10)}, 2**36, date(2026, 11, 22))
    with pytest.raises(Abstained, match=r"nothing is measured of fp16 under llama.cpp on Some CPU: run a probe"):
        step_ms("llama.cpp", MARKET.with_measured([one]))


def test_a_cache_in_8_bits_slows_long_prompts_on_cpus_down() -> None:
    rates = measured_rates(MODEL, "llama.cpp", "fp16", PROBED)
    assert rates is not None
    market = MARKET.with_measured(
        [cpu_accelerator("Some CPU", {("llama.cpp", "fp16"): rates}, 2**36, date(2026, 11, 22))]
    )

    def per_token_ms(tokens: int, kv_dtype: str) -> float:
        running = forecast(ON_CPU.but(kv_dtype=kv_dtype), Load(0, tokens, 1, running=1), market).running
        assert running is not None
        return running.ttft_ms[1] / tokens

    wide, narrow = (per_token_ms(2000, kv) / per_token_ms(200, kv) for kv in ("fp16", "int8"))
    assert wide < 1.2 < narrow


def test_a_probe_makes_cpus_known_and_forecasts_of_other_batches_follow_it() -> None:
    rates = measured_rates(MODEL, "llama.cpp", "fp16", PROBED)
    assert rates is not None
    market = MARKET.with_measured(
        [cpu_accelerator("Some CPU", {("llama.cpp", "fp16"): rates}, 2**36, date(2026, 11, 22))]
    )
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
    rates = measured_rates(MODEL, "llama.cpp", "fp16", PROBED)
    assert rates is not None
    market = MARKET.with_measured(
        [cpu_accelerator("Some CPU", {("llama.cpp", "fp16"): rates}, 2**36, date(2026, 11, 22))]
    )
    load = Load(0, 200, 100, running=1)
    decode, few = replace(load, cached_share=1.0), [prompt(100, 4.2), batch(1, 0.24)]
    known = calibrate(ON_CPU, decode, market, busy_tok_s=1 / 0.24, points=few)
    assert known.probed == 2
    at = forecast(ON_CPU, load, market, known).running
    without = forecast(ON_CPU, load, market, calibrate(ON_CPU, decode, market, busy_tok_s=1 / 0.24)).running
    assert at is not None and without is not None
    assert at.ttft_ms[1] - at.tpot_ms[1] == pytest.approx(8200, rel=0.15)
    assert without.ttft_ms[1] < 0.75 * at.ttft_ms[1]


def test_a_move_from_cpus_to_accelerators_is_not_predicted_from_what_cpus_measured() -> None:
    rates = measured_rates(MODEL, "llama.cpp", "fp16", PROBED)
    assert rates is not None
    market = MARKET.with_measured(
        [cpu_accelerator("Some CPU", {("llama.cpp", "fp16"): rates}, 2**36, date(2026, 11, 22))]
    )
    load = Load(0, 200, 100, running=3)
    known = calibrate(ON_CPU, load, market, busy_tok_s=8, points=PROBED)
    for other in (H100, Placement(accelerator="L4")):
        with pytest.raises(Abstained, match="from CPUs to accelerators"):
            compare(ON_CPU, ON_CPU.on(other), load, market, known)


@pytest.mark.parametrize("slower", [1.0, 1.5])
def test_a_move_onto_cpus_is_forecast_from_their_rates_alone(slower: float) -> None:
    """What an accelerator was slower than expected does not hold on CPUs: only the ratio to it changes."""
    rates = measured_rates(MODEL, "llama.cpp", "fp16", PROBED)
    assert rates is not None
    market = MARKET.with_measured(
        [cpu_accelerator("Some CPU", {("llama.cpp", "fp16"): rates}, 2**36, date(2026, 11, 22))]
    )
    load = Load(0.1, 200, 100, running=1)
    now = replace(ON_CPU.on(H100), engine="vllm", weight_dtype="bf16", max_num_seqs=64)
    usual = forecast(now, load, market).running
    alone = forecast(ON_CPU, load, market).running
    assert usual is not None and alone is not None
    known = calibrate(now, load, market, busy_tok_s=usual.tok_s[1] / slower)
    moved = compare(now, ON_CPU, load, market, known)
    assert isinstance(moved, BeforeAfter) and moved.after.running is not None
    assert moved.after.running.tpot_ms[1] == pytest.approx(alone.tpot_ms[1])
    assert moved.ratio[1] == pytest.approx(alone.tok_s[1] / usual.tok_s[1] * slower, rel=0.02)
    assert tier_of(ON_CPU, carried(known, ON_CPU, market), market) == tiers()["cpus"]
    with pytest.raises(Abstained, match="nothing is measured of int4"):
        compare(now, ON_CPU.but(weight_dtype="int4"), load, market, known)
