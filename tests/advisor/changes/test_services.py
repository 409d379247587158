"""Commands of services: a smaller number stops servers, a larger one does not."""

import pytest

from pertoken.advisor.changes.commands import service_steps
from pertoken.advisor.changes.title import PricingChoices
from pertoken.state.diff import diff
from tests.advisor.builders import FLEET


@pytest.mark.parametrize(("count", "stops"), [(2, True), (6, False)])
def test_only_the_line_that_makes_replicas_fewer_is_held_back_to_the_end(count: int, stops: bool) -> None:
    (change,) = diff(FLEET, FLEET.edit(FLEET.service("chat").scaled_to(count))).changes
    (step,) = service_steps(change, FLEET, PricingChoices())
    assert bool(step.retire) is stops and bool(step.retire_undone) is not stops
    assert bool(step.apply) is not stops and bool(step.undo) is stops
