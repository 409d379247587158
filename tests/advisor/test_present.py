"""Evidence of devices and hosts as rules receive it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pertoken.advisor.present import Present, present
from pertoken.agent.readings import Unavailable
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.catalog.market import load_market
from pertoken.config import Settings, load
from pertoken.evidence import NotMeasured
from pertoken.provenance import Provenance
from pertoken.savings.context import EnergyPrice
from pertoken.savings.estimate import estimate
from pertoken.state.deployment import Commitment, Placement
from pertoken.state.service import Slo
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.write.writer import Writer
from pertoken.window.series import hour_of_week
from tests.agent.values import CPU, START_MS, engine, gpu, moment, probe, tick_state
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store

NOW = START_MS // 1000 + 120


def test_occupancy_links_and_memory_traffic_are_evidence_and_unmeasured_ones_name_the_remedy(tmp_path: Path) -> None:
    where, kept = new_store(tmp_path), tick_state()
    links = {"sm_occupancy_1e4": 2000, "nvlink_rx_mib_s": 300, "nvlink_tx_mib_s": 100}
    with Writer(where) as writer:
        for i in range(13):
            read = probe(gpu(0, 101, **links))
            read = replace(read, host=replace(read.host, memory_traffic_bytes=i * 10 * 2**30))
            tick, kept = assemble(
                kept, Readings(read, (engine(100 * i, 10 * i),)), moment(i), AgentCost(1, 1, 1, 0) if i else None
            )
            writer.commit(tick)
        writer.roll_up()
    state = present(open_store(where), load_market(), 3600, NOW)
    (seen,) = state.context.deployments.values()
    assert seen.sm_occupancy.mean == pytest.approx(0.2)
    assert seen.nvlink_bytes_s.mean == 400 * 2**20
    assert seen.memory_traffic_bytes_s.mean == pytest.approx(2**30)
    assert seen.memory_traffic_bytes_s.provenance.name == "COUNTER"


def test_missing_memory_traffic_of_an_engine_on_cpus_names_the_remedy(tmp_path: Path) -> None:
    where, kept = new_store(tmp_path), tick_state()
    missing = Unavailable("memory_traffic_bytes", "missing", "its counters are not mounted", "mount -t resctrl")
    with Writer(where) as writer:
        for i in range(13):
            read = replace(probe(), devices=(CPU._replace(unavailable=(missing,)),))
            tick, kept = assemble(
                kept, Readings(read, (engine(100 * i, 10 * i),)), moment(i), AgentCost(1, 1, 1, 0) if i else None
            )
            writer.commit(tick)
        writer.roll_up()
    (seen,) = present(open_store(where), load_market(), 3600, NOW).context.deployments.values()
    with pytest.raises(NotMeasured, match=r"not mounted; mount -t resctrl"):
        _ = seen.memory_traffic_bytes_s


END = 1_790_000_400 // 3600 * 3600
P5 = ("aws", "p5.48xlarge", "us-east-1", "on_demand")


def serving(folder: Path, *hosts: str, **more: Any) -> StoreLocation:
    """Return a 70B on each of these hosts for an hour."""
    for host in hosts:
        rate = more.get("rates", {}).get(host, LOW_BATCH_70B.generated_tok_s)
        where = seed(
            folder,
            replace(LOW_BATCH_70B, generated_tok_s=rate),
            gpus=2,
            usd_per_hour=None,
            minutes=60,
            end_ts=END,
            host=host,
            instance=more.get("instance"),
        )
    return where


def gathered(where: StoreLocation, text: str = "", folder: Path | None = None) -> Present:
    settings = Settings()
    if folder is not None:
        file = folder / "pertoken.toml"
        file.write_text(text)
        settings = load(file, {})
    return present(open_store(where), load_market(), 3600, END, settings)


def test_a_placement_comes_from_the_host_and_the_catalog(tmp_path: Path) -> None:
    known = gathered(serving(tmp_path, "gpu-a", instance=P5)).fleet
    expected = Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5", 8, "on_demand")
    assert [host.placement for host in known.hosts] == [expected]
    assert [deployment.placement for deployment in known.deployments] == [expected]
    (deployment,) = known.deployments
    assert (deployment.weight_dtype, deployment.tp, deployment.power_cap_w) == ("bf16", 2, 700)


def test_settings_define_purchase_and_commitments_of_a_host(tmp_path: Path) -> None:
    text = f"""
[hosts."gpu-a"]
purchase = "reserved"
paid_until = 2027-01-31
[[commitments]]
provider = "aws"
instance_type = "p5.48xlarge"
count = 2
usd_per_instance_hour = 30.5
end = 2027-01-31
[[commitments]]
provider = "aws"
instance_type = "p4d.24xlarge"
count = 1
usd_per_instance_hour = 10
end = 2020-01-31
[energy]
usd_per_kwh = 0.12
pue = 1.3
[slo]
tpot_ms = {50}
"""
    known = gathered(serving(tmp_path, "gpu-a", instance=P5), text, tmp_path)
    (host,) = known.fleet.hosts
    assert (host.placement.purchase, host.placement.instance_type, host.paid_until) == (
        "reserved",
        "p5.48xlarge",
        1_801_440_000,
    )
    assert known.fleet.deployments[0].placement.purchase == "reserved"
    assert known.fleet.commitments == (Commitment("aws", None, "p5.48xlarge", 2, 30_500_000_000, 1_801_440_000),)
    assert known.context.energy == EnergyPrice(120_000_000, 1.3)
    assert known.context.slo == Slo(tpot_p95_ms=50)


def test_deployments_of_one_name_are_a_service_and_settings_join_names(tmp_path: Path) -> None:
    where = serving(tmp_path, "gpu-a", "gpu-b")
    (service,) = gathered(where).fleet.services
    assert (service.name, len(service.deployments)) == (LOW_BATCH_70B.model, 2)
    text = f"""
[services."chat"]
models = ["{LOW_BATCH_70B.model}"]
min_replicas = 2
spare_replicas = 1
isolation = "tenant"
ttft_p95_ms = 800
"""
    (service,) = gathered(where, text, tmp_path).fleet.services
    assert (service.name, service.min_replicas, service.spare_replicas, service.isolation) == ("chat", 2, 1, "tenant")
    assert service.slo == Slo(ttft_p95_ms=800)
    assert {deployment.serves for deployment in service.deployments} == {(("chat", None),)}


def test_evidence_of_a_service_is_the_sum_of_its_deployments_minute_by_minute(tmp_path: Path) -> None:
    state = gathered(serving(tmp_path, "gpu-a", "gpu-b", rates={"gpu-a": 40.0, "gpu-b": 80.0}))
    one, two = state.context.deployments.values()
    (both,) = state.context.services.values()
    assert both.generated_tok_s.p95 == pytest.approx(one.generated_tok_s.p95 + two.generated_tok_s.p95)
    assert both.running.mean == pytest.approx(one.running.mean + two.running.mean)
    assert both.busy.mean == pytest.approx(one.busy.mean)
    assert both.power_w.mean == pytest.approx(one.power_w.mean + two.power_w.mean)
    assert both.device_util.mean == pytest.approx(one.device_util.mean)
    assert both.prompt_len.n == one.prompt_len.n + two.prompt_len.n
    assert both.observed_h.mean == pytest.approx(1)
    (service,) = state.fleet.services
    requests = service.demand.requests_per_s
    assert requests is not None and requests.value == pytest.approx(both.requests_s.p95)
    assert requests.provenance is Provenance.COUNTER and "60 minutes" in requests.source
    known = [
        hour
        for hour, requests_per_s in enumerate(service.demand.requests_by_hour_of_week)
        if requests_per_s is not None
    ]
    assert known == [hour_of_week(END - 3600)]
    assert service.demand.output_len is not None and service.demand.prompt_len is not None


def test_a_deployment_that_stopped_is_not_of_the_fleet_but_what_it_served_was_demand(tmp_path: Path) -> None:
    where = serving(tmp_path, "gpu-a")
    # Another engine of the same model on the host, which stopped half an hour ago.
    seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=20, end_ts=END - 1800, host="gpu-b")
    seed(tmp_path, None, gpus=2, usd_per_hour=None, minutes=5, end_ts=END, host="gpu-b")
    state = gathered(where)
    assert len(state.fleet.deployments) == 1
    (service,) = state.fleet.services
    (seen,) = state.context.services.values()
    requests = service.demand.requests_per_s
    assert requests is not None and requests.value == pytest.approx(2 * seen.requests_s.p95)


def test_an_estimate_by_a_detected_list_price_names_it_and_its_age(tmp_path: Path) -> None:
    state = gathered(serving(tmp_path, "gpu-a", instance=P5))
    note = next(iter(state.context.listed.values()))
    assert "list price of aws p5.48xlarge on-demand in us-east-1, 2026-07-20" in note and "stale: listed up to" in note
    assert any("/hour, list price of 2026-07-20 (" in text for text in state.price_texts.values())
    (service,) = state.fleet.services
    money = estimate(state.fleet, state.fleet.edit(service.on(Placement("lambda"))), state.context)
    assert any(note in assumption for assumption in money.assumptions) or money.infeasible is not None
    p5 = Commitment("aws", "us-east-1", "p5.48xlarge", 1, 10**9, years=1)
    committed = estimate(state.fleet, state.fleet.commit(p5), state.context)
    assert committed.net is not None and any(note in assumption for assumption in committed.assumptions)
