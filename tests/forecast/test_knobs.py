"""Speculative decoding, the prefix cache and chunked prefill as knobs that the forecast answers to."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.catalog.market import load_market
from pertoken.forecast.served import Abstained, Load, acceptance, accepted_len
from pertoken.forecast.serving import BeforeAfter, compare
from pertoken.state.deployment import Deployment
from tests import deployments

MARKET = load_market()
CHAT = Load(generated_tok_s=40, prompt_len=1000, generated_len=250, running=2, cached_share=0.5, acceptance=0.7)


def deployment(**knobs: Any) -> Deployment:
    known: dict[str, Any] = {"enable_prefix_caching": True, "num_speculative_tokens": 4, "max_num_batched_tokens": 8192}
    return deployments.deployment(**{**known, **knobs})


def ratio(change: dict[str, object], load: Load = CHAT, now: Deployment | None = None) -> float:
    present = now or deployment()
    predicted = compare(present, present.but(**change), load, MARKET)
    assert isinstance(predicted, BeforeAfter)
    return predicted.ratio[1]


def test_the_gain_of_drafts_vanishes_as_the_batch_grows() -> None:
    """A drafted token is a row more in every product: free while weights are read, not where products are the limit."""
    alone, some, many = (1 / ratio({"num_speculative_tokens": 0}, replace(CHAT, running=n)) for n in (1, 64, 256))
    assert alone > 1.25
    assert alone > some > many
    assert many < 1.1


def test_drafts_that_are_rarely_accepted_cost_more_than_they_give() -> None:
    assert ratio({"num_speculative_tokens": 0}, replace(CHAT, acceptance=0.1, running=64)) > 1


def test_a_longer_draft_gives_less_with_each_token() -> None:
    shorter, longer = (ratio({"num_speculative_tokens": n}) for n in (3, 8))
    assert shorter < 1.1 and longer < 1.3


def test_without_the_prefix_cache_repeated_prompts_are_computed_again() -> None:
    assert ratio({"enable_prefix_caching": False}, replace(CHAT, prompt_len=8000, running=32)) < 0.9
    assert ratio({"enable_prefix_caching": False}, replace(CHAT, cached_share=0.0)) == pytest.approx(1)


def test_the_size_of_a_chunk_leaves_the_rate_and_moves_latency_only() -> None:
    assert ratio({"max_num_batched_tokens": 2048}) == pytest.approx(1)


def test_unchunked_prompts_cost_steps_without_generated_tokens() -> None:
    whole: dict[str, object] = {"enable_chunked_prefill": False}
    for load in (CHAT, replace(CHAT, running=64)):
        assert 0.7 < ratio(whole, load) < 1
        assert ratio(whole, load) * ratio({"enable_chunked_prefill": True}, load, deployment(**whole)) == pytest.approx(
            1
        )
    often, seldom = (ratio(whole, replace(CHAT, generated_len=n, running=32)) for n in (32, 4000))
    assert often < seldom and seldom > 0.99
    # Unknown is the engines' own default, which is to chunk.
    assert ratio({"enable_chunked_prefill": True}) == pytest.approx(1)


@pytest.mark.parametrize(
    ("now", "change", "load", "reason"),
    [
        ({"enable_prefix_caching": False}, {"enable_prefix_caching": True}, CHAT, "while the prefix cache is off"),
        ({"enable_prefix_caching": None}, {"enable_prefix_caching": True}, CHAT, "while the prefix cache is off"),
        ({}, {"num_speculative_tokens": 2}, replace(CHAT, acceptance=None), "let the engine draft for some hours"),
        ({"num_speculative_tokens": 0}, {"num_speculative_tokens": 2}, CHAT, "let the engine draft for some hours"),
        ({"num_speculative_tokens": None}, {"num_speculative_tokens": 2}, CHAT, "let the engine draft for some hours"),
    ],
)
def test_a_change_that_telemetry_cannot_price_yet_is_unpriced_with_the_remedy(
    now: dict[str, object], change: dict[str, object], load: Load, reason: str
) -> None:
    with pytest.raises(Abstained, match=reason):
        ratio(change, load, deployment(**now))


@settings(deadline=None)
@given(st.floats(0.0, 1.0), st.integers(1, 16))
def test_the_chance_of_acceptance_follows_from_the_accepted_length(chance: float, drafted: int) -> None:
    length = accepted_len(chance, drafted)
    assert 1 <= length <= drafted + 1
    assert accepted_len(acceptance(length, drafted), drafted) == pytest.approx(length, abs=1e-6)


def test_a_change_to_a_format_that_the_engine_does_not_run_there_is_not_forecast() -> None:
    present = deployment(weight_dtype="fp16")
    moved = present.on(replace(present.placement, accelerator="V100 SXM2 32GB")).but(weight_dtype="int4")
    with pytest.raises(Abstained, match="no source lists that vllm runs int4 weights on Volta"):
        compare(present, moved, CHAT, MARKET)
    assert isinstance(compare(moved, moved.but(max_num_seqs=64), CHAT, MARKET), BeforeAfter), (
        "what runs is not questioned"
    )
