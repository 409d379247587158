"""Target, touched subjects, risk and effort of a change."""

import pytest

from pertoken.advisor.changes.title import FLEET as TARGET_FLEET
from pertoken.advisor.changes.title import effort_of, risk_of, target_of, touches
from pertoken.rule import Proposal
from pertoken.state.diff import diff
from tests.advisor.builders import FLEET, after


def test_a_host_is_released_by_name_and_named_in_the_target() -> None:
    difference = diff(FLEET, after("idle host"))
    target = target_of(difference, FLEET)
    assert (target.kind, target.key, target.label) == ("host", "4", "host-4")
    assert touches(difference, FLEET) == ("host:4",)


def proposal(**stated: str) -> Proposal:
    return Proposal(FLEET, **stated)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lever", "risk", "effort"),
    [
        ("quantize weights", "quality", "medium"),
        ("spot", "availability", "high"),
        ("replicas", "latency", "low"),
        ("output budget", "quality", "high"),
        ("idle host", "availability", "low"),
        ("commitment", "none", "high"),
    ],
)
def test_risk_is_that_of_the_worst_change_and_effort_that_of_the_hardest(lever: str, risk: str, effort: str) -> None:
    difference = diff(FLEET, after(lever))
    assert (risk_of(proposal(), difference), effort_of(proposal(), difference)) == (risk, effort)


def test_risk_and_effort_stated_by_a_rule_count() -> None:
    difference = diff(FLEET, after("replicas"))
    stated = proposal(risk="none", effort="high")
    assert (risk_of(stated, difference), effort_of(stated, difference)) == ("none", "high")


def test_a_change_of_one_service_is_about_that_service_and_one_of_several_about_the_fleet() -> None:
    one = diff(FLEET, after("replicas"))
    assert (target_of(one, FLEET).kind, target_of(one, FLEET).key) == ("service", "chat")
    both = diff(
        FLEET, FLEET.edit(FLEET.service("chat").but(max_num_seqs=8)).edit(FLEET.service("code").but(max_num_seqs=8))
    )
    assert (target_of(both, FLEET), touches(both, FLEET)) == (TARGET_FLEET, ("service:chat", "service:code"))
