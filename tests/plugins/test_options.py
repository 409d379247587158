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
    "committed": "names how it is paid for",
    "not-on-demand": "names how it is paid for",
    "already-quantized": "names the format",
    "weights-unknown": "an unknown size",
    "limit-unknown": "an unknown limit",
    "dtype-unknown": "an unknown format",
    "held": "names who is served, or the share",
    "no-accelerator": "names the device",
    "holders-unknown": "names the series",
}


@pytest.mark.parametrize("rule", BUILT_IN, ids=list(RULES))
def test_a_refusal_carries_the_figure_it_rests_on(rule: Rule) -> None:
    for each in (refusal for name in regimes() for refusal in run(rule, name).refusals):
        assert each.code in WITHOUT_FIGURES or re.search(r"\d", each.reason), each


@pytest.mark.parametrize(
    ("rule_id", "regime", "options"),
    [
        ("quantize-weights", "prefill-heavy", {"few_running": 1000.0}),
        ("raise-batch-limit", "saturated", {"queue": 1000.0}),
        ("raise-batch-limit", "saturated", {"kv_full": 0.1}),
        ("raise-batch-limit", "kv-bound", {"at_limit": 0.0}),
        ("release-idle-device", "idle", {"observed_h": 200.0}),
        ("route-to-smaller-model", "bandwidth-bound", {"min_busy": 0.99}),
        ("route-to-smaller-model", "bandwidth-bound", {"largest": 0.01}),
        ("route-to-smaller-model", "bandwidth-bound", {"easy_share": 0.1}),
        ("use-spot", "bandwidth-bound", {"min_discount": 0.99}),
        ("use-spot", "bandwidth-bound", {"min_replicas": 5}),
        ("move-accelerator", "bandwidth-bound", {"left_out": ("Hopper",)}),
    ],
)
def test_an_option_changes_what_its_rule_yields(rule_id: str, regime: str, options: dict[str, object]) -> None:
    assert run(RULES[rule_id], regime, **options) != run(RULES[rule_id], regime)
