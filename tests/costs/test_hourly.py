"""Dollars per Mtok by model and hour are those of the bill."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pertoken.costs.hourly import ModelHour, ModelHours, model_hours
from pertoken.costs.money import allocations, stretch
from pertoken.costs.prices import Price, PriceBook, Priced
from pertoken.costs.report import price_book
from pertoken.store import read
from pertoken.store.open import open_store
from pertoken.store.segments import segments
from tests.scenario import LOW_BATCH_70B, seed

END = 1_790_000_400
MODEL = LOW_BATCH_70B.model


def test_hours_add_up_to_the_bill_and_to_the_tokens_served(tmp_path: Path) -> None:
    store = open_store(seed(tmp_path, LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=150, end_ts=END))
    prices = price_book(store, END)
    found = model_hours(store, END - 9000, END, prices)
    assert {model for model, _ in found} == {MODEL}
    with store.read() as connection:
        devices = read.devices(connection, END - 9000)
        priced = {each.device_id: Priced(each.kind, each.name, each.uuid, each.parent_id) for each in devices}
        devices_of = read.by_epoch(read.epoch_devices(connection, END - 9000))
        money = allocations([stretch(connection, segments(END - 9000, END))], priced, devices_of, prices)
    nano = sum(hour.nano_usd or 0 for hour in found.values())
    assert nano == pytest.approx(sum(money.by_epoch.values()), abs=2 * 150)  # at most one for each device and bucket
    assert sum(hour.tokens or 0 for hour in found.values()) == 150 * 60 * (160 + 40)
    whole = found[MODEL, (END - 3600) // 3600 * 3600]
    assert whole.nano_usd_per_mtok == round(2 * 6.88e9 / (3600 * 200) * 1e6)


def test_what_holds_no_device_here_has_tokens_and_no_dollars(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END)
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        for name in ("epoch_device", "share_1m", "share_1h"):
            connection.execute(f"DELETE FROM {name}")
        connection.commit()
    store = open_store(where)
    found = model_hours(store, END - 3600, END, price_book(store, END))
    assert sum(hour.tokens or 0 for hour in found.values()) == 60 * 60 * (160 + 40)
    assert {(hour.nano_usd, hour.nano_usd_per_mtok) for hour in found.values()} == {(None, None)}


def test_a_price_that_changes_within_an_hour_counts_from_its_minute(tmp_path: Path) -> None:
    store = open_store(seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=150, end_ts=END))
    hour = (END - 3600) // 3600 * 3600
    prices = PriceBook([Price("H100", 10**9, 0), Price("H100", 3 * 10**9, hour + 1800)])
    found = model_hours(store, hour - 3600, hour + 3600, prices)
    assert [found[MODEL, ts].nano_usd for ts in (hour - 3600, hour)] == [2 * 10**9, 4 * 10**9]


def test_without_a_price_there_are_no_dollars_and_without_tokens_no_quotient(tmp_path: Path) -> None:
    store = open_store(seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=60, end_ts=END))
    found = model_hours(store, END - 3600, END, PriceBook([]))
    assert {(hour.nano_usd, hour.nano_usd_per_mtok) for hour in found.values()} == {(None, None)}
    assert ModelHour(5, 0).nano_usd_per_mtok is ModelHour(5, None).nano_usd_per_mtok is None


def test_tokens_are_told_of_hours_without_a_price_and_left_out_of_the_quotient() -> None:
    line = ModelHours("m", 0, (None, ModelHour(None, 300), ModelHour(10**9, 500), ModelHour(7, None)))
    assert line.tokens == 800
    assert line.together == ModelHour(10**9, 500)
    assert ModelHours("m", 0, (None, ModelHour(7, None))).tokens is None
