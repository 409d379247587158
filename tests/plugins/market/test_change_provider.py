from dataclasses import replace
from typing import Any

import pytest

from pertoken.catalog.market import load_market
from pertoken.plugins.market.change_provider import change_provider
from pertoken.rule import Commitment, Placement
from tests.plugins.proposals import chat, proposals, refusal, yielded
from tests.savings.fleets import AWS, low_batch

SEOUL = replace(AWS, region="ap-northeast-2", instance_type="p5.48xlarge")


def places(fleet: Any, **options: Any) -> list[tuple[str, str]]:
    services = proposals(change_provider.configured(options), fleet)
    return [
        (service.deployments[0].placement.provider, service.deployments[0].placement.region) for service in services
    ]


def test_a_cheaper_provider_of_the_same_accelerator_is_proposed() -> None:
    assert [provider for provider, _ in places(chat(2))] == ["lambda"]
    one = chat(2, tp=1, device_ids=(10,))
    assert "gmi-cloud" in [provider for provider, _ in places(one)], "it lists single devices alone"


def test_a_cheaper_region_of_the_same_provider_is_a_proposal_of_its_own() -> None:
    dear = max(
        (offer for offer in load_market().offers("H100 SXM5") if offer.instance_type == "p5.48xlarge"),
        key=lambda offer: offer.nano_usd_per_device_hour,
    )
    present = replace(AWS, region=dear.region, instance_type="p5.48xlarge")
    (at_home, abroad) = places(chat(2, placement=present))
    assert at_home[0] == "aws" and at_home[1] != dear.region and abroad[0] != "aws"


def test_a_person_limits_where_data_may_go() -> None:
    only = change_provider.configured({"regions": ("us-east-1", "us-east-2")})
    code, reason = refusal(only, chat(2))
    assert code == "cheap-already" and "listed 0% below aws" in reason
    assert places(chat(2), providers=("lambda",)) == [("lambda", "any")]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"placement": replace(AWS, purchase="reserved")}, "not-on-demand"),
        ({"placement": replace(AWS, purchase="owned")}, "not-on-demand"),
        ({"placement": Placement()}, "place-unknown"),
        ({"placement": replace(AWS, provider="nobody")}, "no-offer"),
    ],
)
def test_it_refuses_devices_not_on_demand_and_placements_that_it_cannot_compare(
    fields: dict[str, Any], code: str
) -> None:
    assert refusal(change_provider, chat(2, **fields))[0] == code


def test_it_refuses_tenants_commitments_and_what_served_nothing() -> None:
    fleet = chat(2, placement=replace(AWS, instance_type="p5.48xlarge"))
    (service,) = fleet.services
    isolated = replace(fleet, services=(replace(service, isolation="tenant"),))
    assert refusal(change_provider, isolated)[0] == "isolated"
    committed = fleet.commit(Commitment("aws", None, "p5.48xlarge", 1, 10**9, 1_900_000_000))
    assert refusal(change_provider, committed)[0] == "committed"
    assert refusal(change_provider, chat(2), low_batch(busy=0))[0] == "no-load"


def test_it_excludes_a_commitment_to_the_place_it_leaves() -> None:
    assert all("commit-capacity" in proposal.excludes for proposal in yielded(change_provider, chat(2)))
