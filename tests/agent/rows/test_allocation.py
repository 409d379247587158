"""Allocation of devices, with its provenance."""

import json
from dataclasses import replace

from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.rows.assemble import Readings
from pertoken.agent.scrape import RequestLimits
from pertoken.provenance import Provenance
from pertoken.store.schema.rows import (
    DeviceShare,
)
from pertoken.store.schema.shared import OTHER
from pertoken.units import SHARE
from tests.agent.engine_pages import read_one
from tests.agent.rows.ticks import run, served, shares
from tests.agent.values import START_MS, engine, gpu, probe


def test_a_cpu_engine_holds_the_cpu_device_and_a_gpu_engine_its_gpus() -> None:
    cpu_only, on_gpu = run(Readings(probe(), (engine(1),)))[0], None
    ticks = run(Readings(probe(), (engine(1),)), Readings(probe(), (engine(2),)))
    (cpu,) = [row.device_id for row in ticks[1].devices]
    assert shares(ticks[1]) == {(cpu, False): SHARE}
    assert cpu_only.epochs[0].device_ids == (cpu,)
    on_gpu = run(Readings(probe(gpu(0, 101), gpu(1)), (engine(1),)), Readings(probe(gpu(0, 101), gpu(1)), (engine(2),)))
    first = on_gpu[1].devices[0].device_id
    assert shares(on_gpu[1]) == {(first, False): SHARE}
    assert on_gpu[0].epochs[0].device_ids == (first,)


def test_foreign_work_on_a_gpu_is_other_and_shares_by_memory_are_an_assumption() -> None:
    ticks = run(
        Readings(probe(gpu(0, 101, 999), gpu(1, 999)), (engine(1),)),
        Readings(probe(gpu(0, 101, 999), gpu(1, 999)), (engine(2),)),
    )
    first, second = (row.device_id for row in ticks[1].devices[:2])
    assert shares(ticks[1]) == {(first, False): SHARE // 2, (first, True): SHARE // 2, (second, True): SHARE}
    assert {s.provenance for s in ticks[1].samples if isinstance(s, DeviceShare) and s.device_id == first} == {
        Provenance.ASSUMED
    }


def test_owners_are_kept_between_two_process_lists() -> None:
    listed, silent = gpu(0, 101), gpu(0)._replace(processes=None)
    ticks = run(Readings(probe(listed), (engine(1),)), Readings(probe(silent), (engine(2),)))
    assert list(shares(ticks[1]).values()) == [SHARE]


def test_no_engine_is_assigned_to_the_cpu_while_a_gpu_has_no_process_list() -> None:
    ticks = run(
        Readings(probe(gpu(0)._replace(processes=None)), (engine(1),)),
        Readings(probe(gpu(0)._replace(processes=None)), (engine(2),)),
    )
    assert shares(ticks[1]) == {}


def test_two_engines_on_the_cpu_share_it_by_their_cpu_time() -> None:
    other = Endpoint("llama.cpp", "http://127.0.0.1:8081", "process", 8081, 300, START_MS - 5_000, (300,))
    both = (engine(1), engine(1, endpoint=other))
    first = run(Readings(probe(), both))[0]
    ids = [row.engine_id for row in first.engines]
    ticks = run(
        Readings(probe(), both, {ids[0]: 0, ids[1]: 0}), Readings(probe(), both, {ids[0]: 9_000, ids[1]: 1_000})
    )
    held = {s.share_1e6: s.provenance for s in ticks[1].samples if isinstance(s, DeviceShare)}
    assert held == {900_000: Provenance.COUNTER, 100_000: Provenance.COUNTER}


def test_ranks_that_follow_another_host_hold_their_devices_unresolved_and_are_never_idle() -> None:
    knobs: dict[str, object] = {"rendezvous": "10.0.0.1", "tp": 2}
    follower = Endpoint(
        "vllm", "rendezvous://10.0.0.1/m", "process", None, 300, START_MS, (300, 301), knobs, "m", follows=True
    )
    reading = read_one(EngineReader(follower, RequestLimits()))
    ticks = run(*[Readings(probe(gpu(0, 301), gpu(1)), (reading,))] * 2)
    (row,) = served(ticks[1])
    assert (row.generated_tokens, row.observed_ms, row.busy_ms, row.complete) == (None, 10_000, 10_000, True)
    held = [s for s in ticks[1].samples if isinstance(s, DeviceShare)]
    assert [(s.epoch_id, s.share_1e6, s.busy_ms) for s in held] == [(row.epoch_id, SHARE, 10_000)]
    (epoch,) = ticks[0].epochs
    assert json.loads(epoch.knobs)["rendezvous"] == "10.0.0.1"
    assert ("rendezvous", "unresolved") in {
        (capability.metric, capability.status) for capability in ticks[0].capabilities
    }
    assert ticks[1].epochs == ()


def test_models_that_share_the_processes_of_a_node_share_its_devices_equally_as_an_assumption() -> None:
    node = Endpoint("ray", "http://127.0.0.1:8080", "process", 8080, 100, START_MS - 5_000, (100, 101))

    def page(a: int, b: int) -> tuple[EngineReading, ...]:
        return tuple(
            engine(count, endpoint=replace(node, model=model), served_model=model, gauges={"running": 1.0})
            for model, count in (("a", a), ("b", b))
        )

    _, tick = run(Readings(probe(gpu(0, 101)), page(5, 50)), Readings(probe(gpu(0, 101)), page(7, 90)))
    assert sorted(row.generated_tokens or 0 for row in served(tick)) == [2, 40]
    assert len({row.engine_id for row in tick.engines}) == 2
    halves = [sample for sample in tick.samples if isinstance(sample, DeviceShare) and sample.epoch_id != OTHER]
    gpu_shares = [(half.share_1e6, half.provenance) for half in halves]
    assert gpu_shares == [(SHARE // 2, Provenance.ASSUMED)] * 2
