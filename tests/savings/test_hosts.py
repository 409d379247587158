"""Hosts that a change releases, and those that are paid for all the same."""

from dataclasses import replace

import pytest

from pertoken.savings.context import NOTHING
from pertoken.savings.estimate import estimate
from pertoken.state.deployment import Commitment
from pertoken.state.service import Service
from tests.savings.fleets import (
    AWS,
    AWS_H100,
    DAY_S,
    NOW_TS,
    chat,
    context,
    fleet_of,
    host,
    llama,
    priced,
    usd_month,
)


def test_replicas_on_one_instance_release_nothing_until_all_of_it_is_free() -> None:
    one = host(1, 8, replace(AWS, instance_type="p5.48xlarge"))
    deployments = tuple(llama(at, one.device_ids[2 * at : 2 * at + 2]) for at in range(4))
    fleet = fleet_of([Service("chat", deployments)], [one])
    estimate = priced(fleet, chat(fleet).resized())
    assert estimate.net == NOTHING and estimate.replicas is not None
    free = 2 * (4 - estimate.replicas[1])
    assert estimate.capacity is not None and estimate.capacity[1] == free * usd_month(6.88)
    assert any(
        f"{free} of 8 devices of gpu-1 (p5.48xlarge, one unit of the bill)" in reason for reason in estimate.against
    )


def test_five_idle_hosts_bank_their_price_once() -> None:
    fleet = fleet_of([], [host(host_id) for host_id in range(1, 6)])
    estimates = [priced(fleet, fleet.release(number)) for number in range(1, 6)]
    assert [priced_host.released for priced_host in estimates] == [(f"gpu-{number}",) for number in range(1, 6)]
    total = sum(priced_host.net[1] for priced_host in estimates if priced_host.net)
    assert total == usd_month(10 * 6.88) and round(total / 1e9) == 50_224
    everything = fleet
    for number in range(1, 6):
        everything = everything.release(number)
    assert estimate(fleet, everything, context(fleet)).net == (total, total, total)


@pytest.mark.parametrize("purchase", ["reserved", "owned"])
def test_committed_and_owned_hosts_stay_on_the_bill(purchase: str) -> None:
    fleet = fleet_of([], [host(1, placement=replace(AWS, purchase=purchase))])
    estimate = priced(fleet, fleet.release(1))
    assert estimate.net == NOTHING and estimate.against and purchase in estimate.against[0]


def test_a_paid_term_counts_until_its_end() -> None:
    for end, banked in ((NOW_TS + DAY_S, False), (NOW_TS - DAY_S, True)):
        fleet = fleet_of([], [host(1, paid_until=end)])
        estimate = priced(fleet, fleet.release(1))
        assert (estimate.net != NOTHING) is banked


def test_a_commitment_of_the_fleet_keeps_as_many_hosts_paid_for() -> None:
    placement = replace(AWS, instance_type="p5.48xlarge")
    two = fleet_of([], [host(1, placement=placement), host(2, placement=placement)])
    commitment = Commitment("aws", "us-east-1", "p5.48xlarge", 1, AWS_H100, NOW_TS + DAY_S)
    committed = replace(two, commitments=(commitment,))
    first = committed.release(1)
    priced = estimate(committed, first.release(2), context(committed))
    assert priced.net is not None and priced.net[1] == usd_month(2 * 6.88)
    assert any("covered by a commitment" in reason for reason in priced.against)
