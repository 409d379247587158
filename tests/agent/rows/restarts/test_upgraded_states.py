"""Counters whose processes were stored by the wall clock (before schema 0005): counted on, or marked, never again."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from pertoken.agent.rows.devices import ENERGY
from pertoken.store.schema import telemetry as t
from tests.agent.values import gpu
from tests.agent.world import World
from tests.values import new_store

BOOT_MS = 1_789_900_000_123
"""Unix time of the boot, as the agent before the upgrade took it."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    new_store(tmp_path)
    world = World(tmp_path, monkeypatch)
    world.begin()
    world.run(2)
    world.serve()
    world.run(5, work=10)
    world.stop()
    yield world
    world.stop()


def as_stored_before(world: World, off_ms: int = 0) -> None:
    """Make the states those of an older agent, which took the boot to be `off_ms` later when it last read counters."""
    assert world.engine is not None
    with closing(sqlite3.connect(world.folder / "telemetry.db")) as connection:
        of_host = "series IN ('watched_ms', 'first_watched_ms', 'clock_offset_ms')"
        connection.execute(f"DELETE FROM counter_state WHERE {of_host}")
        connection.execute("UPDATE host SET boot_ms = ?", (BOOT_MS,))
        started_ms = BOOT_MS + off_ms + world.engine.start_ms + 7  # rounded
        connection.execute("UPDATE counter_state SET life = NULL, process_start_ms = ?", (started_ms,))
        connection.execute("UPDATE counter_state SET process_start_ms = ? WHERE series = ?", (BOOT_MS, ENERGY))
        connection.execute("UPDATE engine SET life = NULL, process_start_ms = ?", (started_ms,))
        connection.commit()


def upgraded(world: World) -> tuple[int, int]:
    """Return (generated tokens stored, incomplete rows) once a new agent has read the engine."""
    world.begin()
    world.run(5, work=10)
    sample = t.deployment_sample.c
    ((generated, complete, rows),) = world.ask(
        select(func.sum(sample.generated_tokens), func.count().filter(sample.complete), func.count())
    )
    assert all(state.process_start_ms is None for state in world.ask(select(t.counter_state)))
    return generated, rows - complete


def test_a_process_that_lived_through_the_upgrade_is_counted_on(world: World) -> None:
    as_stored_before(world)
    world.run(3, work=10)
    assert world.engine is not None
    stored = upgraded(world)
    assert stored == (world.engine.counts["generated_tokens"], 0)


@pytest.mark.parametrize("off_ms", [1000, -86_400_000])
def test_a_process_start_stored_by_another_clock_is_marked_and_never_counted_twice(world: World, off_ms: int) -> None:
    as_stored_before(world, off_ms)
    world.run(3, work=10)
    assert world.engine is not None
    generated, incomplete = upgraded(world)
    assert 0 < generated < world.engine.counts["generated_tokens"]
    assert incomplete == 1
    assert "older pertoken" in world.events("engine_counter")[0]


def test_an_engine_restarted_beside_the_upgrade_is_marked(world: World) -> None:
    as_stored_before(world)
    assert world.engine is not None
    before: Any = world.engine
    world.run(3)
    world.serve()
    generated, incomplete = upgraded(world)
    assert 0 < generated <= before.counts["generated_tokens"] + world.engine.counts["generated_tokens"]
    assert incomplete == 1


def test_after_a_boot_beside_the_upgrade_all_counts_from_0_and_is_marked(world: World) -> None:
    as_stored_before(world)
    before: Any = world.engine
    world.reboot()
    world.run(30)
    world.serve()
    world.run(3, work=10)
    stored = upgraded(world)
    assert world.engine is not None
    assert stored == (before.counts["generated_tokens"] + world.engine.counts["generated_tokens"], 1)


@pytest.mark.parametrize("booted", [False, True])
def test_energy_is_counted_on_within_one_boot_and_not_across_two(world: World, booted: bool) -> None:
    as_stored_before(world)
    if booted:
        world.reboot()
        world.run(30)
    world.devices = (gpu(0, energy_mj=10**9 + 5000),)
    world.begin()
    world.run(2)
    energies = [row.energy_counter_mj for row in world.rows(t.device_sample) if row.power_mw and row.energy_counter_mj]
    assert energies == ([] if booted else [5000])
