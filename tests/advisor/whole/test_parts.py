"""Deployments on partitions of GPUs, and GPUs with unknown processes."""

from pathlib import Path

import pytest

from pertoken.advisor.present import Present, present
from pertoken.agent.readings import Unavailable
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.catalog.market import load_market
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.evidence import NotMeasured
from pertoken.savings.estimate import Estimate, estimate
from pertoken.state.deployment import InvalidEdit, Placement
from pertoken.state.fleet import Fleet
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.rows import Tick
from pertoken.store.write.writer import Writer
from pertoken.units import NANO_USD
from tests.agent.rows.mig import ticks
from tests.agent.values import START_MS, gpu, moment, probe, tick_state
from tests.values import new_store

NOW = START_MS // 1000 + 120


def recorded(folder: Path, rows: list[Tick]) -> StoreLocation:
    where = new_store(folder)
    with Writer(where) as writer:
        for tick in rows:
            writer.commit(tick)
        writer.roll_up()
    with AdviceRepository(where).writing() as connection:
        repository.add_price(
            connection,
            selector="gpu",
            nano_usd_per_device_hour=7 * NANO_USD,
            from_ts=0,
            set_ts=0,
            set_by="me",
            note=None,
        )
    return where


def estimated(state: Present, candidate: Fleet) -> Estimate:
    return estimate(state.fleet, candidate, state.context)


def test_a_deployment_on_a_mig_device_pays_its_share_and_its_changes_are_unpriced_with_a_reason(tmp_path: Path) -> None:
    state = present(open_store(recorded(tmp_path, ticks(13))), load_market(), 3600, NOW)
    (now,) = state.fleet.deployments
    whole = next(device for device in state.fleet.devices if device.kind == "gpu")
    assert [part.share for part in whole.partitions] == [0.428571, 0.142857]
    assert now.device_ids == (whole.partitions[0].partition_id,)
    assert state.context.nano_usd_per_hour[now.device_ids[0]] == 7 * NANO_USD * 428_571 // 1_000_000
    assert state.context.nano_usd_per_hour[whole.device_id] == 7 * NANO_USD
    host = state.fleet.host(whole.host_id)
    assert state.fleet.deployments_on(host) == (now,)
    for changed in (now.but(weight_dtype="fp8"), now.on(Placement(purchase="spot"))):
        priced = estimated(state, state.fleet.edit(changed))
        assert priced.net is None and priced.unpriced is not None
    assert "MIG (1)" in (priced.unpriced or "") and "only whole devices" in (priced.unpriced or "")
    with pytest.raises(InvalidEdit, match="held by tiny"):
        state.fleet.release(host)


@pytest.mark.parametrize("hidden", [True, False])
def test_a_gpu_without_a_process_list_is_not_called_idle(tmp_path: Path, hidden: bool) -> None:
    missing = Unavailable("processes", "denied", "pids cannot be read from here", "hostPID: true")
    reading = gpu(0)._replace(processes=None, unavailable=(missing,)) if hidden else gpu(0)
    kept, rows = tick_state(), []
    for i in range(13):
        cost = AgentCost(1, 1, 1, 0) if i else None
        tick, kept = assemble(kept, Readings(probe(reading)), moment(i), cost)
        rows.append(tick)
    store = open_store(recorded(tmp_path, rows))
    line = next(device for device in fleet_report(store, 3600, NOW).devices if device.kind == "gpu")
    state = present(store, load_market(), 3600, NOW)
    device = next(device for device in state.fleet.devices if device.accelerator)
    seen = state.context.devices[device.device_id]
    if hidden:
        assert line.held_by is None
        with pytest.raises(NotMeasured, match="hostPID"):
            _ = seen.held
    else:
        assert line.held_by == () and seen.held.mean == 0


def test_a_gpu_counts_as_idle_only_since_its_processes_are_known(tmp_path: Path) -> None:
    missing = Unavailable("processes", "failing", "the driver answered error 999")
    hidden, free = gpu(0)._replace(processes=None, unavailable=(missing,)), gpu(0)
    kept, rows = tick_state(), []
    for i in range(25):
        reading = hidden if i < 13 else free
        tick, kept = assemble(kept, Readings(probe(reading)), moment(i), AgentCost(1, 1, 1, 0) if i else None)
        rows.append(tick)
    store = open_store(recorded(tmp_path, rows))
    state = present(store, load_market(), 3600, NOW + 120)
    seen = state.context.devices[next(device.device_id for device in state.fleet.devices if device.accelerator)]
    assert (seen.held.mean, seen.held.n) == (0, 2)
    assert seen.observed_h.mean < 100 / 3600


def test_the_screens_state_that_the_cost_of_unknown_owners_is_shown_as_unallocated(tmp_path: Path) -> None:
    missing = Unavailable("processes", "unsupported", "Gaudi's library lists no processes")
    kept, rows = tick_state(), []
    for i in range(13):
        reading = probe(
            gpu(0)._replace(processes=None, unavailable=(missing,)),
            gpu(1)._replace(processes=None, unavailable=(missing,)),
        )
        tick, kept = assemble(kept, Readings(reading), moment(i), AgentCost(1, 1, 1, 0) if i else None)
        rows.append(tick)
    report = fleet_report(open_store(recorded(tmp_path, rows)), 3600, NOW)
    (hint,) = [hint for hint in report.hints if hint.startswith("Who holds")]
    assert "and 1 more is not known: Gaudi's library lists no processes" in hint and "unallocated" in hint
