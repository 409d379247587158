"""Every lever against the real pricing: a price, or the stated reason why it has none."""

import pytest

from pertoken.savings.estimate import Estimate, estimate
from tests.savings.priced_levers import BANKABLE, CAPACITY, CONTEXT, EXPECTED, FLEET, LEVERS


@pytest.mark.parametrize("lever", LEVERS)
def test_each_lever_has_a_price_or_the_reason_why_it_has_none(lever: str) -> None:
    found = estimate(FLEET, FLEET.edit(LEVERS[lever]()), CONTEXT)
    assert _verdict(found) == EXPECTED[lever] or EXPECTED[lever] in _words(found), found
    if found.unpriced or found.infeasible:
        assert found.bankable is None and found.capacity is None


def test_no_lever_saves_more_than_is_paid() -> None:
    paid = sum(each or 0 for each in CONTEXT.nano_usd_per_hour.values()) * 730
    for propose in LEVERS.values():
        found = estimate(FLEET, FLEET.edit(propose()), CONTEXT)
        for money in (found.bankable, found.capacity):
            assert money is None or (0 <= money[0] <= money[1] <= money[2] <= paid)


def _verdict(found: Estimate) -> str:
    if found.unpriced or found.infeasible:
        return "reason"
    if found.bankable and found.bankable[1] > 0:
        return BANKABLE
    return CAPACITY if found.capacity and found.capacity[1] > 0 else "it saves nothing"


def _words(found: Estimate) -> str:
    return "; ".join(filter(None, (found.unpriced, found.infeasible, found.break_even, *found.against)))
