"""The prices of a database."""

from pathlib import Path

from pertoken.costs.prices.stored import price_book, prices_set
from pertoken.store.connect.open import open_store
from pertoken.window.reading import Window
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store, set_price

END = 1_790_000_000 // 3600 * 3600


def test_prices_come_as_they_were_set_and_the_book_holds_them_for_the_devices_recorded(tmp_path: Path) -> None:
    where = seed(new_store(tmp_path), LOW_BATCH_70B, gpus=1, usd_per_hour=None, minutes=2, end_ts=END)
    set_price(where, "H100", 5, from_ts=10)
    store = open_store(where)
    assert [(price.selector, price.nano_usd_per_device_hour, price.from_ts) for price in prices_set(store)] == [
        ("H100", 5, 10)
    ]
    with store.read() as connection:
        book = price_book(store, connection, Window(connection, 0, END).inventory)
    assert book.prices == prices_set(store)


def test_a_store_that_stays_open_sees_each_price_set(tmp_path: Path) -> None:
    where = seed(new_store(tmp_path), LOW_BATCH_70B, gpus=1, usd_per_hour=None, minutes=2, end_ts=END)
    store = open_store(where, keep=True)

    def prices() -> list[int | None]:
        with store.read() as connection:
            book = price_book(store, connection, Window(connection, 0, END).inventory)
        return [price.nano_usd_per_device_hour for price in book.prices]

    for n in range(1, 4):
        set_price(where, "H100", n, from_ts=n)
        assert prices() == list(range(1, n + 1))


def test_without_advice_no_price_was_set(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    where.file("advice").unlink()
    assert prices_set(open_store(where)) == ()
