"""A bucket that cannot be rolled up is set apart with its reason, and everything else goes on."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import select

from pertoken.cli import main
from pertoken.provenance import Provenance
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.store.integrity.checksums import HOUR
from pertoken.store.integrity.verify import verify
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample, DeviceSample, DeviceShare
from pertoken.store.write import rollup
from pertoken.store.write.retention import Ages, purge
from pertoken.store.write.writer import Writer
from tests.postgres import server_url
from tests.recorded import agent, until
from tests.values import new_store, tick

START = int(time.time()) // HOUR * HOUR - 2 * HOUR
"""Young enough that an agent does not delete it."""
HUGE = 10**18


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    return new_store(tmp_path / "db")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreLocation]:
    with server_url(tmp_path_factory.mktemp("postgres")) as url:
        yield new_store(locate(url))


def served(epoch: int, ts: int, tokens: int) -> DeploymentSample:
    return DeploymentSample(epoch, ts, 10_000, 10_000, True, generated_tokens=tokens)


def read(where: StoreLocation, query: Any) -> list[Any]:
    with open_store(where).read() as connection:
        return list(connection.execute(query))


def tokens(where: StoreLocation, seconds: int) -> dict[tuple[int, int], int]:
    table = t.deployment_rollup[seconds].c
    return {(row[0], row[1]): row[2] for row in read(where, select(table.epoch_id, table.ts, table.generated_tokens))}


def quarantined(where: StoreLocation) -> list[tuple[str, int, int]]:
    columns = t.quarantine.c.rollup, t.quarantine.c.owner_id, t.quarantine.c.ts
    return [tuple(row) for row in read(where, select(*columns).order_by(*columns))]


def overflow_a_minute(writer: Writer, epoch: int = 11) -> None:
    """Ten ticks of one minute, each with 10^18 tokens, beside a second epoch that is well."""
    for n in range(1, 13):
        writer.commit(tick(START + 5 * n, served(epoch, START + 5 * n, HUGE), served(12, START + 5 * n, 3)))


def overflow_an_hour(writer: Writer, epoch: int = 11) -> None:
    """Minutes that can each be added up, and an hour that cannot."""
    limit = 2**58
    for n in range(3):
        ts = START + 60 * n + 10
        writer.commit(tick(ts, served(epoch, ts, limit), served(12, ts, 12)))


def check_all_others(where: StoreLocation, minutes: dict[int, int]) -> None:
    assert {ts: n for (epoch, ts), n in tokens(where, 60).items() if epoch == 12} == minutes
    assert tokens(where, HOUR)[12, START] == 36
    assert read(where, select(t.dirty)) == []


def test_a_minute_that_overflows_is_set_apart_and_all_others_are_rolled_up(where: StoreLocation) -> None:
    with Writer(where) as writer:
        overflow_a_minute(writer)
        writer.roll_up()
        assert [bucket.owner_id for bucket in writer.quarantined()] == [11]
        assert writer.quarantined() == []
    assert quarantined(where) == [("deployment_1m", 11, START)]
    check_all_others(where, {START: 36})
    assert [fault for fault in verify(where) if fault is not None] == []


def test_an_hour_that_overflows_is_set_apart_and_its_minutes_stay(where: StoreLocation) -> None:
    with Writer(where) as writer:
        overflow_an_hour(writer)
        writer.roll_up()
    assert quarantined(where) == [("deployment_1h", 11, START)]
    assert tokens(where, 60)[11, START] == 2**58
    check_all_others(where, {START + 60 * n: 12 for n in range(3)})
    assert [fault for fault in verify(where) if fault is not None] == []


def test_postgresql_sets_apart_the_same_buckets(server: StoreLocation) -> None:
    with Writer(server) as writer:
        overflow_a_minute(writer, 21)
        writer.roll_up()
    assert quarantined(server) == [("deployment_1m", 21, START)]
    check_all_others(server, {START: 36})


DAMAGE = {
    "a fraction": "UPDATE deployment_sample SET generated_tokens = 1.5 WHERE epoch_id = 11 AND ts = :ts",
    "text": "UPDATE deployment_sample SET generated_tokens = 'many' WHERE epoch_id = 11 AND ts = :ts",
    "bytes": "UPDATE deployment_sample SET generated_tokens = x'ff' WHERE epoch_id = 11 AND ts = :ts",
    "a product beyond 64 bits": "UPDATE device_share SET share_1e6 = 9223372036854775807 WHERE device_id = 5",
    "nothing where a value is required": "UPDATE deployment_sample SET duration_ms = NULL WHERE epoch_id = 11",
}


def without_constraints(where: StoreLocation, sql: str, **values: int) -> None:
    """Change a row as damage does, which asks no constraint."""
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'duration_ms BIGINT NOT NULL', 'duration_ms BIGINT') "
            "WHERE name = 'deployment_sample'"
        )
        connection.commit()
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        assert connection.execute(sql, values if ":ts" in sql else {}).rowcount > 0
        connection.commit()


@pytest.mark.parametrize("damage", DAMAGE)
def test_whatever_a_row_holds_only_its_own_bucket_fails(where: StoreLocation, damage: str) -> None:
    with Writer(where) as writer:
        for n in range(1, 13):
            ts = START + 5 * n
            share = DeviceShare(5, 11, ts, 10_000, 500_000, 5_000, Provenance.REPORTED)
            writer.commit(tick(ts, served(11, ts, 2), served(12, ts, 3), DeviceSample(5, ts, 10_000, 10_000), share))
    without_constraints(where, DAMAGE[damage], ts=START + 30)
    with Writer(where) as writer:
        writer.roll_up()
    (bucket,) = quarantined(where)
    assert bucket in [("deployment_1m", 11, START), ("share_1m", 5, START)]
    check_all_others(where, {START: 36})
    assert read(where, select(t.device_rollup[60].c.samples)) == [(12,)]


def test_a_bucket_in_quarantine_is_computed_again_only_when_its_rows_change(where: StoreLocation) -> None:
    with Writer(where) as writer:
        overflow_a_minute(writer)
        writer.roll_up()
        writer.quarantined()
        assert writer.roll_up() == 0
        writer.commit(tick(START + 90, served(12, START + 90, 1)))
        writer.roll_up()
        assert quarantined(where) == [("deployment_1m", 11, START)]
        # The rows that could not be added up are gone: what is left can.
        writer._connection.exec_driver_sql("DELETE FROM deployment_sample WHERE epoch_id = 11 AND ts > ?", (START + 5,))
        writer._connection.exec_driver_sql("UPDATE deployment_sample SET generated_tokens = 7 WHERE epoch_id = 11")
        writer._connection.commit()
        writer.commit(tick(START + 58, served(11, START + 58, 1)))
        writer.roll_up()
        assert writer.quarantined() == []
    assert quarantined(where) == []
    assert tokens(where, 60)[11, START] == 8


def test_another_version_tries_a_bucket_in_quarantine_once(
    where: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Writer(where) as writer:
        overflow_a_minute(writer)
        writer.roll_up()
    monkeypatch.setattr(rollup, "__version__", "99.0")
    with Writer(where) as writer:
        assert writer.roll_up() > 0
        assert writer.roll_up() == 0
    with Writer(where) as writer:
        assert writer.roll_up() == 0
    assert read(where, select(t.quarantine.c.agent_version)) == [("99.0",)]
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        connection.execute("UPDATE deployment_sample SET generated_tokens = 1 WHERE epoch_id = 11")
        connection.commit()
    monkeypatch.setattr(rollup, "__version__", "99.1")
    with Writer(where) as writer:
        writer.roll_up()
    assert quarantined(where) == []
    assert tokens(where, 60)[11, START] == 12


def test_purging_does_not_wait_for_a_bucket_in_quarantine(where: StoreLocation) -> None:
    with Writer(where) as writer:
        overflow_a_minute(writer)
        ts = START + 5 * HOUR
        writer.commit(tick(ts, served(12, ts, 1)))
        assert purge(writer, Ages(HOUR, 30 * 86_400, 730 * 86_400), ts)[0] > 0
    assert read(where, select(t.deployment_sample.c.ts).distinct()) == [(ts,)]
    assert quarantined(where) == []
    assert tokens(where, 60)[12, START] == 36
    assert [fault for fault in verify(where) if fault is not None] == []


@pytest.fixture
def poisoned(where: StoreLocation) -> StoreLocation:
    """A folder as an agent left it that could no longer roll anything up."""
    with Writer(where) as writer:
        overflow_a_minute(writer)
    return where


def test_an_agent_over_a_bucket_that_overflows_records_rolls_up_reports_and_ends_well(poisoned: StoreLocation) -> None:
    query = select(t.event.c.kind).where(t.event.c.subject_id == 11)
    with agent(poisoned.file("telemetry").parent, PERTOKEN_AGENT_DISCOVER="false") as process:
        until(lambda: read(poisoned, query) == [("rollup_quarantined",)], "the event")
    assert process.returncode == 0
    check: Callable[..., Any] = CliRunner().invoke
    named = f"deployment_1m of 11, {datetime.fromtimestamp(START, UTC):%Y-%m-%d %H:%MZ}"
    done = check(main, ["db", "check", "--db", str(poisoned)])
    assert done.exit_code == 1 and named in done.output and "cannot be rolled up" in done.output
    assert named in " ".join(check(main, ["doctor", "--db", str(poisoned)]).output.split())
    assert tokens(poisoned, 60)[12, START] == 36
