"""Lines of the bill by bucket of time sum to it, whatever the buckets are and whenever prices change."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.costs.bill import Bill
from pertoken.costs.lines import BUSY, IDLE, USES, share_of
from pertoken.costs.prices.book import Price, PriceBook
from pertoken.costs.spend import spend_of
from pertoken.store.connect.open import Store, open_store
from tests.costs.builders import bill_at
from tests.examples import examples
from tests.scenario import LOW_BATCH_70B, seed

HOUR, DAY = 3600, 86_400
HOURS = 3
END = 1_790_006_400 // HOUR * HOUR
START = END - HOUR * HOURS


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Four GPUs, of which a model holds two, over three hours."""
    folder = tmp_path_factory.mktemp("lines")
    return open_store(seed(folder, LOW_BATCH_70B, gpus=4, usd_per_hour=None, minutes=60 * HOURS, end_ts=END))


def check_lines(bill: Bill, bucket_s: int) -> None:
    """Assert that lines are positive, and sum to the bill by use, by owner and by device."""
    money, billed = bill.money, bill.by_bucket(bucket_s)
    by_use, by_epoch, by_device = Counter[str](), Counter[int](), Counter[int]()
    idle_by_epoch = Counter[int]()
    lines = list(billed.lines())
    assert len({line[:5] for line in lines}) == len(lines)
    for line in lines:
        assert line.nano_usd > 0 and (line.epoch_id is not None) == (line.use in (BUSY, IDLE))
        assert bill.window.start <= line.start_ts < line.end_ts <= bill.window.end
        by_use[line.use] += line.nano_usd
        by_device[line.device_id] += line.nano_usd
        if line.epoch_id is not None:
            by_epoch[line.epoch_id] += line.nano_usd
            idle_by_epoch[line.epoch_id] += line.nano_usd if line.use == IDLE else 0
    assert billed.money.allocations == money.allocations
    assert [by_use[use] for use in USES] == [money.busy, money.idle, money.other, money.unallocated]
    assert +by_epoch == {epoch_id: nano for epoch_id, nano in money.by_epoch.items() if nano}
    assert +idle_by_epoch == {epoch_id: nano for epoch_id, nano in money.idle_by_epoch.items() if nano}
    assert +by_device == {device_id: nano for device_id, nano in money.by_device.items() if nano}


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 60 * HOURS)), max_size=4),
    st.integers(0, 90),
    st.sampled_from([HOUR, 2 * HOUR, DAY]),
)
def test_lines_sum_to_the_bill_over_any_prices_and_buckets(
    store: Store, prices: list[tuple[int, int]], minutes: int, bucket_s: int
) -> None:
    book = PriceBook(Price("gpu", nano, START + 60 * minute, seq=n) for n, (nano, minute) in enumerate(prices))
    with bill_at(store, START + 60 * minutes, END, book) as bill:
        check_lines(bill, bucket_s)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 10**12))
def test_a_device_hour_costs_its_price_whoever_holds_it(store: Store, nano_usd_per_hour: int) -> None:
    with bill_at(store, START, END, PriceBook([Price("gpu", nano_usd_per_hour, 0)])) as bill:
        paid = Counter[tuple[int, int]]()
        for line in bill.by_bucket(HOUR).lines():
            paid[line.start_ts, line.device_id] += line.nano_usd
        expected = {
            (START + HOUR * hour, device_id): nano_usd_per_hour for hour in range(HOURS) for device_id in bill.payers
        }
        assert paid == expected


def test_time_of_an_epoch_without_a_usable_row_is_other_work_in_every_line(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=4, usd_per_hour=None, minutes=60 * HOURS, end_ts=END)
    with closing(sqlite3.connect(tmp_path / "telemetry.db")) as connection, connection:
        connection.execute("UPDATE deployment SET last_ts = 1")
    store, book = open_store(where), PriceBook([Price("gpu", 10**10, 0)])
    with bill_at(store, START, END, book) as bill:
        check_lines(bill, HOUR)
        assert bill.money.other == bill.money.paid // 2 and not bill.money.by_epoch and not bill.kinds
        assert [line.name for line in spend_of(bill, {}, "model", {}).lines] == ["other work", "unallocated"]


def test_time_of_a_device_without_a_price_has_no_lines(store: Store) -> None:
    with bill_at(store, START, END, PriceBook([Price("gpu", 10**9, START + HOUR)])) as bill:
        lines = list(bill.by_bucket(HOUR).lines())
    assert {line.start_ts for line in lines} == {START + HOUR, START + 2 * HOUR}


sizes = st.integers(0, 10**17)


@given(st.integers(0, 10**15), st.tuples(sizes, sizes).filter(lambda pair: max(pair) > 0))
def test_a_share_is_exact_where_its_product_is_beyond_64_bits(amount: int, pair: tuple[int, int]) -> None:
    part, whole = sorted(pair)
    (share,) = share_of(*(np.array([value]) for value in (amount, part, whole)))
    assert share == (2 * amount * part + whole) // (2 * whole)
