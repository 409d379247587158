"""A wall clock that is wrong for a while deletes no history: age counts only by time that the machine confirms."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from pertoken.agent.clocks import CONFIRM_S, PurgeClock
from pertoken.agent.upkeep import Upkeep
from pertoken.config import Settings
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.integrity.checksums import DAY, HOUR, ROLLED, SAMPLES
from pertoken.store.integrity.verify import verify
from pertoken.store.schema import telemetry as t
from pertoken.store.write.retention import MAX_STEPS, Ages, purge
from pertoken.store.write.writer import Writer
from tests.recorded import agent, until
from tests.store.filled import START, everything, filled, filled_tick
from tests.values import new_store, tick

KEPT = Settings(store_raw=2 * DAY, store_minutes=30 * DAY, store_hours=730 * DAY)
HISTORY = [samples.table.name for samples in (*SAMPLES, *ROLLED)]


class Clocks:
    """A wall clock that can be set, and the time since boot, which cannot."""

    def __init__(self, wall_s: float) -> None:
        self.wall_s, self.since_boot_s = wall_s, 1000.0

    def advance(self, seconds: float) -> None:
        self.wall_s += seconds
        self.since_boot_s += seconds

    def purge_clock(self) -> PurgeClock:
        return PurgeClock(lambda: self.wall_s, lambda: self.since_boot_s)


def history(where: StoreLocation) -> dict[str, int]:
    return {name: len(rows) for name, rows in everything(where.file("telemetry")).items() if name in HISTORY}


@pytest.mark.parametrize("confirmed_before", [True, False])
def test_a_clock_45_seconds_wrong_by_1000_days_deletes_nothing(tmp_path: Path, confirmed_before: bool) -> None:
    where = filled(tmp_path, 400)
    clocks = Clocks(START + 4000.0)
    with Writer(where) as writer:
        writer.roll_up()
        before = history(where)
        upkeep = Upkeep(where, writer, KEPT, purge_ts=clocks.purge_clock().now_ts)

        def ticks(n: int) -> None:
            for _ in range(n):
                clocks.advance(5)
                upkeep.delete_old(int(clocks.wall_s))

        ticks(2 * int(CONFIRM_S) // 5 if confirmed_before else 1)
        clocks.wall_s += 1000 * DAY
        ticks(9)
        clocks.wall_s -= 1000 * DAY
        ticks(2 * int(CONFIRM_S) // 5)
    assert history(where) == before
    assert [fault for fault in verify(where) if fault is not None] == []


def test_a_clock_that_stays_wrong_deletes_a_few_hours_of_history_in_each_hour(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with Writer(where) as writer:
        for n in range(1, 40):
            writer.commit(filled_tick(n, interval_s=1800))
        writer.roll_up()
        clocks = Clocks(START + 20 * HOUR)
        upkeep = Upkeep(where, writer, KEPT, purge_ts=clocks.purge_clock().now_ts)
        clocks.wall_s += 1000 * DAY
        for passes in (1, 2):
            for _ in range(int(CONFIRM_S) // 10 + 1):
                clocks.advance(10)
                upkeep.delete_old(int(clocks.wall_s))
            with open_store(where).read() as connection:
                for table in (t.device_sample, t.device_rollup[60]):
                    oldest = connection.execute(select(func.min(table.c.ts))).scalar()
                    assert oldest is not None and oldest - START <= (passes * MAX_STEPS + 1) * HOUR


def test_a_backlog_is_deleted_hour_by_hour_once_the_clock_is_confirmed(tmp_path: Path) -> None:
    where = filled(tmp_path, 400)
    with Writer(where) as writer:
        clocks = Clocks(START + 40 * DAY)
        upkeep = Upkeep(where, writer, KEPT, purge_ts=clocks.purge_clock().now_ts)
        for _ in range(int(1.5 * CONFIRM_S) // 10):
            clocks.advance(10)
            upkeep.delete_old(int(clocks.wall_s))
    oldest = history(where)
    assert oldest["device_sample"] == oldest["device_1m"] == 0
    assert oldest["device_1h"] == 4


@given(st.lists(st.tuples(st.floats(1, 7200), st.none() | st.floats(1e3, 1e9) | st.floats(-1e9, -1e3)), max_size=30))
def test_no_time_is_confirmed_within_an_hour_of_a_start_or_a_step(changes: list[tuple[float, float | None]]) -> None:
    clocks = Clocks(1.8e9)
    clock, quiet_s = clocks.purge_clock(), 0.0
    for advance_s, step_s in changes:
        clocks.advance(advance_s)
        clocks.wall_s += step_s or 0.0
        quiet_s = 0.0 if step_s else quiet_s + advance_s
        now = clock.now_ts()
        assert now is None if quiet_s < CONFIRM_S - 1 else now in (None, int(clocks.wall_s))


def test_a_machine_that_slept_confirms_its_clock_by_the_time_it_slept() -> None:
    clocks = Clocks(1.8e9)
    clock = clocks.purge_clock()
    clocks.advance(30 * DAY)
    assert clock.now_ts() == int(clocks.wall_s)


def rows_of_host(where: StoreLocation) -> list[int]:
    with open_store(where).read() as connection:
        return list(connection.execute(select(t.host_sample.c.ts).order_by(t.host_sample.c.ts)).scalars())


def test_an_agent_that_starts_deletes_no_old_rows_before_its_clock_is_confirmed(tmp_path: Path) -> None:
    where = new_store(tmp_path / "db")
    old = int(time.time()) // HOUR * HOUR - 900 * DAY
    with Writer(where) as writer:
        writer.commit(tick(old))
        writer.roll_up()
    with agent(tmp_path / "db", PERTOKEN_AGENT_DISCOVER="false"):
        until(lambda: len(rows_of_host(where)) >= 4, "three ticks")
    assert rows_of_host(where)[0] == old
    assert history(where)["host_1h"] >= 2


@pytest.fixture
def island(tmp_path: Path) -> Iterator[StoreLocation]:
    """Half an hour of true rows, ten that a wrong clock filed 1000 days later, and true rows since."""
    where = new_store(tmp_path / "db")
    with Writer(where) as writer:
        for n in range(1, 181):
            writer.commit(filled_tick(n))
        for n in range(1, 11):
            writer.commit(filled_tick(1000 * DAY // 10 + n))
        writer.roll_up()
        for n in range(181, 1000):
            writer.commit(filled_tick(n))
        writer.roll_up()
    yield where


def test_rows_filed_in_the_future_hide_no_newer_true_rows(island: StoreLocation) -> None:
    now = START + 10_000
    with open_store(island).read() as connection:
        newest = connection.execute(select(func.max(t.host_sample.c.ts))).scalar_one()
    assert newest > START + 999 * DAY
    report = fleet_report(open_store(island), 3600, now)
    assert report.hosts[0].age_s == now - (START + 9990)
    assert {line.age_s for line in report.devices} == {now - (START + 9990)}
    assert report.generated_tok_s_now
    assert max(line.ts for line in report.events) < now


def test_rows_filed_in_the_future_do_not_keep_what_came_after_them(island: StoreLocation) -> None:
    with Writer(island) as writer:
        assert purge(writer, Ages(HOUR, HOUR, 730 * DAY), START + 10_000)[0] > 0
        for n in range(1000, 1010):
            writer.commit(filled_tick(n))
    rows = everything(island.file("telemetry"))
    future = START + 999 * DAY
    assert {ts for _, ts, *_ in rows["batch"]} & set(range(START, START + HOUR)) == set()
    assert [ts for ts in rows_of_host(island) if START < ts < START + HOUR] == []
    assert len([ts for ts in rows_of_host(island) if ts > future]) == 10
    assert [fault for fault in verify(island) if fault is not None] == []


def test_purging_by_hand_counts_from_the_newest_tick_where_the_clock_is_ahead(tmp_path: Path) -> None:
    where = filled(tmp_path, 400)
    with Writer(where) as writer:
        writer.roll_up()
        before = history(where)
        deleted, from_ts = purge(writer, Ages(2 * DAY, 30 * DAY, 730 * DAY), START + 1000 * DAY)
    assert (deleted, from_ts) == (0, START + 4000)
    assert history(where) == before
