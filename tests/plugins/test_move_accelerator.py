from dataclasses import replace

import pytest

from pertoken.catalog.market import load_market
from pertoken.plugins.move_accelerator import move_accelerator
from tests.fleets import LLAMA_70B, MARKET, low_batch
from tests.plugins.proposals import proposals, refusal


def test_every_other_accelerator_with_offers_that_holds_the_weights_is_a_candidate() -> None:
    found = {each.accelerator: each.tp for each in proposals(move_accelerator)}
    assert (found["H200 SXM"], found["B200 SXM"], found["L40S"], found["A100 80GB SXM4"]) == (2, 1, 4, 2)
    assert "H100 SXM5" not in found
    assert all(MARKET.offers(name) for name in found)


def test_architectures_without_bfloat16_are_left_out() -> None:
    assert not {"T4", "V100 SXM2 16GB"} & {each.accelerator for each in proposals(move_accelerator)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"purchase": "owned"}, "paid for whether used or not"),
        ({"accelerator": None}, "nothing to compare"),
        ({"weight_dtype": None}, "size of its weights"),
    ],
)
def test_it_refuses_committed_or_unknown_deployments(changes: dict[str, object], reason: str) -> None:
    assert reason in refusal(move_accelerator, now=LLAMA_70B.but(**changes))


def test_it_refuses_a_deployment_that_generated_nothing() -> None:
    assert "releasing" in refusal(move_accelerator, seen=low_batch(generated_tok_s=0))


def test_it_refuses_where_the_market_offers_nothing_else() -> None:
    only = replace(load_market(), all_offers=MARKET.offers("H100 SXM5"))
    assert "no other accelerator" in refusal(move_accelerator, market=only)
