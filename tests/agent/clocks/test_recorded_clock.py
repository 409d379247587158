"""Rows carry true time, and every token counts once, whatever the wall clock is set to."""

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from pertoken.agent.clocks import LASTS_MS
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.integrity.verify import verify
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.telemetry import HOUR
from tests.agent.world import BEGIN_S, WORDS, World
from tests.examples import examples
from tests.values import new_store

DAY = 24 * HOUR
LASTS_S = LASTS_MS // 1000
MakeWorld = Callable[..., World]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with empty tables, copied for every world."""
    folder = tmp_path_factory.mktemp("empty")
    new_store(folder)
    return folder


@pytest.fixture
def make(empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeWorld]:
    worlds: list[World] = []

    def made(**more: Any) -> World:
        shutil.copytree(empty, tmp_path / "db")
        worlds.append(World(tmp_path / "db", monkeypatch, **more))
        return worlds[-1]

    yield made
    for world in worlds:
        world.stop()


def stamps(world: World) -> list[int]:
    """`ts` of the host's rows in the order in which they were stored."""
    return [row.ts for row in world.ask(select(t.batch).where(t.batch.c.row_count > 0).order_by(t.batch.c.seq))]


def faults(world: World) -> list[Any]:
    return [fault for fault in verify(locate(str(world.folder))) if fault is not None]


def assert_all_time_is_recorded(world: World, since_ms: int) -> None:
    recorded = sum(row.duration_ms for row in world.rows(t.host_sample))
    assert abs(recorded - (world.true_ms - since_ms)) <= 2000 * world.interval_s
    assert all(row.observed_ms <= row.duration_ms for row in world.rows(t.host_sample))


def test_a_clock_that_is_wrong_for_45_seconds_moves_no_row_and_deletes_none(make: MakeWorld) -> None:
    world = make()
    world.begin()
    world.run(100)
    before = [row.ts for row in world.rows(t.host_sample)]
    world.step_s = 1000 * DAY
    world.run(45)
    assert world.rows(t.host_sample)[-1].ts <= world.true_ms // 1000
    world.step_s = 0
    world.run(100)
    stored = [row.ts for row in world.rows(t.host_sample)]
    assert stored[: len(before)] == before
    assert stored[-1] == world.true_ms // 1000
    assert [after - ts for ts, after in pairwise(stored)] == [1] * (len(stored) - 1)
    first, second = world.events("clock_step")
    assert "forward by 1000 days" in first and "back after 45 s" in second
    assert faults(world) == []


def test_a_restart_of_the_agent_does_not_make_a_wrong_clock_right(make: MakeWorld) -> None:
    world = make()
    world.begin()
    world.run(30)
    world.step_s = 1000 * DAY
    world.run(5)
    world.stop()
    world.run(3)
    world.begin()
    world.run(30)
    world.step_s = 0
    world.run(30)
    stored = [row.ts for row in world.rows(t.host_sample)]
    assert max(stored) == world.true_ms // 1000
    assert_all_time_is_recorded(world, 1000 * BEGIN_S)


def test_a_lasting_step_forward_is_accepted_and_its_time_is_unattributed(make: MakeWorld) -> None:
    world = make(interval_s=10)
    world.begin()
    world.run(100)
    world.step_s = DAY
    world.run(LASTS_S + 60)
    last = world.rows(t.host_sample)[-1]
    assert last.ts == world.wall_ms // 1000
    assert_all_time_is_recorded(world, 1000 * BEGIN_S)
    assert max(row.missed_ticks for row in world.rows(t.agent_sample)) <= 1
    assert "lasted" in world.events("clock_step")[-1]


def test_after_a_clock_was_right_again_rows_carry_true_time_and_keep_their_order(make: MakeWorld) -> None:
    """It was 3 days ahead from the start, and is set back: true time has no rows yet."""
    world = make(interval_s=10)
    world.step_s = 3 * DAY
    world.begin()
    world.run(HOUR)
    world.step_s = 0
    world.run(LASTS_S + 60)
    assert stamps(world)[-1] == world.true_ms // 1000
    assert "back by 3 days" in world.events("clock_step")[-1]
    world.stop()
    world.run(30)
    world.begin()
    world.run(600)
    assert stamps(world)[-1] == world.true_ms // 1000
    assert_all_time_is_recorded(world, 1000 * BEGIN_S)
    assert faults(world) == []
    world.agent._upkeep.roll_up(hours=True)  # type: ignore[union-attr]
    report = fleet_report(open_store(locate(str(world.folder))), HOUR, world.true_ms // 1000)
    (host,) = report.hosts
    assert host.age_s is not None and 0 <= host.age_s <= 60


def test_time_that_is_recorded_again_takes_free_seconds_and_a_minute_holds_both(make: MakeWorld) -> None:
    world = make(interval_s=30)
    world.begin()
    world.run(2 * HOUR)
    world.step_s = -HOUR
    world.run(LASTS_S)
    before = len(stamps(world))
    world.run(1200)
    again = stamps(world)[before:]
    assert all(abs(ts - (BEGIN_S + HOUR + LASTS_S + 30 * n)) < 60 for n, ts in enumerate(again, 1))
    world.stop()
    world.begin()
    world.run(600)
    assert abs(stamps(world)[-1] - world.wall_ms // 1000) <= 30
    assert_all_time_is_recorded(world, 1000 * BEGIN_S)
    world.stop()
    recorded = sum(row.duration_ms for row in world.rows(t.host_sample))
    for table in t.host_rollup.values():
        assert world.ask(select(func.sum(table.c.duration_ms))) == [(recorded,)]
    assert faults(world) == []


@pytest.mark.parametrize("back_s", [5, 20, 900])
def test_a_clock_set_back_into_time_that_is_full_is_caught_up_with_and_all_stays_observed(
    make: MakeWorld, back_s: int
) -> None:
    world = make()
    world.begin()
    world.run(back_s + 60)
    world.step_s = -back_s
    world.run(LASTS_S + 60)
    stored = stamps(world)
    assert all(after > ts for ts, after in pairwise(stored))
    if back_s < 60:
        assert stored[-1] == world.wall_ms // 1000
    rows = world.rows(t.host_sample)
    assert_all_time_is_recorded(world, 1000 * BEGIN_S)
    assert all(row.observed_ms == row.duration_ms for row in rows)
    assert world.events("clock_step")


def test_old_rows_of_a_clock_that_was_set_back_are_deleted_by_age_without_a_fault(make: MakeWorld) -> None:
    world = make(interval_s=60)
    world.begin(store_raw="1h", store_minutes="5h")
    world.run(5 * HOUR)
    world.step_s = -4 * HOUR
    for _ in range(16):
        world.run(1800)
        assert faults(world) == []
    assert min(row.ts for row in world.rows(t.host_sample)) > world.wall_ms // 1000 - 4 * HOUR


steps = st.sampled_from([-86_400.0, -3600.0, -90.0, -5.0, -1.0, -0.3, 0.3, 1.0, 5.0, 90.0, 3600.0, 86_400.0, 0.0])
moves = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.sampled_from([5.0, 13.7, 60.0]), st.sampled_from([0, 0, 3])),
        st.tuples(st.just("work"), st.sampled_from(WORDS), st.integers(1, 1000)),
        st.tuples(st.just("set clock"), steps),
        st.tuples(st.just("set clock for long"), steps),
        st.tuples(st.just("restart agent"), st.sampled_from(["stopped", "killed"]), st.sampled_from([0.0, 0.4, 90.0])),
        st.tuples(st.just("killed at the baseline")),
        st.tuples(st.just("restart engine")),
        st.tuples(st.just("reboot")),
    ),
    max_size=25,
)


@settings(max_examples=examples(40), deadline=None)
@given(moves=moves)
@example([("work", "prompt_tokens", 7), ("run", 5.0, 0), ("set clock", 1.0), *[("restart agent", "stopped", 0.4)] * 2])
@example([("run", 5.0, 3), ("set clock", -5.0), ("killed at the baseline",), ("restart agent", "killed", 0.0)])
def test_stored_tokens_equal_served_tokens_or_are_marked_and_never_exceed_them(
    empty: Path, moves: list[tuple[Any, ...]]
) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        shutil.copytree(empty, folder, dirs_exist_ok=True)
        world = World(Path(folder), patch, interval_s=5)
        world.begin()
        world.run(6)
        world.serve()
        world.run(5)
        served = dict.fromkeys(WORDS, 0)
        restarts = 0

        def end_life() -> None:
            nonlocal restarts
            assert world.engine is not None
            restarts += 1
            for word in WORDS:
                served[word] += world.engine.counts[word]

        try:
            for move in [*moves, ("run", 20.0, 0)]:
                match move:
                    case ("run", float(seconds), int(work)):
                        world.run(seconds, work)
                    case ("work", str(word), int(amount)):
                        world.engine.counts[word] += amount  # type: ignore[union-attr]
                    case ("set clock", float(step_s)):
                        world.step_s = step_s
                    case ("set clock for long", float(step_s)):
                        world.step_s = step_s
                        world.run(LASTS_S + 2)
                    case ("restart agent", str(how), float(away_s)):
                        world.stop() if how == "stopped" else world.abandon()
                        world.run(away_s, 1)
                        world.begin()
                    case ("killed at the baseline",):
                        world.abandon()
                        world.run(30, 1)
                        patch.setattr("pertoken.agent.recorder.Recorder.tick", lambda self: None)
                        world.begin()
                        patch.undo()
                        world.patched(patch)
                        world.abandon()
                        world.begin()
                    case ("restart engine",):
                        end_life()
                        world.run(0.02)
                        world.serve()
                    case ("reboot",):
                        end_life()
                        world.reboot()
                        world.run(20)
                        world.serve()
                        world.begin()
            end_life()
            restarts -= 1
            world.stop()
            sample = t.deployment_sample.c
            sums = select(*(func.coalesce(func.sum(sample[word]), 0) for word in WORDS))
            stored = dict(zip(WORDS, world.ask(sums)[0], strict=True))
            rows = world.rows(t.deployment_sample)
            assert all(stored[word] <= served[word] for word in WORDS), (stored, served)
            if restarts == 0 or all(row.complete for row in rows):
                assert stored == served
            assert restarts > 0 or all(row.complete for row in rows)
            assert all((row.busy_ms or 0) <= row.observed_ms <= row.duration_ms for row in rows)
            rolled = select(*(func.coalesce(func.sum(t.deployment_rollup[HOUR].c[word]), 0) for word in WORDS))
            assert dict(zip(WORDS, world.ask(rolled)[0], strict=True)) == stored
            if world.boot == 1:
                ((recorded_ms,),) = world.ask(select(func.sum(t.host_rollup[HOUR].c.duration_ms)))
                assert abs(recorded_ms - (world.true_ms - 1000 * BEGIN_S)) <= 10_000
            assert faults(world) == []
        finally:
            world.abandon()
