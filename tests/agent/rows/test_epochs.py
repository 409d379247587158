"""Changes that begin an epoch, and changes that do not."""

import json
from dataclasses import replace

import pytest

from pertoken.agent.readings import Endpoint
from pertoken.agent.rows.assemble import Readings
from tests.agent.rows.ticks import run
from tests.agent.values import ENDPOINT, START_MS, engine, gpu, probe


def test_an_engine_restarted_beside_another_on_the_cpu_stays_in_its_epoch() -> None:
    knobs: dict[str, object] = {"split_mode": "layer"}
    beside = Endpoint("llama.cpp", "http://127.0.0.1:8081", "process", 8081, 300, START_MS - 5_000, (300,))
    again = replace(ENDPOINT, pid=400, process_start_ms=START_MS + 15_000, pids=(400,))
    before = (engine(9, knobs=knobs), engine(1, endpoint=beside))
    after = (engine(4, endpoint=again, knobs=knobs), engine(2, endpoint=beside))
    ids = [row.engine_id for row in run(Readings(probe(), before))[0].engines]
    ticks = run(
        Readings(probe(), before, {ids[0]: 8_000, ids[1]: 1_000}),
        Readings(probe(), before, {ids[0]: 9_000, ids[1]: 1_500}),
        Readings(probe(), after, {ids[0]: 100, ids[1]: 2_000}),
    )
    assert "engine_restarted" in {event.kind for event in ticks[2].events}
    assert [tick.epochs for tick in ticks[1:]] == [(), ()]


@pytest.mark.parametrize(
    ("knobs", "version", "restart", "begins"),
    [
        ({"max_num_seqs": 4}, "b1", False, False),
        ({"max_num_seqs": 8}, "b1", True, True),
        ({"max_num_seqs": 4, "max_model_len": 1024}, "b1", False, False),
        ({}, "b1", False, False),
        ({}, "b1", True, True),
        ({"max_num_seqs": 4}, "b2", True, True),
    ],
)
def test_a_known_change_begins_an_epoch_and_a_mere_restart_or_a_knob_learnt_later_does_not(
    knobs: dict[str, object], version: str, restart: bool, begins: bool
) -> None:
    endpoint = replace(ENDPOINT, process_start_ms=START_MS + 5_000) if restart else ENDPOINT
    ticks = run(
        Readings(probe(), (engine(5),)),
        Readings(probe(), (engine(6, endpoint=endpoint, knobs=knobs, version=version),)),
    )
    ids = {epoch.epoch_id for tick in ticks for epoch in tick.epochs}
    assert len(ids) == (2 if begins else 1)


def test_an_adapter_that_is_loaded_while_the_engine_serves_stays_in_the_epoch_which_names_it() -> None:
    first, second, none = ({"lora_adapters": names} for names in (["legal"], ["legal", "support"], []))
    ticks = run(*(Readings(probe(), (engine(n, knobs={**knobs}),)) for n, knobs in enumerate((first, second, none))))
    written = [epoch for tick in ticks for epoch in tick.epochs]
    assert len({epoch.epoch_id for epoch in written}) == 1
    assert [json.loads(epoch.knobs)["lora_adapters"] for epoch in written] == [["legal"], ["legal", "support"], []]


def test_a_knob_a_model_or_a_device_that_changes_begins_an_epoch_and_a_restart_alone_does_not() -> None:
    again = replace(ENDPOINT, pid=200, process_start_ms=START_MS + 14_000, pids=(200,))
    one, two = probe(gpu(0, 101, 200)), probe(gpu(0, 101, 200), gpu(1, 101, 200))
    ticks = run(
        Readings(one, (engine(1),)),
        Readings(one, (engine(0, endpoint=again),)),
        Readings(two, (engine(1, endpoint=again),)),
        Readings(two, (engine(2, endpoint=again, knobs={"max_num_seqs": 8}),)),
        Readings(two, (engine(3, endpoint=again, knobs={"max_num_seqs": 8}, served_model="other"),)),
        Readings(two, (engine(4, endpoint=again, knobs={"max_num_seqs": 8}, served_model="other", version="b2"),)),
    )
    assert [len(tick.epochs) for tick in ticks] == [1, 0, 1, 1, 1, 1]


def test_a_server_that_holds_two_gpus_and_splits_its_model_by_layers_is_a_pipeline_of_two() -> None:
    llama = engine(0, knobs={"split_mode": "layer"})
    tick, *_ = run(Readings(probe(gpu(0, 101), gpu(1, 101)), (llama,)))
    knobs = json.loads(tick.epochs[0].knobs)
    assert (knobs["tp"], knobs["pp"], knobs["dp"]) == (1, 2, 1)


def test_another_driver_begins_an_epoch_and_one_that_is_not_read_does_not() -> None:
    def served(n: int, driver: str | None, start_ms: int = START_MS - 5_000) -> Readings:
        endpoint = replace(ENDPOINT, process_start_ms=start_ms)
        return Readings(probe(gpu(0, *ENDPOINT.pids, driver_version=driver)), (engine(n, endpoint=endpoint),))

    ticks = run(served(1, None), served(2, "570.1"), served(3, None), served(4, "570.1"), served(1, None, START_MS))
    assert len({epoch.epoch_id for tick in ticks for epoch in tick.epochs}) == 1
    (completed,) = ticks[1].epochs
    assert json.loads(completed.knobs)["driver_version"] == "570.1"
    changed = run(served(1, "570.1"), served(2, "580.2", START_MS))
    assert len({epoch.epoch_id for tick in changed for epoch in tick.epochs}) == 2


def test_another_owner_begins_an_epoch_and_one_that_is_not_read_does_not() -> None:
    def served(n: int, **knobs: object) -> Readings:
        return Readings(probe(), (engine(n, knobs={"max_num_seqs": 4, **knobs}),))

    first, second = "Deployment prod/llama", "Deployment prod/chat"
    ticks = run(
        served(1), served(2, workload=first), served(3), served(4, workload=second), served(5, workload="? ?/?")
    )
    epochs = {epoch.epoch_id: json.loads(epoch.knobs).get("workload") for tick in ticks for epoch in tick.epochs}
    assert list(epochs.values()) == [first, second]
    jobs = run(served(1, job="7"), served(2, job="8", **{"label:team": "a"}), served(3, job="8", **{"label:team": "b"}))
    assert len({epoch.epoch_id for tick in jobs for epoch in tick.epochs}) == 3


def test_an_engine_restarted_outside_its_job_is_of_no_job() -> None:
    again = replace(ENDPOINT, process_start_ms=START_MS)
    inside = engine(1, knobs={"job": "7", "label:team": "a"})
    ticks = run(Readings(probe(), (inside,)), Readings(probe(), (engine(2, endpoint=again),)))
    assert len({epoch.epoch_id for tick in ticks for epoch in tick.epochs}) == 2


@pytest.mark.parametrize(
    ("jobs", "knobs", "job"),
    [
        ({"0": "12", "1": "12"}, {}, "12"),
        ({"0": "12", "1": "13"}, {}, None),
        ({"0": "12"}, {}, "12"),
        ({"4": "12"}, {}, None),
        ({"0": "12", "1": "12"}, {"job": "9"}, "9"),
    ],
)
def test_a_deployment_is_of_the_job_that_its_gpus_are_mapped_to(
    jobs: dict[str, str], knobs: dict[str, object], job: str | None
) -> None:
    devices = probe(gpu(0, *ENDPOINT.pids), gpu(1, *ENDPOINT.pids))
    readings = [Readings(devices, (engine(n, knobs=knobs),), jobs_by_gpu=jobs) for n in (1, 2)]
    (epoch,) = {epoch.epoch_id: epoch for tick in run(*readings) for epoch in tick.epochs}.values()
    assert json.loads(epoch.knobs).get("job") == job
