"""The agent's upkeep as a whole: a damaged database is quarantined, a fault is reported, old rows go by their age."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import select

from pertoken.agent.upkeep import PASS_S, STEPS_AT_ONCE, Upkeep
from pertoken.cli import main
from pertoken.config import Settings
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.connect.sqlite import log_file
from pertoken.store.integrity.checksums import HOUR, acknowledged, high_water_mark_file
from pertoken.store.integrity.verify import quarantined_databases, steps, verify
from pertoken.store.schema import telemetry as t
from pertoken.store.sync import Local
from pertoken.store.write.writer import Writer
from tests.recorded import agent, newest, until
from tests.store.filled import START, filled, filled_tick
from tests.values import new_store


def events(where: StoreLocation) -> dict[str, str]:
    with open_store(where).read() as connection:
        return {row.kind: row.message for row in connection.execute(select(t.event))}


def overwrite(file: Path, page: int) -> None:
    """Overwrite a page of a data file with zeros."""
    with file.open("r+b") as opened:
        opened.seek(4096 * page)
        opened.write(b"\xa5" * 4096)


def test_a_file_that_is_no_database_is_set_aside_and_recording_goes_on(tmp_path: Path) -> None:
    where = new_store(tmp_path / "db")
    overwrite(where.file("telemetry"), 0)
    with agent(tmp_path / "db"):
        pass
    assert newest(tmp_path / "db")
    (quarantined,) = quarantined_databases(where)
    assert quarantined.read_bytes()[:2] == b"\xa5\xa5"
    assert quarantined.name in events(where)["store_damaged"]
    output = CliRunner().invoke(main, ["doctor", "--db", str(tmp_path / "db")]).output
    assert f"-- {quarantined}" in " ".join(output.split())


def test_pages_found_damaged_by_the_check_are_set_aside_while_the_agent_runs(tmp_path: Path) -> None:
    where = filled(tmp_path / "db", 60)
    with Writer(where) as writer:
        writer.roll_up()  # so that the agent has no reason to touch what is damaged
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'share_1h'").fetchone()
    overwrite(where.file("telemetry"), page - 1)
    with agent(tmp_path / "db", PERTOKEN_STORE_CHECK_EVERY="1s", PERTOKEN_AGENT_DISCOVER="false") as process:
        until(lambda: quarantined_databases(where), "the damaged database to be set aside")
        until(lambda: newest(tmp_path / "db") > 0, "a tick in a new one")
        assert process.poll() is None
    assert process.returncode == 0
    assert "share_1h" in events(where)["store_damaged"]


def test_a_row_that_changed_becomes_an_event_once(tmp_path: Path) -> None:
    where = filled(tmp_path, 60)
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        connection.execute("UPDATE device_sample SET power_mw = 1 WHERE device_id = 2 AND ts = ?", (START + 10,))
        connection.commit()
    with Writer(where) as writer:
        upkeep = Upkeep(where, writer, Settings())
        for n in (61, 62):
            assert upkeep.check(threading.Event(), 0) is None
            upkeep.commit(filled_tick(n))
    with open_store(where).read() as connection:
        (fault,) = connection.execute(select(t.event).where(t.event.c.kind == "store_fault")).all()
    assert fault._mapping["count"] == 1
    assert fault.subject_id == 2
    assert fault.message.startswith("device_sample of 2, 20")


class Waits(threading.Event):
    """Time goes on while somebody waits, and by `work_s` for each of the steps before."""

    def __init__(self, work_s: float) -> None:
        super().__init__()
        self.now_s, self.work_s = 0.0, work_s

    def wait(self, timeout: float | None = None) -> bool:
        self.now_s += (timeout or 0.0) + STEPS_AT_ONCE * self.work_s
        return False

    def clock(self) -> float:
        return self.now_s


def test_a_pass_is_spread_over_its_time_and_steps_that_come_late_follow_at_once(tmp_path: Path) -> None:
    where = filled(tmp_path, 60)
    with Writer(where) as writer:
        for work_s, max_s in ((0.0, PASS_S), (0.5 * PASS_S / steps(where), PASS_S), (10.0, 10.0 * steps(where))):
            stop = Waits(work_s)
            assert Upkeep(where, writer, Settings(), clock=stop.clock).check(stop, PASS_S) is None
            assert max_s / 2 < stop.now_s <= max_s + STEPS_AT_ONCE * work_s + 1


def test_batches_lost_with_the_log_are_an_event_of_the_next_agent(tmp_path: Path) -> None:
    where = filled(tmp_path, 60)
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        connection.execute("DELETE FROM batch WHERE seq > 60")
        connection.commit()
    with Writer(where) as writer:
        Upkeep(where, writer, Settings()).commit(filled_tick(61))
    assert "earlier batches are gone" in events(where)["store_lost"]


def test_a_high_water_mark_that_is_deleted_is_made_again_with_an_event(tmp_path: Path) -> None:
    where = filled(tmp_path, 60)
    high_water_mark_file(where.file("telemetry")).unlink()
    with Writer(where) as writer:
        upkeep = Upkeep(where, writer, Settings())
        upkeep.commit(filled_tick(61))
        assert "high-water mark is missing" in events(where)["store_unwitnessed"]
        high_water_mark_file(where.file("telemetry")).unlink()
        upkeep.tidy()
        upkeep.commit(filled_tick(62))
        assert acknowledged(where.file("telemetry")) == writer.last
    with open_store(where).read() as connection:
        query = select(t.event.c.count).where(t.event.c.kind == "store_unwitnessed")
        assert connection.execute(query).scalar() == 2


@pytest.mark.parametrize("byte", [18, 24, 47])
def test_an_agent_sets_a_file_with_a_damaged_header_aside(tmp_path: Path, byte: int) -> None:
    where = filled(tmp_path / "db", 30)
    content = bytearray(where.file("telemetry").read_bytes())
    content[byte] ^= 0x88
    where.file("telemetry").write_bytes(content)
    with agent(tmp_path / "db", PERTOKEN_AGENT_DISCOVER="false") as process:
        pass
    assert process.returncode == 0
    assert newest(tmp_path / "db")
    assert len(quarantined_databases(where)) == (0 if byte == 24 else 1)  # 24: a counter of changes


def test_rows_go_by_their_age_a_little_after_each_tick(tmp_path: Path) -> None:
    where = filled(tmp_path, 400)
    ages = Settings(store_raw=2 * HOUR, store_minutes=3 * HOUR, store_hours=48 * HOUR)
    with Writer(where) as writer:
        upkeep = Upkeep(where, writer, ages, purge_ts=lambda: START + 3 * HOUR)
        upkeep.commit(filled_tick(3 * HOUR // 10))
        for n in range(40):
            upkeep.delete_old(START + 3 * HOUR + n)
    with open_store(where).read() as connection:
        for table, first in ((t.device_sample, START + HOUR), (t.device_rollup[60], START), (t.batch, START + HOUR)):
            oldest = connection.execute(select(table.c.ts).order_by(table.c.ts)).scalars().first()
            assert oldest is not None
            assert 0 <= oldest - first < 60, table.name


def test_ticks_deleted_before_they_were_shipped_are_reported(tmp_path: Path) -> None:
    where = filled(tmp_path, 400)
    ages = Settings(store_raw=HOUR, store_minutes=48 * HOUR, store_hours=48 * HOUR)
    with Writer(where) as writer:
        upkeep = Upkeep(where, writer, ages, purge_ts=lambda: START + 2 * HOUR)
        before = Local(where).after(0, 10**6)
        upkeep.commit(filled_tick(2 * HOUR // 10 + 1))
        for n in range(40):
            upkeep.delete_old(START + 2 * HOUR + n)
        upkeep.commit(filled_tick(2 * HOUR // 10 + 2))
        after = Local(where).after(0, 10**6)
    assert "ticks were deleted before they were shipped" in events(where)["ship_gave_up"]
    assert before is not None and after is not None
    # No roll-up is given up with them, nor any tick that is there.
    for table in (t.device_rollup[60], t.histogram_rollup[3600]):
        assert {row[:2] for row in before.rows[table]} <= {row[:2] for row in after.rows[table]}
    with open_store(where).read() as connection:
        kept = {tuple(row) for row in connection.execute(select(t.device_sample))}
    assert kept and kept - set(after.rows[t.device_sample]) == set()
    assert [fault for fault in verify(where) if fault is not None] == []


def test_a_deleted_write_ahead_log_is_an_event_and_loses_nothing(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with Writer(where) as writer:
        upkeep = Upkeep(where, writer, Settings())
        upkeep.commit(filled_tick(0))
        upkeep.tidy()
        log_file(where.file("telemetry")).unlink()
        upkeep.commit(filled_tick(1))
        upkeep.tidy()
        upkeep.commit(filled_tick(2))
        assert "was deleted while the agent had it open" in events(where)["store_log_deleted"]
        upkeep.tidy()
        upkeep.commit(filled_tick(3))
        with open_store(where).read() as connection:  # as another process sees it
            seen = connection.execute(select(t.host_sample.c.ts).order_by(t.host_sample.c.ts)).scalars().all()
            assert seen == [START, START + 10, START + 20, START + 30]
            (count,) = connection.execute(
                select(t.event.c.count).where(t.event.c.kind == "store_log_deleted")
            ).scalars()
            assert count == 1
    assert not [fault for fault in verify(where) if fault is not None]


def test_a_log_that_grows_beside_a_long_read_is_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pertoken.agent.upkeep.MAX_LOG_BYTES", 100_000)
    where = filled(tmp_path, 6)
    with Writer(where) as writer, closing(sqlite3.connect(where.file("telemetry"), isolation_level=None)) as reader:
        upkeep = Upkeep(where, writer, Settings())
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM host_sample").fetchone()
        for n in range(100, 110):
            upkeep.commit(filled_tick(n))
        upkeep.tidy()
        upkeep.commit(filled_tick(200))
    assert "a process keeps a long read of this database open" in events(where)["store_log_grows"]
