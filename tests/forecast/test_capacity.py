from dataclasses import replace

import pytest

from benchmarks.forecast.capacity import profiled_bytes
from pertoken.forecast.capacity import fitting_sequences, kv_tokens, refusals, weight_bytes
from pertoken.forecast.served import resolve
from tests.forecast.builders import LLAMA_8B, LLAMA_70B, MARKET, SHORT


def test_kv_tokens_fit_the_memory_left_by_weights_and_reserve() -> None:
    candidate = resolve([LLAMA_8B], [SHORT], MARKET)
    assert weight_bytes(candidate)[0] == 8.03e9 * 2
    by_hand = (81_559 * 2**20 * 0.9 - 8.03e9 * 2 - 1.5e9) / 131_072
    assert kv_tokens(candidate)[0] == pytest.approx(by_hand)
    assert fitting_sequences(candidate)[0] == pytest.approx(by_hand / 100)


def test_an_engine_keeps_room_for_its_largest_step_on_each_rank() -> None:
    candidate = resolve([LLAMA_8B], [SHORT], MARKET)
    hidden = (8.03e9 / (12 * 32)) ** 0.5
    assert profiled_bytes(candidate, 8192)[0] == pytest.approx(8192 * hidden * 14.5 * 2 + 6e8)
    split = resolve([replace(LLAMA_8B, tp=2)], [SHORT], MARKET)
    assert profiled_bytes(candidate, 2048) < profiled_bytes(split, 8192) < profiled_bytes(candidate, 8192)


def test_weights_or_a_context_beyond_the_memory_are_the_reason_of_a_refusal() -> None:
    large, long = replace(LLAMA_70B, tp=1), replace(LLAMA_8B, max_model_len=1_000_000)
    deployments = [LLAMA_8B, large, long]
    candidates = resolve(deployments, [SHORT] * 3, MARKET)
    starts, weights, context = refusals(deployments, candidates, MARKET)
    assert starts is None
    assert weights is not None and weights.startswith("weights need ") and "H100" in weights
    assert context is not None and "fewer than max_model_len 1000000" in context
