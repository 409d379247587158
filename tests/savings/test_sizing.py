"""Number of replicas of a service: by its demand, objectives, minimum and spares."""

import pytest

from pertoken.savings.context import NOTHING
from pertoken.savings.sizing import redundancy
from pertoken.state.deployment import Placement
from pertoken.state.service import Slo
from tests.savings.fleets import (
    FOUR,
    chat,
    low_batch,
    priced,
    replicas,
    usd_month,
)


def test_a_half_idle_service_of_four_replicas_releases_whole_hosts() -> None:
    resized = priced(FOUR, chat(FOUR).resized())
    assert resized.replicas is not None and resized.replicas[0] == 4 and resized.replicas[1] < 4
    assert resized.net is not None and resized.net[1] == (4 - resized.replicas[1]) * usd_month(2 * 6.88)
    assert len(resized.released) == 4 - resized.replicas[1]
    both = priced(FOUR, chat(FOUR).but(weight_dtype="fp8").resized())
    assert both.net is not None and both.net[1] >= resized.net[1]


def test_fp8_that_frees_two_replicas_banks_their_hosts() -> None:
    busy = low_batch(generated_tok_s=1200, busy_generated_tok_s=1300, running=60, prompt_tok_s=4800, requests_s=3.0)
    estimate = priced(FOUR, chat(FOUR).but(weight_dtype="fp8").resized(), seen=busy)
    plain = priced(FOUR, chat(FOUR).resized(), seen=busy)
    assert estimate.replicas is not None and estimate.replicas[1] <= 3
    assert estimate.net is not None and estimate.net[1] > (plain.net or NOTHING)[1]


def test_minimum_replicas_keep_their_hosts_with_the_reason() -> None:
    fleet = replicas(4, min_replicas=4)
    resized = priced(fleet, chat(fleet).resized())
    assert resized.infeasible is not None and "4 replicas are the minimum set for chat" in resized.infeasible
    faster = priced(fleet, chat(fleet).but(weight_dtype="fp8").resized())
    assert faster.net == NOTHING and any("4 replicas are the minimum" in reason for reason in faster.against)
    assert faster.capacity is not None and faster.capacity[1] > 0


def test_spare_replicas_are_kept_beyond_the_demand() -> None:
    without = priced(FOUR, chat(FOUR).resized()).replicas
    fleet = replicas(4, spare_replicas=1)
    spared = priced(fleet, chat(fleet).resized()).replicas
    assert without is not None and spared is not None and spared[1] == without[1] + 1


def test_a_number_of_replicas_that_does_not_hold_the_demand_is_refused() -> None:
    heavy = low_batch(generated_tok_s=1200, busy_generated_tok_s=1300, running=60, prompt_tok_s=4800, requests_s=3.0)
    estimate = priced(FOUR, chat(FOUR).scaled_to(1), seen=heavy)
    assert estimate.infeasible is not None and "1 replicas do not hold the p95 demand" in estimate.infeasible


def test_an_slo_needs_more_replicas_than_the_demand_alone() -> None:
    busy = low_batch(generated_tok_s=150, busy_generated_tok_s=250, running=8, prompt_tok_s=600, requests_s=0.375)
    loose = priced(FOUR, chat(FOUR).resized(), seen=busy)
    tight = priced(FOUR, chat(FOUR).resized(), seen=busy, slo=Slo(tpot_p95_ms=40.0, ttft_p95_ms=900.0))
    assert loose.replicas is not None
    assert tight.infeasible is not None or (tight.replicas is not None and tight.replicas[1] >= loose.replicas[1])


def test_a_service_that_keeps_one_replica_states_the_outage_and_the_setting_against_it() -> None:
    estimate = priced(FOUR, chat(FOUR).resized())
    assert estimate.replicas == (4, 1)
    (outage,) = [reason for reason in estimate.against if "is an outage" in reason]
    assert 'set `min_replicas = 2` in [services."chat"]' in outage and "counts as 1 where it is not set" in outage


@pytest.mark.parametrize(
    ("fields", "stated"),
    [
        ({"min_replicas": 2}, "N+1: 1 of 2 replicas hold the p95 demand, so one may fail"),
        ({"spare_replicas": 1}, "N+1: 1 of 2 replicas hold the p95 demand, so one may fail"),
    ],
)
def test_a_replica_that_may_fail_is_stated_as_a_spare_one(fields: dict[str, int], stated: str) -> None:
    fleet = replicas(4, **fields)
    estimate = priced(fleet, chat(fleet).resized())
    assert estimate.replicas == (4, 2) and stated in estimate.against


def test_replicas_that_are_all_needed_are_stated_with_the_setting_of_a_spare_one() -> None:
    stated = redundancy(chat(FOUR), 3, 3)
    assert stated.startswith("not N+1: all 3 replicas are needed") and "`spare_replicas = 1`" in stated


@pytest.mark.parametrize("changed", [Placement(accelerator="H200 SXM"), Placement(purchase="spot")])
def test_a_move_that_leaves_one_replica_states_it_as_any_other_change(changed: Placement) -> None:
    estimate = priced(FOUR, chat(FOUR).on(changed).resized())
    assert estimate.replicas is not None and estimate.replicas[1] == 1
    assert any("is an outage" in reason for reason in estimate.against)
