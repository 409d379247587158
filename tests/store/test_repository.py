"""Advice as it is kept: prices, refusals and recommendations, each changed by one at a time."""

from pathlib import Path
from typing import Any

import pytest

from pertoken.errors import StoreError
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.repository import AdviceChanged, AdviceRepository, PricesChanged
from tests.values import new_store, set_price


def test_prices_come_in_the_order_in_which_they_are_in_force_and_then_were_set(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    for nano, from_ts in ((1, 50), (2, 0), (3, 50)):
        set_price(where, "H100", nano, from_ts)
    with AdviceRepository(where).writing() as connection:
        assert [row.nano_usd_per_device_hour for row in repository.prices(connection)] == [2, 1, 3]
        assert [row.seq for row in repository.prices(connection)] == [2, 1, 3]


def test_a_price_set_since_the_prices_were_read_refuses_another(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    set_price(where, "H100", 1)
    price: dict[str, Any] = {"selector": "H100", "nano_usd_per_device_hour": 2, "from_ts": 0, "set_ts": 1}
    with pytest.raises(PricesChanged), AdviceRepository(where).writing() as connection:
        repository.add_price(connection, read_seq=0, set_by="someone", note=None, **price)


def test_a_refusal_that_is_repeated_keeps_its_first_time_and_one_that_is_not_goes(tmp_path: Path) -> None:
    with AdviceRepository(new_store(tmp_path)).writing() as connection:
        repository.put_refusals(connection, 1, {"idle": "it is idle", "small": "it is small"}, ts=10)
        repository.put_refusals(connection, 2, {"idle": "it is idle"}, ts=15)
        repository.put_refusals(connection, 1, {"idle": "it is idle still", "new": "it is new"}, ts=20)
        rows = [(row.recommendation_id, row.code, row.reason, row.since_ts) for row in repository.refusals(connection)]
    assert rows == [(1, "idle", "it is idle still", 10), (1, "new", "it is new", 20), (2, "idle", "it is idle", 15)]


def row(**values: Any) -> dict[str, Any]:
    """Return a recommendation as it is stored."""
    plain = {"recommendation_id": 1, "rule_id": "quantize", "state": "OPEN", "title": "quantize", "body": "{}"}
    return {**plain, "created_ts": 1, "updated_ts": 1, **values}


def put(where: StoreLocation, read_version: int, who: str = "me", **values: Any) -> None:
    with AdviceRepository(where).writing() as connection:
        repository.put_recommendation(
            connection, row(**values), read_version=read_version, who=who, why="because", code="test"
        )


def test_a_concurrent_change_is_not_overwritten(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    put(where, 0)
    put(where, 1, "ann", state="DISMISSED", updated_ts=2)
    line = r"quantize: was changed by someone else meanwhile \(now dismissed, by ann\); look again"
    with pytest.raises(AdviceChanged, match=line):
        put(where, 1, "bob", state="ACCEPTED", updated_ts=3)
    with AdviceRepository(where).writing() as connection:
        assert [recommendation.state for recommendation in repository.recommendations(connection)] == ["DISMISSED"]
        assert [transition.to_state for transition in repository.transitions(connection, 1)] == ["OPEN", "DISMISSED"]


def test_an_accepted_estimate_never_changes(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    put(where, 0, state="ACCEPTED", estimate='{"bankable": 7}')
    for estimate in (None, '{"bankable": 8}'):
        with pytest.raises(StoreError, match="the estimate that was accepted never changes"):
            put(where, 1, state="APPLIED", estimate=estimate)
    put(where, 1, state="APPLIED", estimate='{"bankable": 7}')


VERDICT = {
    "deployment_id": 1,
    "epoch_id": 2,
    "previous_epoch_id": 3,
    "changed_ts": 5,
    "result": "PENDING",
    "body": "{}",
}


def test_an_epoch_has_one_verdict_which_two_people_cannot_both_replace(tmp_path: Path) -> None:
    with AdviceRepository(new_store(tmp_path)).writing() as connection:
        values = {**VERDICT, "created_ts": 6}
        assert repository.add_verdict(connection, values)
        assert not repository.add_verdict(connection, {**values, "result": "DEARER"})
        repository.put_verdict(connection, {**values, "result": "CHEAPER", "judged_ts": 9}, read_version=1)
        with pytest.raises(AdviceChanged):
            repository.put_verdict(connection, {**values, "result": "DEARER", "judged_ts": 9}, read_version=1)
        assert [(verdict.result, verdict.version) for verdict in repository.verdicts(connection)] == [("CHEAPER", 2)]


def test_the_same_receipt_is_stored_once(tmp_path: Path) -> None:
    with AdviceRepository(new_store(tmp_path)).writing() as connection:
        values: repository.ColumnValues = {
            "recommendation_id": 1,
            "kind": "saving",
            "body": "{}",
            "hash": "ab",
            "created_ts": 6,
        }
        repository.add_receipt(connection, values)
        repository.add_receipt(connection, {**values, "created_ts": 7})
        repository.add_receipt(connection, {**values, "hash": "cd", "created_ts": 8})
        assert [(receipt.hash, receipt.created_ts) for receipt in repository.receipts(connection)] == [
            ("ab", 6),
            ("cd", 8),
        ]
