from typing import Any

import pytest

from pertoken.catalog.knobs import Commands, flag_commands
from pertoken.plugins.engine.prefix_cache import ENGINES, Options, prefix_cache
from pertoken.rule import Proposal
from pertoken.testing import run
from tests.plugins.proposals import chat, proposals, refusal, yielded
from tests.savings.fleets import low_batch

OFF = chat(2, enable_prefix_caching=False)
LONG_PROMPTS = {"busy": 0.8, "computed_tok_s": 4000, "generated_tok_s": 100}


def test_a_cache_that_is_off_is_turned_on_where_prompts_take_the_time() -> None:
    (made,) = yielded(prefix_cache, OFF, low_batch(**LONG_PROMPTS), options=Options())
    assert isinstance(made, Proposal) and (made.risk, made.effort) == ("none", "medium")
    assert [deployment.enable_prefix_caching for deployment in made.state.deployments] == [True, True]  # type: ignore[union-attr]


def test_prompts_are_arranged_where_a_cache_finds_nothing() -> None:
    on = chat(enable_prefix_caching=True)
    (after,) = proposals(prefix_cache, on, low_batch(**LONG_PROMPTS, prefix_hit_rate=0.03), options=Options())
    assert after.demand.cached_share.value == 0.3 and after.deployments == on.services[0].deployments


@pytest.mark.parametrize(
    ("fields", "seen", "code"),
    [
        ({"enable_prefix_caching": False}, {"busy": 0.01}, "hardly-busy"),
        ({"enable_prefix_caching": False}, {"computed_tok_s": 150}, "answers-dominate"),
        ({"enable_prefix_caching": True}, {"prefix_hit_rate": 0.4}, "found-already"),
        ({"enable_prefix_caching": False, "engine": "lmdeploy"}, {}, "no-flag"),
        ({"enable_prefix_caching": None}, {}, "caching-unknown"),
    ],
)
def test_it_refuses_where_a_cache_would_find_nothing_or_is_used(
    fields: dict[str, Any], seen: dict[str, float], code: str
) -> None:
    assert refusal(prefix_cache, chat(**fields), low_batch(**LONG_PROMPTS | seen), options=Options())[0] == code


def test_a_share_that_a_person_supplies_is_priced() -> None:
    for options, confirmed in (({}, False), ({"shared_share": 0.5}, True)):
        (change,) = run(prefix_cache, "one-at-a-time", **options).proposals[0].diff.changes
        assert (change.field, change.after.confirmed) == ("demand.cached_share", confirmed)


def test_tenants_that_share_nothing_share_no_cache() -> None:
    result = run(prefix_cache, "multi-tenant")
    assert [refusal.code for refusal in result.refusals] == ["isolated"]
    assert {proposal.target.name for proposal in result.proposals if proposal.target} == {"globex"}


SWITCHES = {
    "vllm": Commands(("remove --no-enable-prefix-caching",), ("set --no-enable-prefix-caching",)),
    "sglang": Commands(("remove --disable-radix-cache",), ("set --disable-radix-cache",)),
    "llama.cpp": Commands(("remove --no-cache-prompt",), ("set --no-cache-prompt",)),
    "trtllm": Commands(
        manual=("set enable_block_reuse of kv_cache_config in the file of --extra_llm_api_options to True",)
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_it_proposes_for_has_a_switch_and_its_undo(engine: str) -> None:
    like = engine.removeprefix("dynamo-")
    assert flag_commands(engine, {"enable_prefix_caching": (False, True)}) == SWITCHES[like]
