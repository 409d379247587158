"""Advice as it is kept: prices, refusals and recommendations, each changed by one at a time."""

from pathlib import Path
from typing import Any

import pytest

from pertoken.errors import StoreError
from pertoken.store import repository
from pertoken.store.repository import AdviceRepository, PricesChanged
from tests.values import laid, set_price


def test_prices_come_in_the_order_in_which_they_are_in_force_and_then_were_set(tmp_path: Path) -> None:
    where = laid(tmp_path)
    for nano, from_ts in ((1, 50), (2, 0), (3, 50)):
        set_price(where, "H100", nano, from_ts)
    with AdviceRepository(where).writing() as connection:
        assert [row.nano_usd_per_device_hour for row in repository.prices(connection)] == [2, 1, 3]
        assert repository.newest_price(connection) == 3


def test_a_price_set_since_the_prices_were_read_refuses_another(tmp_path: Path) -> None:
    where = laid(tmp_path)
    set_price(where, "H100", 1)
    price: dict[str, Any] = {"selector": "H100", "nano_usd_per_device_hour": 2, "from_ts": 0, "set_ts": 1}
    with pytest.raises(PricesChanged), AdviceRepository(where).writing() as connection:
        repository.add_price(connection, read_seq=0, set_by="someone", note=None, **price)


def test_a_refusal_that_is_repeated_keeps_its_first_time_and_one_that_is_not_goes(tmp_path: Path) -> None:
    with AdviceRepository(laid(tmp_path)).writing() as connection:
        repository.put_refusals(connection, 1, {"idle": "it is idle", "small": "it is small"}, ts=10)
        repository.put_refusals(connection, 2, {"idle": "it is idle"}, ts=15)
        repository.put_refusals(connection, 1, {"idle": "it is idle still", "new": "it is new"}, ts=20)
        rows = [(row.recommendation_id, row.code, row.reason, row.since_ts) for row in repository.refusals(connection)]
    assert rows == [(1, "idle", "it is idle still", 10), (1, "new", "it is new", 20), (2, "idle", "it is idle", 15)]


def test_what_somebody_else_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    with AdviceRepository(laid(tmp_path)).writing() as connection:
        assert repository.recommendations(connection) == []
        values = {"recommendation_id": 1, "title": "quantize", "state": "OPEN", "updated_ts": 1}
        with pytest.raises(StoreError, match="quantize: was changed by someone else meanwhile"):
            repository.put_recommendation(connection, values, read_version=3, who="me", why="")
