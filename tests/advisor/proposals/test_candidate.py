"""Proposals of a rule, validated against the present fleet."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pertoken.advisor.proposals import candidate, encoded
from pertoken.proof.recommendation import State
from pertoken.provenance import Provenance
from pertoken.rule import (
    Deployment,
    Placement,
)
from pertoken.state.deployment import InvalidEdit
from pertoken.state.service import Quantity
from tests.advisor.gathered import advised, own
from tests.advisor.hostile import (
    FLEET,
    GATHERED,
    HOSTILE,
    NOW,
    SERVICE,
    force,
    rows,
)
from tests.deployments import MARKET


def test_a_value_changed_by_force_is_not_possible_where_it_is_yielded() -> None:
    def forged(now: Deployment) -> Iterator[Deployment]:
        other = now.but(max_num_seqs=8)
        force(other, tp=-1)
        yield other

    found_rows = rows(advised(GATHERED, own(forged, HOSTILE)), HOSTILE)
    assert {row.state for row in found_rows} == {State.FAILED}
    assert all("tp=-1 is not possible" in (row.reason or "") for row in found_rows)


def test_demand_changed_by_a_rule_is_marked_assumed() -> None:

    forged = replace(SERVICE, demand=replace(SERVICE.demand, output_len=Quantity(1.0, Provenance.COUNTER)))
    checked = candidate(FLEET, encoded(forged, FLEET), SERVICE, MARKET)
    assert checked is not None
    changed = checked.after.service("chat").demand.output_len
    assert changed is not None and changed.provenance is Provenance.ASSUMED


def test_a_proposal_about_another_deployment_than_was_asked_about_is_refused() -> None:
    first, second, _ = SERVICE.deployments
    with pytest.raises(InvalidEdit, match="another deployment than it was asked about"):
        candidate(FLEET, encoded(second.but(max_num_seqs=8), FLEET), first, MARKET)


def test_a_proposal_that_equals_the_present_is_no_candidate() -> None:
    assert candidate(FLEET, encoded(NOW.but(tp=NOW.tp), FLEET), NOW, MARKET) is None


def test_a_deployment_that_moves_to_another_placement_leaves_its_devices() -> None:
    moved = SERVICE.on(Placement(purchase="spot"), all_but=1)
    checked = candidate(FLEET, encoded(moved, FLEET), SERVICE, MARKET)
    assert checked is not None
    gone = [
        deployment
        for deployment in checked.after.deployments
        if deployment.placement and deployment.placement.purchase == "spot"
    ]
    assert len(gone) == 2 and all(deployment.device_ids == () for deployment in gone)
