"""A proposal on a fleet that another one changed already."""

from dataclasses import replace

import pytest

from pertoken.advisor.plan.levers import Conflict, reapplied
from pertoken.provenance import Provenance
from pertoken.state.deployment import Commitment, Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Demand, Quantity, Service, times
from tests.savings.fleets import fleet_of, host, llama

BASE = fleet_of(
    [
        Service("chat", (llama(1, (10, 11)), llama(2, (20, 21)))),
        Service("code", (llama(3, (30, 31), "code"),)),
    ],
    [host(1), host(2), host(3), host(4)],
)
CHAT, CODE = BASE.services
BOUGHT = Commitment("aws", "us-east-1", "p5.48xlarge", 1, 1, years=1)


def both(one: Fleet, other: Fleet) -> tuple[Fleet, Fleet]:
    """Return two proposals applied in either order."""
    return reapplied(BASE, other, one, "other"), reapplied(BASE, one, other, "one")


def test_changes_of_different_fields_combine_to_the_same_fleet_in_either_order() -> None:
    first, second = both(BASE.edit(CHAT.but(weight_dtype="fp8").resized()), BASE.edit(CHAT.but(kv_dtype="fp8")))
    assert first == second
    assert {(deployment.weight_dtype, deployment.kv_dtype) for deployment in first.service("chat").deployments} == {
        ("fp8", "fp8")
    }
    assert first.service("chat").replicas == "fewest"


def test_changes_of_different_services_hosts_and_commitments_combine() -> None:
    one = BASE.edit(CODE.on(Placement(purchase="spot"))).commit(BOUGHT)
    first, second = both(one, BASE.release(4).edit(CHAT.resized()))
    assert first == second
    assert (len(first.hosts), first.commitments, first.service("chat").replicas) == (3, (BOUGHT,), "fewest")
    assert first.service("code").deployments[0].placement.purchase == "spot"


SMALLER = Placement(instance_type="p5.4xlarge", devices_per_instance=1)


@pytest.mark.parametrize(
    "place",
    [SMALLER, Placement(accelerator="H200 SXM"), Placement(provider="lambda")],
)
def test_another_place_and_another_purchase_combine_to_the_same_fleet_in_either_order(place: Placement) -> None:
    first, second = both(BASE.edit(CODE.on(place)), BASE.edit(CODE.on(Placement(purchase="spot"))))
    assert first == second
    assert first.deployments[-1] == CODE.on(replace(place, purchase="spot")).deployments[0]


def test_spot_for_all_replicas_but_one_leaves_that_one_on_demand_on_the_smaller_instance() -> None:
    first, second = both(BASE.edit(CHAT.on(SMALLER)), BASE.edit(CHAT.on(Placement(purchase="spot"), all_but=1)))
    assert first == second
    placed = [deployment.placement for deployment in first.service("chat").deployments]
    assert [(placement.instance_type, placement.purchase) for placement in placed] == [
        ("p5.4xlarge", "on_demand"),
        ("p5.4xlarge", "spot"),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Placement(purchase="spot", offer="a"), Placement(region="us-west-2")),
        (Placement(purchase="per_token", provider="bedrock", offer="a"), SMALLER),
        (SMALLER, Placement(instance_type="p5e.48xlarge")),
        (SMALLER, Placement(provider="lambda")),
        (Placement(accelerator="H200 SXM"), Placement(provider="lambda")),
        (Placement(purchase="per_token", provider="bedrock"), Placement(region="us-west-2")),
        (Placement(purchase="spot"), Placement(purchase="reserved")),
        (Placement(purchase="spot"), Placement(region="us-west-2")),
    ],
)
def test_an_offer_of_its_own_or_two_values_of_one_part_of_a_placement_conflict(
    one: Placement, other: Placement
) -> None:
    for first, second in ((one, other), (other, one)):
        with pytest.raises(Conflict, match="both set placement"):
            reapplied(BASE, BASE.edit(CODE.on(first)), BASE.edit(CODE.on(second)), "second")


def test_two_that_set_one_field_to_one_value_agree() -> None:
    first, second = both(BASE.edit(CHAT.but(kv_dtype="fp8").resized()), BASE.edit(CHAT.resized()))
    assert first == second


def test_expectations_of_two_changes_multiply() -> None:
    one = BASE.edit(CODE.but(engine_version="1").expecting(1.0, 1.5, 2.0, "a paper"))
    other = BASE.edit(CODE.but(draft_model="tiny").expecting(1.0, 2.0, 3.0, "a test"))
    first, second = both(one, other)
    expected = first.service("code").deployments[0].expected
    assert first == second and expected is not None
    assert (expected.low, expected.likely, expected.high, expected.source) == (1.0, 3.0, 6.0, "a paper; a test")


def test_a_merge_after_another_step_gets_ids_of_its_own() -> None:
    a, b = CHAT.deployments
    merged = BASE.merge((a, b), a)
    other = BASE.merge((a, b), b)
    made = {
        deployment.deployment_id for key in ("x", "y") for deployment in reapplied(BASE, merged, BASE, key).deployments
    }
    assert len(made) == 3  # `code` and one engine of each
    with pytest.raises(Conflict, match=r"Llama-3\.3-70B was changed by another step, and this step merges its earlier"):
        reapplied(BASE, other, merged, "y")


def test_a_move_after_a_merge_moves_the_engine_that_serves_for_its_parts() -> None:
    a, b = CHAT.deployments
    merged = reapplied(BASE, BASE.merge((a, b), a), BASE, "merge")
    spot = BASE.edit(CHAT.on(Placement(purchase="spot")))
    moved = reapplied(BASE, spot, merged, "move")
    (engine,) = moved.service("chat").deployments
    assert (engine.device_ids, engine.placement.purchase) == ((), "spot")
    with pytest.raises(Conflict, match="was changed by another step, and this step merges its earlier state"):
        reapplied(BASE, BASE.merge((a, b), a), spot, "merge")


def test_a_move_of_one_service_moves_the_engine_that_serves_two() -> None:
    both_on = CHAT.deployments[0], CODE.deployments[0]
    merged = reapplied(BASE, BASE.merge(both_on, both_on[0]), BASE, "merge")
    moved = reapplied(BASE, BASE.edit(CODE.on(Placement(purchase="spot"))), merged, "move")
    engines = [service.deployments[-1] for service in moved.services]
    assert engines[0] == engines[1] and engines[0].placement.purchase == "spot"


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        (CHAT.but(kv_dtype="fp8"), CHAT.but(kv_dtype="fp16"), "both set KV cache of Llama-3.3-70B: to fp8 and to fp16"),
        (CHAT.scaled_to(1), CHAT.resized(), "both set the number of replicas of chat: to 1 and to fewest"),
        (
            CODE.on(Placement(instance_type="p5.4xlarge")),
            CODE.on(Placement(accelerator="H200 SXM")),
            "both set placement of Llama-3.3-70B: to H100 SXM5, p5.4xlarge, aws, us-east-1, on_demand and to H200 SXM, "
            "aws, us-east-1, on_demand",
        ),
    ],
)
def test_a_field_that_two_set_otherwise_is_a_conflict_that_names_both(
    one: Service, other: Service, reason: str
) -> None:
    with pytest.raises(Conflict) as raised:
        reapplied(BASE, BASE.edit(other), BASE.edit(one), "other")
    assert str(raised.value) == reason


def test_two_that_move_one_deployment_are_a_conflict() -> None:
    code = CODE.deployments[0]
    one, other = (BASE.replace(code, code.on_devices(ids)) for ids in ((40, 41), (20, 21)))
    with pytest.raises(Conflict, match=r"both move Llama-3\.3-70B"):
        reapplied(BASE, other, one, "other")


def test_a_demand_that_two_change_is_a_conflict() -> None:
    fleet = replace(BASE, services=(replace(CHAT, demand=_demand(0.5)), CODE))
    service = fleet.services[0]
    one, other = (fleet.edit(service.serving(output_len=times(factor))) for factor in (0.5, 0.7))
    with pytest.raises(Conflict, match="of the demand of chat: to 200 and to 280"):
        reapplied(fleet, other, one, "other")


def _demand(requests_s: float) -> Demand:
    return Demand(
        Quantity(requests_s, Provenance.COUNTER),
        prompt_len=Quantity(1600, Provenance.COUNTER),
        output_len=Quantity(400, Provenance.COUNTER),
    )


def test_a_host_is_released_once_and_only_while_nothing_moves_there() -> None:
    released = BASE.release(4)
    with pytest.raises(Conflict, match="gpu-4 is already released by another step"):
        reapplied(BASE, released, released, "again")
    moved = BASE.replace(CODE.deployments[0], CODE.deployments[0].on_devices((40, 41)))
    for first, second in ((released, moved), (moved, released)):
        with pytest.raises(Conflict, match=r"Llama-3\.3-70B runs on a device that is released"):
            reapplied(BASE, second, first, "second")


def test_a_commitment_that_is_made_already_is_a_conflict() -> None:
    with pytest.raises(Conflict, match="the commitment is already made"):
        reapplied(BASE, BASE.commit(BOUGHT), BASE.commit(BOUGHT), "again")


def test_a_deployment_that_was_merged_away_can_not_be_changed() -> None:
    a, b = CHAT.deployments
    with pytest.raises(Conflict, match=r"Llama-3\.3-70B is removed by another step"):
        reapplied(BASE, BASE.edit(CHAT.but(kv_dtype="fp8")), BASE.merge((a, b), a), "later")


def test_a_device_is_divided_once() -> None:
    with pytest.raises(Conflict, match="both set partitions of H100 #0"):
        reapplied(BASE, BASE.partition(40, "1g.10gb"), BASE.partition(40, "3g.40gb"), "other")
