"""The catalog holds its own sanity rules, and each trap that was met in a public list is refused with its reason."""

from dataclasses import replace
from datetime import date

import pytest

from pertoken.catalog.coverage import faults, priced_names
from pertoken.catalog.market import load_market
from pertoken.catalog.offers import Offer, listed_offers
from pertoken.units import NANO_USD

TODAY = date(2026, 11, 28)
NAMES = priced_names(accelerator.name for accelerator in load_market().accelerators)
H100 = Offer(
    "gcp", "a3-highgpu-8g", "H100 SXM5", 8, "us-central1", "on_demand", 11 * NANO_USD, TODAY, "a feed", "medium"
)


def reasons(*offers: Offer, devices: int | None = None) -> list[str]:
    known = {} if devices is None else {("gcp", "a3-highgpu-8g"): devices}
    return [fault.reason for fault in faults(offers, TODAY, known, NAMES)]


def test_the_catalog_has_no_price_that_it_would_not_import() -> None:
    assert faults(listed_offers(), TODAY, {}, NAMES) == ()


def at(usd: float, **fields: object) -> Offer:
    return replace(H100, nano_usd_per_device_hour=round(usd * NANO_USD), **fields)  # type: ignore[arg-type]


def test_spot_without_a_discount_or_above_on_demand_is_refused() -> None:
    assert reasons(H100, at(3, purchase="spot")) == []
    assert reasons(H100, at(11, purchase="spot")) == [
        "spot costs as much as on-demand there ($11): no discount is offered"
    ]
    assert reasons(H100, at(12, purchase="spot")) == ["spot costs more than on-demand there ($11)"]
    assert reasons(H100, at(12, purchase="reserved_3y")) == ["reserved 3y costs more than on-demand there ($11)"]


def test_a_committed_price_listed_as_on_demand_is_seen_beside_the_other_regions() -> None:
    others = [at(11, region=f"region-{n}") for n in range(3)]
    (reason,) = reasons(*others, at(4.73))
    assert reason == "on-demand at 0.43 of the median of 3 other regions: it is a committed price"
    assert reasons(*others, at(8)) == [], "regions differ by a third"
    assert reasons(*others[:2], at(4.73)) == [], "two others are too few"


def test_a_list_that_contradicts_itself_is_not_believed_either_way() -> None:
    assert reasons(H100, at(6.88, as_of=date(2026, 1, 1))) == [], "an older price is the offer's history"
    assert (
        reasons(H100, at(6.88))
        == ["the list contradicts itself: $6.88 and $11 for a device-hour of the same offer"] * 2
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"accelerator": "H100"}, "H100 is not an accelerator of the catalog"),
        ({"purchase": "flex"}, "flex is not a purchase"),
        ({"confidence": "sure"}, "sure is not a confidence"),
        ({"source": " "}, "it names no source"),
        ({"as_of": date(2026, 11, 29)}, "it is dated 2026-11-29, after today"),
        ({"nano_usd_per_device_hour": 0}, "$0 for a device-hour is not between $0.05 and $50"),
        ({"nano_usd_per_device_hour": 98 * NANO_USD}, "$98 for a device-hour is not between $0.05 and $50"),
    ],
)
def test_an_implausible_offer_is_refused_with_its_reason(fields: dict[str, object], reason: str) -> None:
    (actual,) = reasons(replace(H100, **fields))  # type: ignore[arg-type]
    assert reason in actual


def test_a_part_of_an_instance_is_not_taken_for_the_whole() -> None:
    assert reasons(replace(H100, n_devices=1), devices=8) == ["it lists 1 devices, and a a3-highgpu-8g has 8"]
