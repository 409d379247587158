"""Savings that other tools reported and that cannot occur here.

- kubecost/kubectl-cost#96: $225,000 a month of savings on a cluster of $42,000 a month.
- kubecost/kubecost#1612: a workload of $0.24 a day shown with $371.85 a month of savings.
"""

import pytest

from pertoken.advisor.plan.compose import compose
from pertoken.advisor.present import Present
from pertoken.savings.estimate import spend
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH, NANO_USD
from tests.advisor.plan.fleets import advice, everything, present, small

CLUSTER_USD, WORKLOAD_USD = 42_000.0, 0.24 * 365 / 12
"""A month of each."""


def priced_at(usd_per_month: float) -> Present:
    """Return three services, one of a single replica, on hosts that cost this together."""
    fleet = small((4, 0), (2, 4), (1, 6))
    hourly = usd_per_month * NANO_USD / HOURS_PER_MONTH / len(fleet.devices)
    return present(fleet, round(hourly))


@pytest.mark.parametrize("usd", [CLUSTER_USD, WORKLOAD_USD])
def test_neither_one_recommendation_nor_the_plan_saves_more_than_is_spent(usd: float) -> None:
    there = priced_at(usd)
    bill, unpriced = spend(there.fleet, there.context)
    assert bill == pytest.approx(usd * NANO_USD, rel=1e-6) and not unpriced
    rows = advice(there, everything(there.fleet))
    offered = [each for row in rows for each in row.variants if each.bankable is not None]
    assert offered
    for each in offered:
        assert each.bankable is not None and each.capacity is not None
        assert each.bankable[2] <= bill and each.bankable[2] + each.capacity[2] <= bill
    plan = compose(there, rows)
    assert plan.bankable[2] + plan.capacity[2] <= bill


def test_no_recommendation_for_a_workload_saves_more_than_the_hosts_it_runs_on_cost() -> None:
    there = priced_at(CLUSTER_USD)
    rows = [each for each in advice(there, everything(there.fleet)) if each.target_kind == "service" and each.variants]
    assert rows
    for row in rows:
        (service,) = (each for each in there.fleet.services if each.name == row.target_key)
        for variant in row.variants:
            if variant.bankable is not None and variant.capacity is not None:
                assert variant.bankable[2] + variant.capacity[2] <= cost_of_hosts(service, there)


def cost_of_hosts(service: Service, there: Present) -> int:
    devices = {each for one in service.deployments for each in one.device_ids}
    hosts = [each for each in there.fleet.hosts if devices & set(each.device_ids)]
    prices = there.context.nano_usd_per_hour
    return sum(prices[each] or 0 for host in hosts for each in host.device_ids) * HOURS_PER_MONTH
