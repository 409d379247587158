import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.calibrate import calibrate
from pertoken.forecast.efficiency import intervals
from pertoken.forecast.formats import hardware_tag
from pertoken.forecast.host import BusyMeasurements, Calibration, calibrate_all, tier_of
from pertoken.forecast.served import Abstained, Load, kernels
from pertoken.forecast.serving import (
    BeforeAfter,
    ChangeUnderLoad,
    Forecast,
    compare,
    compare_all,
    forecast,
    running_tok_s,
)
from pertoken.forecast.tiers import tiers
from pertoken.state.deployment import Deployment, Model, Placement
from tests.forecast.builders import CHAT, LLAMA_8B, LLAMA_70B, MARKET, MOE, accelerator, at, ratio


def test_a_batch_of_32_generates_far_more_than_a_batch_of_one_for_little_latency() -> None:
    one, many = (at(LLAMA_8B, replace(CHAT, running=n)).running for n in (1, 32))
    assert one is not None and many is not None
    assert many.tok_s[1] > 10 * one.tok_s[1]
    assert one.tpot_ms[1] < many.tpot_ms[1] < 3 * one.tpot_ms[1]


def test_a_70b_in_bf16_does_not_start_on_one_h200_at_defaults_and_the_refusal_gives_the_size() -> None:
    refused = forecast(LLAMA_70B.but(tp=1).on(Placement(accelerator="H200 SXM")), CHAT, MARKET)
    assert refused.refusal is not None and "132 GiB" in refused.refusal
    assert refused.running is None and refused.max_concurrency == 0
    assert 143_771 * 2**20 * 0.9 < 141.2e9


def test_a_70b_in_fp8_starts_on_one_h200_and_just_on_one_h100() -> None:
    fp8 = LLAMA_70B.but(weight_dtype="fp8", tp=1)
    assert at(fp8.on(Placement(accelerator="H200 SXM")), CHAT).max_concurrency > 100
    assert 4 < at(fp8, CHAT).max_concurrency < 12


def test_a_context_limit_longer_than_the_cache_keeps_the_engine_from_starting() -> None:
    refused = forecast(LLAMA_70B.but(weight_dtype="fp8", tp=1, max_model_len=131_072), CHAT, MARKET)
    assert refused.refusal is not None and "max_model_len 131072" in refused.refusal


@pytest.mark.parametrize("deployment", [LLAMA_8B, LLAMA_70B])
def test_fp8_gains_between_a_tenth_and_double_at_a_small_batch(deployment: Deployment) -> None:
    low, likely, high = ratio(deployment, deployment.but(weight_dtype="fp8"))
    assert 1.1 < likely < 2
    assert low < likely < high


def test_fp8_with_scales_per_block_gains_a_small_batch_of_a_mixture_less_than_fp8_of_the_flag() -> None:
    in_blocks, by_flag = MOE.but(weight_dtype="fp8_block"), MOE.but(weight_dtype="fp8")
    assert ratio(MOE, in_blocks)[1] < ratio(MOE, by_flag)[1] / 1.05


@pytest.mark.parametrize("name", ["Qwen/Qwen3-30B-A3B-FP8", "deepseek-ai/DeepSeek-R1", "kimi-k2", ""])
def test_the_name_of_a_model_decides_nothing_about_the_scales_of_its_weights(name: str) -> None:
    by_flag = MOE.but(weight_dtype="fp8")
    assert at(replace(by_flag, served_model=name), CHAT) == at(by_flag, CHAT)


def test_fp8_gains_no_speed_of_products_on_an_a100() -> None:
    a100 = accelerator("A100 80GB SXM4")
    assert (kernels("fp8", a100).flops, kernels("fp8", a100).weight_only) == (a100.fp16_flops, True)
    h100 = accelerator("H100 SXM5")
    assert (kernels("fp8", h100).flops, kernels("fp8", h100).weight_only) == (h100.fp8_flops, False)


def test_the_gain_of_four_bit_weights_is_gone_when_saturated() -> None:
    int4 = LLAMA_8B.but(weight_dtype="int4")
    few = ratio(LLAMA_8B, int4, Load(0, 500, 500, running=1))[1]
    saturated = ratio(LLAMA_8B, int4, Load(0, 500, 500, running=256))[1]
    assert few > 1.3
    assert 0.85 < saturated < 1.1


def test_a_full_cache_limits_how_many_run_at_once() -> None:
    long = Load(0, prompt_len=30_000, generated_len=500, running=64)
    forecast = at(LLAMA_8B, long)
    assert forecast.running is not None and forecast.running.concurrency == forecast.max_concurrency < 64


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


def test_a_calibrated_forecast_meets_the_measured_rate() -> None:
    calibration = calibrate(LLAMA_70B, CHAT, MARKET, busy_tok_s=33.0)
    point = forecast(LLAMA_70B, CHAT, MARKET, calibration).running
    assert point is not None and point.tok_s[1] == pytest.approx(33.0, rel=0.01)


def test_a_host_slower_than_expected_at_batch_one_gains_less_from_fewer_bytes_if_launches_are_to_blame() -> None:
    fp8 = LLAMA_8B.but(weight_dtype="fp8")
    alone = replace(CHAT, running=1)
    point = at(LLAMA_8B, alone).running
    assert point is not None
    slow = calibrate(LLAMA_8B, alone, MARKET, busy_tok_s=point.tok_s[1] / 3)
    change = compare(LLAMA_8B, fp8, alone, MARKET, slow)
    assert isinstance(change, BeforeAfter) and change.ratio[1] != pytest.approx(
        ratio(LLAMA_8B, fp8, alone)[1], rel=0.01
    )


@pytest.mark.parametrize(
    "to", [LLAMA_70B.but(weight_dtype="fp8"), LLAMA_70B.but(tp=4), LLAMA_70B.on(Placement(accelerator="H200 SXM"))]
)
def test_under_one_calibration_a_change_and_its_reverse_multiply_to_one(to: Deployment) -> None:
    calibration = calibrate(LLAMA_70B, CHAT, MARKET, busy_tok_s=33.0)
    forth, back = compare(LLAMA_70B, to, CHAT, MARKET, calibration), compare(to, LLAMA_70B, CHAT, MARKET, calibration)
    assert isinstance(forth, BeforeAfter) and isinstance(back, BeforeAfter)
    assert forth.ratio[1] * back.ratio[1] == pytest.approx(1)


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
        (replace(LLAMA_8B, placement=Placement(accelerator=None)), "catalog does not know"),
        (replace(LLAMA_8B, weight_dtype=None), "weight dtype"),
        (replace(LLAMA_8B, weight_dtype="int7"), "int7"),
        (replace(LLAMA_8B, kv_dtype="turboquant"), "turboquant"),
    ],
)
def test_an_unknown_value_is_no_number(deployment: Deployment, missing: str) -> None:
    with pytest.raises(Abstained, match=missing):
        forecast(deployment, CHAT, MARKET)


@pytest.mark.parametrize(
    ("deployment", "reason"),
    [
        (replace(LLAMA_8B, engine="lmdeploy"), "the engine lmdeploy"),
        (replace(LLAMA_8B, engine="tgi", weight_dtype="fp8"), "the engine tgi"),
        (LLAMA_8B.on(Placement(accelerator="Gaudi 3 OAM")), "the architecture Gaudi3 of Gaudi 3 OAM"),
        (replace(MOE, model=replace(MOE.model, n_experts=None)), "the number of experts of"),
        (LLAMA_8B.but(weight_dtype="int3"), "multiplies weights in int3"),
        (LLAMA_8B.but(weight_dtype="fp32"), "multiplies weights in fp32"),
        (replace(LLAMA_8B, kv_dtype="fp4"), "a KV cache in fp4"),
        (replace(LLAMA_8B, engine="llama.cpp", weight_dtype="int4", kv_dtype="int4"), "a KV cache in int4"),
        (LLAMA_8B.on(Placement(accelerator="MI355X")).but(weight_dtype="int4"), "int4 on MI355X"),
    ],
)
def test_a_speed_that_only_physics_knows_is_forecast_with_a_wide_interval_and_the_reason(
    deployment: Deployment, reason: str
) -> None:
    predicted = forecast(deployment, CHAT, MARKET)
    assert predicted.running is not None and any(reason in line for line in predicted.assumptions)
    assert tier_of(deployment, Calibration(), MARKET) == tiers()["physics"]
    change = compare(deployment, deployment.but(max_num_seqs=16), CHAT, MARKET)
    assert (
        isinstance(change, BeforeAfter)
        and change.ratio[2] / change.ratio[1] >= math.exp(intervals().unmeasured) * 0.999
    )


def test_unstated_experts_of_a_mixture_are_read_like_stated_ones_at_both_ends_of_the_batch() -> None:
    unstated = replace(MOE, model=replace(MOE.model, n_experts=None, n_experts_active=None))
    for running in (1.0, 200.0):
        known, guessed = (
            forecast(deployment, replace(CHAT, running=running), MARKET).running for deployment in (MOE, unstated)
        )
        assert known is not None and guessed is not None
        assert guessed.tok_s[1] == pytest.approx(known.tok_s[1], rel=0.35)


def test_an_engine_without_graphs_is_slower_most_of_all_where_steps_are_short() -> None:
    alone, many = (
        compare(LLAMA_8B, LLAMA_8B.but(enforce_eager=True), replace(CHAT, running=n), MARKET) for n in (1.0, 200.0)
    )
    assert isinstance(alone, BeforeAfter) and isinstance(many, BeforeAfter)
    assert alone.ratio[1] < many.ratio[1] < 1
    assert alone.ratio[2] / alone.ratio[1] >= math.exp(intervals().unmeasured) * 0.999, "no public pairs cover it"


def test_a_knob_the_model_does_not_know_is_not_priced() -> None:
    with pytest.raises(Abstained, match="kv_offload_bytes"):
        compare(LLAMA_8B, LLAMA_8B.but(kv_offload_bytes=8 * 2**30), CHAT, MARKET)


def test_a_cache_in_fp8_is_far_slower_where_the_hardware_has_no_fp8_unless_the_engine_is_known_to_be_new() -> None:
    a100 = LLAMA_8B.on(Placement(accelerator="A100 80GB SXM4"))
    busy = replace(CHAT, running=64)
    for slow in (a100, replace(a100, engine_version="0.6.3")):
        narrow = slow.but(kv_dtype="fp8")
        # Few kernels were measured, and they differ by far.
        low, likely, high = ratio(slow, narrow, busy)
        assert likely < 0.7 and high > 4 * low
        before, after = (at(deployment, busy) for deployment in (slow, narrow))
        assert before.running is not None and after.running is not None
        assert after.running.tok_s[1] < 0.7 * before.running.tok_s[1]
        assert any("does not convert FP8" in assumption for assumption in after.assumptions)
        assert ratio(slow, slow.but(kv_dtype="fp8_e5m2"), busy)[1] > 0.9
    for known in (LLAMA_8B, replace(a100, engine_version="0.11.0")):
        low, likely, high = ratio(known, known.but(kv_dtype="fp8"), busy)
        assert likely > 0.9 and high < 2 * likely < 4 * low


def test_kernels_that_no_public_source_measured_are_forecast_with_a_wide_interval_and_the_reason() -> None:
    a100 = LLAMA_8B.on(Placement(accelerator="A100 80GB SXM4"))
    low, likely, high = ratio(a100, a100.but(weight_dtype="fp8"))
    assert low < 1 < likely and high / low >= 3.99
    covered_low, _, covered_high = ratio(LLAMA_8B, LLAMA_8B.but(weight_dtype="fp8"))
    assert covered_high / covered_low < 2.5
    reason = "how vllm multiplies weights in fp8-w8a16 (fp8 on A100 80GB SXM4)"
    assert any(reason in note for note in at(a100.but(weight_dtype="fp8"), CHAT).assumptions)
    assert not any("no public measurement" in note for note in at(a100, CHAT).assumptions)
    assert isinstance(compare(a100, a100.but(weight_dtype="int8"), CHAT, MARKET), BeforeAfter)
    assert isinstance(compare(LLAMA_8B, LLAMA_8B.but(weight_dtype="fp8"), CHAT, MARKET), BeforeAfter)


def test_a_host_with_a_residual_that_changes_the_ratio_has_a_wider_interval() -> None:
    expected = at(LLAMA_8B, CHAT).running
    assert expected is not None
    widths = []
    for slower in (1.0, 2.5):
        known = calibrate(LLAMA_8B, CHAT, MARKET, busy_tok_s=expected.tok_s[1] / slower)
        change = compare(LLAMA_8B, LLAMA_8B.but(weight_dtype="fp8"), CHAT, MARKET, known)
        assert isinstance(change, BeforeAfter)
        widths.append(change.ratio[2] / change.ratio[0])
    assert widths[1] > widths[0]


def test_a_change_of_the_load_alone_is_narrower_where_it_rests_on_operating_points() -> None:
    before = LLAMA_8B.but(max_num_seqs=8)
    busy = replace(CHAT, running=8, waiting=40)
    slow = calibrate(before, busy, MARKET, busy_tok_s=150)
    for to, narrower in ((before.but(max_num_seqs=64), True), (before.but(weight_dtype="fp8"), False)):
        spreads = []
        for calibration in (slow, replace(slow, minutes=30)):
            change = compare(before, to, busy, MARKET, calibration)
            assert isinstance(change, BeforeAfter)
            spreads.append(change.ratio[2] / change.ratio[1])
        assert (spreads[1] < 0.95 * spreads[0]) if narrower else spreads[1] == spreads[0]


def test_tensorrt_llm_gives_its_cache_a_share_of_what_weights_leave_and_the_dtype_of_its_checkpoint() -> None:
    vllm = LLAMA_70B.but(weight_dtype="fp8")
    trtllm = replace(vllm, engine="trtllm")
    short = replace(CHAT, generated_len=8)
    of_all, of_free = (forecast(deployment.but(kv_dtype="bf16"), short, MARKET) for deployment in (vllm, trtllm))
    assert of_free.max_concurrency > of_all.max_concurrency
    unseen = forecast(trtllm, CHAT, MARKET)
    assert any("kv_dtype fp8" in assumption for assumption in unseen.assumptions)
    assert unseen.max_concurrency == forecast(trtllm.but(kv_dtype="fp8"), CHAT, MARKET).max_concurrency
    assert not any("kv_dtype" in assumption for assumption in forecast(vllm, CHAT, MARKET).assumptions)


def test_a_version_of_vllm_before_its_rewrite_is_slower() -> None:
    old, new = (
        at(replace(LLAMA_8B, engine_version=literal), replace(CHAT, running=64)) for literal in ("0.7.2", "0.12.0")
    )
    assert old.running is not None and new.running is not None
    assert old.running.tok_s[1] < new.running.tok_s[1]
    assert at(replace(LLAMA_8B, engine_version=None), replace(CHAT, running=64)).running == new.running


def test_unmeasured_inputs_are_named_among_the_assumptions() -> None:
    assumptions = at(LLAMA_8B, CHAT).assumptions
    assert assumptions == ("gpu_memory_utilization 0.9 (not seen)", "max_num_seqs 256 (not seen)")
    assert at(LLAMA_8B.but(gpu_memory_utilization=0.9, max_num_seqs=256), CHAT).assumptions == ()


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
    lambda base, device, dtype, tp, chunked: replace(
        base, placement=Placement(accelerator=device), weight_dtype=dtype, tp=tp, enable_chunked_prefill=chunked
    ),
    st.sampled_from([LLAMA_8B, LLAMA_70B, MOE]),
    st.sampled_from(
        [accelerator.name for accelerator in MARKET.accelerators if hardware_tag(accelerator.arch) is not None]
    ),
    st.sampled_from(["bf16", "fp8", "int8", "int4", "fp4"]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([None, False]),
)


def forecast_or_none(deployment: Deployment, load: Load) -> Forecast | None:
    """Return the forecast; None where no source measured the kernels that the device runs."""
    try:
        return forecast(deployment, load, MARKET)
    except Abstained as reason:
        assert "no public measurement covers how vllm multiplies" in str(reason)
        return None


@settings(deadline=None)
@given(DEPLOYMENTS, LOADS)
def test_every_number_is_finite_positive_and_in_order(deployment: Deployment, load: Load) -> None:
    forecast = forecast_or_none(deployment, load)
    if forecast is None:
        return
    points = [point for point in (forecast.running, forecast.saturated, forecast.demand) if point is not None]
    assert points or forecast.refusal
    for point in points:
        for low, likely, high in (point.tok_s, point.tpot_ms, point.ttft_ms):
            assert 0 < low <= likely <= high < math.inf
        assert point.concurrency <= forecast.max_concurrency * (1 + 1e-9)


@settings(deadline=None)
@given(DEPLOYMENTS, LOADS, st.floats(1, 100))
def test_more_running_requests_never_generate_less(deployment: Deployment, load: Load, more: float) -> None:
    few, many = (forecast_or_none(deployment, replace(load, running=n)) for n in (load.running, load.running + more))
    if few is not None and many is not None and few.running is not None and many.running is not None:
        assert many.running.tok_s[1] >= few.running.tok_s[1] * (1 - 1e-9)


def test_running_tokens_side_by_side_are_those_of_each_forecast() -> None:
    known = calibrate(LLAMA_8B, CHAT, MARKET, busy_tok_s=1000)
    asked = [(LLAMA_8B, replace(CHAT, cached_share=share), known) for share in (0.0, 0.5, 1.0)]
    too_large = (replace(LLAMA_70B, tp=1), CHAT, known)
    unknown = (replace(LLAMA_8B, weight_dtype=None), CHAT, known)
    *rates, none, missing = running_tok_s([*asked, too_large, unknown], MARKET)
    points = [forecast(*query[:2], MARKET, known).running for query in asked]
    assert rates == [point.tok_s[1] if point is not None else None for point in points] and all(rates)
    assert forecast(*too_large[:2], MARKET, known).refusal is not None and none is None
    assert isinstance(missing, Abstained) and isinstance(running_tok_s([unknown], MARKET)[0], Abstained)


def test_no_digit_of_a_forecast_depends_on_the_other_queries_of_its_batch() -> None:
    deployments = [LLAMA_8B, LLAMA_70B, MOE, LLAMA_8B.but(max_num_seqs=16, enable_chunked_prefill=False)]
    loads = [replace(CHAT, running=running) for running in (1.0, 3.7, 40.0)]
    seen = [
        BusyMeasurements(deployment, load, 120.0 + 7 * load.running, 9.1, 45.0, 0.4, 0.3, 0.1)
        for deployment in deployments
        for load in loads
    ]
    known = calibrate_all(seen, MARKET)
    assert [calibrate_all([measured], MARKET)[0] for measured in seen] == known
    asked = [
        ChangeUnderLoad(measured.deployment, measured.deployment.but(**change), measured.load, calibration)
        for measured, calibration in zip(seen, known, strict=True)
        for change in ({"weight_dtype": "fp8"}, {"tp": 4}, {"max_num_seqs": 512})
        if not isinstance(calibration, Exception)
    ]
    alone, together = [compare_all([comparison], MARKET)[0] for comparison in asked], compare_all(asked, MARKET)
    assert [answer if isinstance(answer, BeforeAfter) else str(answer) for answer in alone] == [
        answer if isinstance(answer, BeforeAfter) else str(answer) for answer in together
    ]
    assert any(isinstance(answer, BeforeAfter) for answer in together)
