"""Every lever against the real pricing: a price, or the stated reason why it has none."""

import pytest

from pertoken.savings.estimate import Estimate, estimate
from tests.savings.priced_levers import BANKABLE, CAPACITY, CONTEXT, EXPECTED, FLEET, LEVERS


@pytest.mark.parametrize("lever", LEVERS)
def test_each_lever_has_a_price_or_the_reason_why_it_has_none(lever: str) -> None:
    priced = estimate(FLEET, FLEET.edit(LEVERS[lever]()), CONTEXT)
    assert _verdict(priced) == EXPECTED[lever] or EXPECTED[lever] in _words(priced), priced
    if priced.uncounted:
        assert priced.net is None and priced.capacity is None


def test_no_lever_saves_more_than_is_paid() -> None:
    paid = sum(nano_usd or 0 for nano_usd in CONTEXT.nano_usd_per_hour.values()) * 730
    for propose in LEVERS.values():
        priced = estimate(FLEET, FLEET.edit(propose()), CONTEXT)
        for saving in filter(None, (priced.saving, priced.if_confirmed)):
            assert saving.net[0] <= saving.net[1] <= saving.net[2] <= paid
            assert 0 <= saving.capacity[0] <= saving.capacity[1] <= saving.capacity[2] <= paid


def _verdict(estimate: Estimate) -> str:
    if estimate.uncounted:
        return "reason"
    if estimate.net and estimate.net[1] > 0:
        return BANKABLE
    return CAPACITY if estimate.capacity and estimate.capacity[1] > 0 else "it saves nothing"


def _words(estimate: Estimate) -> str:
    return "; ".join(filter(None, (estimate.uncounted, estimate.break_even, *estimate.against)))
