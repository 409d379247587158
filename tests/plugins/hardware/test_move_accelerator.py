from dataclasses import replace
from typing import Any

import pytest

from pertoken.plugins.hardware.move_accelerator import move_accelerator
from pertoken.rule import FEWEST, Placement
from tests.deployments import MARKET
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import AWS, low_batch


def test_every_other_accelerator_with_offers_that_holds_the_weights_is_a_candidate() -> None:
    yielded = proposals(move_accelerator, chat(2))
    ranks = {service.deployments[0].accelerator: service.deployments[1].tp for service in yielded}
    assert (ranks["H200 SXM"], ranks["B200 SXM"], ranks["L40S"], ranks["A100 80GB SXM4"]) == (2, 1, 4, 2)
    assert "H100 SXM5" not in ranks
    assert all(MARKET.offers(name) for name in ranks)
    assert all(service.replicas == FEWEST for service in yielded)


def test_architectures_without_bfloat16_are_left_out() -> None:
    moved = {proposal.deployments[0].accelerator for proposal in proposals(move_accelerator)}
    assert moved and not {"T4", "V100 SXM2 16GB"} & moved


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"placement": replace(AWS, purchase="owned")}, "committed"),
        ({"placement": Placement()}, "device-unknown"),
        ({"weight_dtype": None}, "weights-unknown"),
    ],
)
def test_it_refuses_committed_or_unknown_deployments(fields: dict[str, Any], code: str) -> None:
    assert refusal(move_accelerator, chat(**fields))[0] == code


def test_it_refuses_a_service_that_generated_nothing() -> None:
    assert refusal(move_accelerator, chat(), low_batch(generated_tok_s=0))[0] == "no-load"


def test_it_refuses_where_the_market_offers_nothing_else() -> None:
    only = replace(MARKET, all_offers=MARKET.offers("H100 SXM5"))
    assert refusal(move_accelerator, market=only)[0] == "nothing-else-fits"
