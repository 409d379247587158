"""Titles from the difference of two fleets alone."""

import pytest

from pertoken.advisor.changes.title import change_lines, title
from pertoken.advisor.groups import Chosen
from pertoken.state.diff import diff
from tests.advisor.builders import FLEET, after


@pytest.mark.parametrize(
    ("lever", "expected"),
    [
        ("quantize weights", "weights bf16 → fp8 on 4 replicas; fewest replicas"),
        ("quantize the KV cache", "KV cache fp8 on 1 of 4 replicas"),
        ("spot", "on_demand → spot on 3 of 4 replicas"),
        ("accelerator", "H100 SXM5 → H200 SXM; fewest replicas"),
        ("replicas", "4 → 2 replicas"),
        ("output budget", "answers 200 tokens → 140 tokens"),
        ("response cache", "response-cache share 0.2"),
        ("nights off", "chat off in 6 hours a week (Mon 0-5 h UTC)"),
        ("idle host", "release host-4"),
        ("commitment", "commit to 2 × p5.48xlarge"),
        ("MIG", "divide H100 #0 into 3g.40gb, 3g.40gb"),
        ("stuck engine", "restart llama-70b on 1 of 4 replicas"),
        ("power cap", "power cap 450 W on 1 of 4 replicas"),
        ("multi-LoRA", "merge llama-70b, llama-8b into llama-70b"),
    ],
)
def test_a_title_states_what_changes_in_few_words(lever: str, expected: str) -> None:
    assert title(diff(FLEET, after(lever)), FLEET, Chosen()) == expected


def test_a_restart_is_no_field_that_is_switched_on() -> None:
    (line,) = change_lines(diff(FLEET, after("stuck engine")), FLEET, Chosen())
    assert (line.field, line.before, line.after) == ("deployment", "runs", "restarted")


def test_a_placement_that_new_instances_decide_is_no_changed_field() -> None:
    moved = diff(FLEET, after("accelerator"))
    assert {change.field for change in moved.changes if change.after is None} >= {"placement.instance_type"}
    lines = change_lines(moved, FLEET, Chosen())
    assert {line.field for line in lines} == {"placement.accelerator", "replicas"}
