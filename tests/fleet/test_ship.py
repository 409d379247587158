"""What a host ships is what the server holds: once, in its newest revision, whatever happens on the way."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pertoken.errors import StoreError
from pertoken.store.central.logins import enroll, request_raw
from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema.ids import stable_id
from pertoken.store.schema.rows import EngineCounterSample
from pertoken.store.sync.read import Local
from pertoken.store.sync.write import Overtaken, send, stand
from pertoken.store.write.writer import Writer
from tests.fleet.servers import NOW, ask, change, here, host, login, shipper, there
from tests.values import host_row, tick


@pytest.fixture
def let_in(server: StoreLocation, request: pytest.FixtureRequest) -> str:
    """A login of its own for one test."""
    name = f"t_{abs(hash(request.node.name)) % 10**12}"
    enroll(server, name, 1)
    return name


def test_every_roll_up_arrives_and_a_second_round_sends_nothing(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-a")
    told: list[dict[str, Any]] = []
    one = shipper(where, login(owner_url, let_in), told)
    one.round()
    assert there(server, where) == here(where)
    batches = ask(server, "SELECT batch FROM fleet.shipped ORDER BY shipped_ts DESC LIMIT 1")
    one.round()
    assert ask(server, "SELECT batch FROM fleet.shipped ORDER BY shipped_ts DESC LIMIT 1") == batches
    assert all("kind" not in each for each in told)
    with Writer(where) as writer:
        acked = max(each["acked"] for each in told if "acked" in each)
        while writer.shipped(acked, at_most=500):
            pass
    assert Local(where).after(0, 10) is None


def test_a_late_row_gets_a_new_sequence_and_its_bucket_arrives_again(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-late", minutes=10)
    one = shipper(where, login(owner_url, let_in))
    one.round()
    row = replace(host_row(), host_id=stable_id("host", "ship-late"), name="ship-late")
    late = tick(NOW - 400)
    samples = tuple(replace(each, host_id=row.host_id) for each in late.samples)
    with Writer(where) as writer:
        writer.commit(replace(late, ts=NOW, host=row, samples=samples))
        writer.roll_up()
    assert here(where) != there(server, where)
    one.round()
    assert here(where) == there(server, where)


def test_an_older_revision_never_replaces_a_newer_one(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-old", minutes=5)
    one = shipper(where, login(owner_url, let_in))
    one.round()
    found = Local(where).here()
    assert found is not None
    change(server, "UPDATE telemetry.host_1m SET revision = 9, samples = 77 WHERE host_id = :h", h=found.host_ids[0])
    with login(owner_url, let_in).connect() as connection:
        connection.autocommit = True
        standing = stand(connection, found)
        again = Local(where).after(0, 10_000)
        assert again is not None
        send(connection, found.spool_id, standing.batch, again)
    assert ask(server, "SELECT min(samples) FROM telemetry.host_1m WHERE host_id = :h", h=found.host_ids[0]) == 77


def test_a_batch_that_does_not_follow_the_last_one_is_refused_whole(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-order", minutes=3)
    found = Local(where).here()
    batch = Local(where).after(0, 10_000)
    assert found is not None and batch is not None
    with login(owner_url, let_in).connect() as connection:
        connection.autocommit = True
        standing = stand(connection, found)
        send(connection, found.spool_id, standing.batch, batch)
        with pytest.raises(Overtaken):
            send(connection, found.spool_id, standing.batch, batch)
    assert there(server, where) == here(where)


@pytest.mark.parametrize("rows", [1, 1_000_000])
def test_few_rows_and_many_rows_go_different_ways_to_the_same_end(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pertoken.store.sync.write.STAGED_FROM", rows)
    where = host(tmp_path, host=f"ship-ways-{rows}", minutes=70, raw=True)
    shipper(where, login(owner_url, let_in)).round()
    assert there(server, where) == here(where)


@pytest.mark.parametrize("rows", [1, 10_000], ids=["staged", "as arrays"])
def test_a_batch_that_is_stored_otherwise_than_it_was_sent_is_refused_whole(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pertoken.store.sync.write.STAGED_FROM", rows)
    where = host(tmp_path, host=f"ship-bent-{rows}", raw=True)
    one = shipper(where, login(owner_url, let_in))
    change(
        server,
        "CREATE OR REPLACE FUNCTION telemetry.bend() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.power_mw_sum := NEW.power_mw_sum # 1; RETURN NEW; END'",
    )
    change(
        server,
        "CREATE TRIGGER bend BEFORE INSERT ON telemetry.device_1m FOR EACH ROW "
        f"WHEN (NEW.ts = {NOW // 3600 * 3600 - 600}) EXECUTE FUNCTION telemetry.bend()",
    )
    try:
        with pytest.raises(StoreError, match="device_1m: the server stored other values than were sent"):
            one.round()
    finally:
        change(server, "DROP TRIGGER bend ON telemetry.device_1m")
    assert not any(there(server, where).values())
    one.round()
    assert there(server, where) == here(where)


@pytest.mark.parametrize("rows", [1, 10_000], ids=["staged", "as arrays"])
def test_text_that_needs_escaping_arrives_as_it_was(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pertoken.store.sync.write.STAGED_FROM", rows)
    name = f"ship-text-{rows}"
    where = host(tmp_path, host=name, minutes=3)
    row = replace(host_row(), host_id=stable_id("host", name), name=name, os="a\tb\\n\nc\0d \N{SNOWMAN}")
    found = Local(where).here()
    assert found is not None
    (epoch_id,) = found.owners["epoch_id"]
    metrics = ('aborted{reason="a, (b)"}', "a\\b\0", "", "plain")
    counted = [EngineCounterSample(epoch_id, metric, NOW + 60, 1) for metric in metrics]
    with Writer(where) as writer:
        writer.commit(replace(tick(NOW + 60), host=row, samples=tuple(counted)))
        writer.roll_up()
    shipper(where, login(owner_url, let_in)).round()
    assert ask(server, f"SELECT os FROM telemetry.host WHERE name = '{name}'") == "a\tb\\n\ncd \N{SNOWMAN}"
    arrived = ask(server, "SELECT array_agg(metric) FROM telemetry.engine_counter_1m WHERE epoch_id = :e", e=epoch_id)
    assert sorted(arrived) == sorted(metric.replace("\0", "") for metric in metrics)


def test_rows_lost_at_the_server_come_back_when_their_hour_is_compared(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-lost", minutes=180, end_ts=NOW)
    shipper(where, login(owner_url, let_in)).round()
    found = Local(where).here()
    assert found is not None
    ids = list(found.owners["device_id"])
    epochs = list(found.owners["epoch_id"])
    until = NOW // 3600 * 3600
    gone = change(
        server,
        "DELETE FROM telemetry.device_1m WHERE device_id = ANY (:ids) AND ts % 300 = 0 AND ts < :until",
        ids=ids,
        until=until,
    )
    gone += change(
        server,
        "UPDATE telemetry.histogram_1m SET count = count + 1 WHERE epoch_id = ANY (:ids) AND ts < :until",
        ids=epochs,
        until=until,
    )
    gone += change(
        server,
        "DELETE FROM telemetry.deployment_1h WHERE epoch_id = ANY (:ids) AND ts < :until - 3600",
        ids=epochs,
        until=until,
    )
    assert gone > 100
    told: list[dict[str, Any]] = []
    shipper(where, login(owner_url, let_in), told).round()
    assert there(server, where) == here(where)
    assert all("kind" not in each for each in told)


def test_a_server_replaced_by_an_older_copy_of_itself_gets_what_it_had_acknowledged(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-failover", minutes=180)
    told: list[dict[str, Any]] = []
    one = shipper(where, login(owner_url, let_in), told)
    one.round()
    found = Local(where).here()
    assert found is not None
    with Writer(where) as writer:  # the marks are gone: the server had told that it holds everything
        while writer.shipped(10**9, at_most=10_000):
            pass
    since = NOW // 3600 * 3600 - 3600
    for table, owner in (("device_1m", "device_id"), ("share_1m", "device_id"), ("deployment_1m", "epoch_id")):
        change(
            server,
            f"DELETE FROM telemetry.{table} WHERE {owner} = ANY (:ids) AND ts >= :since AND ts < :since + 3600",
            ids=list(found.owners[owner]),
            since=since,
        )
    change(server, "UPDATE fleet.shipped SET batch = 1, seq = 7 WHERE spool_id = :s", s=found.spool_id)
    one.round()
    assert there(server, where) == here(where)
    assert [each["kind"] for each in told if "kind" in each] == ["ship_lost"]


def test_history_from_before_shipping_was_switched_on_is_shipped_too(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-before", minutes=150)
    with Writer(where) as writer:
        writer.ship(False)
        writer.ship(True)
    assert Local(where).after(0, 10) is None
    shipper(where, login(owner_url, let_in)).round()
    closed = NOW // 3600 * 3600
    for name, rows in here(where).items():
        kept = [row for row in there(server, where)[name]]
        assert [row for row in rows if _ts(name, row) < closed] == kept, name


def _ts(table: str, row: tuple[Any, ...]) -> int:
    from pertoken.store.schema import telemetry as t

    names = [column.name for column in t.metadata.tables[f"telemetry.{table}"].columns]
    return int(row[names.index("ts")])


def test_ticks_are_shipped_where_they_are_asked_for_and_only_then(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-raw", minutes=30)
    one = shipper(where, login(owner_url, let_in))
    one.round()
    found = Local(where).here()
    assert found is not None
    device = found.owners["device_id"][0]
    count = "SELECT count(*) FROM telemetry.device_sample WHERE device_id = :d"
    assert ask(server, count, d=device) == 0
    request_raw(server, "ship-raw", NOW - 600, NOW, NOW)
    one.round()
    assert ask(server, count, d=device) == 10
    assert ask(server, "SELECT rows_n FROM fleet.raw_request WHERE host_id = :h", h=found.host_ids[0]) > 10
    one.round()
    assert ask(server, count, d=device) == 10


def test_with_the_setting_all_ticks_are_shipped(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-all-raw", minutes=20, raw=True)
    shipper(where, login(owner_url, let_in)).round()
    found = Local(where).here()
    assert found is not None
    for table, owner, per_minute in (
        ("device_sample", "device_id", 2),
        ("host_sample", "host_id", 1),
        ("deployment_sample", "epoch_id", 1),
    ):
        count = f"SELECT count(*) FROM telemetry.{table} WHERE {owner} = ANY (:ids)"
        assert ask(server, count, ids=list(found.owners[owner])) == 20 * per_minute, table
    assert ask(server, f"{count} AND whole_provenance IS NOT NULL", ids=list(found.owners[owner])) == 20


def test_a_spool_that_is_full_gives_up_the_oldest_ticks_first_and_never_a_roll_up(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-full", minutes=130, raw=True)
    with Writer(where) as writer:
        raw, rolled_up = writer.bound_spool(800)
        assert raw > 0 and rolled_up == 0
        raw, rolled_up = writer.bound_spool(300)
        assert rolled_up > 0
    shipper(where, login(owner_url, let_in)).round()
    closed = NOW // 3600 * 3600
    ours, theirs = here(where), there(server, where)
    for name, rows in ours.items():
        old = [row for row in rows if _ts(name, row) < closed]
        assert [row for row in theirs[name] if _ts(name, row) < closed] == old, name


def test_a_server_that_is_away_is_one_line(tmp_path: Path) -> None:
    where = host(tmp_path, minutes=2)
    with pytest.raises(StoreError) as caught:
        shipper(where, login("postgresql://x@127.0.0.1:1/none", "x", "canary-7")).round()
    assert "canary" not in str(caught.value) and "\n" not in str(caught.value)
