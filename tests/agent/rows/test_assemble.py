"""From readings to rows, by hand: what is counted, what is not, and who held what."""

import json
from dataclasses import replace

import pytest

from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.readings import Endpoint, EngineReading, Gap
from pertoken.agent.rows.assemble import Cost, Readings, assemble
from pertoken.agent.rows.tick_state import TickState
from pertoken.agent.scrape.http import Limits
from pertoken.provenance import Provenance
from pertoken.store.schema.rows import (
    CounterState,
    DeploymentSample,
    DeviceSample,
    DeviceShare,
    EngineCounterSample,
    Tick,
)
from pertoken.store.schema.telemetry import OTHER
from pertoken.units import SHARE
from tests.agent.engine_pages import read_one
from tests.agent.values import CPU, ENDPOINT, START_MS, engine, gpu, memory, moment, probe

COST = Cost(10, 50_000_000, 20, 0)


def run(*steps: Readings, start: TickState | None = None) -> list[Tick]:
    """Ticks of these readings 10 s apart; the first lays the baseline."""
    kept, ticks = start or memory(), []
    for n, readings in enumerate(steps):
        tick, kept = assemble(kept, readings, moment(n), COST if n else None)
        ticks.append(tick)
    return ticks


def served(tick: Tick) -> list[DeploymentSample]:
    return [sample for sample in tick.samples if isinstance(sample, DeploymentSample)]


def counted(tick: Tick) -> dict[str, int]:
    return {sample.metric: sample.delta for sample in tick.samples if isinstance(sample, EngineCounterSample)}


def shares(tick: Tick) -> dict[tuple[int, bool], int]:
    found = [sample for sample in tick.samples if isinstance(sample, DeviceShare)]
    return {(each.device_id, each.epoch_id == OTHER): each.share_1e6 for each in found}


def test_the_baseline_stores_who_is_there_and_no_sample() -> None:
    (tick,) = run(Readings(probe(), (engine(500),)))
    assert tick.samples == ()
    assert [row.name for row in tick.devices] == [CPU.name]
    assert [row.served_model for row in tick.deployments] == ["tiny"]
    assert {state.series: state.value for state in tick.counters}["generated_tokens"] == 500


def test_what_an_engine_counted_before_we_watched_is_not_ours() -> None:
    before, after = (
        replace(each, counters={**each.counters, "prefill_ms": prefill_ms, "decode_ms": decode_ms})
        for each, prefill_ms, decode_ms in ((engine(500, 40), 900, 70_000), (engine(530, 60), 1_000, 74_000))
    )
    _, tick = run(Readings(probe(), (before,)), Readings(probe(), (after,)))
    (row,) = served(tick)
    assert (row.generated_tokens, row.computed_tokens, row.prompt_tokens) == (30, 20, 20)
    assert (row.complete, row.duration_ms, row.observed_ms, row.busy_ms) == (True, 10_000, 10_000, 4_100)


def test_other_counters_that_grew_are_rows_of_their_own_and_requests_are_told_by_how_they_ended() -> None:
    def counters(drafts: int, stopped: int, aborted: int) -> dict[str, int]:
        return {
            "generated_tokens": 500,
            "spec_drafts": drafts,
            "prefix_hits": 7,
            'requests_finished{engine="0",reason="stop"}': stopped,
            'requests_finished{engine="1",reason="stop"}': stopped,
            'requests_finished{engine="0",reason="length"}': 4,
            'requests_failed{reason="aborted"}': aborted,
        }

    before, after = (engine(0, counters=each) for each in (counters(10, 5, 1), counters(12, 6, 2)))
    _, tick = run(Readings(probe(), (before,)), Readings(probe(), (after,)))
    assert counted(tick) == {
        "spec_drafts": 2,
        "requests_failed": 1,
        'requests_finished{reason="stop"}': 2,
        'requests_failed{reason="aborted"}': 1,
    }
    assert served(tick)[0].requests_finished == 2


def test_a_gauge_beyond_what_a_column_holds_is_unknown_and_costs_only_itself() -> None:
    absurd = engine(510, gauges={"running": 1e18, "waiting": 3.0, "kv_use": float("nan")})
    _, tick = run(Readings(probe(), (engine(500),)), Readings(probe(), (absurd,)))
    (row,) = served(tick)
    assert (row.generated_tokens, row.running_1e2, row.waiting_1e2, row.kv_use_1e4) == (10, None, 300, None)


def test_a_counter_that_falls_in_a_living_process_is_unknown_and_an_event_and_no_restart() -> None:
    _, fallen, after = run(*(Readings(probe(), (engine(count),)) for count in (999_999, 999_998, 1_000_001)))
    (row,) = served(fallen)
    assert (row.generated_tokens, row.complete, row.duration_ms) == (None, False, 10_000)
    assert [event.kind for event in fallen.events] == ["engine_counter"]
    (row,) = served(after)
    assert (row.generated_tokens, row.complete) == (2, False)  # what is beyond the value it fell from


def test_a_counter_that_jumps_beyond_what_a_server_counts_is_unknown_and_an_event() -> None:
    _, jumped, after = run(*(Readings(probe(), (engine(count),)) for count in (10, 10**18, 10**18 + 3)))
    (row,) = served(jumped)
    assert (row.generated_tokens, row.complete) == (None, False)
    assert [event.kind for event in jumped.events] == ["engine_counter"]
    assert [(row.generated_tokens, row.complete) for row in served(after)] == [(3, True)]


def test_time_asleep_is_counted_as_time() -> None:
    asleep = engine(500, gauges={"running": 0.0, "awake": 0.0})
    _, tick = run(Readings(probe(), (engine(500),)), Readings(probe(), (asleep,)))
    assert counted(tick) == {"asleep_ms": 10_000}


def test_an_engine_that_counts_nothing_has_unknown_tokens_and_says_what_would_count_them() -> None:
    gap = Gap("tokens", "missing", "it counts none", "serve it with another engine")
    silent = engine(0, counters={}, gauges={}, gaps=(gap,))
    _, tick = run(Readings(probe(), (silent,)), Readings(probe(), (silent,)))
    (row,) = served(tick)
    assert (row.prompt_tokens, row.generated_tokens, row.busy_ms) == (None, None, None)
    assert (row.observed_ms, row.complete) == (10_000, True)
    first, _ = run(Readings(probe(), (silent,)), Readings(probe(), (silent,)))
    assert [(each.metric, each.remedy) for each in first.capabilities + tick.capabilities] == [
        ("tokens", "serve it with another engine")
    ]


def test_an_engine_that_started_after_we_did_counts_from_zero() -> None:
    young = replace(ENDPOINT, process_start_ms=START_MS + 3_000)
    _, tick = run(Readings(probe()), Readings(probe(), (engine(70, endpoint=young),)))
    assert served(tick)[0].generated_tokens == 70


def test_a_restart_counts_the_new_life_and_says_that_something_was_not_seen() -> None:
    again = replace(ENDPOINT, pid=200, process_start_ms=START_MS + 14_000)
    _, _, tick = run(
        Readings(probe(), (engine(500),)),
        Readings(probe(), (engine(510),)),
        Readings(probe(), (engine(7, endpoint=again),)),
    )
    (row,) = served(tick)
    assert (row.generated_tokens, row.complete, row.duration_ms) == (7, False, 6_000)
    assert [event.kind for event in tick.events] == ["engine_restarted"]
    assert tick.epochs == ()


def test_a_page_that_fails_is_null_and_an_event_and_its_tokens_come_with_the_next_good_one() -> None:
    broken = EngineReading(ENDPOINT, fault="no answer", fault_kind="timeout", remedy="wait")
    _, bad, good = run(
        Readings(probe(), (engine(500),)), Readings(probe(), (broken,)), Readings(probe(), (engine(520),))
    )
    (row,) = served(bad)
    assert (row.generated_tokens, row.observed_ms, row.complete) == (None, 0, True)
    assert [event.kind for event in bad.events] == ["engine_timeout"]
    assert [(each.metric, each.status) for each in bad.capabilities] == [("metrics_page", "failing")]
    assert served(good)[0].generated_tokens == 20
    assert [(each.metric, each.status) for each in good.capabilities] == [("metrics_page", "ok")]


def test_an_engine_that_ends_leaves_an_incomplete_row() -> None:
    _, tick, after = run(Readings(probe(), (engine(500),)), Readings(probe()), Readings(probe()))
    (row,) = served(tick)
    assert (row.generated_tokens, row.complete) == (None, False)
    assert [event.kind for event in tick.events] == ["engine_stopped"]
    assert served(after) == [] and shares(after) == {}


def test_an_agent_that_comes_back_counts_what_grew_while_it_was_away() -> None:
    ticks = run(Readings(probe(), (engine(500),)), Readings(probe(), (engine(510),)))
    states: dict[int, dict[str, CounterState]] = {}
    for tick in ticks:
        for state in tick.counters:
            states.setdefault(state.owner_id, {})[state.series] = state
    owners = frozenset([ticks[0].host.host_id, *(row.deployment_id for row in ticks[0].deployments)])
    back = memory(counters=states, away_ms=90_000, known_owners=owners)
    _, tick = run(Readings(probe(), (engine(560),)), Readings(probe(), (engine(570),)), start=back)
    *away, row = served(tick)
    assert (row.generated_tokens, row.complete) == (60, True)
    assert {each.generated_tokens for each in away} == {None}
    assert sum(each.duration_ms for each in served(tick)) == 100_000
    assert sum(each.observed_ms for each in served(tick)) == 10_000


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


def test_holders_are_kept_between_two_process_lists() -> None:
    listed, silent = gpu(0, 101), gpu(0)._replace(processes=None)
    ticks = run(Readings(probe(listed), (engine(1),)), Readings(probe(silent), (engine(2),)))
    assert list(shares(ticks[1]).values()) == [SHARE]


def test_a_gpu_whose_processes_cannot_be_listed_leaves_nobody_on_the_cpu() -> None:
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


def test_energy_is_counted_and_a_reset_is_null_and_told() -> None:
    ticks = run(
        Readings(probe(gpu(0, energy_mj=10**9))),
        Readings(probe(gpu(0, energy_mj=10**9 + 3_000_000))),
        Readings(probe(gpu(0, energy_mj=5))),
    )
    rows = [s for tick in ticks for s in tick.samples if isinstance(s, DeviceSample) and s.power_mw]
    assert [(row.energy_counter_mj, row.energy_integral_mj) for row in rows] == [
        (3_000_000, 3_000_000),
        (None, 3_000_000),
    ]
    assert [event.kind for event in ticks[2].events] == ["energy_counter"]


def test_a_lost_device_costs_only_itself_and_its_hours_go_on() -> None:
    lost = gpu(1)._replace(power_mw=None, energy_mj=None, processes=None, lost="fell off the bus")
    steps = [probe(gpu(0, energy_mj=n * 10**6), gpu(1, energy_mj=n * 10**6)) for n in range(3)]
    steps[1] = probe(steps[1].devices[0], lost)
    ticks = run(*map(Readings, steps))
    rows = [s for s in ticks[1].samples if isinstance(s, DeviceSample)]
    assert [(row.power_mw, row.duration_ms, row.observed_ms) for row in rows[:2]] == [
        (300_000, 10_000, 10_000),
        (None, 10_000, 0),
    ]
    assert [event.kind for event in ticks[1].events] == ["device_lost"]
    assert [event.kind for event in ticks[2].events] == ["device_back"]


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


def test_the_agent_tells_what_it_cost_itself() -> None:
    from pertoken.store.schema.rows import AgentSample

    _, tick = run(Readings(probe()), Readings(probe()))
    (row,) = [s for s in tick.samples if isinstance(s, AgentSample)]
    assert (row.cpu_ms, row.rss_bytes, row.driver_calls) == (11, 50_001_000, 9)


def test_ranks_that_follow_another_host_hold_their_devices_unresolved_and_are_never_idle() -> None:
    knobs: dict[str, object] = {"rendezvous": "10.0.0.1", "tp": 2}
    follower = Endpoint(
        "vllm", "rendezvous://10.0.0.1/m", "process", None, 300, START_MS, (300, 301), knobs, "m", follows=True
    )
    reading = read_one(EngineReader(follower, Limits()))
    ticks = run(*[Readings(probe(gpu(0, 301), gpu(1)), (reading,))] * 2)
    (row,) = served(ticks[1])
    assert (row.generated_tokens, row.observed_ms, row.busy_ms, row.complete) == (None, 10_000, 10_000, True)
    held = [s for s in ticks[1].samples if isinstance(s, DeviceShare)]
    assert [(s.epoch_id, s.share_1e6, s.busy_ms) for s in held] == [(row.epoch_id, SHARE, 10_000)]
    (epoch,) = ticks[0].epochs
    assert json.loads(epoch.knobs)["rendezvous"] == "10.0.0.1"
    assert ("rendezvous", "unresolved") in {(each.metric, each.status) for each in ticks[0].capabilities}
    assert ticks[1].epochs == ()


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
    gpu_shares = [(each.share_1e6, each.provenance) for each in halves]
    assert gpu_shares == [(SHARE // 2, Provenance.ASSUMED)] * 2


def test_a_server_that_holds_two_gpus_and_splits_its_model_by_layers_is_a_pipeline_of_two() -> None:
    llama = engine(0, knobs={"split_mode": "layer"})
    tick, *_ = run(Readings(probe(gpu(0, 101), gpu(1, 101)), (llama,)))
    knobs = json.loads(tick.epochs[0].knobs)
    assert (knobs["tp"], knobs["pp"], knobs["dp"]) == (1, 2, 1)


ELSEWHERE = Endpoint("vllm", "http://gpu-9:8000", "setting")


def elsewhere(generated: int, started_ms: int | None) -> EngineReading:
    return engine(generated, endpoint=ELSEWHERE, started_ms=started_ms, life_ms=started_ms)


def test_a_server_elsewhere_that_restarted_past_its_old_counts_is_noticed_by_what_its_page_says() -> None:
    lives = START_MS - 10**6, START_MS + 15_000
    readings = [elsewhere(500, lives[0]), elsewhere(530, lives[0]), elsewhere(600, lives[1])]
    _, first, second = run(*(Readings(probe(), (each,)) for each in readings))
    assert [(row.generated_tokens, row.complete) for tick in (first, second) for row in served(tick)] == [
        (30, True),
        (600, False),
    ]


def test_servers_that_answer_in_turn_behind_one_url_are_not_counted_rather_than_counted_too_often() -> None:
    older, newer = START_MS - 10**7, START_MS - 10**6
    readings = [elsewhere(1000 + 10 * n, older) if n % 2 else elsewhere(500 + 10 * n, newer) for n in range(6)]
    ticks = run(*(Readings(probe(), (each,)) for each in readings))
    rows = [row for tick in ticks for row in served(tick)]
    assert [(row.generated_tokens, row.complete) for row in rows] == [(None, False)] * 5
    assert all("answers in turn" in event.message for tick in ticks[1:] for event in tick.events)


@pytest.mark.parametrize(
    ("now", "complete"),
    [(10**9 + 600, True), (600, False), (500, True)],
    ids=["no server counts so much in that time", "it may have restarted", "nothing moved"],
)
def test_a_server_whose_start_nothing_tells_and_that_was_not_seen_for_a_while_may_have_restarted(
    now: int, complete: bool
) -> None:
    first = 10**9 if now > 10**9 else 500
    before, after = elsewhere(first, None), elsewhere(now, None)
    away = replace(before, fault="away", fault_kind="closed", counters={})
    *_, tick = run(*(Readings(probe(), (each,)) for each in (before, away, away, away, after)))
    row = served(tick)[-1]
    assert (row.generated_tokens, row.complete) == (now - first, complete)


def test_one_missed_page_is_no_reason_to_doubt() -> None:
    before, after = elsewhere(500, None), elsewhere(600, None)
    away = replace(before, fault="away", fault_kind="timeout", counters={})
    *_, tick = run(*(Readings(probe(), (each,)) for each in (before, away, after)))
    assert served(tick)[0].complete
