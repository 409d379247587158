"""Every lever against the real pricing: a price, or the stated reason why it has none."""

import pytest

from pertoken.savings.estimate import Estimate, estimate
from tests.savings.priced_levers import BANKABLE, CAPACITY, CONTEXT, EXPECTED, FLEET, LEVERS


@pytest.mark.parametrize("lever", LEVERS)
def test_each_lever_has_a_price_or_the_reason_why_it_has_none(lever: str) -> None:
    priced = estimate(FLEET, FLEET.edit(LEVERS[lever]()), CONTEXT)
    assert _verdict(priced) == EXPECTED[lever] or EXPECTED[lever] in _words(priced), priced
    if priced.unpriced or priced.infeasible:
        assert priced.bankable is None and priced.capacity is None


def test_no_lever_saves_more_than_is_paid() -> None:
    paid = sum(nano_usd or 0 for nano_usd in CONTEXT.nano_usd_per_hour.values()) * 730
    for propose in LEVERS.values():
        priced = estimate(FLEET, FLEET.edit(propose()), CONTEXT)
        for money in (priced.bankable, priced.capacity):
            assert money is None or (0 <= money[0] <= money[1] <= money[2] <= paid)


def _verdict(estimate: Estimate) -> str:
    if estimate.unpriced or estimate.infeasible:
        return "reason"
    if estimate.bankable and estimate.bankable[1] > 0:
        return BANKABLE
    return CAPACITY if estimate.capacity and estimate.capacity[1] > 0 else "it saves nothing"


def _words(estimate: Estimate) -> str:
    return "; ".join(filter(None, (estimate.unpriced, estimate.infeasible, estimate.break_even, *estimate.against)))
