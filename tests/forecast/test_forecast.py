"""Invariants of the forecast for any deployment, whatever was fitted."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.calibrate import calibrate
from pertoken.arrivals import Arrivals, typical
from pertoken.catalog.market import load_market
from pertoken.forecast.candidates import Candidates
from pertoken.forecast.capacity import fitting_sequences, kv_tokens
from pertoken.forecast.efficiency import efficiency, steady
from pertoken.forecast.formats import weight_format
from pertoken.forecast.latency import forecast_under
from pertoken.forecast.served import Abstained, Load, resolve
from pertoken.forecast.serving import BeforeAfter, compare, forecast
from pertoken.forecast.terms import TERMS, seconds
from pertoken.state.deployment import Deployment, Model, Placement
from tests.examples import examples
from tests.forecast.builders import first_token_s

MARKET = load_market()
ACCELERATORS = [accelerator.name for accelerator in MARKET.accelerators]
MODELS = ["Llama-3.1-8B", "Llama-3.3-70B", "Qwen3-30B-A3B", "DeepSeek-R1", "gpt-oss-120b", "Qwen2.5-0.5B"]
WEIGHTS = ["bf16", "fp16", "fp8", "int8", "int4", "fp4"]


@st.composite
def models(draw: st.DrawFn) -> Model:
    if draw(st.booleans()):
        model = MARKET.model(draw(st.sampled_from(MODELS)))
        assert model is not None
        return model
    total = draw(st.integers(10**7, 10**12))
    experts = draw(st.sampled_from([0, 8, 128, 256]))
    return Model(
        "drawn",
        total,
        draw(st.integers(total // 20, total - 1)) if experts else total,
        draw(st.integers(1, 200)),
        draw(st.sampled_from([1, 2, 8, 64])),
        draw(st.sampled_from([64, 128, 288])),
        experts or None,
        draw(st.integers(1, experts - 1)) if experts else None,
    )


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    return Deployment(
        draw(models()),
        draw(st.sampled_from(["vllm", "sglang", "trtllm"])),
        placement=Placement(accelerator=draw(st.sampled_from(ACCELERATORS))),
        tp=draw(st.sampled_from([1, 2, 4, 8, 16])),
        pp=draw(st.sampled_from([1, 2, 4])),
        dp=draw(st.sampled_from([1, 2, 8])),
        weight_dtype=draw(st.sampled_from(WEIGHTS)),
        kv_dtype=draw(st.sampled_from([None, "bf16", "fp8", "fp8_e5m2"])),
        enable_chunked_prefill=draw(st.sampled_from([None, True, False])),
        max_num_seqs=draw(st.sampled_from([None, 1, 64, 1024])),
    )


loads = st.builds(
    Load,
    generated_tok_s=st.floats(0, 1e5),
    prompt_len=st.floats(0, 1e6),
    generated_len=st.floats(1, 1e5),
    running=st.floats(0, 4096),
    waiting=st.floats(0, 4096),
    cached_share=st.floats(0, 1),
)


def resolved(deployment: Deployment, load: Load) -> Candidates | None:
    try:
        return resolve([deployment], [load], MARKET)
    except Abstained:
        return None


def token_s(c: Candidates, running: float) -> float:
    return float(steady(c, efficiency(), np.array([running])).token_s[0])


@settings(max_examples=examples(150), deadline=None)
@given(deployments(), loads)
def test_no_number_is_nan_for_any_valid_input(deployment: Deployment, load: Load) -> None:
    c = resolved(deployment, load)
    if c is None:
        return
    running = max(1.0, load.running)
    assert np.isfinite(seconds(c, np.array([running]))).all() and (seconds(c, np.array([running])) >= 0).all()
    assert 0 < token_s(c, running) < math.inf
    assert 0 < first_token_s(c) < math.inf
    predicted = forecast(deployment, load, MARKET)
    for point in (predicted.running, predicted.saturated, predicted.demand):
        if point is not None:
            for low, likely, high in (point.tok_s, point.tpot_ms, point.ttft_ms):
                assert 0 < low <= likely <= high < math.inf


@settings(max_examples=examples(60), deadline=None)
@given(deployments(), st.floats(1e-4, 1e3), st.floats(1, 512))
def test_no_number_under_a_load_is_nan(deployment: Deployment, rate: float, limit: float) -> None:
    c = resolved(deployment, Load(1.0, 1000, 200, running=1))
    if c is None:
        return
    prompt, generated = typical("conversation")
    predicted = forecast_under(c, efficiency(), Arrivals(rate, prompt, generated), np.array([limit]))
    for values in (
        predicted.running,
        predicted.waiting,
        predicted.tok_s,
        predicted.ttft_s,
        predicted.tpot_s,
        predicted.utilization,
    ):
        assert not np.isnan(values).any() and (values >= 0).all()


@settings(max_examples=examples(100), deadline=None)
@given(deployments(), loads, st.floats(1.0, 10.0))
def test_more_bandwidth_never_slows_decode(deployment: Deployment, load: Load, factor: float) -> None:
    c = resolved(deployment, load)
    if c is None:
        return
    faster = replace(c, memory_bytes_per_s=c.memory_bytes_per_s * factor)
    assert token_s(faster, max(1.0, load.running)) <= token_s(c, max(1.0, load.running)) * (1 + 1e-12)


@settings(max_examples=examples(100), deadline=None)
@given(models(), st.sampled_from(ACCELERATORS), loads)
def test_a_smaller_dtype_never_raises_bytes(model: Model, accelerator: str, load: Load) -> None:
    """Weights and cache read in a step, in order of the stored bits."""
    memory = [TERMS.index(name) for name in ("weights", "experts", "kv_cache")]
    read = []
    for weights in sorted(WEIGHTS, key=lambda dtype: -(weight_format(dtype).bits if weight_format(dtype) else 0)):  # type: ignore[union-attr]
        for kv in ("bf16", "fp8"):
            where = Deployment(
                model, "vllm", placement=Placement(accelerator=accelerator), tp=1, weight_dtype=weights, kv_dtype=kv
            )
            c = resolved(where, load)
            if c is not None:
                term_s = seconds(c, np.array([max(1.0, load.running)]))[0, memory] * c.memory_bytes_per_s[0]
                read.append((float(c.weight_bits[0]), kv, term_s))
    for bits, kv, mine in read:
        for other_bits, other_kv, theirs in read:
            if bits <= other_bits and (kv == "fp8" or other_kv == "bf16"):
                assert (mine <= theirs * (1 + 1e-12)).all()


@settings(max_examples=examples(100), deadline=None)
@given(deployments(), loads, st.floats(1.0, 8.0))
def test_capacity_never_falls_with_memory(deployment: Deployment, load: Load, factor: float) -> None:
    c = resolved(deployment, load)
    if c is None:
        return
    larger = replace(c, memory_bytes=c.memory_bytes * factor)
    assert kv_tokens(larger)[0] >= kv_tokens(c)[0]
    assert fitting_sequences(larger)[0] >= fitting_sequences(c)[0]


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(ACCELERATORS), st.sampled_from(ACCELERATORS), st.sampled_from(WEIGHTS), st.floats(1, 64))
def test_under_one_calibration_a_change_and_its_reverse_multiply_to_one(
    dtype: str, other_dtype: str, weights: str, running: float
) -> None:
    """Measured at `now`, asked for `now` to `to` and for `to` to `now`."""
    model = MARKET.model("Llama-3.1-8B")
    assert model is not None
    load = Load(generated_tok_s=100, prompt_len=500, generated_len=200, running=running)
    now = Deployment(model, "vllm", placement=Placement(accelerator=dtype), tp=1, weight_dtype="bf16")
    to = now.but(weight_dtype=weights).on(Placement(accelerator=other_dtype))
    try:
        known = calibrate(now, load, MARKET, busy_tok_s=60 * running, tpot_ms=15)
        forth, back = compare(now, to, load, MARKET, known), compare(to, now, load, MARKET, known)
    except Abstained:
        return
    if isinstance(forth, BeforeAfter) and isinstance(back, BeforeAfter):
        ran = [change.after.running.concurrency for change in (forth, back) if change.after.running]
        if ran == [running, running]:
            assert math.isclose(forth.ratio[1] * back.ratio[1], 1.0, rel_tol=1e-6)


@settings(max_examples=examples(80), deadline=None)
@given(deployments(), st.floats(0.01, 100), st.floats(1, 512))
def test_scaling_the_units_of_the_model_changes_nothing(deployment: Deployment, unit: float, running: float) -> None:
    """Bytes and FLOPs counted in another unit, on both the work and the rates: seconds stay."""
    c = resolved(deployment, Load(1.0, 1000, 200, running=running))
    if c is None:
        return
    scaled = replace(
        c,
        params_total=c.params_total * unit,
        params_active=c.params_active * unit,
        kv_values=c.kv_values * unit,
        flops=c.flops * unit,
        fp16_flops=c.fp16_flops * unit,
        memory_bytes_per_s=c.memory_bytes_per_s * unit,
        memory_bytes=c.memory_bytes * unit,
        hidden_size=c.hidden_size * unit,
        link_bytes_per_s=c.link_bytes_per_s * unit,
    )
    same = [name for name in TERMS if name != "all_reduce_bytes"]
    places = [TERMS.index(name) for name in same]
    before, after = (seconds(candidates, np.array([running]))[0, places] for candidates in (c, scaled))
    assert np.allclose(before, after, rtol=1e-9)
