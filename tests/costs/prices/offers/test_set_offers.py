"""Prices that people set and bills state, as offers beside the lists."""

from dataclasses import replace

import pytest

from pertoken.catalog.offers import Origin
from pertoken.costs.prices.book import BILLED, Price, PriceBook, PriceSubject
from pertoken.costs.prices.offers import set_offers
from pertoken.state.deployment import Placement
from pertoken.state.fleet import Fleet
from tests.deployments import MARKET
from tests.savings.fleets import NOW_TS, fleet_of, host

NANO = 1_000_000_000
G6 = Placement("aws", "us-east-1", "g6.xlarge", "L4", 1, "on_demand")
P5 = Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5", 8, "on_demand")
DRIVER_NAMES = {"L4": "NVIDIA L4", "H100 SXM5": "NVIDIA H100 80GB HBM3", None: "NVIDIA L4"}


def offers_of(fleet: Fleet, *prices: Price) -> dict[tuple[str, str], tuple[float, str, Origin | None]]:
    """Return dollars per device-hour, purchase and origin by (instance type, region)."""
    devices = {
        device.device_id: PriceSubject("gpu", DRIVER_NAMES[device.accelerator], f"GPU-{device.device_id}")
        for device in fleet.devices
    }
    offers = set_offers(fleet, devices, PriceBook(prices), MARKET, NOW_TS)
    return {
        (offer.instance_type, offer.region): (offer.nano_usd_per_device_hour / NANO, offer.purchase, offer.origin)
        for offer in offers
    }


def price(selector: str, usd: float, **fields: object) -> Price:
    return replace(Price(selector, round(usd * NANO), 0, set_ts=NOW_TS), **fields)  # type: ignore[arg-type]


def on(*placements: Placement) -> Fleet:
    hosts = [host(number, at.devices_per_instance or 1, at) for number, at in enumerate(placements, 1)]
    return fleet_of([], hosts)


def test_a_price_by_name_is_for_every_instance_of_the_accelerator_where_it_is_rented() -> None:
    offers = offers_of(on(G6), price("L4", 0.5))
    assert offers["g6.xlarge", "us-east-1"] == offers["g6.12xlarge", "us-east-1"] == (0.5, "on_demand", Origin.SET)
    assert {region for _, region in offers} == {"us-east-1"}
    assert all(kind.startswith("g6.") for kind, _ in offers)


def test_a_price_of_an_accelerator_that_the_fleet_lacks_is_for_the_providers_it_rents_at() -> None:
    offers = offers_of(on(P5), price("L4", 5))
    assert offers["g6.48xlarge", "us-east-1"] == (5.0, "on_demand", Origin.SET)


def test_where_the_provider_lists_no_instance_the_person_s_price_is_for_common_sizes() -> None:
    offers = offers_of(on(P5), price("MI300X", 3))
    assert [kind for kind, _ in offers] == [f"{size}-device MI300X" for size in (1, 2, 4, 8)]


def test_a_name_that_names_recorded_devices_is_a_price_of_no_others() -> None:
    kinds = {kind for kind, _ in offers_of(on(P5), price("H100", 2.2))}
    assert kinds and all(kind.startswith("p5.") for kind in kinds)


@pytest.mark.parametrize("purchase", ["owned", "reserved"])
def test_the_cost_of_an_owned_or_reserved_device_rents_no_other_one(purchase: str) -> None:
    assert not offers_of(on(replace(G6, purchase=purchase), P5), price("L4", 0.2))


def test_a_price_of_all_devices_or_of_one_is_no_offer() -> None:
    assert not offers_of(on(G6), price("gpu", 2), price("GPU-10", 2))
    assert not offers_of(on(G6), replace(price("L4", 2), nano_usd_per_device_hour=None))


def test_a_reconciled_bill_is_an_offer_of_the_kind_billed_alone() -> None:
    offers = offers_of(on(G6), price("GPU-10", 0.7, set_by=BILLED, from_ts=NOW_TS - 86_400))
    assert offers == {("g6.xlarge", "us-east-1"): (0.7, "on_demand", Origin.BILL)}
    partly = on(replace(P5, devices_per_instance=2))
    assert not offers_of(partly, price("GPU-10", 0.7, set_by=BILLED))


def test_a_spot_fleet_s_price_is_for_spot_instances() -> None:
    offers = offers_of(on(replace(G6, purchase="spot")), price("L4", 0.3))
    assert {purchase for _, purchase, _ in offers.values()} == {"spot"}
