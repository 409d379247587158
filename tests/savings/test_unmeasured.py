"""Changes whose effect depends on a share that can only be measured after them."""

from dataclasses import replace

import pytest

from tests.savings.fleets import ONE, chat, low_batch, priced

DRAFTING = {"num_speculative_tokens": 3, "speculative_method": "ngram"}


def test_drafting_shows_from_which_accepted_share_it_pays_and_no_money() -> None:
    estimate = priced(ONE, chat(ONE).but(**DRAFTING))
    assert estimate.net is None and estimate.capacity is None
    assert estimate.unpriced is not None and "drafted tokens is accepted is not measured" in estimate.unpriced
    assert estimate.break_even is not None and estimate.break_even.startswith("pays above ")
    assert "% of drafted tokens accepted" in estimate.break_even and "tokens per step" in estimate.break_even
    assert estimate.provenance is not None and estimate.provenance.label == "assumed"


def test_a_large_batch_needs_more_accepted_drafts() -> None:
    def above(running: int) -> float:
        seen = low_batch(running=running, busy_generated_tok_s=33 * running, generated_tok_s=20 * running)
        text = priced(ONE, chat(ONE).but(**DRAFTING), seen=seen).break_even
        assert text is not None and text.startswith("pays above ")
        return float(text.removeprefix("pays above ").partition("%")[0])

    assert above(64) > above(2)


def test_a_prefix_cache_costs_nothing_and_shows_what_it_would_gain() -> None:
    off = replace(
        chat(ONE),
        deployments=tuple(deployment.but(enable_prefix_caching=False) for deployment in chat(ONE).deployments),
    )
    before = ONE.edit(off)
    estimate = priced(before, off.but(enable_prefix_caching=True))
    assert estimate.break_even is not None
    assert estimate.break_even.startswith("pays from any share of prompt tokens found in the cache on: 1.")
    assert estimate.net is None


@pytest.mark.parametrize("knobs", [{"sleep": True}, DRAFTING | {"sleep": True}, {"engine_version": "0.12"}])
def test_other_changes_have_no_such_share(knobs: dict[str, object]) -> None:
    estimate = priced(ONE, chat(ONE).but(**knobs))
    assert estimate.unpriced is not None and estimate.break_even is None


def test_kv_offload_shows_from_which_share_found_in_host_memory_it_pays() -> None:
    seen = low_batch(prompt_len=8000, prompt_tok_s=800, cached_share=0.3, busy_generated_tok_s=40)
    caching = replace(
        chat(ONE),
        deployments=tuple(replace(deployment, enable_prefix_caching=True) for deployment in chat(ONE).deployments),
    )
    before = ONE.edit(caching)
    estimate = priced(before, caching.but(kv_offload_bytes=64 * 2**30), seen=seen)
    assert estimate.net is None and "try it for a week on one replica" in (estimate.unpriced or "")
    assert estimate.break_even is not None and estimate.break_even.startswith("pays above ")
    assert "computes again found in host memory" in estimate.break_even


def test_kv_offload_of_short_prompts_does_not_pay() -> None:
    seen = low_batch(prompt_len=20, prompt_tok_s=2)
    estimate = priced(ONE, chat(ONE).but(kv_offload_bytes=64 * 2**30), seen=seen)
    assert estimate.break_even is not None and estimate.break_even.startswith("does not pay here")
