from dataclasses import replace
from typing import Any

import pytest

from pertoken.catalog.market import load_market
from pertoken.plugins.market.use_spot import use_spot
from pertoken.rule import Commitment, Placement
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import AWS, low_batch


def test_all_replicas_but_one_may_run_on_spot() -> None:
    (service,) = proposals(use_spot, chat(4))
    assert [each.placement.purchase for each in service.deployments] == ["on_demand", "spot", "spot", "spot"]


@pytest.mark.parametrize(
    ("count", "fields", "code"),
    [
        (1, {}, "single-replica"),
        (2, {"placement": replace(AWS, purchase="reserved")}, "not-on-demand"),
        (2, {"placement": replace(AWS, purchase="spot")}, "not-on-demand"),
        (2, {"placement": replace(AWS, purchase="owned")}, "not-on-demand"),
        (2, {"placement": Placement()}, "device-unknown"),
    ],
)
def test_it_refuses_a_single_replica_and_devices_not_paid_on_demand(
    count: int, fields: dict[str, Any], code: str
) -> None:
    assert refusal(use_spot, chat(count, **fields))[0] == code


def test_it_refuses_instances_under_a_commitment() -> None:
    fleet = chat(2, placement=replace(AWS, instance_type="p5.48xlarge"))
    committed = fleet.commit(Commitment("aws", None, "p5.48xlarge", 1, 10**9, 1_900_000_000))
    assert refusal(use_spot, committed)[0] == "committed"


def test_it_refuses_where_no_spot_offer_is_really_below_on_demand() -> None:
    assert refusal(use_spot, chat(2), market=load_market("lambda"))[0] == "no-discount"
    elsewhere = chat(2, placement=replace(AWS, provider="lambda"))
    assert refusal(use_spot, elsewhere)[0] == "no-discount"


def test_it_refuses_what_served_nothing() -> None:
    assert refusal(use_spot, chat(2), low_batch(busy=0))[0] == "no-load"
