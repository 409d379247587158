"""A request that two servers share counts once."""

from collections import Counter

import pytest

from pertoken.agent.engines.adapters import ADAPTERS, tokens
from pertoken.agent.rows.counters import advance, word_totals
from pertoken.agent.rows.engines import counted_once, prefills_for_another
from pertoken.agent.scrape import parse
from tests.agent.engine_pages import CAPTURES, read_page

NIXL = {"kv_connector": "NixlConnector"}
PREFILLED = {"prompt_tokens": 4000, "cached_tokens": 0, "generated_tokens": 4, "requests_finished": 4}


@pytest.mark.parametrize("knobs", [{"role": "prefill"}, NIXL, {"role": "prefill", **NIXL}])
@pytest.mark.parametrize("transferred", [{}, {"transferred_tokens": 0}, {"transferred_tokens": None}])
def test_the_first_tokens_of_a_prefill_server_count_at_the_decode_server(
    knobs: dict[str, object], transferred: dict[str, int | None]
) -> None:
    words = {**PREFILLED, **transferred}
    assert prefills_for_another(words, knobs)
    assert counted_once(words, knobs) == {**words, "generated_tokens": 0, "requests_finished": 0}


@pytest.mark.parametrize(
    ("change", "knobs"),
    [
        ({}, {}),
        ({}, {"role": "both"}),
        ({}, {"role": "both", **NIXL}),
        ({"generated_tokens": 5}, {"role": "prefill"}),
        ({"generated_tokens": 400}, NIXL),
        ({"transferred_tokens": 4000}, NIXL),
        ({"generated_tokens": None}, {"role": "prefill"}),
        ({"requests_finished": None}, {"role": "prefill"}),
        ({"generated_tokens": 0, "requests_finished": 0}, {"role": "prefill"}),
    ],
)
def test_a_server_that_generates_or_whose_part_is_not_known_counts_what_it_shows(
    change: dict[str, int | None], knobs: dict[str, object]
) -> None:
    words = {**PREFILLED, **change}
    assert counted_once(words, knobs) == words


def test_prompts_of_a_decode_server_that_counts_nothing_as_received_count_at_its_prefill_server() -> None:
    words = {"prompt_tokens": 90, "cached_tokens": 10, "computed_tokens": 80, "generated_tokens": 50}
    assert counted_once(words, {"role": "decode"}) == {
        "prompt_tokens": 0,
        "cached_tokens": 0,
        "computed_tokens": 0,
        "transferred_tokens": 90,
        "generated_tokens": 50,
    }
    counted = {**words, "transferred_tokens": 0}
    assert counted_once(counted, {"role": "decode"}) == counted


def test_a_captured_pair_of_servers_counts_each_token_of_its_requests_once() -> None:
    adapter, service = ADAPTERS["vllm"], Counter[str]()
    for half in ("prefill", "decode"):
        page = (CAPTURES / f"vllm-0.32.0-nixl-{half}-after.prom").read_bytes()
        counters = read_page(adapter, parse(page, adapter.wanted)).counters
        increases = advance({}, counters, owner_id=1, life=9, ts=1, from_zero=True, elapsed_s=60).deltas
        words = counted_once(tokens(word_totals(increases)), NIXL)
        service.update({name: words[name] or 0 for name in (*PREFILLED, "transferred_tokens") if name in words})
    assert dict(service) == {
        "prompt_tokens": 4 * 301,
        "cached_tokens": 0,
        "generated_tokens": 4 * 8,
        "requests_finished": 4,
        "transferred_tokens": 4 * 301,
    }
