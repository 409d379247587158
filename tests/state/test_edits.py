"""What edits refuse, and what they leave alone."""

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.provenance import Provenance
from pertoken.state.demand import Demand, times, to
from pertoken.state.deployment import Deployment
from pertoken.state.diff import diff
from pertoken.state.errors import InvalidEdit, UnknownKnob
from pertoken.state.fleet import Fleet
from pertoken.state.knobs import knobs
from pertoken.state.placement import Placement
from pertoken.state.schedule import Schedule
from pertoken.state.service import Service
from tests.state.fleets import LARGE, fleet

FLEET = fleet()
CHAT = FLEET.service("chat")
NOW = CHAT.deployments[0]


def test_every_knob_is_a_field_of_a_deployment_in_the_same_order() -> None:
    names = [field.name for field in fields(Deployment)]
    assert names[: names.index("deployment_id")] == list(knobs())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tp": [1]}, "tensor-parallel ranks must be a whole number from 1 to 1024 ranks"),
        ({"tp": -1}, "a whole number from 1"),
        ({"tp": True}, "a whole number from 1"),
        ({"tp": 2.0}, "a whole number from 1"),
        ({"model": None}, "model must be a Model"),
        ({"model": "llama-8b"}, "model must be a Model"),
        ({"gpu_memory_utilization": 7.0}, "a number from 0.01 to 1 share"),
        ({"gpu_memory_utilization": float("nan")}, "a number from 0.01 to 1"),
        ({"weight_dtype": "fp9"}, "weights must be one of fp32, bf16"),
        ({"weight_dtype": None}, "weights must be one of"),
        ({"enforce_eager": 1}, "eager mode must be True or False"),
        ({"engine": " "}, "engine must be a name"),
        ({"lora_adapters": ["a", 3]}, "LoRA adapters must be a list of names"),
    ],
)
def test_a_value_outside_its_type_or_range_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidEdit, match=message):
        NOW.but(**changes)


def test_a_name_that_is_no_knob_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownKnob, match=r"'purchase' is not a knob of a deployment: use on.*; known: model, "):
        NOW.but(purchase="spot")


@given(st.sampled_from(list(knobs())), st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()))
def test_a_knob_takes_a_possible_value_or_refuses_it(name: str, value: object) -> None:
    try:
        changed = getattr(NOW.but(**{name: value}), name)
    except InvalidEdit as refused:
        assert str(refused).startswith(f"{name}=") or "finite" in str(refused)
        return
    assert changed == value and changed == changed


def test_a_purchase_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidEdit, match="purchase='reserved_1y' is not possible: use one of on_demand, spot"):
        Placement(purchase="reserved_1y")


def test_a_move_keeps_what_it_does_not_name_and_drops_the_instance_with_its_accelerator() -> None:
    spot = NOW.on(Placement(purchase="spot")).placement
    assert (spot.accelerator, spot.instance_type, spot.purchase) == ("H100 SXM5", "p5.48xlarge", "spot")
    moved = NOW.on(Placement(accelerator="H200 SXM")).placement
    assert (moved.provider, moved.instance_type, moved.devices_per_instance) == ("aws", None, None)
    assert NOW.on(Placement(purchase="spot")).device_ids == ()


def test_one_replica_cannot_move_while_one_stays() -> None:
    with pytest.raises(InvalidEdit, match="all_but=1 moves nothing: code has 1 deployment"):
        FLEET.service("code").on(Placement(purchase="spot"), all_but=1)


def test_demand_changes_are_relative_or_absolute_and_assumed() -> None:
    changed = CHAT.serving(output_len=times(0.7, "a trial"), response_cache_share=to(0.2)).demand
    assert changed.output_len is not None and changed.output_len.value == pytest.approx(140)
    assert changed.output_len.provenance is Provenance.ASSUMED and changed.output_len.source == "a trial"
    assert changed.response_cache_share is not None and changed.response_cache_share.value == 0.2
    busier = CHAT.serving(requests_per_s=times(1.5)).demand
    assert busier.requests_by_hour_of_week == (9.0,) * 168


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_len": 140}, r"use times\(x\), relative to the present, or to\(x\)"),
        ({"response_cache_share": times(0.5)}, "response_cache_share is unknown"),
        ({"tenants": to(1)}, "'tenants' is not a field of a demand that"),
        ({"cached_share": to(1.5)}, "use a share from 0 to 1"),
    ],
)
def test_a_demand_change_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidEdit, match=message.removesuffix(" that")):
        CHAT.serving(**changes)


@pytest.mark.parametrize("number", [-1, float("nan"), float("inf"), True, "2"])
def test_a_change_takes_finite_numbers_only(number: Any) -> None:
    for make in (times, to):
        with pytest.raises(InvalidEdit, match="use a finite number, 0 or more"):
            make(number)


def test_a_host_that_is_held_cannot_be_released() -> None:
    with pytest.raises(InvalidEdit, match="host-1 is held by llama-70b: move these first"):
        FLEET.release(1)
    with pytest.raises(InvalidEdit, match="host 9 is not part of this fleet"):
        FLEET.release(9)
    assert [each.device_id for each in FLEET.release(4).devices if each.host_id == 4] == []


def test_a_second_engine_does_not_take_the_devices_of_the_first() -> None:
    split = FLEET.replace(NOW, NOW.but(role="prefill"), NOW.but(role="decode"))
    first, second = split.deployment(100), split.deployment(1)
    assert (first.device_ids, second.device_ids) == ((10,), ())
    assert second in split.service("chat").deployments


def test_a_deployment_edited_twice_must_be_named_as_the_fleet_has_it() -> None:
    with pytest.raises(InvalidEdit, match="was edited before it was named"):
        FLEET.replace(NOW.but(tp=2), NOW.but(tp=4))


def test_a_deployment_that_serves_two_services_changes_in_both() -> None:
    shared = replace(NOW, serves=(("chat", None), ("code", None)))
    both = Fleet((Service("chat", (shared,)), Service("code", (shared,))))
    assert both.edit(shared.but(tp=2)).service("code").deployments[0].tp == 2
    assert both.edit(both.service("code").but(tp=2)).service("chat").deployments[0].tp == 2
    with pytest.raises(InvalidEdit, match="differs between the services it serves"):
        Fleet((Service("chat", (shared,)), Service("code", (shared.but(tp=2),))))


def test_a_fleet_that_no_edit_leads_to_is_refused() -> None:
    for impossible, message in (
        (replace(FLEET, services=FLEET.services[:1]), "other services than the fleet: code"),
        (replace(FLEET, devices=FLEET.devices[1:]), "other devices on hosts that stay than the fleet"),
        (replace(FLEET, hosts=(*FLEET.hosts, replace(FLEET.hosts[0], host_id=9))), "hosts that the fleet has not"),
    ):
        with pytest.raises(InvalidEdit, match=re.escape(message)):
            diff(FLEET, impossible)


@pytest.mark.parametrize("numbers", [(0, 1, 2), (2, 1, 3), (1, 2, float("inf")), ("1", 2, 3)])
def test_an_expectation_has_rising_finite_ratios(numbers: tuple[Any, Any, Any]) -> None:
    with pytest.raises(InvalidEdit):
        NOW.expecting(*numbers, source="a paper")


def test_an_hour_is_of_the_week_and_stated_once() -> None:
    with pytest.raises(InvalidEdit, match="hour 168 is not an hour of the week"):
        Schedule(off=frozenset({168}))
    with pytest.raises(InvalidEdit, match="either off or asleep"):
        Schedule(off=frozenset({1}), asleep=frozenset({1}))


def test_values_can_be_keys() -> None:
    assert hash(FLEET) == hash(fleet()) and fleet() == FLEET
    assert Demand() == Demand() and LARGE.known is False
