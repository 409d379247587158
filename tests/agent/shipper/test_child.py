"""What a host ships is what the server holds: once, in its newest revision, whatever happens on the way."""

from pathlib import Path
from typing import Any

import pytest

from pertoken.errors import StoreError
from pertoken.store.connect.location import StoreLocation
from pertoken.store.sync.read import Local
from pertoken.store.write.writer import Writer
from tests.fleet.servers import NOW, ask, change, here, host, login, shipper, there


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


def test_a_server_that_is_away_is_one_line(tmp_path: Path) -> None:
    where = host(tmp_path, minutes=2)
    with pytest.raises(StoreError) as caught:
        shipper(where, login("postgresql://x@127.0.0.1:1/none", "x", "canary-7")).round()
    assert "canary" not in str(caught.value) and "\n" not in str(caught.value)
