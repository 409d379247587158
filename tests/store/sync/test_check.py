"""Comparing what both sides hold."""

from pathlib import Path
from typing import Any

from pertoken.store.connect.location import StoreLocation
from pertoken.store.sync import Local
from pertoken.store.write.writer import Writer
from tests.fleet.servers import NOW, execute, host, local_rows, login, server_rows, shipper, ts_of


def test_rows_lost_at_the_server_come_back_when_their_hour_is_compared(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-lost", minutes=180, end_ts=NOW)
    shipper(where, login(owner_url, let_in)).round()
    state = Local(where).state()
    assert state is not None
    ids = list(state.owners["device_id"])
    epochs = list(state.owners["epoch_id"])
    until = NOW // 3600 * 3600
    gone = execute(
        server,
        "DELETE FROM telemetry.device_1m WHERE device_id = ANY (:ids) AND ts % 300 = 0 AND ts < :until",
        ids=ids,
        until=until,
    )
    gone += execute(
        server,
        "UPDATE telemetry.histogram_1m SET count = count + 1 WHERE epoch_id = ANY (:ids) AND ts < :until",
        ids=epochs,
        until=until,
    )
    gone += execute(
        server,
        "DELETE FROM telemetry.deployment_1h WHERE epoch_id = ANY (:ids) AND ts < :until - 3600",
        ids=epochs,
        until=until,
    )
    assert gone > 100
    messages: list[dict[str, Any]] = []
    shipper(where, login(owner_url, let_in), messages).round()
    assert server_rows(server, where) == local_rows(where)
    assert all("kind" not in message for message in messages)


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
    for name, rows in local_rows(where).items():
        kept = [row for row in server_rows(server, where)[name]]
        assert [row for row in rows if ts_of(name, row) < closed] == kept, name
