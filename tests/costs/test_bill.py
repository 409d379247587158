"""Dollars stay whole and where they are when prices change, whether the minutes of the hour are still there or not."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from pertoken.costs.hours import hourly
from pertoken.costs.lines import Money
from pertoken.costs.prices.book import Price, PriceBook
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import Store, open_store, writing
from pertoken.store.write.retention import Ages, purge
from pertoken.store.write.rollup import ROLLUPS
from pertoken.store.write.writer import Writer
from tests.costs.builders import bill_at, hours_of
from tests.examples import examples
from tests.postgres import server_url
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import set_price

START = 1_790_000_000 // 3600 * 3600
HOURS = 3
END = START + 3600 * HOURS
MODEL = LOW_BATCH_70B.model
TOKENS = 3600 * 200


def recorded(where: Path | StoreLocation) -> StoreLocation:
    """Four GPUs over three whole hours, two of them held by a model."""
    return seed(where, LOW_BATCH_70B, gpus=4, usd_per_hour=None, minutes=60 * HOURS, end_ts=END)


def without_minutes(where: StoreLocation) -> StoreLocation:
    """Delete the minutes, as their age does: all hours are over by then."""
    if where.url is None:
        with Writer(where) as writer:
            purge(writer, Ages(0, 0, 10**9), END + 3600)
    else:
        with writing(where, "telemetry").connect() as connection, connection.begin():
            for rollup in ROLLUPS:
                connection.execute(text(f"DELETE FROM telemetry.{rollup.tables[60].name}"))
    return where


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Store]:
    """With the minutes, and without."""
    whole = recorded(tmp_path_factory.mktemp("whole"))
    purged = without_minutes(recorded(tmp_path_factory.mktemp("purged")))
    with closing(sqlite3.connect(purged.file("telemetry"))) as connection:
        assert connection.execute("SELECT count(*) FROM device_1m").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM device_1h").fetchone() == (4 * HOURS,)
    return open_store(whole), open_store(purged)


def bill(store: Store, prices: list[Price], start: int = START, end: int = END) -> Money:
    with bill_at(store, start, end, PriceBook(prices)) as priced, priced.pipelined():
        return priced.money


prices = st.lists(
    st.builds(
        lambda selector, nano, minute, seq: Price(selector, nano, START + 60 * minute if minute else 0, seq=seq),
        st.sampled_from(["gpu", "H100", "GPU-0", "GPU-2"]),
        st.one_of(st.none(), st.integers(0, 10**12)),
        st.integers(0, 60 * HOURS),
        st.integers(1, 99),
    ),
    max_size=6,
)


@settings(max_examples=examples(60), deadline=None)
@given(prices)
def test_the_bill_adds_up_to_the_nano_dollar_over_any_history_of_prices(
    stores: tuple[Store, Store], history: list[Price]
) -> None:
    for store in stores:
        money = bill(store, history)
        assert money.paid == money.busy + money.idle + money.other + money.unallocated
        assert sum(money.by_epoch.values()) == money.busy + money.idle


@settings(max_examples=examples(60), deadline=None)
@given(prices)
def test_hours_of_which_only_the_sum_is_left_keep_their_tokens_and_dollars(
    stores: tuple[Store, Store], history: list[Price]
) -> None:
    # The seeded host does the same in every minute, so that a division by time is exact.
    hours_by_store = [hours_of(store, START, END, PriceBook(history)) for store in stores]
    assert hours_by_store[0].keys() == {(MODEL, START + 3600 * n) for n in range(HOURS)}
    assert {key: hour._replace(estimated=False) for key, hour in hours_by_store[1].items()} == hours_by_store[0]
    assert {hour.tokens for hour in hours_by_store[0].values()} == {TOKENS}
    money = [bill(store, history) for store in stores]
    assert [money[1].paid, money[1].busy, money[1].by_epoch] == [money[0].paid, money[0].busy, money[0].by_epoch]
    assert money[0].priced_devices == money[1].priced_devices and not money[0].estimated


@settings(max_examples=examples(60), deadline=None)
@given(prices)
def test_hours_add_up_to_the_bill_over_any_history_of_prices(stores: tuple[Store, Store], history: list[Price]) -> None:
    always = [Price("gpu", 10**9, 0), *(price for price in history if price.nano_usd_per_device_hour is not None)]
    for store in stores:
        hours = sum(hour.nano_usd or 0 for hour in hours_of(store, START, END, PriceBook(always)).values())
        assert hours == sum(bill(store, always).by_epoch.values())


@settings(max_examples=examples(60), deadline=None)
@given(prices, st.integers(1, 60 * HOURS - 1), st.integers(0, 10**12) | st.none())
def test_a_price_that_begins_later_changes_no_dollars_before(
    stores: tuple[Store, Store], history: list[Price], minute: int, nano: int | None
) -> None:
    later = [*history, Price("gpu", nano, START + 60 * minute, seq=100), Price("GPU-0", nano, END, seq=101)]
    for store in stores:
        before, after = (bill(store, prices, START, START + 60 * minute) for prices in (history, later))
        assert (before.paid, before.by_epoch, before.unpriced_devices) == (
            after.paid,
            after.by_epoch,
            after.unpriced_devices,
        )
        whole = START + 60 * minute // 3600 * 3600
        hours = [hours_of(store, START, END, PriceBook(prices)) for prices in (history, later)]
        # Between two changes of price, hours share what rounding leaves, so that they add up to the bill: at most one
        # nano-dollar of each of the two devices.
        for key in hours[0]:
            if key[1] < whole:
                first, second = hours[0][key].nano_usd, hours[1][key].nano_usd
                assert (first is None) == (second is None) and abs((first or 0) - (second or 0)) <= 2


@pytest.fixture(params=["sqlite", "postgresql"])
def purged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreLocation]:
    if request.param == "sqlite":
        yield without_minutes(recorded(tmp_path))
        return
    with server_url(tmp_path / "server") as url:
        yield without_minutes(recorded(locate(url)))


def test_an_hour_without_minutes_is_divided_at_a_change_of_price_and_marked(purged: StoreLocation) -> None:
    set_price(purged, "H100", 10**9)
    set_price(purged, "H100", 3 * 10**9, START + 3600 + 900)
    store = open_store(purged)
    (line,) = hourly(store, HOURS, END - 1)
    dollars = [2 * 10**9, 2 * (10**9 // 4 + 3 * 10**9 * 3 // 4), 6 * 10**9]
    assert [hour.nano_usd for hour in line.hours if hour] == dollars
    assert [hour.tokens for hour in line.hours if hour] == [TOKENS] * HOURS
    assert [hour.estimated for hour in line.hours if hour] == [False, True, False]
    report = fleet_report(store, 3600 * HOURS, END)
    assert report.bill is not None and report.bill.paid == 2 * sum(dollars)
    assert report.estimated and report.deployments[0].generated_tokens == 40 * 3600 * HOURS
    # A window that begins within such an hour has its part of it.
    part = fleet_report(store, 3600 + 1200, END)
    assert part.bill is not None and part.bill.paid == 4 * (6 * 10**9 // 2 + 3 * 10**9 // 3)
    assert part.estimated and part.deployments[0].generated_tokens == 40 * 4800
    assert not fleet_report(store, 3600, END).estimated


def test_a_price_from_within_a_minute_marks_an_hour_without_minutes_as_estimated(stores: tuple[Store, Store]) -> None:
    history = [Price("gpu", 10**9, 0), Price("gpu", 3 * 10**9, START + 3600 + 930)]
    assert [bill(store, history).estimated for store in stores] == [False, True]


def test_a_window_that_begins_before_anything_was_recorded_is_no_estimate(stores: tuple[Store, Store]) -> None:
    for store in stores:
        report = fleet_report(store, 86_400 + 1800, END)
        assert not report.estimated and report.deployments[0].generated_tokens == 40 * 3600 * HOURS
