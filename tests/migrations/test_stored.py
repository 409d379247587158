"""Databases that were stored with older schemas: they come up to date whole, or stay as they were."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from click.testing import CliRunner
from sqlalchemy import MetaData, Table, insert, select, text

from pertoken import migrations
from pertoken.cli import main
from pertoken.config import Settings
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.errors import StoreError
from pertoken.migrations import _config, drift, upgrade
from pertoken.proof import stored as proof_stored
from pertoken.proof.judging.receipts import Check, read_receipts
from pertoken.proof.recommendation import State, Variant
from pertoken.proof.stored import standing
from pertoken.proof.verification.question import PRESENT
from pertoken.savings.saving import Saving
from pertoken.store import repository
from pertoken.store.connect.location import GROUPS, StoreLocation, locate
from pertoken.store.connect.open import REVISIONS, open_store, revision, writing
from pertoken.store.integrity.verify import verify
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema import advice as a
from pertoken.store.write.writer import Writer
from tests.postgres import server_url
from tests.proof.judging.changes import Changed, changed_after, written
from tests.proof.judging.test_releases import NOW, Released, recorded
from tests.proof.looks import judge_at
from tests.store.filled import fill
from tests.values import tick
from tests.window.test_evidence import GPU

STORED = Path(__file__).with_name("stored")
END = 1_790_000_400
NOT_NET = "its dollars were not net of a bill that rises: the next advice run prices it again"
ROOT = Path(__file__).parents[2]


def restored(folder: Path, telemetry: str = "0001") -> StoreLocation:
    """The database as it was stored by the first revision, or its telemetry by a later one."""
    folder.mkdir()
    for group, stored in (("telemetry", telemetry), ("advice", "0001")):
        with closing(sqlite3.connect(folder / f"{group}.db")) as connection:
            connection.executescript((STORED / f"{group}-{stored}.sql").read_text())
    return locate(str(folder))


def rows(where: StoreLocation) -> dict[str, list[dict[str, Any]]]:
    """Rows of every table that the first revision had, each by the names of its columns."""
    found: dict[str, list[dict[str, Any]]] = {}
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        connection.row_factory = sqlite3.Row
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if name != "alembic_version":
                found[name] = _sorted(dict(row) for row in connection.execute(f"SELECT * FROM {name}"))
    return found


def _sorted(values: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """In one order, without what is NULL: columns that came later are, in rows that were there before."""
    known = ({name: value for name, value in row.items() if value is not None} for row in values)
    return sorted(known, key=lambda row: repr(sorted(row.items(), key=lambda item: item[0])))


@pytest.fixture
def old(tmp_path: Path) -> StoreLocation:
    return restored(tmp_path / "db")


def test_a_database_older_than_checksums_has_no_faults_after_its_upgrade(old: StoreLocation) -> None:
    for group in GROUPS:
        upgrade(old, group)
    assert [each for each in verify(old) if each is not None] == []


def test_a_stored_database_comes_up_to_date_with_its_rows_and_its_dollars(old: StoreLocation) -> None:
    before = rows(old)
    assert all(before[name] for name in before.keys() - {"engine_counter_1m", "engine_counter_1h"})
    for group in GROUPS:
        assert upgrade(old, group) == ("0001", REVISIONS[group][-1])
        assert drift(old, group) is None
    after = rows(old)
    assert {name: after[name] for name in before} == before
    with Writer(old) as writer:
        writer.commit(tick(END + 120))
        writer.roll_up()
    assert [fault for fault in verify(old) if fault is not None] == []
    report = fleet_report(open_store(old), 600, END)
    assert report.deployments[0].nano_usd_per_mtok
    # Its busy time is that of whole ticks.
    assert report.deployments[0].busy and report.deployments[0].busy_is_bound
    assert report.bill is not None and report.bill.busy_is_bound


def test_open_advice_of_an_older_pertoken_expires_with_the_reason(old: StoreLocation) -> None:
    body = {"changes": {"tp": ["2", "1"]}, "commands": ["set -tp 1"], "bankable": [1, 2, 3], "target": "llama on gpu-1"}
    with closing(sqlite3.connect(old.file("advice"))) as connection:
        for key, deployment in ((1, 7), (2, None)):
            values = (key, "own-rule", deployment, "OPEN", "tp 2 → 1", None, json.dumps(body), 2, None, 1, 1, 1)
            connection.execute(f"INSERT INTO recommendation VALUES ({', '.join('?' * 12)})", values)
        connection.commit()
    for group in GROUPS:
        upgrade(old, group)
    assert drift(old, "advice") is None
    assert standing(open_store(old)) == ()
    assert "tp 2 → 1" not in CliRunner().invoke(main, ["top", "--db", str(old)]).output
    with AdviceRepository(old).writing() as connection:
        expired = proof_stored.stored(connection)
        moves = [(move.from_state, move.to_state, move.code, move.why) for move in repository.transitions(connection)]
    assert [(each.state, each.version, each.target_key, each.reason) for each in expired] == [
        (State.EXPIRED, 2, "7", NOT_NET),
        (State.EXPIRED, 2, "", NOT_NET),
    ]
    assert moves == [("OPEN", "EXPIRED", "not-found", NOT_NET)] * 2


ESTIMATE = {"key": "k", "title": "tp 2 to 1", "changes": [], "latency": [], "bankable": [1, 2, 3], "capacity": None}
PRICED = ("0009", "0011")
"""Revisions before the configuration of advice and before net savings."""


@pytest.fixture(scope="module")
def receipts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Rows of receipts in dollars, each of a quantized engine and of a released device: as the first method of
    verification stored them, and as the present one does.
    """
    folder = tmp_path_factory.mktemp("receipts")
    changed = Changed(written(folder / "changed", -0.10, weeks_after=1), changed_after(5))
    price: dict[str, Any] = {"selector": GPU.uuid, "nano_usd_per_device_hour": 3_600_000_000, "set_by": "ann"}
    with changed.target.writing() as connection:
        repository.add_price(connection, from_ts=0, set_ts=1, note=None, **price)
    judge_at(changed.where, changed.target, Settings(), NOW)
    released = Released(recorded(folder / "released"))
    released.judge(NOW)
    rows: list[dict[str, Any]] = json.loads((STORED / "receipts-0009.json").read_text())
    for target in (changed.target, released.target):
        with target.writing() as connection:
            rows += [dict(row._mapping) for row in connection.execute(select(a.receipt))]
    return rows


def priced_advice(where: StoreLocation, stored: str, receipts: list[dict[str, Any]]) -> None:
    """Bring advice to a revision, with an open and an accepted row and receipts."""
    like = {"rule_id": "own-rule", "title": "tp 2 to 1", "body": '{"target": "chat"}', "created_ts": 10}
    like |= {"updated_ts": 20, "version": 2, "life": 1}
    accepted = like | {"recommendation_id": 1, "state": "ACCEPTED", "variant": "k", "estimate": json.dumps(ESTIMATE)}
    schema = None if where.url is None else "advice"
    with _config(where, "advice") as (config, connection):
        if schema is not None:
            with connection.begin():
                connection.execute(text("DROP SCHEMA IF EXISTS advice CASCADE"))
                connection.execute(text("CREATE SCHEMA advice"))
        command.upgrade(config, stored)
        with connection.begin():
            advice, receipt = (
                Table(name, MetaData(), schema=schema, autoload_with=connection)
                for name in ("recommendation", "receipt")
            )
            for row in (accepted, like | {"recommendation_id": 2, "state": "OPEN"}):
                connection.execute(insert(advice), row)
            connection.execute(insert(receipt), receipts)


def assert_kept(where: StoreLocation, receipts: list[dict[str, Any]]) -> None:
    """Check that receipts give the same cents again, and what became of the open and the accepted advice."""
    with AdviceRepository(where).writing() as connection:
        found = read_receipts(connection)
        advice = {row.state: row for row in proof_stored.stored(connection)}
    before = {row["receipt_id"]: json.loads(row["body"]) for row in receipts}
    assert {row.receipt_id: {"receipt": row.text, "inputs": row.inputs} for row in found} == before
    assert [row.check() for row in found] == [Check(intact=True, reproduced=True)] * 4
    assert sorted(row.read().method for row in found) == [1, 1, PRESENT.number, PRESENT.number]
    made = {name: value for row in found for name, value in json.loads(row.text).items() if value}
    assert made["measured_in_window"]["likely"] and made["release"]["measured_per_month"]["likely"], "both have dollars"
    assert advice.keys() == {State.ACCEPTED, State.EXPIRED} and advice[State.EXPIRED].reason == NOT_NET
    assert advice[State.ACCEPTED].estimate == Variant("k", "tp 2 to 1", saving=Saving((1, 2, 3)))


@pytest.mark.parametrize("stored", PRICED)
def test_receipts_give_the_same_cents_and_accepted_estimates_stay_after_an_upgrade(
    tmp_path: Path, stored: str, receipts: list[dict[str, Any]]
) -> None:
    where = locate(str(tmp_path))
    priced_advice(where, stored, receipts)
    assert upgrade(where, "advice") == (stored, REVISIONS["advice"][-1])
    assert_kept(where, receipts)


def test_receipts_give_the_same_cents_and_accepted_estimates_stay_on_postgresql(
    tmp_path: Path, receipts: list[dict[str, Any]]
) -> None:
    with server_url(tmp_path / "postgres") as url:
        for stored in PRICED:
            priced_advice(locate(url), stored, receipts)
            assert upgrade(locate(url), "advice") == (stored, REVISIONS["advice"][-1])
            assert_kept(locate(url), receipts)


def test_checksums_by_owner_are_merged_and_earlier_damage_is_still_detected(tmp_path: Path) -> None:
    where = restored(tmp_path / "db", "0003")
    before = rows(where)
    assert before["seal"] and before["outbox"] and before["spool"] and before["batch"]
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        connection.execute("UPDATE device_1m SET power_mw_sum = power_mw_sum + 1 WHERE device_id = 2")
        connection.commit()
    upgrade(where, "telemetry")
    assert drift(where, "telemetry") is None
    after = rows(where)
    assert {name: after[name] for name in before.keys() - {"seal", "device_1m"}} == {
        name: before[name] for name in before.keys() - {"seal", "device_1m"}
    }
    with Writer(where) as writer:
        assert writer.lost is None
        fill(writer, range(20, 30))
        writer.roll_up()
    (fault,) = [fault for fault in verify(where) if fault is not None]
    assert (fault.table, fault.owner_id) == ("device_1m", 2)


def test_a_stored_database_comes_up_to_date_on_postgresql(old: StoreLocation, tmp_path: Path) -> None:
    with server_url(tmp_path / "postgres") as url:
        server = locate(url)
        with _config(server, "telemetry") as (config, connection):
            with connection.begin():
                connection.execute(text("CREATE SCHEMA telemetry"))
            command.upgrade(config, "0001")
            before = {}
            for name, values in rows(old).items():
                table = Table(name, MetaData(), schema="telemetry", autoload_with=connection)
                for row in values:
                    if "complete" in row:
                        row["complete"] = bool(row["complete"])
                if values:
                    connection.execute(insert(table), values)
                before[name] = values
            connection.commit()
        assert upgrade(server, "telemetry") == ("0001", REVISIONS["telemetry"][-1])
        assert drift(server, "telemetry") is None
        with writing(server, "telemetry").connect() as connection:
            for name, values in before.items():
                table = Table(name, MetaData(), schema="telemetry", autoload_with=connection)
                found = _sorted(dict(row) for row in connection.execute(select(table)).mappings())
                assert found == _sorted(iter(values)), name


def test_stored_prices_come_up_to_date_on_postgresql_in_the_order_they_were_set(tmp_path: Path) -> None:
    with server_url(tmp_path / "postgres") as url:
        server = locate(url)
        with _config(server, "advice") as (config, connection):
            with connection.begin():
                connection.execute(text("CREATE SCHEMA advice"))
            command.upgrade(config, "0001")
            rows = ((7, 3, 300), (8, 1, 100), (9, 2, 200))
            for key, nano, set_ts in rows:
                connection.execute(text(f"INSERT INTO advice.price VALUES ({key}, 'gpu', {nano}, 0, {set_ts}, 'x')"))
            connection.commit()
        assert upgrade(server, "advice") == ("0001", REVISIONS["advice"][-1])
        assert drift(server, "advice") is None
        with AdviceRepository(server).writing() as connection:
            found = repository.prices(connection)
            assert [(row.nano_usd_per_device_hour, row.seq) for row in found] == [(1, 1), (2, 2), (3, 3)]


def filled_advice(where: StoreLocation, stored: str) -> None:
    """Bring advice to an older revision, with an open recommendation that was blocked once."""
    prefix = "" if where.url is None else "advice."
    with _config(where, "advice") as (config, connection):
        if where.url is not None:
            with connection.begin():
                connection.execute(text("DROP SCHEMA IF EXISTS advice CASCADE"))
                connection.execute(text("CREATE SCHEMA advice"))
        command.upgrade(config, stored)
        with connection.begin():
            values = "(1, 'own-rule', 7, 'OPEN', 'tp 2 to 1', NULL, '{}', 2, NULL, 10, 20, 2"
            known = ")" if stored < "0003" else ", 'deployment', '7', 1)"
            connection.execute(text(f"INSERT INTO {prefix}recommendation VALUES {values}{known}"))
            for version, ts, before, after in ((1, 10, "NULL", "'BLOCKED'"), (2, 20, "'BLOCKED'", "'OPEN'")):
                move = f"(1, {version}, {ts}, {before}, {after}, 'advisor', 'it ran')"
                connection.execute(text(f"INSERT INTO {prefix}recommendation_event VALUES {move}"))


def upgraded_advice(where: StoreLocation, stored: str) -> None:
    """Upgrade advice and check what became of its rows."""
    assert upgrade(where, "advice") == (stored, REVISIONS["advice"][-1])
    assert drift(where, "advice") is None
    with AdviceRepository(where).writing() as connection:
        (row,) = repository.recommendations(connection)
        assert (row.state, row.target_key, row.life, row.until_ts, row.estimate) == ("EXPIRED", "7", 1, None, None)
        moves = [(each.ts, each.from_state, each.to_state, each.code) for each in repository.transitions(connection)]
        assert moves[:2] == [(10, None, "BLOCKED", "advice-run"), (20, "BLOCKED", "OPEN", "advice-run")]
        assert [move[1:] for move in moves[2:]] == [("OPEN", "EXPIRED", "not-found")]


@pytest.mark.parametrize("stored", REVISIONS["advice"][:4])
def test_advice_of_each_released_revision_comes_up_to_date_with_its_moves(tmp_path: Path, stored: str) -> None:
    where = locate(str(tmp_path))
    filled_advice(where, stored)
    upgraded_advice(where, stored)


def test_advice_of_each_released_revision_comes_up_to_date_on_postgresql(tmp_path: Path) -> None:
    with server_url(tmp_path / "postgres") as url:
        for stored in REVISIONS["advice"][:4]:
            filled_advice(locate(url), stored)
            upgraded_advice(locate(url), stored)


@pytest.mark.parametrize("tables", [1, 5])
def test_a_killed_upgrade_leaves_the_rows_unchanged_and_the_next_one_finishes(old: StoreLocation, tables: int) -> None:
    before = rows(old)
    script = (
        "import os, signal, sys; from alembic import op; from pertoken.migrations import upgrade\n"
        "from pertoken.store.connect.location import locate\n"
        "real, n = op.rename_table, 0\n"
        "def rename(*a, **k):\n"
        "    global n; real(*a, **k); n += 1\n"
        f"    if n == {tables}: os.kill(os.getpid(), signal.SIGKILL)\n"
        "op.rename_table = rename\n"
        "upgrade(locate(sys.argv[1]), 'telemetry')"
    )
    done = subprocess.run([sys.executable, "-c", script, str(old)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert revision(writing(old, "telemetry"), "telemetry") == "0001"
    assert rows(old) == before
    upgrade(old, "telemetry")
    after = rows(old)
    assert {name: after[name] for name in before} == before


def test_reading_an_older_database_names_the_upgrade_command_and_changes_nothing(old: StoreLocation) -> None:
    before = rows(old)
    with pytest.raises(StoreError, match="of an older pertoken; run `pertoken db upgrade --db"):
        open_store(old)
    done = CliRunner().invoke(main, ["advise", "--db", str(old)])
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert rows(old) == before


def test_an_agent_of_an_older_pertoken_refuses_a_newer_database_in_one_line(old: StoreLocation) -> None:
    for group in GROUPS:
        upgrade(old, group)
    before = rows(old)
    script = (
        "import sys; from pertoken.store.connect import open as o\n"
        "o.REVISIONS = {**o.REVISIONS, 'telemetry': ('0001',)}\n"
        "from pertoken.cli import main; main()"
    )
    for arguments in (["top"], ["advise"], ["db", "upgrade"], ["db", "purge"]):
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments, "--db", str(old)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert "written by a newer pertoken" in line
    with pytest.raises(StoreError, match="written by a newer pertoken"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "REVISIONS", {"telemetry": ("0001",)})
        upgrade(old, "telemetry")  # what an agent starts before it writes
    assert rows(old) == before


def test_screens_and_an_agent_work_on_one_file_at_once(old: StoreLocation) -> None:
    for group in GROUPS:
        upgrade(old, group)
    store = open_store(old)
    with Writer(old) as writer:
        for n in range(1, 60):
            writer.commit(tick(END + 120 + 10 * n))
            writer.roll_up()
            assert fleet_report(store, 600, END + 120 + 10 * n).hosts[0].age_s == 0
    assert [fault for fault in verify(old) if fault is not None] == []
