from datetime import date

import pytest

from pertoken.catalog.market import load_market
from pertoken.costs.listed import Relation, price_relation
from tests.fleets import LLAMA_70B, MARKET

TODAY = date(2026, 11, 21)
H200 = LLAMA_70B.but(accelerator="H200 SXM")


def test_the_relation_is_the_median_of_pairs_at_one_provider_and_region_with_its_range() -> None:
    found = price_relation(LLAMA_70B, H200, MARKET, None)
    assert isinstance(found, Relation)
    low, likely, high = found.ratio
    assert low == pytest.approx(1.15, abs=1e-4)
    assert likely == pytest.approx(63.296 / 55.04, abs=1e-4)
    assert high == pytest.approx(3.39 / 2.29)
    assert "stale" not in found.note


def test_a_listed_price_past_its_limit_is_marked_when_the_day_is_known() -> None:
    fresh, old = (price_relation(LLAMA_70B, H200, MARKET, day) for day in (date(2025, 9, 2), TODAY))
    assert isinstance(fresh, Relation) and "stale" not in fresh.note
    assert isinstance(old, Relation) and "stale: listed up to 446 days ago" in old.note


def test_no_pair_is_a_reason_and_not_a_price() -> None:
    found = price_relation(LLAMA_70B, LLAMA_70B.but(purchase="spot"), load_market("lambda"), TODAY)
    assert found == "no provider lists H100 SXM5 spot beside H100 SXM5 on-demand"


def test_a_device_outside_the_catalog_is_a_reason() -> None:
    assert price_relation(LLAMA_70B.but(accelerator=None), H200, MARKET, TODAY) == "its device is not in the catalog"
