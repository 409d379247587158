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
    state = priced_at(usd)
    bill, unpriced = spend(state.fleet, state.context)
    assert bill == pytest.approx(usd * NANO_USD, rel=1e-6) and not unpriced
    rows = advice(state, everything(state.fleet))
    offered = [variant for row in rows for variant in row.variants if variant.net is not None]
    assert offered
    for variant in offered:
        assert variant.net is not None and variant.capacity is not None
        assert variant.net[2] <= bill and variant.net[2] + variant.capacity[2] <= bill
    plan = compose(state, rows)
    assert plan.bankable[2] + plan.capacity[2] <= bill


def test_no_recommendation_for_a_workload_saves_more_than_the_hosts_it_runs_on_cost() -> None:
    state = priced_at(CLUSTER_USD)
    rows = [
        recommendation
        for recommendation in advice(state, everything(state.fleet))
        if recommendation.target_kind == "service" and recommendation.variants
    ]
    assert rows
    for row in rows:
        (service,) = (service for service in state.fleet.services if service.name == row.target_key)
        for variant in row.variants:
            if variant.net is not None and variant.capacity is not None:
                assert variant.net[2] + variant.capacity[2] <= cost_of_hosts(service, state)


def cost_of_hosts(service: Service, state: Present) -> int:
    devices = {device_id for one in service.deployments for device_id in one.device_ids}
    hosts = [host for host in state.fleet.hosts if devices & set(host.device_ids)]
    prices = state.context.nano_usd_per_hour
    return sum(prices[device_id] or 0 for host in hosts for device_id in host.device_ids) * HOURS_PER_MONTH
