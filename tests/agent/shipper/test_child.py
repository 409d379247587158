"""Rows that a host ships are those that the server holds: once, in its newest revision, whatever happens on the way."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pertoken.errors import StoreError
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import Tick
from pertoken.store.sync import Batch, Local, Session
from pertoken.store.write.writer import Writer
from tests.fleet.servers import NOW, execute, host, local_rows, login, owners, scalar, server_rows, shipper
from tests.values import host_row, host_sample

DAY = 86_400


def test_every_roll_up_arrives_and_a_second_round_sends_nothing(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-a")
    messages: list[dict[str, Any]] = []
    one = shipper(where, login(owner_url, let_in), messages)
    one.round()
    assert server_rows(server, where) == local_rows(where)
    batches = scalar(server, "SELECT batch FROM fleet.shipped ORDER BY shipped_ts DESC LIMIT 1")
    one.round()
    assert scalar(server, "SELECT batch FROM fleet.shipped ORDER BY shipped_ts DESC LIMIT 1") == batches
    assert all("kind" not in message for message in messages)
    with Writer(where) as writer:
        acked = max(message["acked"] for message in messages if "acked" in message)
        while writer.shipped(acked, at_most=500):
            pass
    assert Local(where).after(0, 10) is None


def test_a_server_replaced_by_an_older_copy_of_itself_gets_what_it_had_acknowledged(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-failover", minutes=180)
    messages: list[dict[str, Any]] = []
    one = shipper(where, login(owner_url, let_in), messages)
    one.round()
    state = Local(where).state()
    assert state is not None
    with Writer(where) as writer:  # the marks are gone: the server had acknowledged everything
        while writer.shipped(10**9, at_most=10_000):
            pass
    since = NOW // 3600 * 3600 - 3600
    for table, owner in (("device_1m", "device_id"), ("share_1m", "device_id"), ("deployment_1m", "epoch_id")):
        execute(
            server,
            f"DELETE FROM telemetry.{table} WHERE {owner} = ANY (:ids) AND ts >= :since AND ts < :since + 3600",
            ids=list(state.owners[owner]),
            since=since,
        )
    execute(server, "UPDATE fleet.shipped SET batch = 1, seq = 7 WHERE spool_id = :s", s=state.spool_id)
    one.round()
    assert server_rows(server, where) == local_rows(where)
    assert [message["kind"] for message in messages if "kind" in message] == ["ship_lost"]


def copied(where: StoreLocation, folder: Path) -> StoreLocation:
    assert where.folder is not None
    shutil.copytree(where.folder, folder)
    return locate(str(folder))


def more(where: StoreLocation, since: int, until: int, seen: int) -> None:
    """Record a minute of the host's own row after another, from `since` to `until`."""
    (host_id,) = {row[0] for row in local_rows(where)["host_1m"]}
    with Writer(where) as writer:
        for ts in range(since + 60, until + 1, 60):
            sample = replace(host_sample(ts), host_id=host_id, load_1e2=seen)
            writer.commit(
                Tick(ts=ts, host=replace(host_row(60), host_id=host_id, name=f"h{host_id}"), samples=(sample,))
            )
        writer.roll_up()


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    return [message["kind"] for message in messages if "kind" in message]


def lost(server: StoreLocation, where: StoreLocation, *, before: int) -> int:
    """Take from a server what a copy older than `before` would not hold; returns how many rows."""
    gone = 0
    for name in local_rows(where):
        for owner in ("host_id", "device_id", "epoch_id"):
            if owner in t.metadata.tables[f"telemetry.{name}"].c and (name[:5] != "share" or owner == "device_id"):
                statement = f"DELETE FROM telemetry.{name} WHERE {owner} = ANY (:ids) AND ts >= :before"
                gone += execute(server, statement, ids=owners(where), before=before)
    return gone


def test_a_host_restored_from_a_copy_of_its_database_ships_on(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path / "host", host="ship-restored", minutes=10, end_ts=NOW - 7200)
    copy = copied(where, tmp_path / "copy")
    more(where, NOW - 7200, NOW - 3600, 1)
    shipper(where, login(owner_url, let_in)).round()
    more(copy, NOW - 3600, NOW, 2)  # recorded more marks than were ever shipped of the other
    more(copy, NOW, NOW + 3600, 3)
    messages: list[dict[str, Any]] = []
    one = shipper(copy, login(owner_url, let_in), messages)
    one.round()
    for name, rows in local_rows(copy).items():
        held = server_rows(server, copy)[name]
        newer = {row[:2] for row in held} - {row[:2] for row in rows}
        assert [row for row in held if row[:2] not in newer] == rows or name == "host_1h", name
    assert kinds(messages) == ["ship_restored"]
    one.round()
    assert kinds(messages) == ["ship_restored"]


def test_a_server_that_went_back_twice_in_one_shippers_life_gets_everything_again(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-twice", minutes=130, end_ts=NOW - 7200)
    messages: list[dict[str, Any]] = []
    one = shipper(where, login(owner_url, let_in), messages)
    one.round()
    with Writer(where) as writer:
        while writer.shipped(10**9, at_most=10_000):
            pass
    for times in (1, 2):
        assert lost(server, where, before=NOW - 7200 - 7200) > 100
        execute(server, "UPDATE fleet.shipped SET batch = 1, seq = 7 WHERE spool_id = :s", s=spool(where))
        one.round()
        assert server_rows(server, where) == local_rows(where)  # the hour under way too
        assert kinds(messages) == ["ship_lost"] * times


def test_a_server_that_went_back_while_the_shipper_restarted_gets_everything_at_once(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    end = NOW // DAY * DAY - 4 * DAY
    where = host(tmp_path, host="ship-both", minutes=120, end_ts=end)
    more(where, NOW - 1800, NOW, 1)  # what was lost is older than the days that each start compares
    messages: list[dict[str, Any]] = []
    shipper(where, login(owner_url, let_in), messages).round()
    last = [message for message in messages if "batch" in message][-1]
    with Writer(where) as writer:
        while writer.shipped(last["acked"], batch=last["batch"], at_most=10_000):
            pass
    assert lost(server, where, before=end - 7200) > 100
    execute(server, "UPDATE fleet.shipped SET batch = 1, seq = 7 WHERE spool_id = :s", s=spool(where))
    shipper(where, login(owner_url, let_in), messages).round()
    assert server_rows(server, where) == local_rows(where)
    assert kinds(messages) == ["ship_lost"]
    shipper(where, login(owner_url, let_in), messages).round()
    assert kinds(messages) == ["ship_lost"]


@pytest.mark.parametrize("restarted", [False, True])
def test_rows_of_the_open_hour_arrive_though_the_round_that_began_to_send_them_again_failed(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    where = host(tmp_path, host=f"ship-broken-off-{restarted}", minutes=130, end_ts=NOW - 7200)
    one = shipper(where, login(owner_url, let_in))
    one.round()
    with Writer(where) as writer:
        while writer.shipped(10**9, at_most=10_000):
            pass
    assert lost(server, where, before=NOW - 7200 - 7200) > 100
    execute(server, "UPDATE fleet.shipped SET batch = 1, seq = 7 WHERE spool_id = :s", s=spool(where))
    send, sent = Session.send, list[Batch]()

    def send_two(session: Session, batch: Batch) -> None:
        if batch.again and len(sent) == 2:
            raise StoreError("the connection is gone")
        sent.append(batch)
        send(session, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "send", send_two)
        with pytest.raises(StoreError, match="the connection is gone"):
            one.round()
    assert server_rows(server, where) != local_rows(where)
    (shipper(where, login(owner_url, let_in)) if restarted else one).round()
    assert server_rows(server, where) == local_rows(where)


def spool(where: StoreLocation) -> int:
    state = Local(where).state()
    assert state is not None
    return state.spool_id


def test_a_clone_of_a_machine_that_ships_is_refused_with_an_event_until_the_other_is_silent(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path / "host", host="ship-clone", minutes=10, end_ts=NOW - 3600)
    one = shipper(where, login(owner_url, let_in), boot_id="first")
    one.round()
    clone = copied(where, tmp_path / "clone")
    more(clone, NOW - 3600, NOW, 2)
    more(where, NOW - 3600, NOW, 1)
    one.round()
    messages: list[dict[str, Any]] = []
    second = shipper(clone, login(owner_url, let_in), messages, boot_id="second")
    for _ in range(2):
        with pytest.raises(StoreError, match="another machine ships a copy of this host's database"):
            second.round()
        one.round()
    assert kinds(messages) == ["ship_cloned"] * 2
    assert server_rows(server, where)["host_1m"] == local_rows(where)["host_1m"]
    execute(server, "UPDATE fleet.shipped SET shipped_ts = 0 WHERE spool_id = :s", s=spool(where))
    second.round()
    assert kinds(messages)[2:] == ["ship_restored"]
    heard: list[dict[str, Any]] = []
    again = shipper(where, login(owner_url, let_in), heard, boot_id="first")
    with pytest.raises(StoreError, match="a clone needs a machine-id"):
        again.round()


def test_shipping_continues_without_an_event_after_a_restart_or_a_reboot(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path / "host", host="ship-reboot", minutes=10, end_ts=NOW - 3600)
    messages: list[dict[str, Any]] = []
    for n in range(3):
        more(where, NOW - 3600 + 600 * n, NOW - 3000 + 600 * n, 1)
        shipper(where, login(owner_url, let_in), messages, boot_id=f"boot-{n}").round()
    assert server_rows(server, where) == local_rows(where) and kinds(messages) == []


def test_a_server_that_is_away_is_one_line(tmp_path: Path) -> None:
    where = host(tmp_path, minutes=2)
    with pytest.raises(StoreError) as caught:
        shipper(where, login("postgresql://x@127.0.0.1:1/none", "x", "canary-7")).round()
    assert "canary" not in str(caught.value) and "\n" not in str(caught.value)
