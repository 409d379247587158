from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from pertoken.catalog.market import load_market
from pertoken.savings.price_relation import Relation, price_relation
from pertoken.state.placement import Placement
from tests.deployments import MARKET

TODAY = date(2026, 11, 21)
H100 = Placement(accelerator="H100 SXM5", purchase="on_demand")
H200 = Placement(accelerator="H200 SXM", purchase="on_demand")
FRESH = date(2025, 9, 2)
PAID = 6.88e9


def test_the_relation_is_the_median_of_pairs_at_one_provider_and_region_with_its_range() -> None:
    relation = price_relation(H100, H200, MARKET, FRESH, PAID)
    assert isinstance(relation, Relation)
    low, likely, high = relation.ratio
    assert low == pytest.approx(106 / 142.564), "Azure lists the H200 below the H100"
    assert likely == pytest.approx(63.296 / 55.04, abs=1e-4)
    assert high == pytest.approx(3.39 / 2.29)
    assert "stale" not in relation.note


def test_a_listed_price_past_its_limit_is_marked_when_the_day_is_known() -> None:
    fresh, old = (price_relation(H100, H200, MARKET, day, PAID) for day in (FRESH, TODAY))
    assert isinstance(fresh, Relation) and "stale" not in fresh.note
    assert isinstance(old, Relation) and "stale: listed up to 446 days ago" in old.note


def test_no_pair_is_a_reason_and_not_a_price() -> None:
    spot = Placement(accelerator="H100 SXM5", purchase="spot")
    relation = price_relation(H100, spot, load_market("lambda"), TODAY, PAID)
    assert relation == "no provider lists H100 SXM5 spot beside H100 SXM5 on-demand"


def test_the_list_of_the_provider_that_a_placement_has_is_enough() -> None:
    at_aws, l4 = replace(H100, provider="aws"), Placement("aws", accelerator="L4", purchase="on_demand")
    assert isinstance(price_relation(at_aws, l4, MARKET, TODAY, PAID), Relation)
    market = replace(MARKET, all_offers=(*load_market("aws").all_offers, *load_market("lambda").all_offers))
    nowhere = price_relation(H100, replace(l4, provider=None), market, TODAY, PAID)
    assert isinstance(nowhere, str) and nowhere.startswith("only aws lists L4 on-demand beside H100 SXM5")


def test_a_device_outside_the_catalog_is_a_reason() -> None:
    assert price_relation(Placement(), H200, MARKET, TODAY, PAID) == "its device is not in the catalog"


def test_another_provider_is_compared_by_what_both_list() -> None:
    before = Placement("aws", "us-east-1", accelerator="H100 SXM5", purchase="on_demand")
    after = Placement("lambda", accelerator="H100 SXM5", purchase="on_demand")
    relation = price_relation(before, after, MARKET, FRESH, PAID)
    assert isinstance(relation, Relation) and 0 < relation.ratio[0] <= relation.ratio[1] <= relation.ratio[2]
    assert "lambda" in relation.note
    nowhere = price_relation(before, Placement("nobody", accelerator="H100 SXM5"), MARKET, FRESH, PAID)
    assert nowhere == "no offer of H100 SXM5 on-demand at nobody is listed"


@pytest.mark.parametrize("purchase", ["owned", "reserved", "per_token"])
def test_a_price_that_is_not_by_the_device_hour_has_no_relation(purchase: str) -> None:
    placement = Placement(accelerator="H100 SXM5", purchase=purchase)
    assert isinstance(price_relation(H100, placement, MARKET, TODAY, PAID), str)


def at(provider: str | None, region: str | None, purchase: str = "on_demand", **fields: Any) -> Placement:
    return Placement(provider, region, accelerator=fields.pop("accelerator", "H100 SXM5"), purchase=purchase, **fields)


def test_another_provider_asks_for_its_list_price_whatever_is_paid_here() -> None:
    placement = at("lambda", None)
    listed = price_relation(at("aws", "us-east-1"), placement, MARKET, FRESH, PAID)
    discounted = price_relation(at("aws", "us-east-1"), placement, MARKET, FRESH, 2e9)
    assert isinstance(listed, Relation) and isinstance(discounted, Relation)
    for mine, yours in zip(listed.ratio, discounted.ratio, strict=True):
        assert mine * PAID == pytest.approx(yours * 2e9), "dollars there do not depend on the discount here"
    assert listed.ratio[0] * PAID == pytest.approx(3.99e9) and listed.ratio[2] * PAID == pytest.approx(4.29e9)
    assert discounted.ratio[0] > 1, "at $2.00 it would cost more there"
    assert "of what is paid here ($2.00)" in discounted.note


def test_a_discount_holds_in_another_region_of_the_same_provider() -> None:
    before, after = (at("aws", region, instance_type="p5.48xlarge") for region in ("us-east-1", "ap-south-1"))
    relations = [price_relation(before, after, MARKET, FRESH, paid) for paid in (PAID, 2e9)]
    assert relations[0] == relations[1]


def test_in_another_region_an_instance_is_compared_with_its_like() -> None:
    (offer,) = [offer for offer in MARKET.offers("L40S") if offer.instance_type == "g6e.16xlarge"]
    cheaper = replace(offer, region="us-west-9", nano_usd_per_device_hour=offer.nano_usd_per_device_hour // 2)
    others = [replace(offer, region="us-west-9") for offer in MARKET.offers("L40S") if offer.provider == "aws"]
    market = MARKET.having([*others, cheaper])
    relation = price_relation(
        at("aws", "us-east-1", accelerator="L40S", instance_type="g6e.16xlarge"),
        at("aws", "us-west-9", accelerator="L40S", instance_type="g6e.16xlarge"),
        market,
        FRESH,
        PAID,
    )
    assert isinstance(relation, Relation) and relation.ratio == (0.5, 0.5, 0.5)


def test_spot_that_moves_stays_spot_and_is_not_discounted_twice() -> None:
    before, after = at("aws", "us-east-1", "spot"), at("aws", "eu-west-2", "spot")
    relation = price_relation(before, after, MARKET, FRESH, 2e9)
    dearest_first = reversed(MARKET.offers("H100 SXM5", "spot"))
    spot = {offer.region: offer for offer in dearest_first if offer.provider == "aws"}
    assert isinstance(relation, Relation)
    ratio = spot["eu-west-2"].nano_usd_per_device_hour / spot["us-east-1"].nano_usd_per_device_hour
    assert relation.ratio[1] == pytest.approx(ratio)


def test_whoever_leaves_owned_or_reserved_devices_pays_the_list_price() -> None:
    relation = price_relation(at("aws", "us-east-1", "reserved"), at("aws", "us-east-1"), MARKET, FRESH, 2e9)
    assert isinstance(relation, Relation) and relation.ratio[1] * 2e9 == pytest.approx(6.88e9)


def test_offers_of_low_confidence_are_used_only_where_there_are_no_others_and_marked() -> None:
    relation = price_relation(at("aws", "us-east-1"), at("oci", None, accelerator="MI300X"), MARKET, FRESH, PAID)
    assert isinstance(relation, Relation) and "low confidence" in relation.note
    pairs = MARKET.pairs(("H100 SXM5", "on_demand"), ("H200 SXM", "on_demand"))
    assert pairs and all(pair.base.confidence != "low" for pair in pairs)
