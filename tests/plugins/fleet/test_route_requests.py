from dataclasses import replace
from typing import Any

import pytest

from pertoken.plugins.fleet.route_requests import Options, route_requests
from pertoken.provenance import Provenance
from pertoken.rule import Fleet, Model, Placement, Rule, times
from pertoken.state.service import Quantity
from tests.deployments import model
from tests.plugins.proposals import chat, proposals, yielded
from tests.savings.fleets import FOUR, low_batch, priced

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
    _, service, *_ = proposals(deferring(share), chat(4, placement=Placement(purchase="on_demand")))
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
    _, refused, *_ = proposals(deferring(share), fleet)
    assert refused.code == code


def by_hour(day: float, night: float | None, fleet: Fleet) -> Fleet:
    """Return a fleet whose service has 14 hours of day and 10 hours of night, each day of the week."""
    (service,) = fleet.services
    hours = (*[night] * 7, *[day] * 14, *[night] * 3)
    demand = replace(
        service.demand,
        requests_per_s=Quantity(day, Provenance.REPORTED),
        requests_by_hour_of_week=hours * 7,
    )
    return replace(fleet, services=(replace(service, demand=demand),))


@pytest.mark.parametrize(
    ("night", "share", "busiest"),
    [
        # 0.3 of 14 h * 10 + 10 h * 2 = 48 fills ten nights of 1.4 to 6.2; the day keeps 7
        (2, 0.3, 7),
        # 0.8 of 160 = 128: all hours level at 160 / 24
        (2, 0.8, 160 / 24),
    ],
)
def test_requests_that_wait_for_the_emptiest_hours_lower_the_busiest_one(
    night: float, share: float, busiest: float
) -> None:
    _, _, service = proposals(deferring(share), by_hour(10, night, chat(4)))
    assert service.demand.requests_per_s.value == pytest.approx(busiest)
    assert not service.demand.requests_per_s.confirmed, "the work is moved and not less: a break-even, no saving"
    _, _, proposal = yielded(deferring(share), by_hour(10, night, chat(4)))
    assert f"from 10 to {busiest:.3g} requests/s" in proposal.against[0]


def test_waiting_for_the_night_is_priced_as_a_break_even_in_replicas_of_the_busiest_hour() -> None:
    (service,) = FOUR.services
    night = priced(FOUR, service.serving(requests_per_s=times(0.3, "70% of a day waits")))
    assert night.net is None and "try it, or confirm the number" in (night.unpriced or "")
    assert night.break_even is not None and "fewer replicas" in night.break_even


def test_even_hours_and_an_unrecorded_day_leave_nothing_to_wait_for() -> None:
    _, _, even = proposals(deferring(0.5), by_hour(10, 10, chat(4)))
    _, _, unknown = proposals(deferring(0.5), by_hour(10, None, chat(4)))
    assert (even.code, unknown.code) == ("no-empty-hours", "day-unknown")
