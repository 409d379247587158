"""What the built-in rules state beside their proposals: risk and effort, options, and the figure of each refusal."""

import re

import pytest

from pertoken.rule import Rule
from pertoken.rule_options import options_of
from pertoken.testing import regimes, run
from tests.testing.test_conformity import BUILT_IN

RULES = {each.rule_id: each for each in BUILT_IN}


@pytest.mark.parametrize("rule", BUILT_IN, ids=list(RULES))
def test_every_proposal_states_its_risk_and_effort(rule: Rule) -> None:
    proposals = [each for name in regimes() for each in run(rule, name).proposals]
    assert proposals and all(each.risk and each.effort for each in proposals)


@pytest.mark.parametrize("rule", BUILT_IN, ids=list(RULES))
def test_every_threshold_is_an_option_with_a_meaning(rule: Rule) -> None:
    assert rule.options is not None
    assert all(each.meaning for each in options_of(type(rule.options)))


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
    "place-unknown": "names the device, or that it is unknown",
}


@pytest.mark.parametrize("rule", BUILT_IN, ids=list(RULES))
def test_a_refusal_carries_the_figure_it_rests_on(rule: Rule) -> None:
    for each in (refusal for name in regimes() for refusal in run(rule, name).refusals):
        assert each.code in WITHOUT_FIGURES or re.search(r"\d", each.reason), each


@pytest.mark.parametrize(
    ("rule_id", "regime", "options"),
    [
        ("quantize-weights", "prefill-heavy", {"few_running": 1000.0}),
        ("batch-limit", "saturated", {"queue": 1000.0}),
        ("batch-limit", "saturated", {"kv_full": 0.1}),
        ("batch-limit", "kv-bound", {"at_limit": 0.0}),
        ("release-idle", "idle", {"observed_h": 200.0}),
        ("route-requests", "bandwidth-bound", {"min_busy": 0.99}),
        ("route-requests", "bandwidth-bound", {"largest": 0.01}),
        ("route-requests", "bandwidth-bound", {"easy_share": 0.1}),
        ("continuous-batching", "one-at-a-time", {"queue": 1000.0}),
        ("continuous-batching", "one-at-a-time", {"memory_full": 0.1}),
        ("prefix-cache", "uncached", {"min_busy": 0.99}),
        ("prefix-cache", "uncached", {"min_prompt_tokens": 1000.0}),
        ("prefix-cache", "prefill-heavy", {"low_hits": 0.9, "shared_share": 0.8}),
        ("prefix-cache", "one-at-a-time", {"shared_share": 0.8}),
        ("speculative-decoding", "bandwidth-bound", {"few_running": 0.1}),
        ("speculative-decoding", "bandwidth-bound", {"spare_flops": 0.01}),
        ("speculative-decoding", "bandwidth-bound", {"min_busy": 0.99}),
        ("speculative-decoding", "bandwidth-bound", {"drafted_tokens": 5}),
        ("speculative-decoding", "moe", {"few_running_mixture": 100.0}),
        ("speculative-decoding", "drafting", {"min_length": 3.5}),
        ("speculative-decoding", "one-at-a-time", {"queue": 1000.0}),
        ("stuck-engine", "stuck", {"silent_h": 200.0}),
        ("use-spot", "bandwidth-bound", {"min_discount": 0.99}),
        ("use-spot", "bandwidth-bound", {"min_replicas": 5}),
        ("commit-capacity", "steady", {"observed_h": 700.0}),
        ("commit-capacity", "steady", {"min_busy": 0.9}),
        ("change-provider", "bandwidth-bound", {"min_saving": 0.99}),
        ("change-provider", "bandwidth-bound", {"providers": ("lambda",)}),
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
        ("cap-power", "owned-prefill", {"near_limit": 1.0}),
        ("cap-power", "owned-prefill", {"cap_share": 0.9}),
        ("cap-power", "owned-prefill", {"products": 0.9}),
        ("cap-power", "owned-prefill", {"queue": 0.1}),
        ("cap-power", "owned-decode", {"site_w": 250.0}),
    ],
)
def test_an_option_changes_what_its_rule_yields(rule_id: str, regime: str, options: dict[str, object]) -> None:
    assert run(RULES[rule_id], regime, **options) != run(RULES[rule_id], regime)
