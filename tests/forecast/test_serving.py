import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.catalog.market import Accelerator, load_market
from pertoken.deployment import Deployment, Model
from pertoken.forecast.capacity import capacity
from pertoken.forecast.efficiency import efficiencies
from pertoken.forecast.served import Abstained, resolve
from pertoken.forecast.serving import Change, Forecast, Load, calibrate, compare, forecast
from pertoken.forecast.step import decode_step_s, prefill_s, weight_bytes_read

MARKET = load_market()
LIKELY = efficiencies()[1]


def model(name: str) -> Model:
    found = MARKET.model(name)
    assert found is not None
    return found


def accelerator(name: str) -> Accelerator:
    found = MARKET.accelerator(name)
    assert found is not None
    return found


LLAMA_8B = Deployment(model("Llama-3.1-8B"), "vllm", accelerator="H100 SXM5", tp=1, weight_dtype="bf16")
LLAMA_70B = Deployment(model("Llama-3.3-70B"), "vllm", accelerator="H100 SXM5", tp=2, weight_dtype="bf16")
MOE = Deployment(model("Qwen3-30B-A3B"), "vllm", accelerator="H100 SXM5", tp=1, weight_dtype="bf16")
CHAT = Load(generated_tok_s=40, prompt_len=1000, generated_len=250, running=2)


def ratio(now: Deployment, to: Deployment, load: Load = CHAT) -> tuple[float, float, float]:
    change = compare(now, to, load, MARKET)
    assert isinstance(change, Change)
    return change.ratio


def at(deployment: Deployment, load: Load) -> Forecast:
    found = forecast(deployment, load, MARKET)
    assert found.refusal is None and found.running is not None and found.saturated is not None
    return found


def test_a_small_dense_step_takes_the_time_to_read_its_weights_and_the_fixed_overheads() -> None:
    served = resolve(LLAMA_8B, MARKET)
    by_hand = 8.03e9 * 2 / (3.35e12 * LIKELY.memory_bandwidth_share)
    by_hand += 2 * 8.03e9 / (989e12 * LIKELY.decode_flops_share)
    by_hand += 32 * LIKELY.layer_overhead_s + LIKELY.step_overhead_s + LIKELY.sequence_overhead_s
    by_hand += 100 * 131_072 / (3.35e12 * LIKELY.memory_bandwidth_share)
    assert decode_step_s(served, LIKELY, 1, 100) == pytest.approx(by_hand)


def test_a_70b_keeps_327680_bytes_of_16_bit_cache_for_each_token() -> None:
    assert resolve(LLAMA_70B, MARKET).kv_bytes_per_token == 327_680
    assert resolve(LLAMA_70B.but(kv_dtype="fp8"), MARKET).kv_bytes_per_token == 163_840


def test_a_batch_of_32_generates_far_more_than_a_batch_of_one_for_little_latency() -> None:
    one, many = (at(LLAMA_8B, replace(CHAT, running=n)).running for n in (1, 32))
    assert one is not None and many is not None
    assert many.tok_s[1] > 10 * one.tok_s[1]
    assert one.tpot_ms[1] < many.tpot_ms[1] < 3 * one.tpot_ms[1]


def test_a_70b_in_bf16_does_not_start_on_one_h200_at_defaults_and_says_why() -> None:
    refused = forecast(LLAMA_70B.but(accelerator="H200 SXM", tp=1), CHAT, MARKET)
    assert refused.refusal is not None and "132 GiB" in refused.refusal
    assert refused.running is None and refused.max_concurrency == 0
    assert 143_771 * 2**20 * 0.9 < 141.2e9


def test_a_70b_in_fp8_starts_on_one_h200_and_just_on_one_h100() -> None:
    fp8 = LLAMA_70B.but(weight_dtype="fp8", tp=1)
    assert at(fp8.but(accelerator="H200 SXM"), CHAT).max_concurrency > 100
    assert 4 < at(fp8, CHAT).max_concurrency < 12


def test_a_context_limit_longer_than_the_cache_keeps_the_engine_from_starting() -> None:
    refused = forecast(LLAMA_70B.but(weight_dtype="fp8", tp=1, max_model_len=131_072), CHAT, MARKET)
    assert refused.refusal is not None and "max_model_len 131072" in refused.refusal


@pytest.mark.parametrize("deployment", [LLAMA_8B, LLAMA_70B])
def test_fp8_gains_between_a_fifth_and_double_at_a_small_batch(deployment: Deployment) -> None:
    low, likely, high = ratio(deployment, deployment.but(weight_dtype="fp8"))
    assert 1.2 < likely < 2
    assert low < likely < high


def test_fp8_gains_no_speed_of_products_on_an_a100() -> None:
    a100 = LLAMA_8B.but(accelerator="A100 80GB SXM4")
    fp8 = resolve(a100.but(weight_dtype="fp8"), MARKET)
    assert fp8.flops < accelerator("A100 80GB SXM4").fp16_flops


def test_the_gain_of_four_bit_weights_is_gone_when_saturated() -> None:
    int4 = LLAMA_8B.but(weight_dtype="int4")
    few = ratio(LLAMA_8B, int4, Load(0, 500, 500, running=1))[1]
    saturated = ratio(LLAMA_8B, int4, Load(0, 500, 500, running=256))[1]
    assert few > 1.3
    assert 0.85 < saturated < 1.1


def test_a_mixture_reads_the_active_experts_at_batch_one_and_nearly_all_at_a_large_one() -> None:
    served = resolve(MOE, MARKET)
    assert weight_bytes_read(served, 1) == pytest.approx(3.3e9 * 2)
    assert 0.98 * 30.5e9 * 2 < weight_bytes_read(served, 128) < 30.5e9 * 2


def test_a_full_cache_limits_how_many_run_at_once() -> None:
    long = Load(0, prompt_len=30_000, generated_len=500, running=64)
    found = at(LLAMA_8B, long)
    assert found.running is not None and found.running.concurrency == found.max_concurrency < 64


def test_waiting_requests_run_once_the_limit_lets_them() -> None:
    limited = LLAMA_8B.but(max_num_seqs=8)
    load = Load(0, 500, 500, running=8, waiting=24)
    assert at(limited.but(max_num_seqs=32), load).running == at(LLAMA_8B, replace(load, running=32, waiting=0)).running
    assert ratio(limited, limited.but(max_num_seqs=32), load)[1] > 2.5


def test_a_demand_beyond_saturation_cannot_be_held() -> None:
    assert at(LLAMA_70B, replace(CHAT, generated_tok_s=1e5)).demand is None
    held = at(LLAMA_70B, replace(CHAT, generated_tok_s=200)).demand
    assert held is not None and held.tok_s[1] == pytest.approx(200, rel=1e-6)


def test_cached_prompt_tokens_cost_no_prefill() -> None:
    cold, warm = (at(LLAMA_8B, replace(CHAT, cached_share=share)).running for share in (0.0, 0.9))
    assert cold is not None and warm is not None
    assert warm.ttft_ms[1] < cold.ttft_ms[1] and warm.tok_s[1] > cold.tok_s[1]


def test_calibration_meets_what_was_measured_and_leaves_a_ratio_as_it_was() -> None:
    calibration = calibrate(LLAMA_70B, CHAT, MARKET, busy_tok_s=33.0)
    found = forecast(LLAMA_70B, CHAT, MARKET, calibration).running
    assert found is not None and found.tok_s[1] == pytest.approx(33.0)
    calibrated = compare(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8"), CHAT, MARKET, calibration)
    assert isinstance(calibrated, Change)
    assert calibrated.ratio == pytest.approx(ratio(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8")))


def test_more_sequences_than_the_model_thinks_fit_raise_its_capacity() -> None:
    fp8 = LLAMA_70B.but(weight_dtype="fp8", tp=1)
    crowded = replace(CHAT, running=20)
    calibration = calibrate(fp8, crowded, MARKET, busy_tok_s=300)
    assert forecast(fp8, crowded, MARKET, calibration).max_concurrency == pytest.approx(20)


def test_calibration_refuses_what_cannot_be_measured() -> None:
    with pytest.raises(ValueError, match="above 0"):
        calibrate(LLAMA_70B, CHAT, MARKET, busy_tok_s=0)


@pytest.mark.parametrize(
    ("deployment", "missing"),
    [
        (replace(LLAMA_8B, model=Model("secret")), "shape"),
        (replace(LLAMA_8B, accelerator=None), "catalog does not know"),
        (LLAMA_8B.but(weight_dtype=None), "weight dtype"),
        (LLAMA_8B.but(weight_dtype="int3"), "int3"),
        (LLAMA_8B.but(kv_dtype="turboquant"), "turboquant"),
        (replace(MOE, model=replace(MOE.model, n_experts=None)), "experts"),
    ],
)
def test_what_is_not_known_is_no_number(deployment: Deployment, missing: str) -> None:
    with pytest.raises(Abstained, match=missing):
        forecast(deployment, CHAT, MARKET)


def test_a_knob_the_model_does_not_know_is_not_priced() -> None:
    with pytest.raises(Abstained, match="enforce_eager"):
        compare(LLAMA_8B, LLAMA_8B.but(enforce_eager=True), CHAT, MARKET)


def test_what_was_not_seen_is_named_among_the_assumptions() -> None:
    said = at(LLAMA_8B, CHAT).assumptions
    assert said == ("gpu_memory_utilization 0.9 (not seen)", "max_num_seqs 256 (not seen)")
    assert at(LLAMA_8B.but(gpu_memory_utilization=0.9, max_num_seqs=256), CHAT).assumptions == ()


def test_an_interval_is_wider_for_two_changes_than_for_one() -> None:
    one = ratio(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8"))
    both = ratio(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8", tp=1))
    assert one[2] / one[0] < both[2] / both[0]


LOADS = st.builds(
    Load,
    generated_tok_s=st.floats(0, 1e5),
    prompt_len=st.floats(1, 20_000),
    generated_len=st.floats(1, 4_000),
    running=st.floats(0, 400),
    waiting=st.floats(0, 400),
    cached_share=st.floats(0, 1),
)
DEPLOYMENTS = st.builds(
    lambda base, device, dtype, tp: base.but(accelerator=device, weight_dtype=dtype, tp=tp),
    st.sampled_from([LLAMA_8B, LLAMA_70B, MOE]),
    st.sampled_from([each.name for each in MARKET.accelerators]),
    st.sampled_from(["bf16", "fp8", "int8", "int4", "fp4"]),
    st.sampled_from([1, 2, 4, 8]),
)


@settings(deadline=None)
@given(DEPLOYMENTS, LOADS)
def test_every_number_is_finite_positive_and_in_order(deployment: Deployment, load: Load) -> None:
    found = forecast(deployment, load, MARKET)
    points = [each for each in (found.running, found.saturated, found.demand) if each is not None]
    assert points or found.refusal
    for point in points:
        for low, likely, high in (point.tok_s, point.tpot_ms, point.ttft_ms):
            assert 0 < low <= likely <= high < math.inf
        assert point.concurrency <= found.max_concurrency * (1 + 1e-9)


@settings(deadline=None)
@given(DEPLOYMENTS, st.floats(1, 512), st.floats(1, 50_000), st.floats(1, 4))
def test_more_bandwidth_never_slows_a_step(deployment: Deployment, batch: float, context: float, more: float) -> None:
    served = resolve(deployment, MARKET)
    device = served.accelerator
    faster = replace(served, accelerator=replace(device, memory_bytes_per_s=device.memory_bytes_per_s * more))
    assert decode_step_s(faster, LIKELY, batch, context) <= decode_step_s(served, LIKELY, batch, context)
    assert prefill_s(faster, LIKELY, context) <= prefill_s(served, LIKELY, context)


@settings(deadline=None)
@given(DEPLOYMENTS, st.floats(1, 512))
def test_fewer_bits_never_read_more_bytes(deployment: Deployment, batch: float) -> None:
    read = [
        weight_bytes_read(resolve(deployment.but(weight_dtype=dtype), MARKET), batch)
        for dtype in ("bf16", "fp8", "fp4", "int4")
    ]
    assert read == sorted(read, reverse=True)


@settings(deadline=None)
@given(DEPLOYMENTS, st.floats(1, 4))
def test_more_memory_never_holds_fewer_tokens(deployment: Deployment, more: float) -> None:
    served = resolve(deployment, MARKET)
    device = served.accelerator
    larger = replace(served, accelerator=replace(device, memory_bytes=int(device.memory_bytes * more)))
    assert capacity(deployment, larger, LIKELY).kv_tokens >= capacity(deployment, served, LIKELY).kv_tokens


@settings(deadline=None)
@given(DEPLOYMENTS, LOADS, st.floats(1, 100))
def test_more_running_requests_never_generate_less(deployment: Deployment, load: Load, more: float) -> None:
    few, many = (forecast(deployment, replace(load, running=n), MARKET) for n in (load.running, load.running + more))
    if few.running is not None and many.running is not None:
        assert many.running.tok_s[1] >= few.running.tok_s[1] * (1 - 1e-9)
