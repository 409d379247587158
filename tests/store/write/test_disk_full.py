"""No room left: ticks go on, the oldest rows are given up, and nobody has to help."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import func, select

from pertoken.agent.upkeep import Upkeep
from pertoken.cli import main
from pertoken.config import Settings
from pertoken.errors import FullStore
from pertoken.store.connect.location import AgentLock, StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.connect.sqlite import driver
from pertoken.store.integrity.checksums import HOUR
from pertoken.store.integrity.verify import verify
from pertoken.store.schema import telemetry as t
from pertoken.store.write.retention import BALLAST_BYTES, Ballast, free_space
from pertoken.store.write.writer import Writer
from tests.store.filled import START, filled_tick
from tests.values import new_store

DISK_BYTES = 20 * 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, small."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs rights that these tests do not have")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def ticks(upkeep: Upkeep, numbers: range, interval_s: int, devices: int) -> None:
    for n in numbers:
        upkeep.commit(filled_tick(n, devices, interval_s))
        if n % 6 == 0:
            upkeep.roll_up(hours=True)
        upkeep.delete_old(START + n * interval_s)
        upkeep.tidy()


def stored(where: StoreLocation) -> list[int]:
    with open_store(where).read() as connection:
        return list(connection.execute(select(t.host_sample.c.ts).order_by(t.host_sample.c.ts)).scalars())


def messages(where: StoreLocation) -> set[str]:
    with open_store(where).read() as connection:
        return set(connection.execute(select(t.event.c.kind)).scalars())


def fill_up(folder: Path) -> Path:
    """Return what another program does: write until nothing more fits."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        block = bytes(2**16)
        try:
            while True:
                file.write(block)
        except OSError:
            pass
    return filler


def test_on_a_full_disk_an_hour_of_ticks_goes_on_as_a_ring(disk: Path) -> None:
    where = new_store(disk)
    hour = HOUR // 20
    with Writer(where) as writer:
        upkeep = Upkeep(where, writer, Settings())
        ticks(upkeep, range(1, hour + 20), 20, devices=2)
        assert Ballast(disk).held == BALLAST_BYTES
        filler = fill_up(disk)
        ticks(upkeep, range(hour + 20, 2 * hour + 20), 20, devices=2)
        assert "store_full" in messages(where)
        assert stored(where) == [START + 20 * n for n in range(hour, 2 * hour + 20)]
        filler.unlink()
        ticks(upkeep, range(2 * hour + 20, 2 * hour + 24), 20, devices=2)
        assert Ballast(disk).held == BALLAST_BYTES
    assert [fault for fault in verify(where) if fault is not None] == []


@contextmanager
def no_file_beyond(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_refused_by_a_quota_is_a_full_disk_too(tmp_path: Path) -> None:
    """SQLite reports an I/O error where a write is refused for another reason than a full disk: here the log's."""
    where, hour = new_store(tmp_path), HOUR // 60
    with Writer(where) as writer:
        upkeep = Upkeep(where, writer, Settings())
        ticks(upkeep, range(1, 3 * hour), 60, devices=2)
        writer.checkpoint()
        with no_file_beyond(3 * 2**20):  # the log would be written back at 4 MiB
            ticks(upkeep, range(3 * hour, 5 * hour), 60, devices=2)
        assert "store_full" in messages(where)
        rows = stored(where)
        assert rows[-hour:] == [START + 60 * n for n in range(4 * hour, 5 * hour)]
        ticks(upkeep, range(5 * hour, 5 * hour + 3), 60, devices=2)
        assert Ballast(tmp_path).held == BALLAST_BYTES
    assert [fault for fault in verify(where) if fault is not None] == []


def test_a_limit_of_the_processs_files_caps_the_data_file(tmp_path: Path) -> None:
    where, hour, limit = new_store(tmp_path), HOUR // 60, 400_000
    with no_file_beyond(limit), Writer(where) as writer:
        # The log has to fit below the limit as well; in use it is written back at 4 MiB.
        driver(writer._connection).execute("PRAGMA wal_autocheckpoint = 30")
        ticks(Upkeep(where, writer, Settings()), range(1, 6 * hour), 60, devices=2)
    assert where.file("telemetry").stat().st_size <= limit
    assert stored(where)[-hour:] == [START + 60 * n for n in range(5 * hour, 6 * hour)]
    assert "store_full" in messages(where)
    assert [fault for fault in verify(where) if fault is not None] == []


def test_a_capped_file_stays_below_its_cap_and_keeps_the_newest_rows_and_every_roll_up(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    cap = 392_000
    n = 5 * HOUR // 60
    with Writer(where, cap) as writer:
        ticks(Upkeep(where, writer, Settings()), range(1, n), 60, devices=2)
    assert where.file("telemetry").stat().st_size <= cap
    rows = stored(where)
    assert rows[-60:] == [START + 60 * second for second in range(n - 60, n)]
    assert rows[0] >= START + HOUR
    assert "store_full" in messages(where)
    with Writer(where) as writer:
        writer.roll_up()
    with open_store(where).read() as connection:
        assert connection.execute(select(func.sum(t.host_rollup[3600].c.samples))).scalar() == n - 1
    assert [fault for fault in verify(where) if fault is not None] == []


def test_with_nothing_old_left_to_give_up_the_tick_is_refused_and_the_next_tries_again(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    size = where.file("telemetry").stat().st_size
    with closing(Writer(where, size + 2**15)) as writer:
        upkeep = Upkeep(where, writer, Settings())
        with pytest.raises(FullStore, match="nothing older is left"):
            ticks(upkeep, range(1, 300), 10, devices=4)
    before = stored(where)
    with Writer(where) as writer:
        n = len(before) + 1
        ticks(Upkeep(where, writer, Settings()), range(n, n + 3), 10, devices=4)
    assert stored(where)[: len(before)] == before
    assert len(stored(where)) == len(before) + 3


def test_a_ballast_leaves_room_for_the_log_and_is_dropped_when_room_is_made(tmp_path: Path) -> None:
    ballast = Ballast(tmp_path)
    assert (ballast.held, ballast.hold(), ballast.hold()) == (0, BALLAST_BYTES, BALLAST_BYTES)
    where = new_store(tmp_path)
    with Writer(where) as writer:
        with pytest.raises(FullStore):
            free_space(writer, ballast)
        assert ballast.held == 0
    assert os.statvfs(tmp_path).f_bavail


def test_rows_that_a_wrong_clock_filed_in_the_future_go_before_true_ones(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with Writer(where) as writer:
        for n in (*range(1, 100), *range(10**6, 10**6 + 50), *range(100, 800)):
            writer.commit(filled_tick(n))
        writer.roll_up()
        assert free_space(writer, Ballast(tmp_path)) == "rows filed in the future by a wrong clock"
        assert stored(where) == [START + 10 * n for n in range(1, 800)]
        assert free_space(writer, Ballast(tmp_path)) == "the oldest ticks"
        writer.commit(filled_tick(800))
    assert [fault for fault in verify(where) if fault is not None] == []


def test_once_there_is_room_again_an_event_names_the_ticks_that_were_refused(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    pages = where.file("telemetry").stat().st_size // 4096
    refused = []
    with Writer(where, 4096 * (pages + 8)) as writer:
        upkeep = Upkeep(where, writer, Settings())
        for n in range(1, 350):
            try:
                upkeep.commit(filled_tick(n, 4))
            except FullStore:
                refused.append(n)
                if len(refused) == 5:
                    driver(writer._connection).execute("PRAGMA telemetry.max_page_count = 100000")
    first, after = (f"{datetime.fromtimestamp(START + 10 * n, UTC):%H:%M:%SZ}" for n in (refused[0], refused[-1] + 1))
    with open_store(where).read() as connection:
        (event,) = connection.execute(select(t.event).where(t.event.c.kind == "store_full")).all()
    assert "5 ticks" in event.message and first in event.message and after in event.message
    assert event.ts == START + 10 * (refused[-1] + 1)
    assert [fault for fault in verify(where) if fault is not None] == []


def test_doctor_reports_an_agent_that_cannot_store_its_ticks(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with Writer(where) as writer:
        writer.commit(filled_tick(1))
    lock = AgentLock(tmp_path)
    lock.acquire()
    try:
        done = CliRunner().invoke(main, ["doctor", "--db", str(tmp_path)], env={"PERTOKEN_STORE_MAX_MB": "4"})
        assert "an agent runs and its newest tick is" in done.output and "see the agent's log" in done.output
        with where.file("telemetry").open("r+b") as file:
            file.truncate(4_000_000)
        done = CliRunner().invoke(main, ["doctor", "--db", str(tmp_path)], env={"PERTOKEN_STORE_MAX_MB": "4"})
        assert "it may take 4 MB and is full" in done.output and "raise store.max_mb" in done.output
    finally:
        lock.release()
