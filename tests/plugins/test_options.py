"""Risk, effort, options of the built-in rules, and the figure in each refusal."""

import re
from dataclasses import replace
from typing import Any

import pytest

from pertoken.rule import Model, Rule
from pertoken.settings.values import options_of
from pertoken.testing import Regime, regimes, run
from tests.testing.test_conformity import BUILT_IN

RULES = {rule.rule_id: rule for rule in BUILT_IN}


@pytest.mark.parametrize("rule", BUILT_IN, ids=list(RULES))
def test_every_proposal_states_its_risk_and_effort(rule: Rule) -> None:
    proposals = [proposal for name in regimes() for proposal in run(rule, name).proposals]
    assert proposals and all(proposal.risk and proposal.effort for proposal in proposals)


@pytest.mark.parametrize("rule", BUILT_IN, ids=list(RULES))
def test_every_threshold_is_an_option_with_a_meaning(rule: Rule) -> None:
    assert rule.options is not None
    assert all(option.meaning for option in options_of(type(rule.options)))


WITHOUT_FIGURES = {
    "device-unknown": "names the device, or that it is unknown",
    "isolated": "names the setting",
    "caching-unknown": "an unknown switch",
    "committed": "names how it is paid for",
    "not-on-demand": "names how it is paid for",
    "already-quantized": "names the format",
    "weights-unknown": "an unknown size",
    "limit-unknown": "an unknown limit",
    "dtype-unknown": "an unknown format",
    "held": "names who is served, or the share",
    "no-accelerator": "names the device",
    "holders-unknown": "names the series",
    "budget-unknown": "an unknown number of tokens",
    "engine-decides": "names the engine, which has no such setting",
    "place-unknown": "names the device, or that it is unknown",
    "pages": "names the engine, which reserves nothing",
    "engine-chooses": "no setting was seen",
    "already-flash": "names the kernels",
    "backend-unknown": "unknown kernels",
    "vendor-decides": "names the engine and the device",
    "urgency-unknown": "an unknown share",
}


@pytest.mark.parametrize("rule", BUILT_IN, ids=list(RULES))
def test_a_refusal_carries_the_figure_it_rests_on(rule: Rule) -> None:
    for refusal in (refusal for name in regimes() for refusal in run(rule, name).refusals):
        assert refusal.code in WITHOUT_FIGURES or re.search(r"\d", refusal.reason), refusal


UNSEEN = ("weight_dtype", "kv_dtype", "max_num_seqs", "enable_prefix_caching", "max_num_batched_tokens")
WAYS = re.compile(r"`[^`]+`|catalog|needs |its configuration file")
"""Ways in which a refusal explains how to get an unknown value: a command, a setting, a catalog row, a remedy."""


def unseen(name: str, field: str) -> Regime:
    """Return a regime in which nobody could see one value of any deployment."""
    known = regimes()[name]
    fields: Any = {"model": Model("unheard-of")} if field == "model" else {field: None}
    services = [
        replace(service, deployments=tuple(replace(one, **fields) for one in service.deployments))
        for service in known.fleet.services
    ]
    return replace(known, fleet=replace(known.fleet, services=tuple(services)))


@pytest.mark.parametrize("rule", BUILT_IN, ids=list(RULES))
def test_a_refusal_for_an_unknown_value_names_the_remedy(rule: Rule) -> None:
    for name in regimes():
        for regime in (regimes()[name], *(unseen(name, field) for field in (*UNSEEN, "model"))):
            for refusal in run(rule, regime).refusals:
                assert not refusal.code.endswith("-unknown") or WAYS.search(refusal.reason), refusal


@pytest.mark.parametrize(
    ("rule_id", "regime", "options"),
    [
        ("quantize-weights", "prefill-heavy", {"few_running": 1000.0}),
        ("batch-limit", "saturated", {"queue": 1000.0}),
        ("batch-limit", "saturated", {"kv_full": 0.1}),
        ("batch-limit", "kv-bound", {"at_limit": 0.0}),
        ("batch-limit", "kv-bound", {"preempted": 0.01}),
        ("release-idle", "idle", {"observed_h": 200.0}),
        ("route-requests", "bandwidth-bound", {"min_busy": 0.99}),
        ("route-requests", "bandwidth-bound", {"largest": 0.01}),
        ("route-requests", "bandwidth-bound", {"easy_share": 0.1}),
        ("route-requests", "bandwidth-bound", {"planned_share": 0.1}),
        ("route-requests", "bandwidth-bound", {"deferrable_share": 0.6}),
        ("attention-backend", "prefill-heavy", {"min_prompt": 100_000.0}),
        ("shorter-context", "one-at-a-time", {"headroom": 20.0}),
        ("shorter-context", "one-at-a-time", {"queue": 1000.0}),
        ("continuous-batching", "one-at-a-time", {"queue": 1000.0}),
        ("continuous-batching", "one-at-a-time", {"memory_full": 0.1}),
        ("prefix-cache", "uncached", {"min_busy": 0.99}),
        ("prefix-cache", "uncached", {"min_prompt_tokens": 1000.0}),
        ("prefix-cache", "prefill-heavy", {"low_hits": 0.9, "shared_share": 0.8}),
        ("prefix-cache", "one-at-a-time", {"shared_share": 0.8}),
        ("prefix-cache", "one-at-a-time", {"planned_share": 0.5}),
        ("speculative-decoding", "bandwidth-bound", {"few_running": 0.1}),
        ("speculative-decoding", "bandwidth-bound", {"published_batch": 1.0}),
        ("speculative-decoding", "bandwidth-bound", {"spare_flops": 0.01}),
        ("speculative-decoding", "bandwidth-bound", {"min_busy": 0.99}),
        ("speculative-decoding", "bandwidth-bound", {"drafted_tokens": 5}),
        ("speculative-decoding", "moe", {"few_running_mixture": 100.0}),
        ("speculative-decoding", "drafting", {"min_length": 3.5}),
        ("speculative-decoding", "one-at-a-time", {"queue": 1000.0}),
        ("use-spot", "bandwidth-bound", {"min_discount": 0.99}),
        ("use-spot", "bandwidth-bound", {"min_replicas": 5}),
        ("commit-capacity", "steady", {"observed_h": 700.0}),
        ("commit-capacity", "steady", {"min_busy": 0.9}),
        ("change-provider", "bandwidth-bound", {"min_saving": 0.99}),
        ("change-provider", "bandwidth-bound", {"providers": ("nebius",)}),
        ("change-provider", "bandwidth-bound", {"regions": ("us-east-2",)}),
        ("serverless-api", "idle", {"providers": ("bedrock",)}),
        ("move-accelerator", "bandwidth-bound", {"left_out": ("Hopper",)}),
        ("scale-replicas", "bandwidth-bound", {"batch_room": 0.001}),
        ("scale-replicas", "bandwidth-bound", {"kv_room": 0.05}),
        ("scale-replicas", "prefill-heavy", {"queue": 5.0}),
        ("scale-replicas", "idle", {"observed_h": 200.0}),
        ("scale-replicas", "compute-bound", {"idle_busy": 1.0}),
        ("quantize-kv", "compute-bound", {"kv_full": 0.5}),
        ("chunked-prefill", "prefill-heavy", {"spike": 2.0}),
        ("chunked-prefill", "prefill-heavy", {"spike": 2.0, "small": 1024}),
        ("chunked-prefill", "prefill-heavy", {"large": 12_000}),
        ("chunked-prefill", "prefill-heavy", {"queue": 5.0}),
        ("chunked-prefill", "prefill-heavy", {"at_limit": 0.01}),
        ("chunked-prefill", "prefill-heavy", {"kv_full": 0.2}),
        ("lock-clocks", "owned-decode", {"clock_share": 0.5}),
        ("lock-clocks", "owned-decode", {"below_limit": 0.2}),
        ("lock-clocks", "owned-decode", {"memory_busy": 0.9}),
        ("lock-clocks", "owned-decode", {"products": 0.01}),
        ("right-size-parallelism", "many-ranks", {"kv_room": 0.01}),
        ("right-size-parallelism", "many-ranks", {"min_busy": 0.99}),
        ("disaggregate", "interfering", {"min_devices": 17}),
        ("disaggregate", "interfering", {"min_ratio": 0.9}),
        ("disaggregate", "interfering", {"max_ratio": 0.31}),
        ("disaggregate", "interfering", {"prefill_mfu": 0.2}),
        ("offload-kv", "prefill-heavy", {"min_busy": 0.99}),
        ("offload-kv", "prefill-heavy", {"min_prompt_tokens": 1000.0}),
        ("offload-kv", "prefill-heavy", {"outlives": 1000.0}),
        ("offload-kv", "prefill-heavy", {"of_host": 0.1}),
        ("offload-kv", "prefill-heavy", {"min_gib": 1000.0}),
        ("consolidate", "twins", {"products": 0.001}),
        ("consolidate", "twins", {"kv_use": 0.001}),
        ("consolidate", "twins", {"together": 0.3}),
        ("split-hybrid", "bandwidth-bound", {"edge": ("A10G",)}),
        ("split-hybrid", "bandwidth-bound", {"largest": 0.01}),
        ("split-hybrid", "bandwidth-bound", {"min_busy": 0.99}),
        ("split-hybrid", "bandwidth-bound", {"edge_share": 0.1}),
        ("split-hybrid", "bandwidth-bound", {"planned_share": 0.1}),
        ("scale-to-zero", "nights", {"idle_share": 0.9}),
        ("scale-to-zero", "nights", {"observed_h": 200.0}),
        ("scale-to-zero", "nights", {"lead_h": 3}),
        ("scale-to-zero", "idle", {"quiet": 0.9}),
        ("cap-power", "owned-prefill", {"near_limit": 1.0}),
        ("cap-power", "owned-prefill", {"cap_share": 0.9}),
        ("cap-power", "owned-prefill", {"products": 0.9}),
        ("cap-power", "owned-prefill", {"queue": 0.1}),
        ("cap-power", "owned-decode", {"site_w": 250.0}),
        ("pin-engine", "upgraded-dearer", {"dearer": 0.5}),
        ("upgrade-engine", "upgraded-one", {"cheaper": 0.3}),
        ("response-cache", "bandwidth-bound", {"min_busy": 0.99}),
        ("response-cache", "bandwidth-bound", {"repeat_share": 0.3}),
        ("response-cache", "bandwidth-bound", {"similar_share": 0.3}),
        ("response-cache", "bandwidth-bound", {"planned_share": 0.3}),
        ("response-cache", "bandwidth-bound", {"planned_similar_share": 0.3}),
        ("response-cache", "bandwidth-bound", {"lookup_cost": 0.2}),
        ("response-cache", "bandwidth-bound", {"similar_lookup_cost": 0.1}),
        ("output-budget", "unbounded", {"min_busy": 0.99}),
        ("output-budget", "unbounded", {"kept": 0.5}),
        ("output-budget", "unbounded", {"loose": 6.0}),
        ("output-budget", "unbounded", {"cut": 0.1}),
        ("output-budget", "unbounded", {"truncated": 0.001}),
        ("shorten-prompts", "uncached", {"min_busy": 0.99}),
        ("shorten-prompts", "uncached", {"kept": 0.5}),
        ("shorten-prompts", "uncached", {"planned_kept": 0.5}),
        ("shorten-prompts", "uncached", {"min_ratio": 200.0}),
        ("shorten-prompts", "prefill-heavy", {"cached": 0.5}),
        ("smaller-model", "bandwidth-bound", {"min_busy": 0.99}),
        ("smaller-model", "bandwidth-bound", {"largest": 0.01}),
        ("smaller-model", "bandwidth-bound", {"models": ("Qwen3-14B",)}),
        ("mixture-of-experts", "bandwidth-bound", {"min_busy": 0.99}),
        ("mixture-of-experts", "bandwidth-bound", {"min_params": 1e12}),
        ("mixture-of-experts", "bandwidth-bound", {"largest": 0.01}),
        ("mixture-of-experts", "bandwidth-bound", {"min_total": 1.5}),
        ("mixture-of-experts", "bandwidth-bound", {"models": ("gpt-oss-120b",)}),
        ("mixture-of-experts", "bandwidth-bound", {"few_running": 0.5}),
        ("prune", "bandwidth-bound", {"min_busy": 0.99}),
    ],
)
def test_an_option_changes_what_its_rule_yields(rule_id: str, regime: str, options: dict[str, object]) -> None:
    assert run(RULES[rule_id], regime, **options) != run(RULES[rule_id], regime)
