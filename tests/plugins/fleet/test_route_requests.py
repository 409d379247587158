from typing import Any

import pytest

from pertoken.plugins.fleet.route_requests import Options, route_requests
from pertoken.rule import Fleet, Model, Placement, Rule
from tests.deployments import model
from tests.plugins.proposals import chat, proposals
from tests.savings.fleets import low_batch

EASY = Options().planned_share


def test_a_70b_may_leave_part_of_its_load_to_the_8b_of_its_family() -> None:
    fleet, _ = proposals(route_requests)
    large, small = fleet.service("chat").deployments
    assert (small.model.name, small.tp, small.device_ids) == ("meta-llama/Llama-3.1-8B", 1, ())
    assert (large.model.name, dict(large.serves), dict(small.serves)) == (
        "meta-llama/Llama-3.3-70B",
        {"chat": 1 - EASY},
        {"chat": EASY},
    )


def test_several_replicas_share_the_remaining_requests_evenly() -> None:
    fleet, _ = proposals(route_requests, chat(4))
    first, *others, small = fleet.service("chat").deployments
    left = 1 - EASY - dict(first.serves)["chat"]
    assert dict(small.serves) == {"chat": EASY}
    assert all(dict(deployment.serves) == {"chat": None} for deployment in others)
    assert dict(first.serves)["chat"] == pytest.approx(left / len(others))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"model": model("Qwen3-0.6B")}, "no-smaller-model"),
        ({"model": Model("secret", params_active=10**9)}, "no-smaller-model"),
        ({"weight_dtype": None}, "layout-unknown"),
    ],
)
def test_it_refuses_without_a_smaller_model_it_can_place(fields: dict[str, Any], code: str) -> None:
    assert proposals(route_requests, chat(**fields))[0].code == code


def test_it_refuses_a_service_with_hardly_any_requests() -> None:
    assert proposals(route_requests, chat(), low_batch(busy=0.01))[0].code == "hardly-busy"


def deferring(share: float | None) -> Rule:
    return route_requests if share is None else route_requests.configured({"deferrable_share": share})


@pytest.mark.parametrize(("share", "on_spot"), [(0.25, 1), (0.6, 2), (0.99, 3)])
def test_replicas_whose_requests_can_all_wait_move_to_spot(share: float, on_spot: int) -> None:
    _, service = proposals(deferring(share), chat(4, placement=Placement(purchase="on_demand")))
    purchases = [deployment.placement.purchase for deployment in service.deployments]
    assert (purchases.count("spot"), purchases.count("on_demand")) == (on_spot, 4 - on_spot)


@pytest.mark.parametrize(
    ("fleet", "share", "code"),
    [
        (chat(4), None, "urgency-unknown"),
        (chat(4, placement=Placement(purchase="owned")), 0.5, "not-on-demand"),
        (chat(4, placement=Placement(purchase="on_demand")), 0.2, "too-few-can-wait"),
        (chat(1, placement=Placement(purchase="on_demand")), 0.9, "too-few-can-wait"),
    ],
)
def test_without_a_replica_whose_requests_can_wait_nothing_is_deferred(
    fleet: Fleet, share: float | None, code: str
) -> None:
    (*_, refused) = proposals(deferring(share), fleet)
    assert refused.code == code
