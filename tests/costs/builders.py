"""Builders for the tests of this package."""

from collections.abc import Iterator
from contextlib import contextmanager

from pertoken.costs.bill import Bill, bill
from pertoken.costs.hours import ModelHour, model_hours
from pertoken.costs.prices.book import PriceBook, PriceSubject
from pertoken.store.connect.open import Store

H100 = PriceSubject("gpu", "NVIDIA H100 80GB HBM3", "GPU-1")


@contextmanager
def bill_at(store: Store, start: int, end: int, prices: PriceBook | None = None) -> Iterator[Bill]:
    """Open the bill of [start, end) at stored prices or at `prices`."""
    with bill(store, start, end) as priced:
        if prices is not None:
            priced.prices = prices
        yield priced


def hours_of(store: Store, start: int, end: int, prices: PriceBook | None = None) -> dict[tuple[str, int], ModelHour]:
    """Return the hours of [start, end) by served model and start of the hour, at stored prices or at `prices`."""
    with bill_at(store, start, end, prices) as priced:
        hours_by_model = model_hours(priced)
    first = start // 3600 * 3600
    return {
        (model, first + 3600 * n): hour
        for model, hours in hours_by_model.items()
        for n, hour in enumerate(hours)
        if hour is not None
    }
