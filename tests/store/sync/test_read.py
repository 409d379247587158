"""Reads of a host's rows for its server."""

from pathlib import Path

from pertoken.store.central.server import request_raw
from pertoken.store.connect.location import StoreLocation
from pertoken.store.sync import Local
from tests.fleet.servers import NOW, host, login, scalar, shipper


def test_ticks_are_shipped_where_they_are_asked_for_and_only_then(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-raw", minutes=30)
    one = shipper(where, login(owner_url, let_in))
    one.round()
    state = Local(where).state()
    assert state is not None
    device = state.owners["device_id"][0]
    count = "SELECT count(*) FROM telemetry.device_sample WHERE device_id = :d"
    assert scalar(server, count, d=device) == 0
    request_raw(server, "ship-raw", NOW - 600, NOW, NOW)
    one.round()
    assert scalar(server, count, d=device) == 10
    assert scalar(server, "SELECT rows_n FROM fleet.raw_request WHERE host_id = :h", h=state.host_ids[0]) > 10
    one.round()
    assert scalar(server, count, d=device) == 10


def test_with_the_setting_all_ticks_are_shipped(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-all-raw", minutes=20, raw=True)
    shipper(where, login(owner_url, let_in)).round()
    state = Local(where).state()
    assert state is not None
    for table, owner, per_minute in (
        ("device_sample", "device_id", 2),
        ("host_sample", "host_id", 1),
        ("deployment_sample", "epoch_id", 1),
    ):
        count = f"SELECT count(*) FROM telemetry.{table} WHERE {owner} = ANY (:ids)"
        assert scalar(server, count, ids=list(state.owners[owner])) == 20 * per_minute, table
    assert scalar(server, f"{count} AND whole_provenance IS NOT NULL", ids=list(state.owners[owner])) == 20
