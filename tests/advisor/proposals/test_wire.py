"""Yielded states cross the process boundary as differences from the present, and arrive equal."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from pertoken.advisor.proposals import candidate, encoded, proposal_of, refusal_of
from pertoken.rule import Deployment, Fleet, Placement, Schedule, Service, propose, skip, times
from pertoken.state.deployment import InvalidEdit
from tests.advisor.builders import FLEET as LEVER_FLEET
from tests.advisor.builders import LEVERS
from tests.advisor.hostile import FLEET, NOW, SERVICE, force
from tests.deployments import MARKET


def over_the_wire(state: Any, before: Fleet = FLEET) -> Any:
    return proposal_of(json.loads(json.dumps(encoded(state, before))), before).state


@pytest.mark.parametrize("lever", LEVERS)
def test_every_lever_arrives_unchanged(lever: str) -> None:
    proposed = LEVERS[lever]()
    assert LEVER_FLEET.edit(over_the_wire(proposed, LEVER_FLEET)) == LEVER_FLEET.edit(proposed)


def test_a_change_of_one_knob_is_sent_as_that_knob_alone() -> None:
    assert encoded(NOW.but(max_num_seqs=8), FLEET) == {"deployment": NOW.deployment_id, "set": {"max_num_seqs": 8}}
    released = encoded(FLEET.release(9), FLEET)
    assert released == {"fleet": 0, "set": {"hosts": {"removed": [9]}, "devices": {"removed": [90, 91]}}}


def test_risk_effort_and_related_rules_arrive() -> None:
    proposal = propose(
        NOW.but(tp=1), risk="quality", effort="high", requires=("a-rule",), excludes=("b-rule",), against=("unseen",)
    )
    assert proposal_of(json.loads(json.dumps(encoded(proposal, FLEET))), FLEET) == proposal


def test_a_refusal_arrives_with_what_it_is_about() -> None:
    sent = refusal_of(json.loads(json.dumps(encoded(skip("held", "it is held", about=FLEET.hosts[0]), FLEET))))
    assert sent is not None
    assert (sent.code, sent.reason, sent.about) == ("held", "it is held", ("host", FLEET.hosts[0].host_id))


def test_values_of_other_types_than_their_fields_declare_are_refused_by_field() -> None:
    for wrong in (math.nan, math.inf):
        with pytest.raises(InvalidEdit, match="gpu_memory_utilization must be a finite number"):
            over_the_wire(replace(NOW, gpu_memory_utilization=wrong))
    with pytest.raises(InvalidEdit, match="more than 63 bits"):
        over_the_wire(replace(NOW, tp=2**63))
    with pytest.raises(InvalidEdit, match=r"deployment\.tp must be int or None, not bool"):
        over_the_wire(replace(NOW, tp=True))
    with pytest.raises(InvalidEdit, match=r"deployment\.device_ids must be a tuple, not list"):
        over_the_wire(replace(NOW, device_ids=[1]))  # type: ignore[arg-type]
    with pytest.raises(InvalidEdit, match="engine is a text that cannot be stored"):
        over_the_wire(replace(NOW, engine="a\0b"))
    with pytest.raises(InvalidEdit, match="hour 200 is not an hour"):
        forged = Schedule()
        force(forged, off=frozenset({200}))
        over_the_wire(replace(SERVICE, schedule=forged))


GARBAGE: dict[str, Any] = {
    "nothing": None,
    "a number": 5,
    "no changes": {"deployment": NOW.deployment_id},
    "another deployment": {"deployment": 10**9, "set": {}},
    "another service": {"service": "none", "set": {}},
    "a field that is none": {"deployment": NOW.deployment_id, "set": {"__class__": "x"}},
    "a property": {"deployment": NOW.deployment_id, "set": {"n_devices": 1}},
    "a list for a service": {"service": "chat", "set": []},
    "a change of no deployment": {"service": "chat", "set": {"deployments": {"changed": [[7777, {}]]}}},
    "a change that is none": {"service": "chat", "set": {"deployments": {"changed": [5]}}},
    "a removal of no host": {"fleet": 0, "set": {"hosts": {"removed": [7777]}}},
    "a removal of a list": {"fleet": 0, "set": {"hosts": {"removed": [[]]}}},
    "half a host": {"fleet": 0, "set": {"hosts": {"added": [{"host_id": 1}]}}},
    "a host twice": {"fleet": 0, "set": {"hosts": [[1], [1]]}},
    "a risk that is none": {"deployment": NOW.deployment_id, "set": {}, "risk": "huge"},
    "a placement as text": {"deployment": NOW.deployment_id, "set": {"placement": "spot"}},
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_forged_message_is_an_error_that_pricing_expects(name: str) -> None:
    with pytest.raises(ValueError):
        proposal_of(GARBAGE[name], FLEET)


def test_a_value_that_is_no_state_is_refused_where_it_is_yielded() -> None:
    for wrong in (42, None, Placement, [NOW]):
        with pytest.raises(TypeError, match="a rule yields a Deployment, a Service, a Fleet or skip"):
            encoded(wrong, FLEET)


def test_demand_changes_by_the_edit_are_taken_as_they_are() -> None:
    changed: Service = SERVICE.serving(requests_per_s=times(2.0))
    checked = candidate(FLEET, encoded(changed, FLEET), SERVICE, MARKET)
    assert checked is not None and checked.after.service("chat") == changed


def test_equal_states_are_no_difference() -> None:
    same: Deployment = NOW.but(tp=NOW.tp)
    assert encoded(same, FLEET) == {"deployment": NOW.deployment_id, "set": {}, "edited": ["tp"]}
    assert candidate(FLEET, encoded(same, FLEET), NOW, MARKET) is None


def test_a_number_counts_as_supplied_only_from_a_rule_that_a_person_configured() -> None:
    claimed: Service = SERVICE.serving(requests_per_s=times(0.5, confirmed=True))
    sent = encoded(claimed, FLEET)
    for configured in (False, True):
        checked = candidate(FLEET, sent, SERVICE, MARKET, configured=configured)
        assert checked is not None
        requests = checked.after.service("chat").demand.requests_per_s
        assert requests is not None and requests.confirmed is configured
