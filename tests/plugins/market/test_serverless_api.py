from dataclasses import replace
from typing import Any

import pytest

from pertoken.plugins.market.serverless_api import serverless_api
from pertoken.rule import Commitment, Model
from tests.deployments import MARKET
from tests.plugins.proposals import chat, proposals, refusal, yielded
from tests.savings.fleets import AWS, low_batch


def test_each_api_that_lists_the_model_is_compared() -> None:
    services = proposals(serverless_api, chat(2))
    placements = [deployment.placement for service in services for deployment in service.deployments]
    model = chat().services[0].deployments[0].model
    listed = [offer.provider for offer in MARKET.token_offers(model)]
    assert [placement.provider for placement in placements[::2]] == listed and {"bedrock", "together"} <= set(listed)
    assert {(placement.purchase, placement.accelerator, placement.region) for placement in placements} == {
        ("per_token", None, None)
    }
    assert all(
        proposal.risk == "quality" and "commit-capacity" in proposal.excludes for proposal in yielded(serverless_api)
    )
    (only,) = proposals(serverless_api.configured({"providers": ("bedrock",)}), chat(2))
    assert only.deployments[0].placement.provider == "bedrock"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"placement": replace(AWS, purchase="reserved")}, "committed"),
        ({"placement": replace(AWS, purchase="owned")}, "committed"),
        ({"placement": replace(AWS, provider="bedrock", purchase="per_token")}, "per-token-already"),
        ({"lora_adapters": ("legal", "medical")}, "adapters"),
        ({"model": Model("acme/secret-70B")}, "no-token-price"),
    ],
)
def test_it_refuses_devices_that_are_paid_anyway_and_what_no_api_serves(fields: dict[str, Any], code: str) -> None:
    assert refusal(serverless_api, chat(2, **fields))[0] == code


def test_it_refuses_tenants_commitments_and_what_served_nothing() -> None:
    fleet = chat(2, placement=replace(AWS, instance_type="p5.48xlarge"))
    (service,) = fleet.services
    isolated = replace(fleet, services=(replace(service, isolation="tenant"),))
    assert refusal(serverless_api, isolated)[0] == "isolated"
    committed = fleet.commit(Commitment("aws", None, "p5.48xlarge", 1, 10**9, 1_900_000_000))
    assert refusal(serverless_api, committed) == (
        "committed",
        "its devices are 1 committed instances: they are paid for whether used or not",
    )
    assert refusal(serverless_api, chat(2), low_batch(prompt_tok_s=0, generated_tok_s=0))[0] == "no-load"
