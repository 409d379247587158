"""Dollars per Mtok by model and hour are those of the bill."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.costs.bill import bill
from pertoken.costs.hours import ModelHour, hourly
from pertoken.costs.prices.book import Price, PriceBook
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.provenance import Provenance
from pertoken.store.connect.open import open_store
from pertoken.store.schema.rows import (
    DeploymentRow,
    DeploymentSample,
    DeviceRow,
    DeviceSample,
    DeviceShare,
    EngineRow,
    EpochRow,
)
from pertoken.store.schema.shared import OTHER
from pertoken.store.write.writer import Writer
from pertoken.units import SHARE
from tests.costs.builders import hours_of
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import HOST, host_row, host_sample, new_store, set_price, tick

END = 1_790_000_400
MODEL = LOW_BATCH_70B.model


def test_hours_add_up_to_the_bill_and_to_the_tokens_served(tmp_path: Path) -> None:
    store = open_store(seed(tmp_path, LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=150, end_ts=END))
    hours = hours_of(store, END - 9000, END)
    assert {model for model, _ in hours} == {MODEL}
    with bill(store, END - 9000, END) as priced:
        money = priced.money
    assert sum(hour.nano_usd or 0 for hour in hours.values()) == sum(money.by_epoch.values())
    assert sum(hour.tokens or 0 for hour in hours.values()) == 150 * 60 * (160 + 40)
    whole = hours[MODEL, (END - 3600) // 3600 * 3600]
    assert whole.nano_usd_per_mtok == round(2 * 6.88e9 / (3600 * 200) * 1e6)


def test_a_deployment_without_a_device_here_has_tokens_and_no_dollars(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END)
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        for name in ("epoch_device", "share_1m", "share_1h"):
            connection.execute(f"DELETE FROM {name}")
        connection.commit()
    store = open_store(where)
    hours = hours_of(store, END - 3600, END)
    assert sum(hour.tokens or 0 for hour in hours.values()) == 60 * 60 * (160 + 40)
    assert {(hour.nano_usd, hour.nano_usd_per_mtok) for hour in hours.values()} == {(None, None)}


def test_a_price_that_changes_within_an_hour_counts_from_its_minute(tmp_path: Path) -> None:
    store = open_store(seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=150, end_ts=END))
    hour = (END - 3600) // 3600 * 3600
    prices = PriceBook([Price("H100", 10**9, 0), Price("H100", 3 * 10**9, hour + 1800)])
    hours = hours_of(store, hour - 3600, hour + 3600, prices)
    assert [hours[MODEL, ts].nano_usd for ts in (hour - 3600, hour)] == [2 * 10**9, 4 * 10**9]


def test_without_a_price_there_are_no_dollars_and_without_tokens_no_quotient(tmp_path: Path) -> None:
    store = open_store(seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=60, end_ts=END))
    hours = hours_of(store, END - 3600, END, PriceBook([]))
    assert {(hour.nano_usd, hour.nano_usd_per_mtok) for hour in hours.values()} == {(None, None)}
    assert ModelHour(5, 0).nano_usd_per_mtok is ModelHour(5, None).nano_usd_per_mtok is None


HOUR = END // 3600 * 3600 - 3600
"""An hour that is over by `END`."""


@pytest.mark.parametrize("later_s", [0, 7200])
def test_a_minute_without_a_reading_takes_its_tokens_from_an_hour_and_nothing_else(
    tmp_path: Path, later_s: int
) -> None:
    # Asked while the hour is under way, and so by its minutes, and again when it is over.
    where = seed(
        tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=50, end_ts=HOUR + 3000, unread=(10, 11, 37)
    )
    hour = hourly(open_store(where), 1 + later_s // 3600, HOUR + 3000 + later_s)[0].hours[0]
    assert hour is not None
    assert hour.tokens == 47 * 60 * 200
    assert hour.nano_usd == pytest.approx(2 * 6.88e9 * 50 / 60)
    assert hour.observed == pytest.approx(47 / (50 if later_s == 0 else 60))
    assert hour.nano_usd_per_mtok == round((hour.nano_usd or 0) * 10**6 / (hour.tokens or 1))


def test_a_half_observed_hour_and_the_sum_of_hours_carry_their_observed_share(tmp_path: Path) -> None:
    store = open_store(seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=90, end_ts=HOUR + 1800))
    (line,) = hourly(store, 3, HOUR + 3600 + 1800)
    assert [None if hour is None else hour.observed for hour in line.hours] == [1.0, 0.5, 0.0]
    assert [hour is not None and hour.recorded for hour in line.hours] == [True, True, False]
    assert line.together.observed == pytest.approx(90 / 150)
    assert line.together.tokens == 90 * 60 * 200


def test_a_deployment_that_stopped_on_a_host_that_reports_is_not_missed(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=HOUR + 1800)
    with Writer(where) as writer:
        for n in range(1, 121):
            ts = HOUR + 1800 + 60 * n
            writer.commit(replace(tick(ts), samples=(replace(host_sample(ts), duration_ms=60_000),), host=host_row(60)))
        writer.roll_up()
    (line,) = hourly(open_store(where), 3, HOUR + 1800 + 7200)
    assert [None if hour is None else hour.observed for hour in line.hours] == [1.0, None, None]


def test_a_deployment_without_the_count_is_left_out_of_the_quotient_with_its_dollars(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=HOUR + 3600)
    seed(where, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=60, end_ts=HOUR + 3600, host="b")
    alone = hours_of(open_store(where), HOUR, HOUR + 3600)[MODEL, HOUR]
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        one = "(SELECT min(epoch_id) FROM epoch)"
        connection.execute(f"UPDATE deployment_1h SET prompt_tokens = NULL WHERE epoch_id = {one}")
        connection.commit()
    store = open_store(where)
    hour = hours_of(store, HOUR, HOUR + 3600)[MODEL, HOUR]
    assert (hour.nano_usd, hour.tokens, hour.observed) == (alone.nano_usd, 3600 * 200, 0.5)
    assert hour.nano_usd_per_mtok == alone.nano_usd_per_mtok


def test_a_deployment_with_one_unpriced_device_has_no_dollars_anywhere(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=90, end_ts=END)
    set_price(where, "GPU-1", 10**9)
    store = open_store(where)
    hours = hours_of(store, END - 7200, END)
    assert {(hour.nano_usd, hour.nano_usd_per_mtok) for hour in hours.values()} == {(None, None)}
    report = fleet_report(store, 3600, END)
    (line,) = report.deployments
    assert (line.nano_usd, line.nano_usd_per_mtok, line.nano_usd_per_hour, report.nano_usd_per_mtok) == (None,) * 4
    assert report.bill is not None and report.bill.paid == 10**9
    assert report.unpriced_devices == ("NVIDIA H100 80GB HBM3 #0",)


def test_dollars_of_a_shared_device_without_a_price_are_not_left_out_of_the_hour(tmp_path: Path) -> None:
    # One GPU is held whole and has a price, the other is shared with foreign work and has none.
    where = new_store(tmp_path)
    set_price(where, "GPU-6", 10**9)
    gpus = tuple(DeviceRow(n, HOST, "gpu", f"GPU-{n}", "nvidia", "NVIDIA H100 80GB HBM3", n) for n in (5, 6))
    known = {
        "engines": (EngineRow(7, HOST, "vllm", "http://127.0.0.1:8000", 8000, 1, 1, None, "process"),),
        "deployments": (DeploymentRow(8, 7, HOST, "tiny", None, None),),
        "epochs": (EpochRow(9, 8, HOUR, None, "1", "{}", (5, 6)),),
        "devices": gpus,
    }
    with Writer(where) as writer:
        for ts in range(HOUR + 60, HOUR + 3600, 60):
            served = DeploymentSample(9, ts, 60_000, 60_000, True, 0, prompt_tokens=100, generated_tokens=10)
            shares = [
                DeviceShare(device, epoch, ts, 60_000, share, 0, Provenance.REPORTED)
                for device, epoch, share in ((5, 9, SHARE // 2), (5, OTHER, SHARE // 2), (6, 9, SHARE))
            ]
            used = [DeviceSample(device, ts, 60_000, 60_000) for device in (5, 6)]
            writer.commit(tick(ts, served, *shares, *used, **known))
        writer.roll_up()
    store = open_store(where)
    hour = hours_of(store, HOUR, HOUR + 3600)["tiny", HOUR]
    assert (hour.nano_usd, hour.tokens) == (None, 59 * 110)
    set_price(where, "gpu", 10**9)
    hour = hours_of(store, HOUR, HOUR + 3600)["tiny", HOUR]
    assert hour.nano_usd == round(1.5e9 * 59 / 60)
