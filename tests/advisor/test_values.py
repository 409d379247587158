"""Values of a rule are rebuilt from plain ones."""

import math
from dataclasses import replace

import pytest

from pertoken.advisor.values import rebuilt
from pertoken.rule import (
    Deployment,
    Fleet,
    Schedule,
    Service,
    times,
)
from pertoken.state.errors import InvalidEdit
from tests.advisor.hostile import (
    FLEET,
    NOW,
    SERVICE,
    force,
)
from tests.deployments import MARKET
from tests.state.fleets import fleet as lever_fleet


def test_values_are_rebuilt_from_exactly_the_types_their_fields_declare() -> None:
    fleet = lever_fleet()
    assert rebuilt(fleet, Fleet) == fleet
    for wrong in (math.nan, math.inf):
        with pytest.raises(InvalidEdit, match="must be a finite number"):
            rebuilt(replace(NOW, gpu_memory_utilization=wrong), Deployment)
    with pytest.raises(InvalidEdit, match="more than 63 bits"):
        rebuilt(replace(NOW, tp=2**63), Deployment)
    with pytest.raises(InvalidEdit, match="must be a whole number, not bool"):
        rebuilt(replace(NOW, deployment_id=True), Deployment)
    with pytest.raises(InvalidEdit, match="hour 200 is not an hour"):
        forged = Schedule()
        force(forged, off=frozenset({200}))
        rebuilt(replace(SERVICE, schedule=forged), Service)


def test_demand_changes_by_the_edit_are_taken_as_they_are() -> None:
    from pertoken.advisor.candidate import candidate

    found = candidate(FLEET, SERVICE.serving(requests_per_s=times(2.0)), SERVICE, MARKET)
    assert found is not None and found.after.service("chat") == SERVICE.serving(requests_per_s=times(2.0))
