from dataclasses import replace
from typing import Any

import pytest

from pertoken.catalog.market import load_market
from pertoken.plugins.market.use_spot import use_spot
from pertoken.rule import Commitment, Placement
from pertoken.state.service import Slo
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import AWS, low_batch


def test_all_replicas_but_one_may_run_on_spot() -> None:
    (service,) = proposals(use_spot, chat(4))
    assert [deployment.placement.purchase for deployment in service.deployments] == [
        "on_demand",
        "spot",
        "spot",
        "spot",
    ]


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
    market = load_market("aws")
    on_demand = market.offers("H100 SXM5")
    listed = replace(market, all_offers=(*on_demand, *(replace(offer, purchase="spot") for offer in on_demand)))
    assert refusal(use_spot, chat(2), market=listed)[0] == "no-discount"


def test_it_refuses_where_spot_is_not_offered() -> None:
    assert refusal(use_spot, chat(2), market=load_market("lambda"))[0] == "no-offer"
    elsewhere = chat(2, placement=replace(AWS, provider="lambda"))
    assert refusal(use_spot, elsewhere)[0] == "no-offer"


def test_the_discount_of_another_instance_is_not_its_own() -> None:
    at_aws = load_market("aws")
    large_alone = [
        offer for offer in at_aws.all_offers if (offer.instance_type, offer.purchase) != ("p5.4xlarge", "spot")
    ]
    small = chat(2, placement=replace(AWS, instance_type="p5.4xlarge"))
    assert refusal(use_spot, small, market=replace(at_aws, all_offers=tuple(large_alone)))[0] == "no-offer"
    (service,) = proposals(use_spot, chat(2, placement=replace(AWS, instance_type="p5.48xlarge")))
    assert service.deployments[1].placement.purchase == "spot"


@pytest.mark.parametrize("slo", [Slo(tpot_p95_ms=1.0), Slo(ttft_p95_ms=1.0)])
def test_a_service_that_misses_its_objectives_has_no_replica_to_lose(slo: Slo) -> None:
    fleet, seen = chat(2), low_batch(ttft_s=0.5, tpot_s=0.03)
    strict = replace(fleet, services=(replace(fleet.services[0], slo=slo),))
    assert refusal(use_spot, strict, seen)[0] == "slo-missed"
    easy = replace(fleet, services=(replace(fleet.services[0], slo=Slo(ttft_p95_ms=60_000.0, tpot_p95_ms=1000.0)),))
    assert proposals(use_spot, easy, seen)


def test_it_refuses_what_served_nothing() -> None:
    assert refusal(use_spot, chat(2), low_batch(busy=0))[0] == "no-load"
