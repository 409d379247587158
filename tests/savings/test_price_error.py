"""Errors of list prices: common to one provider and source, independent across them, none for what is paid."""

from dataclasses import replace
from datetime import timedelta

import pytest

from pertoken.catalog.offers import Offer, Origin
from pertoken.savings.context import Context
from pertoken.savings.placing import Placed, device_error, price_error, relative_error
from tests.savings.fleets import AWS_H100, PAIR, context, replicas

FLEET = replicas(1)
YEARLY = context(FLEET).market.price_fall.per_year


def aged(days: int, **fields: object) -> Offer:
    today = context(FLEET).today
    return replace(PAIR, as_of=today - timedelta(days=days), origin=Origin.OWN_REGION, **fields)  # type: ignore[arg-type]


def listed(offer: Offer) -> Context:
    """Return a context in which a list prices every device."""
    return context(FLEET, priced_by={device.device_id: offer for device in FLEET.devices})


def bought(offer: Offer, count: int = 1) -> Placed:
    return Placed(offer, (count, count, count))


def test_a_list_price_is_as_wrong_as_it_is_old() -> None:
    known = context(FLEET)
    assert relative_error(aged(0), known) == 0
    assert relative_error(aged(365), known) == pytest.approx(YEARLY)
    assert relative_error(aged(36_500), known) == 1


def test_the_error_is_common_to_one_source_and_cancels_in_a_difference() -> None:
    offer = aged(365)
    dearer = replace(offer, nano_usd_per_device_hour=2 * AWS_H100)
    bill = 2 * AWS_H100
    assert price_error(FLEET.hosts, (), listed(offer)) == pytest.approx(YEARLY * bill)
    assert price_error(FLEET.hosts, [bought(offer)], listed(offer)) == pytest.approx(0)
    assert price_error(FLEET.hosts, [bought(dearer)], listed(offer)) == pytest.approx(YEARLY * bill)


def test_errors_of_two_sources_add_in_quadrature() -> None:
    offer, other = aged(365), aged(365, source="another list")
    bill = 2 * AWS_H100
    assert price_error(FLEET.hosts, [bought(other)], listed(offer)) == pytest.approx(YEARLY * bill * 2**0.5)


def test_a_price_that_a_person_set_and_a_bill_have_no_error() -> None:
    for origin in (Origin.SET, Origin.BILL):
        assert price_error(FLEET.hosts, [bought(replace(aged(900), origin=origin))], context(FLEET)) == 0
    assert device_error(FLEET.device_ids, context(FLEET)) == 0
    assert device_error(FLEET.device_ids, listed(aged(365))) == pytest.approx(YEARLY)
