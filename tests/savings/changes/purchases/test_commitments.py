from dataclasses import replace

import pytest

from pertoken.catalog.market import load_market
from pertoken.provenance import Provenance
from pertoken.state.deployment import Commitment, InvalidEdit
from pertoken.state.fleet import Fleet
from tests.savings.fleets import (
    AWS,
    AWS_H100,
    DAY_S,
    NOW_TS,
    fleet_of,
    host,
    priced,
    usd_month,
)

A3 = replace(AWS, provider="gcp", region="us-central1", instance_type="a3-highgpu-8g", devices_per_instance=8)
LISTED = 37_863_100_000
"""Nano-USD per instance and hour of three committed years."""
GCP_H100 = 11_000_000_000
"""What a device-hour costs on-demand in these tests."""
THREE_YEARS = Commitment("gcp", "us-central1", "a3-highgpu-8g", 2, LISTED, years=3)


def three_hosts() -> Fleet:
    return fleet_of([], [host(literal, 8, A3) for literal in (1, 2, 3)])


def test_committing_pays_the_difference_on_the_hosts_it_covers() -> None:
    placement = replace(AWS, instance_type="p5.48xlarge")
    fleet = fleet_of([], [host(1, placement=placement)])
    cheap = Commitment("aws", "us-east-1", "p5.48xlarge", 1, AWS_H100, NOW_TS + DAY_S)
    estimate = priced(fleet, fleet.commit(cheap))
    assert estimate.net is not None and estimate.net[1] == usd_month(6.88)
    dear = replace(cheap, nano_usd_per_instance_hour=3 * AWS_H100)
    assert priced(fleet, fleet.commit(dear)).infeasible is not None
    other = replace(cheap, instance_type="p4d.24xlarge")
    assert "no on-demand host is a p4d.24xlarge" in (priced(fleet, fleet.commit(other)).infeasible or "")


def test_a_listed_commitment_names_its_source_its_age_and_its_confidence() -> None:
    fleet = three_hosts()
    estimate = priced(fleet, fleet.commit(THREE_YEARS), price=GCP_H100)
    assert estimate.net is not None and estimate.net[1] == 730 * (2 * 8 * GCP_H100 - 2 * LISTED)
    assert estimate.provenance == Provenance.LISTED
    assumptions = "; ".join(estimate.assumptions)
    assert "$37.86 per instance and hour for 3 years is listed in us-central1, 2025-09-01" in assumptions
    assert "stale: listed up to" in assumptions and "low confidence" in assumptions
    assert "2 of 3 hosts run all hours until it ends: it pays from 43% of them on" in assumptions


def test_its_low_end_is_against_prices_that_fall_as_lists_did_and_a_list_as_wrong_as_it_is_old() -> None:
    fleet, fall = three_hosts(), load_market().price_fall
    estimate = priced(fleet, fleet.commit(THREE_YEARS), price=GCP_H100)
    assert estimate.net is not None
    mean = sum((1 - fall.per_year) ** (day / 365) for day in range(3 * 365)) / (3 * 365)
    aged = 1 + fall.per_year * 385 / 365
    assert estimate.net[0] / 730 == pytest.approx(2 * 8 * GCP_H100 * mean - 2 * LISTED * aged, rel=0.01)
    assert estimate.net[0] < estimate.net[1] < estimate.net[2]
    assert any("it is as cheap after 2.4 years" in reason for reason in estimate.against)


def test_a_price_that_no_list_has_is_an_assumption() -> None:
    fleet = three_hosts()
    estimate = priced(fleet, fleet.commit(replace(THREE_YEARS, nano_usd_per_instance_hour=10**9)), price=GCP_H100)
    assert estimate.provenance == Provenance.ASSUMED
    assert any("is the rule's own figure: no list has it" in assumption for assumption in estimate.assumptions)


def test_only_hosts_that_no_commitment_covers_can_be_committed() -> None:
    running = replace(THREE_YEARS, count=1, years=None, end_ts=NOW_TS + DAY_S)
    fleet = three_hosts().commit(running)
    estimate = priced(fleet, fleet.commit(THREE_YEARS), price=GCP_H100)
    assert any("2 of 3 hosts run all hours" in assumption for assumption in estimate.assumptions)
    covered = three_hosts().commit(replace(running, count=3))
    refused = priced(covered, covered.commit(THREE_YEARS), price=GCP_H100).infeasible
    assert refused == "3 × a3-highgpu-8g are committed already, and 3 run"
    over = three_hosts().commit(replace(running, count=3, end_ts=NOW_TS - DAY_S))
    assert priced(over, over.commit(THREE_YEARS), price=GCP_H100).infeasible is None


def test_hours_it_pays_for_beyond_the_hosts_there_are_count_against_it() -> None:
    fleet = three_hosts()
    estimate = priced(fleet, fleet.commit(replace(THREE_YEARS, count=4)), price=GCP_H100)
    assert estimate.net is not None and estimate.net[1] == 730 * (3 * 8 * GCP_H100 - 4 * LISTED)


def test_a_commitment_has_an_end_or_a_term() -> None:
    for fields in ({}, {"end_ts": 1, "years": 1}, {"years": 0}):
        with pytest.raises(InvalidEdit):
            Commitment("gcp", None, "a3-highgpu-8g", 1, 1, **fields)
