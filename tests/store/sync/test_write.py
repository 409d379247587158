"""Batches at the server: one after the other, whole, as they were sent."""

from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.errors import StoreError
from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema.rows import EngineCounterSample
from pertoken.store.schema.shared import stable_id
from pertoken.store.sync import Local, Overtaken, ShipperIdentity, enter, take
from pertoken.store.write.writer import Writer
from tests.fleet.servers import NOW, execute, host, local_rows, login, scalar, server_rows, shipper
from tests.values import host_row, tick


def test_an_older_revision_never_replaces_a_newer_one(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-old", minutes=5)
    one = shipper(where, login(owner_url, let_in))
    one.round()
    state = Local(where).state()
    assert state is not None
    execute(server, "UPDATE telemetry.host_1m SET revision = 9, samples = 77 WHERE host_id = :h", h=state.host_ids[0])
    with login(owner_url, let_in).connect() as connection:
        connection.autocommit = True
        session = take(connection, state, ShipperIdentity(1, None), enter(connection, state), restart=False)
        again = Local(where).after(0, 10_000)
        assert again is not None
        session.send(again)
    assert scalar(server, "SELECT min(samples) FROM telemetry.host_1m WHERE host_id = :h", h=state.host_ids[0]) == 77


def test_a_batch_that_does_not_follow_the_last_one_is_refused_whole(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-order", minutes=3)
    state = Local(where).state()
    batch = Local(where).after(0, 10_000)
    assert state is not None and batch is not None
    with login(owner_url, let_in).connect() as connection:
        connection.autocommit = True
        session = take(connection, state, ShipperIdentity(1, None), enter(connection, state), restart=False)
        session.send(batch)
        session.batch -= 1
        with pytest.raises(Overtaken):
            session.send(batch)
    assert server_rows(server, where) == local_rows(where)


def test_a_batch_that_is_stored_otherwise_than_it_was_sent_is_refused_whole(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-bent", raw=True)
    one = shipper(where, login(owner_url, let_in))
    execute(
        server,
        "CREATE OR REPLACE FUNCTION telemetry.bend() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.power_mw_sum := NEW.power_mw_sum # 1; RETURN NEW; END'",
    )
    execute(
        server,
        "CREATE TRIGGER bend BEFORE INSERT ON telemetry.device_1m FOR EACH ROW "
        f"WHEN (NEW.ts = {NOW // 3600 * 3600 - 600}) EXECUTE FUNCTION telemetry.bend()",
    )
    try:
        with pytest.raises(StoreError, match="device_1m: the server stored other values than were sent"):
            one.round()
    finally:
        execute(server, "DROP TRIGGER bend ON telemetry.device_1m")
    assert not any(server_rows(server, where).values())
    one.round()
    assert server_rows(server, where) == local_rows(where)


def test_text_that_needs_escaping_arrives_unchanged(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    name = "ship-text"
    where = host(tmp_path, host=name, minutes=3)
    row = replace(host_row(), host_id=stable_id("host", name), name=name, os="a\tb\\n\nc\0d \N{SNOWMAN}")
    state = Local(where).state()
    assert state is not None
    (epoch_id,) = state.owners["epoch_id"]
    metrics = ('aborted{reason="a, (b)"}', "a\\b\0", "", "plain")
    counted = [EngineCounterSample(epoch_id, metric, NOW + 60, 1) for metric in metrics]
    with Writer(where) as writer:
        writer.commit(replace(tick(NOW + 60), host=row, samples=tuple(counted)))
        writer.roll_up()
    shipper(where, login(owner_url, let_in)).round()
    assert scalar(server, f"SELECT os FROM telemetry.host WHERE name = '{name}'") == "a\tb\\n\ncd \N{SNOWMAN}"
    arrived = scalar(
        server, "SELECT array_agg(metric) FROM telemetry.engine_counter_1m WHERE epoch_id = :e", e=epoch_id
    )
    assert sorted(arrived) == sorted(metric.replace("\0", "") for metric in metrics)
