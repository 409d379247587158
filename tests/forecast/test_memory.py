"""Memory by hand: weights, what the engine may use, and the KV cache between them."""

from dataclasses import replace

import pytest

from pertoken.catalog.market import load_market
from pertoken.forecast.formats import defaults
from pertoken.forecast.served import Abstained, Load
from pertoken.savings.size import MemoryFit, memory_fits
from pertoken.state.deployment import Deployment, Model, Placement

MARKET = load_market()
LOAD = Load(100.0, 1000, 250, 1.0)


def on(accelerator: str, tp: int, dtype: str = "bf16") -> Deployment:
    model = MARKET.model("Llama-3.1-70B")
    assert model is not None
    return Deployment(model, "vllm", tp=tp, weight_dtype=dtype, placement=Placement(accelerator=accelerator))


def test_a_70b_in_16_bits_leaves_two_h100_a_small_kv_cache() -> None:
    (fit,) = memory_fits([on("H100 SXM5", 2)], LOAD, MARKET)
    h100 = MARKET.accelerator("H100 SXM5")
    assert isinstance(fit, MemoryFit) and h100 is not None
    assert fit.weights_bytes == pytest.approx(70.6e9 * 2 / 2, rel=1e-3)
    assert fit.usable_bytes == pytest.approx(0.9 * h100.memory_bytes)
    assert fit.kv_cache_bytes == pytest.approx(fit.usable_bytes - fit.weights_bytes - defaults().reserved_bytes)
    per_token = 2 * 80 * 8 * 128 * 2  # keys and values of 80 layers and 8 heads of 128, 2 bytes each
    assert fit.kv_cache_tokens == pytest.approx(fit.kv_cache_bytes / (per_token / 2))
    assert fit.holds(fit.kv_cache_tokens) and not fit.holds(fit.kv_cache_tokens + 1)


def test_weights_that_do_not_fit_leave_no_cache_and_an_unknown_model_is_not_guessed() -> None:
    unknown = Deployment(
        Model("secret"), "vllm", tp=1, weight_dtype="bf16", placement=Placement(accelerator="H100 SXM5")
    )
    small, abstained = memory_fits([on("H100 SXM5", 1), unknown], LOAD, MARKET)
    assert isinstance(small, MemoryFit) and (small.kv_cache_bytes, small.kv_cache_tokens) == (0, 0)
    assert isinstance(abstained, Abstained)
    assert memory_fits([unknown], LOAD, MARKET) != []


def test_recurrent_state_takes_memory_of_each_sequence_and_layers_without_a_cache_take_none() -> None:
    dense = MARKET.model("Llama-3.1-8B")
    assert dense is not None
    hybrid = replace(
        dense, head_dim=None, kv_values=8 * 2 * 8 * 128, n_attention_layers=8, n_linear_layers=24, state_bytes=10**8
    )
    stateless = replace(hybrid, state_bytes=None)
    rows = [replace(on("H100 SXM5", 1), model=model) for model in (dense, stateless, hybrid)]
    full, part, state = memory_fits(rows, LOAD, MARKET)
    assert isinstance(full, MemoryFit) and isinstance(part, MemoryFit) and isinstance(state, MemoryFit)
    assert part.kv_cache_tokens == pytest.approx(4 * full.kv_cache_tokens)
    assert state.kv_cache_tokens == part.kv_cache_tokens
    per_sequence = (1000 + 250 / 2) * 8 * 2 * 8 * 128 * 2
    assert state.sequences == pytest.approx(state.kv_cache_bytes / (per_sequence + 10**8))
