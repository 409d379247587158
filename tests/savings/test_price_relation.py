from datetime import date

import pytest

from pertoken.catalog.market import load_market
from pertoken.savings.price_relation import Relation, price_relation
from pertoken.state.placement import Placement
from tests.deployments import MARKET

TODAY = date(2026, 11, 21)
H100 = Placement(accelerator="H100 SXM5", purchase="on_demand")
H200 = Placement(accelerator="H200 SXM", purchase="on_demand")
FRESH = date(2025, 9, 2)


def test_the_relation_is_the_median_of_pairs_at_one_provider_and_region_with_its_range() -> None:
    found = price_relation(H100, H200, MARKET, FRESH)
    assert isinstance(found, Relation)
    low, likely, high = found.ratio
    assert low == pytest.approx(1.15, abs=1e-4)
    assert likely == pytest.approx(63.296 / 55.04, abs=1e-4)
    assert high == pytest.approx(3.39 / 2.29)
    assert "stale" not in found.note


def test_a_listed_price_past_its_limit_is_marked_when_the_day_is_known() -> None:
    fresh, old = (price_relation(H100, H200, MARKET, day) for day in (FRESH, TODAY))
    assert isinstance(fresh, Relation) and "stale" not in fresh.note
    assert isinstance(old, Relation) and "stale: listed up to 446 days ago" in old.note


def test_no_pair_is_a_reason_and_not_a_price() -> None:
    found = price_relation(H100, Placement(accelerator="H100 SXM5", purchase="spot"), load_market("lambda"), TODAY)
    assert found == "no provider lists H100 SXM5 spot beside H100 SXM5 on-demand"


def test_a_device_outside_the_catalog_is_a_reason() -> None:
    assert price_relation(Placement(), H200, MARKET, TODAY) == "its device is not in the catalog"


def test_another_provider_is_compared_by_what_both_list() -> None:
    here = Placement("aws", "us-east-1", accelerator="H100 SXM5", purchase="on_demand")
    there = Placement("lambda", accelerator="H100 SXM5", purchase="on_demand")
    found = price_relation(here, there, MARKET, FRESH)
    assert isinstance(found, Relation) and 0 < found.ratio[0] <= found.ratio[1] <= found.ratio[2]
    assert "lambda" in found.note
    nowhere = price_relation(here, Placement("nobody", accelerator="H100 SXM5"), MARKET, FRESH)
    assert nowhere == "no offer of H100 SXM5 on-demand at nobody is listed"


@pytest.mark.parametrize("purchase", ["owned", "reserved", "per_token"])
def test_what_is_not_listed_by_the_device_hour_has_no_relation(purchase: str) -> None:
    assert isinstance(price_relation(H100, Placement(accelerator="H100 SXM5", purchase=purchase), MARKET, TODAY), str)
