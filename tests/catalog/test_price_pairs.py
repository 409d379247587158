from dataclasses import replace

from pertoken.catalog.market import load_market
from tests.deployments import MARKET

H100, L4, H200 = (("H100 SXM5", "on_demand"), ("L4", "on_demand"), ("H200 SXM", "on_demand"))
AWS_AND_LAMBDA = replace(MARKET, all_offers=(*load_market("aws").all_offers, *load_market("lambda").all_offers))
ONLY_AWS = "only aws lists L4 on-demand beside H100 SXM5: name your provider if it is yours"


def test_prices_that_two_providers_list_can_be_compared() -> None:
    assert MARKET.comparable(H100, H200) == MARKET.pairs(H100, H200)


def test_prices_of_one_provider_alone_are_a_reason_unless_it_is_the_person_s_own() -> None:
    market = AWS_AND_LAMBDA
    assert market.comparable(H100, L4) == ONLY_AWS
    assert market.comparable(H100, L4, "lambda") == ONLY_AWS
    assert market.comparable(H100, L4, "aws") == market.pairs(H100, L4) != ()


def test_prices_of_the_only_provider_of_a_market_can_be_compared() -> None:
    aws = load_market("aws")
    assert aws.comparable(H100, L4) == aws.pairs(H100, L4) != ()


def test_prices_that_no_provider_lists_together_are_a_reason() -> None:
    reason = "no provider lists L4 on-demand beside H100 SXM5 on-demand"
    assert replace(MARKET, all_offers=()).comparable(H100, L4) == reason
