"""Isolation of hosts: one host's login can do nothing to others through the functions that it may call."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Table, select

from pertoken.agent.rows.epochs import bucket_set_id
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.errors import StoreError
from pertoken.migrations.fleet import init_fleet, maintain
from pertoken.store.central.server import disown, enroll
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store, reading
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.fleet import ID_TAKEN
from pertoken.store.schema.shared import stable_id
from pertoken.store.sync import Batch, Local, LocalState, Row, Session, ShipperIdentity, enter, take
from pertoken.store.write.writer import Writer
from tests.fleet.servers import NOW, execute, host, local_rows, login, owners, scalar, server_rows, shipper
from tests.postgres import server_url
from tests.scenario import BOUNDS

IDS = (
    "host_id",
    "device_id",
    "engine_id",
    "deployment_id",
    "epoch_id",
    "event_id",
    "owner_id",
    "parent_id",
    "subject_id",
)
HOSTS = ("attacker", "victim")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own: what is tried here would stand in the way of other tests."""
    with server_url(tmp_path_factory.mktemp("attacked")) as server:
        init_fleet(locate(server), NOW, keep={"1h": 60 * 86_400, "1m": 10 * 86_400, "raw": 86_400})
        for name in (*HOSTS, "late", "mover", "second"):
            enroll(locate(server), name, 1)
        yield server


@pytest.fixture(scope="module")
def hosts(url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, StoreLocation]:
    """Two hosts with every table of rows, shipped."""
    by_name = {}
    for name in HOSTS:
        where = host(tmp_path_factory.mktemp(name), host=name, minutes=70, raw=True)
        shipper(where, login(url, name)).round()
        by_name[name] = where
    return by_name


@pytest.fixture(scope="module")
def rows_of(hosts: dict[str, StoreLocation]) -> dict[str, dict[Any, list[tuple[Any, ...]]]]:
    """Rows of every table, by host."""
    return {name: everything(where) for name, where in hosts.items()}


@pytest.fixture
def attack(url: str, hosts: dict[str, StoreLocation]) -> Iterator[Session]:
    """The attacker's own session, as its agent has one."""
    with login(url, "attacker").connect() as connection:
        connection.autocommit = True
        yield entered(connection, hosts["attacker"])


def entered(connection: "psycopg.Connection[Any]", where: StoreLocation, who: int = 1) -> Session:
    state = of(where)
    return take(connection, state, ShipperIdentity(who, None), enter(connection, state), restart=False)


def of(where: StoreLocation) -> LocalState:
    state = Local(where).state()
    assert state is not None
    return state


def of_host(server: StoreLocation, ids: list[int]) -> dict[str, list[Any]]:
    """Return every row of a server in which one of the ids stands."""
    by_table = {}
    with reading(server, "telemetry").connect() as connection, connection.begin():
        for table in t.metadata.sorted_tables:
            for name in (name for name in IDS if name in table.c):
                rows = connection.execute(select(table).where(table.c[name].in_(ids)))
                by_table[f"{table.name} by {name}"] = sorted(map(repr, rows))
    return by_table


def everything(where: StoreLocation) -> dict[Table, list[Row]]:
    """Return all that a host has ever shipped, and a row of what it has none of."""
    local, state = Local(where), of(where)
    rows = dict(local.identities(0).rows)
    marked = local.after(0, 100_000)
    assert marked is not None
    rows |= {table: more for table, more in marked.rows.items() if more}
    device, epoch, host_id = state.owners["device_id"][0], state.owners["epoch_id"][0], state.host_ids[-1]
    owner: dict[str, Any] = {
        "device_id": device,
        "epoch_id": epoch,
        "host_id": host_id,
        "owner_id": device,
        "subject_id": device,
    }
    for table in t.metadata.sorted_tables:
        if not rows.get(table) and set(IDS) & set(table.c.keys()):
            values: dict[str, Any] = {c.name: owner.get(c.name, 1) for c in table.columns} | {
                "metric": "m",
                "ts": NOW - 60,
            }
            values |= {"message": "m", "kind": "k", "status": "ok", "reason": "r", "remedy": "r", "rollup": "r"}
            rows[table] = [tuple(values[c.name] for c in table.columns)]
    return rows


@pytest.mark.parametrize("table", [table.name for table in t.metadata.sorted_tables if set(IDS) & set(table.c.keys())])
def test_no_row_that_names_another_host_by_any_of_its_ids_is_stored(
    url: str,
    hosts: dict[str, StoreLocation],
    rows_of: dict[str, dict[Any, list[tuple[Any, ...]]]],
    attack: Session,
    table: str,
) -> None:
    target = t.metadata.tables[f"telemetry.{table}"]
    theirs, ours = rows_of["victim"][target][0], rows_of["attacker"][target][0]
    victim = [*owners(hosts["victim"]), *engines(hosts["victim"])]
    before = of_host(locate(url), victim)
    names = [column.name for column in target.columns]
    columns = [name for name in names if name in IDS]
    newer = {"revision": 10**6, "last_ts": NOW, "since_ts": NOW}
    for forged in (*([name] for name in columns), columns):
        row = [newer.get(name, theirs[i] if name in forged else ours[i]) for i, name in enumerate(names)]
        for again in (False, True):
            try:
                attack.send(Batch({target: [tuple(row)]}, 0, again=again))
            except (psycopg.Error, StoreError) as error:
                assert not isinstance(error, psycopg.errors.InternalError)
                attack = entered(attack._connection, hosts["attacker"])
    assert of_host(locate(url), victim) == before


def engines(where: StoreLocation) -> list[int]:
    rows = Local(where).identities(0).rows
    return [int(row[0] or 0) for table in (t.engine, t.deployment, t.event) for row in rows[table]]


def test_no_cursor_sum_request_or_name_of_another_host_is_reached(
    url: str, hosts: dict[str, StoreLocation], attack: Session
) -> None:
    theirs = of(hosts["victim"])
    execute(locate(url), "INSERT INTO fleet.raw_request VALUES (7, :h, 0, 1, 'x', 0)", h=theirs.host_ids[-1])
    before = scalar(locate(url), "SELECT shipped::text FROM fleet.shipped WHERE spool_id = :s", s=theirs.spool_id)
    asked = scalar(locate(url), "SELECT raw_request::text FROM fleet.raw_request WHERE request_id = 7")
    connection, spool, host_ids = attack._connection, theirs.spool_id, list(theirs.host_ids)
    own = list(of(hosts["attacker"]).host_ids)
    tried: dict[str, list[tuple[Any, ...]]] = {
        "enter": [(spool, host_ids), (spool, own), (spool, own + host_ids)],
        "take": [(spool, 1, "boot", True, 10**6)],
        "advance": [(spool, 1, 0, 10**6, 0, 0, 0, 0)],
        "note_checked": [(spool, 1, 1)],
        "rename": [(host_ids[0], list(theirs.owners["device_id"]))],
        "sums": [
            (name, [owner, "ts"], list(theirs.owners[owner]), 0, 2**60, 3600)
            for name, owner in (("device_1m", "device_id"), ("deployment_1h", "epoch_id"), ("host_1m", "host_id"))
        ],
        "requests": [(host_ids,)],
        "answered": [(7, 1, "done")],
        "put": [("shipped", ["spool_id"], True, ["{1}"]), ("outbox", ["seq"], True, ["{1}"])],
    }
    functions = "SELECT array_agg(proname::text) FROM pg_proc WHERE pronamespace = 'fleet'::regnamespace AND prosecdef"
    assert set(tried) == set(scalar(locate(url), functions))
    for name, calls in tried.items():
        for values in calls:
            marks = ", ".join(["%s"] * len(values))
            try:
                rows = connection.execute(f"SELECT * FROM fleet.{name}({marks})", values).fetchall()
            except psycopg.ProgrammingError as error:
                assert error.sqlstate in ("42501", ID_TAKEN), error
                continue
            assert rows in ([], [(None,)], [("",)], [(False,)]), (name, values)
    assert scalar(locate(url), "SELECT shipped::text FROM fleet.shipped WHERE spool_id = :s", s=spool) == before
    assert scalar(locate(url), "SELECT raw_request::text FROM fleet.raw_request WHERE request_id = 7") == asked


def test_no_function_works_on_a_snapshot_that_is_older_than_its_checks(attack: Session) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="READ COMMITTED"), attack._connection.transaction():
        attack._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        attack._connection.execute("SELECT fleet.requests(ARRAY[1::bigint])")
        attack._connection.execute("SELECT fleet.rename(1, ARRAY[1::bigint])")


def test_other_bounds_for_a_set_of_buckets_change_no_other_hosts_latencies(
    url: str, hosts: dict[str, StoreLocation], attack: Session, tmp_path: Path
) -> None:
    wrong = bucket_set_id(BOUNDS), ",".join(repr(bound * 1000) for bound in BOUNDS)
    bounds = (
        "SELECT array_agg(DISTINCT upper_bounds) FROM telemetry.histogram_1h JOIN telemetry.histogram_set "
        "USING (bucket_set_id) WHERE epoch_id = ANY (:e) AND metric = 'ttft_s'"
    )
    right = [",".join(map(repr, BOUNDS))]
    attack.send(Batch({t.histogram_set: [wrong]}, 0))  # others have it already
    assert scalar(locate(url), bounds, e=list(of(hosts["victim"]).owners["epoch_id"])) == right
    execute(locate(url), "DELETE FROM telemetry.histogram_set")
    execute(locate(url), "DELETE FROM fleet.alias")
    attack = entered(attack._connection, hosts["attacker"])
    attack.send(Batch({t.histogram_set: [wrong]}, 0))  # nobody has it yet
    where = host(tmp_path, host="bounded", minutes=65)
    enroll(locate(url), "bounded", 1)
    one = shipper(where, login(url, "bounded"))
    one.round()
    one.round()
    assert scalar(locate(url), bounds, e=list(of(where).owners["epoch_id"])) == right
    assert server_rows(locate(url), where)["device_1h"] == local_rows(where)["device_1h"]
    for text in ("x", "0.1,0.1", "0.2,0.1", "nan", "", "{1}", "1,,2"):
        attack.send(Batch({t.histogram_set: [(99, text)]}, 0))
    assert scalar(locate(url), "SELECT count(*) FROM telemetry.histogram_set WHERE bucket_set_id = 99") == 0


def test_a_clock_or_a_value_beyond_all_bounds_moves_no_screen(
    url: str, hosts: dict[str, StoreLocation], attack: Session
) -> None:
    rows = everything(hosts["attacker"])
    for name, value in (("last_ts", 2**63 - 1), ("first_ts", -(2**63))):
        row = list(rows[t.host][0])
        row[t.host.c.keys().index(name)] = value
        attack.send(Batch({t.host: [tuple(row)]}, 0))
    assert scalar(locate(url), "SELECT max(last_ts) - extract(epoch FROM now()) FROM telemetry.host") <= 0
    assert scalar(locate(url), "SELECT min(first_ts) FROM telemetry.host") > 0
    table = t.deployment_rollup[3600]
    for name, value in (("ts", 2**62), ("ts", -60), ("generated_tokens", 2**63 - 1), ("busy_ms", -1)):
        row = list(rows[table][0])
        row[table.c.keys().index("revision")], row[table.c.keys().index(name)] = 10**6, value
        attack.send(Batch({table: [tuple(row)]}, 0))
    assert scalar(locate(url), "SELECT count(*) FROM telemetry.deployment_1h WHERE revision = 1000000") == 0
    for knobs in ("[1]", "{", "null", '{"a": ' + "[" * 900 + "]" * 900 + "}"):
        row = list(rows[t.epoch][0])
        row[t.epoch.c.keys().index("knobs")] = knobs
        attack.send(Batch({t.epoch: [tuple(row)]}, 0))
        assert scalar(locate(url), "SELECT knobs FROM telemetry.epoch WHERE epoch_id = :e", e=row[0]) == "{}"
    fleet_report(open_store(locate(url)), 3600, NOW)


def test_a_host_ships_completely_although_another_login_took_its_ids(
    url: str, hosts: dict[str, StoreLocation], attack: Session, tmp_path: Path
) -> None:
    late = host(tmp_path / "late", host="late", minutes=70)
    squatted = dict(Local(late).identities(0).rows)
    own, theirs = of(hosts["attacker"]).host_ids[-1], of(late).host_ids[-1]
    del squatted[t.host], squatted[t.capability]
    for table in (t.device, t.engine, t.deployment, t.event):
        at = table.c.keys().index("host_id")
        squatted[table] = [tuple(own if i == at else v for i, v in enumerate(row)) for row in squatted[table]]
    attack.send(Batch(squatted, 0))
    messages: list[dict[str, Any]] = []
    one = shipper(late, login(url, "late"), messages)
    one.round()
    one.round()
    assert all("kind" not in message for message in messages)
    stored = server_rows(locate(url), late)
    assert stored["host_1m"] == local_rows(late)["host_1m"]
    for name, owner in (("device_1m", "device"), ("deployment_1h", "epoch")):
        via = "epoch JOIN telemetry.deployment USING (deployment_id)" if owner == "epoch" else owner
        count = f"SELECT count(*) FROM telemetry.{name} JOIN telemetry.{via} USING ({owner}_id) WHERE host_id = :h"
        assert scalar(locate(url), count, h=theirs) == len(local_rows(late)[name]), name
        assert stored[name] == []  # under the ids that the attacker took, there is nothing


def test_ids_taken_in_an_open_transaction_of_another_login_block_no_shipper(
    url: str, hosts: dict[str, StoreLocation], attack: Session, tmp_path: Path
) -> None:
    where = host(tmp_path / "blocked", host="blocked", minutes=3)
    enroll(locate(url), "blocked", 1)
    rows = Local(where).identities(0).rows
    own = of(hosts["attacker"]).host_ids[-1]
    device = [tuple(own if i == 1 else v for i, v in enumerate(row)) for row in rows[t.device]]
    execute(locate(url), "DELETE FROM telemetry.histogram_set")
    held = threading.Event()
    with attack._connection.transaction(force_rollback=True):
        attack._store(Batch({t.device: device, t.histogram_set: rows[t.histogram_set]}, 0))
        held.set()
        one = shipper(where, login(url, "blocked"))
        one.round()
    count = "SELECT count(*) FROM telemetry.device_1m JOIN telemetry.device USING (device_id) WHERE host_id = :h"
    assert scalar(locate(url), count, h=of(where).host_ids[-1]) == len(local_rows(where)["device_1m"])


def test_a_card_that_moves_ships_from_its_second_host_and_stays_billed_at_the_first(url: str, tmp_path: Path) -> None:
    first = host(tmp_path / "mover", host="mover", minutes=70, end_ts=NOW - 7200)
    shipper(first, login(url, "mover")).round()
    before = server_rows(locate(url), first)
    second = host(tmp_path / "second", host="second", minutes=70)
    moved = stable_id("device", "moverGPU-0")
    with Writer(second) as writer:  # the card is found in the second host
        rename(writer, stable_id("device", "secondGPU-0"), moved)
    shipper(second, login(url, "second")).round()
    assert server_rows(locate(url), first) == before
    of_card = (
        "SELECT h.name, sum(samples) FROM telemetry.device d JOIN telemetry.host h USING (host_id) "
        "JOIN telemetry.device_1m USING (device_id) WHERE d.uuid IN ('moverGPU-0', 'secondGPU-0') GROUP BY 1 ORDER BY 1"
    )
    with reading(locate(url), "telemetry").connect() as connection, connection.begin():
        assert connection.exec_driver_sql(of_card).all() == [("mover", 70), ("second", 70)]


def rename(writer: Writer, old: int, new: int) -> None:
    with writer._transaction(writer.last.ts):
        for table in t.metadata.sorted_tables:
            if "device_id" in table.c:
                statement = table.update().where(table.c.device_id == old).values(device_id=new)
                writer._connection.execute(statement)
        outbox = t.outbox.update().where(t.outbox.c.owner_id == old).values(owner_id=new)
        writer._connection.execute(outbox)


def test_a_host_set_up_again_under_another_login_keeps_its_cards_apart_from_before(url: str, tmp_path: Path) -> None:
    enroll(locate(url), "again_1", 1)
    enroll(locate(url), "again_2", 1)
    where = host(tmp_path, host="again", minutes=3)
    shipper(where, login(url, "again_1")).round()
    disown(locate(url), "again")
    one = shipper(where, login(url, "again_2"))
    one._identity = replace(one._identity, shipper_id=5)
    one.round()
    assert server_rows(locate(url), where) == local_rows(where)


def test_a_host_that_never_ends_its_transaction_does_not_hold_up_partitions(
    url: str, hosts: dict[str, StoreLocation], attack: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pertoken.store.central.server.MAX_TRANSACTION_S", 0)
    newest = "SELECT max(relname) FROM pg_class WHERE relname LIKE 'host_1m_p%' AND relkind = 'r'"
    name = scalar(locate(url), newest)
    execute(locate(url), f"DROP TABLE telemetry.{name}")
    rows = everything(hosts["attacker"])[t.host_rollup[60]][:1]
    with pytest.raises(psycopg.OperationalError), attack._connection.transaction():
        attack._store(Batch({t.host_rollup[60]: rows}, 0))
        maintain(locate(url), NOW)
        attack._connection.execute("SELECT 1")
    assert scalar(locate(url), newest) == name
