from collections.abc import Callable
from dataclasses import replace

import pytest

from pertoken.savings.changes.replicas import busiest
from pertoken.savings.speed import Speed, speed
from pertoken.state.deployment import Deployment, Placement
from pertoken.state.service import Service, Slo
from tests.savings.fleets import (
    AWS,
    FOUR,
    ONE,
    chat,
    context,
    low_batch,
    priced,
    replicas,
    usd_month,
)


def test_spot_leaves_one_replica_and_releases_the_hosts_of_the_others() -> None:
    estimate = priced(FOUR, chat(FOUR).on(Placement(purchase="spot"), all_but=1))
    assert estimate.net is not None and 0 < estimate.net[1] < usd_month(3 * 2 * 6.88)
    assert estimate.net[0] < estimate.net[1] <= estimate.net[2]
    assert len(estimate.released) == 3 and estimate.capacity is not None
    assert any("taken back at 30 s" in reason for reason in estimate.against)


def test_a_dearer_accelerator_banks_nothing_and_its_extra_cost_is_stated() -> None:
    estimate = priced(ONE, chat(ONE).on(Placement(accelerator="B200 SXM")))
    if estimate.infeasible is None:
        assert estimate.saving is not None and estimate.saving.pays_more
        assert any("the bill would rise by" in reason for reason in estimate.against)


def test_replicas_that_need_fewer_devices_each_leave_whole_hosts() -> None:
    fleet = replicas(4, min_replicas=4, slo=Slo(tpot_p95_ms=200.0))
    narrow = priced(fleet, chat(fleet).but(weight_dtype="fp8", tp=1, max_model_len=1024).resized())
    assert narrow.infeasible is None and len(narrow.released) == 2
    assert narrow.net is not None and narrow.net[1] == 2 * usd_month(2 * 6.88)
    assert narrow.placed == (), "they stay on hosts that are paid for"


def test_narrower_replicas_with_room_on_owned_hosts_need_no_price_of_new_ones() -> None:
    paid = replace(AWS, purchase="owned")
    present = replicas(4, min_replicas=4, slo=Slo(tpot_p95_ms=200.0))
    (service,) = present.services
    deployments = tuple(replace(deployment, placement=paid) for deployment in service.deployments)
    hosts = tuple(replace(host, placement=paid) for host in present.hosts)
    fleet = replace(present, services=(replace(service, deployments=deployments),), hosts=hosts)
    narrow = priced(fleet, chat(fleet).but(weight_dtype="fp8", tp=1, max_model_len=1024).resized())
    assert narrow.infeasible is None and narrow.capacity is not None and narrow.capacity[1] > 0


def test_more_replicas_of_fewer_devices_are_paid_for_only_where_the_fleet_has_no_room() -> None:
    fleet = replicas(2, min_replicas=3, slo=Slo(tpot_p95_ms=200.0))
    estimate = priced(fleet, chat(fleet).but(weight_dtype="fp8", tp=1, max_model_len=1024).resized())
    assert estimate.replicas == (2, 3) and estimate.infeasible is None
    assert estimate.capacity is not None and estimate.capacity[1] == usd_month(6.88)


BUSY = low_batch(
    generated_tok_s=150, busy_generated_tok_s=250, running=8, prompt_tok_s=600, requests_s=0.375, ttft_s=0.3
)


@pytest.mark.parametrize(
    "changed",
    [
        lambda service: service,
        lambda service: service.but(weight_dtype="fp8"),
        lambda service: service.on(Placement(accelerator="H200 SXM")),
    ],
)
def test_replicas_that_stay_get_the_requests_of_those_that_go(changed: Callable[[Service], Service]) -> None:
    """Their latency is forecast under these requests, whatever else changes."""
    loose = Slo(ttft_p95_ms=60_000.0, tpot_p95_ms=10_000.0)
    fleet, full = replicas(4, slo=loose), replicas(4, slo=loose, min_replicas=4)
    fewer = priced(fleet, changed(chat(fleet)).resized(), seen=BUSY)
    assert fewer.replicas is not None and fewer.replicas[1] < 4
    assert fewer.latency is not None and fewer.latency.before is not None and fewer.latency.after is not None
    alike = fewer.latency.before
    if changed(chat(full)) != chat(full):
        stay = priced(full, changed(chat(full)), seen=BUSY).latency
        assert stay is not None and stay.after is not None
        alike = stay.after
    assert fewer.latency.after.utilization == pytest.approx(4 / fewer.replicas[1] * alike.utilization, rel=0.01)
    assert fewer.latency.after.tpot_p95_ms is not None and alike.tpot_p95_ms is not None
    assert fewer.latency.after.tpot_p95_ms[1] > alike.tpot_p95_ms[1]
    needed = fewer.latency.replicas
    assert needed is not None and needed[1] == fewer.replicas[1]


def test_a_service_that_misses_its_objective_gives_back_no_replica() -> None:
    fleet = replicas(3, slo=Slo(ttft_p95_ms=1500.0, tpot_p95_ms=40.0))
    missed = low_batch(ttft_s=3.0)
    estimate = priced(fleet, chat(fleet).resized(), seen=missed)
    assert estimate.infeasible is not None and estimate.replicas is None


def test_a_replica_whose_change_is_refused_stands_for_no_other() -> None:
    known = context(FOUR)

    def refused(now: Deployment) -> Speed:
        return replace(speed(now, now, Slo(), known), infeasible="it would not start")

    assert busiest(chat(FOUR), refused, known) == "it would not start"
