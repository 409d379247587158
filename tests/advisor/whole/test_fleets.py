"""Advice over whole fleets: idle hosts, parts of instances, spot over many replicas."""

from dataclasses import replace
from typing import Any

import pytest

from pertoken.plugins.fleet.release_idle import release_idle
from pertoken.plugins.market.change_provider import change_provider
from pertoken.plugins.market.commit_capacity import commit_capacity
from pertoken.plugins.market.serverless_api import serverless_api
from pertoken.plugins.market.use_spot import use_spot
from pertoken.proof.recommendation import State, best_of_each_target, total
from pertoken.savings.estimate import estimate
from pertoken.state.deployment import Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.testing import Regime, regimes
from pertoken.text.advice_table import bankable, totals
from tests.advisor.gathered import advised, gathered
from tests.deployments import MARKET
from tests.savings.fleets import AWS, context, evidence, fleet_of, host, llama, low_batch, replicas

P5 = replace(AWS, instance_type="p5.48xlarge", devices_per_instance=8)
MONTH = 6.88e9 * 730


def devices_held(fleet: Fleet, held: frozenset[int]) -> dict[int, Any]:
    return {device.device_id: evidence(held=float(device.device_id in held), observed_h=24) for device in fleet.devices}


def test_five_idle_hosts_are_five_rows_that_name_them_and_are_counted_once() -> None:
    fleet = fleet_of([], [host(host_id) for host_id in range(1, 6)])
    rows = advised(gathered(fleet, held=False), release_idle)
    assert [row.state for row in rows] == [State.OPEN] * 5
    assert len({row.recommendation_id for row in rows}) == 5
    names = [f"gpu-{host_id}" for host_id in range(1, 6)]
    assert [(row.target_kind, row.target_key, row.target) for row in rows] == [
        ("host", str(number), name) for number, name in enumerate(names, 1)
    ]
    for row, name in zip(rows, names, strict=True):
        assert row.best is not None and name in row.best.title and name in row.best.commands[0]
        assert {line.series.partition(":")[0] for line in row.evidence} == {"H100 #0", "H100 #1"}
    counted = total(bankable(row) for row in best_of_each_target(rows))
    assert counted is not None and counted[1] == round(10 * MONTH)
    assert f"{counted[1] / 1e9:,.0f}" == "50,224"


def test_the_same_hosts_proposed_by_two_rules_are_counted_once() -> None:
    fleet = fleet_of([], [host(host_id) for host_id in range(1, 3)])
    twin = replace(release_idle, rule_id="another-rule")
    rows = advised(gathered(fleet, held=False), release_idle, twin)
    counted = total(bankable(row) for row in best_of_each_target(rows))
    assert len(rows) == 4 and counted is not None and counted[1] == round(4 * MONTH)


def test_an_instance_that_is_idle_in_part_banks_nothing_and_names_the_move_that_would_free_it() -> None:
    hosts = [host(1, 8, P5)]
    fleet = fleet_of([Service("chat", (llama(1, (10, 11), placement=P5),))], hosts)
    known = context(fleet, devices=devices_held(fleet, frozenset({10, 11})))
    (row,) = advised(gathered(fleet, known), release_idle)
    assert (row.state, row.target, row.variants) == (State.REFUSED, "gpu-1", ())
    (refusal,) = row.refusals
    assert refusal.code == "part-of-instance" and "move Llama-3.3-70B to other devices first" in refusal.reason


def test_spot_over_two_hundred_replicas_keeps_one_of_each_service_on_demand() -> None:
    counts = [40, 30, 30, 25, 25, 20, 15, 10, 5]
    hosts = [host(host_id, 2, P5) for host_id in range(1, sum(counts) + 1)]
    free = iter(hosts)
    services = []
    for number, count in enumerate(counts):
        name = f"model-{number}"
        own_hosts = [next(free) for _ in range(count)]
        services.append(
            Service(
                name, tuple(llama(own_host.host_id, own_host.device_ids, name, placement=P5) for own_host in own_hosts)
            )
        )
    fleet = fleet_of(services, hosts)
    rows = advised(gathered(fleet, context(fleet, low_batch())), use_spot)
    assert {row.target_key: row.state for row in rows} == {service.name: State.OPEN for service in services}
    for row in rows:
        best, count = row.best, len(fleet.service(row.target_key).deployments)
        assert best is not None and best.title.startswith(f"on_demand → spot on {count - 1} of {count} replicas: ")
        assert best.net is not None
        bill = count * 2 * MONTH
        assert best.net[2] < bill * (count - 1) / count
        assert any("spot instances are taken back a month" in line for line in best.against)
    # The headline is a range, its assumption beside it.
    headline = totals(rows)
    assert " to " in headline.splitlines()[0] and " × p5.48xlarge spot at aws us-east-1 at " in headline


@pytest.mark.parametrize("purchase", ["spot", "reserved", "owned"])
def test_a_host_that_is_not_paid_on_demand_gets_no_spot_advice(purchase: str) -> None:
    fleet = replicas(3)
    paid = replace(AWS, purchase=purchase)
    (service,) = fleet.services
    moved = replace(
        service, deployments=tuple(replace(deployment, placement=paid) for deployment in service.deployments)
    )
    (row,) = advised(gathered(replace(fleet, services=(moved,))), use_spot)
    assert (row.state, [refusal.code for refusal in row.refusals]) == (State.REFUSED, ["not-on-demand"])


def test_a_commitment_is_advice_over_the_fleet_with_its_term_its_source_and_no_undo() -> None:
    steady = regimes()["steady"]
    known = context(steady.fleet, price=11_000_000_000, devices=_devices_of(steady))
    known = replace(known, deployments={n: steady.of("deployment", n) for n in (1, 2, 3)})
    (row,) = advised(gathered(steady.fleet, known), commit_capacity)
    assert row.state == State.OPEN and row.best is not None, row.reason
    assert row.best.title == "commit to 3 × a3-highgpu-8g for 3 y"
    commit, command = row.best.commands
    assert commit == "Commit to 3 × a3-highgpu-8g at gcp us-central1 for $38.86 per instance and hour, for 3 years."
    assert command.startswith("gcloud compute commitments create NAME --region=us-central1 --plan=36-month ")
    assert row.best.undo == ("A commitment cannot be cancelled before it ends.",)
    assert row.best.net is not None and row.best.net[1] == 730 * 3 * (8 * 11_000_000_000 - 38_864_400_000)
    assert any("copy of Google's Cloud Billing prices, 2026-08-20" in text for text in row.best.assumptions)


def test_a_serverless_api_is_a_break_even_until_a_person_names_it_and_then_dollars() -> None:
    fleet = replicas(2)
    (asked,) = advised(gathered(fleet, context(fleet)), serverless_api)
    assert {variant.break_even is not None for variant in asked.variants} == {True}
    assert {(variant.net, variant.capacity, variant.provenance) for variant in asked.variants} == {
        (None, None, "assumed")
    }
    (named,) = advised(gathered(fleet, context(fleet, token_apis=frozenset({"vertex"}))), serverless_api)
    assert named.best is not None and named.best.net is not None and named.best.net[1] > 0
    assert named.best.title == "on_demand → per_token, aws → vertex on 2 replicas"
    assert "point its clients at vertex" in named.best.commands[1]
    assert total(bankable(row) for row in (asked,)) in (None, (0, 0, 0))


def test_a_move_to_another_provider_waits_for_a_person_who_confirms_the_offer() -> None:
    fleet = replicas(2)
    (row,) = advised(gathered(fleet, context(fleet, market=MARKET)), change_provider)
    assert row.best is not None and "aws → lambda" in row.best.title
    assert row.best.net is None and "confirm that lambda sells it" in (row.best.to_confirm or "")
    moved = fleet.service("chat").on(Placement("lambda", "any", "gpu_4x_h100_sxm5"))
    confirmed = estimate(fleet, fleet.edit(moved), context(fleet, market=MARKET)).if_confirmed
    # Prompts and answers that cross from one provider to the other cost less than a dollar a month.
    assert confirmed is not None and 0 < 730e9 * (4 * 6.88 - 16.36) - confirmed.net[1] < 1e9
    (cheap,) = advised(gathered(fleet, context(fleet, price=1_900_000_000, market=MARKET)), change_provider)
    assert cheap.state == State.REFUSED and "the bill would rise by" in (cheap.reason or "")


def _devices_of(regime: Regime) -> dict[int, Any]:
    return {device.device_id: regime.of("device", device.device_id) for device in regime.fleet.devices}
