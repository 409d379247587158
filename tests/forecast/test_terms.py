"""Terms of a step by hand, at the listed rates."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pertoken.catalog.model_facts import image_encoder
from pertoken.forecast.served import resolve
from pertoken.forecast.terms import OVERHEAD_S, TERMS, kv_bytes_per_token, seconds, touched_share
from tests.forecast.builders import LLAMA_8B, LLAMA_70B, MARKET, MOE, SHORT, model


def term(name: str, value: np.ndarray) -> float:
    return float(value[0, TERMS.index(name)])


def test_a_small_dense_step_reads_its_weights_and_its_cache_and_computes_two_flops_per_parameter() -> None:
    times_s = seconds(resolve([LLAMA_8B], [SHORT], MARKET), np.array([1.0]))
    assert term("weights", times_s) == pytest.approx(8.03e9 * 2 / 3.35e12)
    assert term("kv_cache", times_s) == pytest.approx(100 * 131_072 / 3.35e12)
    assert term("decode_flops", times_s) == pytest.approx(2 * 8.03e9 / 989e12)
    assert term("prefill_flops", times_s) == pytest.approx(2 * 8.03e9 * 50 / 100 / 989e12)
    assert term("layers", times_s) == 32 * OVERHEAD_S["layers"]
    assert term("experts", times_s) == term("all_reduce_latency", times_s) == term("draft", times_s) == 0


def test_ranks_share_weights_and_pay_for_talking() -> None:
    one, two = (seconds(resolve([LLAMA_70B.but(tp=tp)], [SHORT], MARKET), np.array([1.0])) for tp in (1, 2))
    assert term("weights", two) == pytest.approx(term("weights", one) / 2)
    moved = 2 * 2 * 80 * 8192 * 2 * (1 + 50 / 100) * 0.5 / 450e9
    assert term("all_reduce_bytes", two) == pytest.approx(moved, rel=0.05)


def test_a_70b_keeps_327680_bytes_of_16_bit_cache_for_each_token() -> None:
    for kv_dtype, expected in ((None, 327_680), ("fp8", 163_840)):
        assert kv_bytes_per_token(resolve([replace(LLAMA_70B, tp=1, kv_dtype=kv_dtype)], [SHORT], MARKET)) == expected


def test_heads_are_copied_once_ranks_outnumber_them() -> None:
    mixtures = [MOE.but(tp=tp) for tp in (1, 4, 8)]
    one, four, eight = kv_bytes_per_token(resolve(mixtures, [SHORT] * 3, MARKET))
    assert four == one / 4 == eight


def test_a_mixture_reads_the_active_experts_at_batch_one_and_nearly_all_at_a_large_one() -> None:
    candidate = resolve([MOE], [SHORT], MARKET)
    assert touched_share(candidate, np.array([1.0])) == pytest.approx(8 / 128)
    assert touched_share(candidate, np.array([16.0])) == pytest.approx(1 - (120 / 128) ** 16)
    few, many = (seconds(candidate, np.array([batch])) for batch in (1.0, 128.0))
    read = [3.35e12 * (term("weights", times_s) + term("experts", times_s)) for times_s in (few, many)]
    assert read[0] == pytest.approx(3.3e9 * 2, rel=1e-6)
    assert 0.98 * 30.5e9 * 2 < read[1] < 30.5e9 * 2


def test_encoding_an_image_takes_its_flops_in_16_bits_whatever_the_weights() -> None:
    vision = replace(LLAMA_8B, model=model("Qwen/Qwen3-VL-8B"))
    encoder = image_encoder("Qwen/Qwen3-VL-8B")
    assert encoder is not None
    load = replace(SHORT, images=2.0, image_size=(1024, 1024))
    for dtype in ("bf16", "fp8"):
        plain, seen = (
            term("prefill_attention", seconds(resolve([vision.but(weight_dtype=dtype)], [one], MARKET), np.ones(1)))
            for one in (SHORT, load)
        )
        assert seen - plain == pytest.approx(2 * encoder.flops(1024, 1024) / SHORT.generated_len / 989e12)


def test_speculation_spreads_a_step_over_the_tokens_it_accepts() -> None:
    candidate = resolve([LLAMA_8B], [SHORT], MARKET)
    ones = np.ones(1)
    guessed = replace(candidate, accepted_len=2.5 * ones, drafted_len=3 * ones)
    plain, fast = (seconds(candidates, ones) for candidates in (candidate, guessed))
    assert term("weights", fast) == pytest.approx(term("weights", plain) / 2.5)
    assert term("decode_flops", fast) == pytest.approx(term("decode_flops", plain) * 4 / 2.5)
    assert term("draft", fast) > 0


def test_a_prompt_computed_whole_takes_a_step_that_reads_all_weights_once_more() -> None:
    """At a batch of 4 and 4 generated tokens one prompt comes with each step: 1 - 1/e of the steps see one."""
    alone = 1 - math.exp(-1)
    for deployment in (LLAMA_70B, MOE):
        load = replace(SHORT, generated_len=4.0, running=4.0)
        whole, chunked = (replace(deployment, tp=4, enable_chunked_prefill=literal) for literal in (False, None))
        own, along = (
            seconds(resolve([deployment], [load], MARKET), np.array([4.0])) for deployment in (whole, chunked)
        )
        for name in ("weights", "step", "layers", "all_reduce_latency", "mixture_layers"):
            assert term(name, own) == pytest.approx(term(name, along) * (1 + alone))
        for name in ("kv_cache", "decode_flops", "prefill_flops", "sequences", "requests", "all_reduce_bytes"):
            assert term(name, own) == term(name, along)
    assert term("experts", own) - term("experts", along) == pytest.approx(
        alone * 2 * (30.5e9 - 3.3e9) / (1 - 8 / 128) / 4 / 3.35e12
    )
