from dataclasses import replace
from datetime import date

import pytest

from pertoken.catalog.offers import Offer
from pertoken.plugins.market.commit_capacity import commit_capacity
from pertoken.rule import Commitment, Fleet, FleetEvidence, Skip
from pertoken.state.deployment import Placement
from pertoken.testing import Regime, regimes, run, series
from tests.deployments import MARKET
from tests.plugins.proposals import yielded

STEADY = regimes()["steady"]
A3 = ("gcp", "us-central1", "a3-highgpu-8g")
AWS = Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5", 8, "on_demand")
AZURE = Placement("azure", "eastus", "Standard_ND96isr_H100_v5", "H100 SXM5", 8, "on_demand")


def seen_in(state: Regime, night: float = 1.0, hosts: tuple[int, ...] = (3,), **more: float) -> FleetEvidence:
    """Return the evidence of a regime; devices of `hosts` are in use for `night` of each hour from 0:00 to 8:00."""
    measured = dict(state.measured)
    hours = tuple(night if hour % 24 < 8 else 1.0 for hour in range(168))
    for host in (state.fleet.host(host) for host in hosts):
        for device in host.device_ids:
            known = {**dict(state.of("device", device).items()), "held": series(1.0, hours=hours)}
            known |= {name: series(value, n=1) for name, value in more.items()}
            measured["device", device] = type(state.of("device", device))(known)
    return FleetEvidence(measured)


def commitments(fleet: Fleet | None = None, seen: FleetEvidence | None = None) -> tuple[list[Commitment], list[Skip]]:
    """Return what the rule would commit to, and its refusals."""
    known = list(yielded(commit_capacity, fleet or STEADY.fleet, seen or seen_in(STEADY)))
    refused = [outcome for outcome in known if isinstance(outcome, Skip)]
    bought = [outcome.state.commitments[-1] for outcome in known if not isinstance(outcome, Skip)]
    return bought, refused


def test_instances_that_run_in_every_hour_are_committed_at_the_listed_price() -> None:
    bought, refused = commitments()
    assert {(entry.provider, entry.region, entry.instance_type, entry.count) for entry in bought} == {(*A3, 3)}
    prices = {entry.years: entry.nano_usd_per_instance_hour for entry in bought}
    assert prices == {1: 61_383_700_000, 3: 38_864_400_000}
    assert {entry.end_ts for entry in bought} == {None} and not refused


def test_an_instance_that_is_off_at_night_is_not_part_of_the_base_load() -> None:
    assert commitments(seen=seen_in(STEADY, night=0.0))[0][0].count == 2
    (refused,) = commitments(seen=seen_in(STEADY, night=0.0, hosts=(1, 2, 3)))[1]
    assert refused.code == "no-base-load" and "0 run in all but 10% of the hours" in refused.reason


def test_less_than_four_weeks_are_not_enough() -> None:
    bought, (refused,) = commitments(seen=seen_in(STEADY, observed_h=200.0))
    assert not bought and refused.code == "observed-briefly" and "200 of the required 600 h" in refused.reason


def test_committed_devices_are_not_committed_again() -> None:
    two = replace(STEADY.fleet, commitments=(Commitment(*A3, 2, 10**9, 1_900_000_000),))
    assert commitments(two)[0][0].count == 1
    three = replace(STEADY.fleet, commitments=(Commitment(*A3, 3, 10**9, 1_900_000_000),))
    (refused,) = commitments(three)[1]
    assert refused.code == "no-base-load" and "3 are committed already" in refused.reason


def test_without_a_listed_commitment_the_refusal_names_the_command_to_add_a_quoted_one() -> None:
    hosts = tuple(
        replace(host, placement=replace(host.placement, region="europe-west2")) for host in STEADY.fleet.hosts
    )
    bought, (refused,) = commitments(replace(STEADY.fleet, hosts=hosts))
    assert not bought and refused.code == "no-offer" and "pertoken prices import" in refused.reason
    assert "no committed price of one is listed there" in refused.reason


@pytest.mark.parametrize("at", [AWS, AZURE], ids=["aws", "azure"])
def test_a_provider_without_a_committed_price_is_named_and_an_imported_one_is_used(at: Placement) -> None:
    hosts = tuple(replace(host, placement=at) for host in STEADY.fleet.hosts)
    fleet = replace(STEADY.fleet, hosts=hosts)
    bought, (refused,) = commitments(fleet)
    assert not bought and refused.code == "no-offer"
    assert f"no committed price of {at.provider} is listed (the catalog takes none without a source" in refused.reason
    assert "purchase reserved_1y or reserved_3y" in refused.reason
    quoted = Offer(
        at.provider or "", at.instance_type or "", at.accelerator or "", 8, at.region or "", "reserved_1y",
        5 * 10**9, date(2026, 11, 20), "our quote", "high",
    )  # fmt: skip
    (only,) = yielded(commit_capacity, fleet, seen_in(STEADY), market=MARKET.having([quoted]))
    commitment = only.state.commitments[-1]
    assert (commitment.nano_usd_per_instance_hour, commitment.years) == (40 * 10**9, 1)


def test_hosts_that_hardly_work_are_no_base_load() -> None:
    assert run(commit_capacity, "steady", min_busy=0.9).codes == ("no-base-load",)


def test_it_comes_after_everything_that_makes_the_fleet_smaller_or_moves_it() -> None:
    later = {"scale-replicas", "release-idle", "use-spot", "change-provider", "serverless-api"}
    proposals = yielded(commit_capacity, STEADY.fleet, seen_in(STEADY))
    assert [later <= set(proposal.excludes) for proposal in proposals] == [True, True]
