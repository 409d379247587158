"""Builders for the tests of this package."""

from pertoken.costs.hours.hour import ModelHour
from pertoken.costs.hours.model_hours import model_hours
from pertoken.costs.prices.book import PriceBook, Priced
from pertoken.costs.prices.stored import price_book
from pertoken.store.connect.open import Store
from pertoken.window.reading import Window

H100 = Priced("gpu", "NVIDIA H100 80GB HBM3", "GPU-1")


def hours_of(store: Store, start: int, end: int, prices: PriceBook | None = None) -> dict[tuple[str, int], ModelHour]:
    """Return the hours of [start, end) by served model and start of the hour, at stored prices or at `prices`."""
    with store.read() as connection:
        window = Window(connection, start, end)
        if prices is None:
            prices = price_book(store, connection, window.inventory)
        hours = model_hours(window, prices)
    first = start // 3600 * 3600
    return {
        (model, first + 3600 * n): hour
        for model, hours in hours.items()
        for n, hour in enumerate(hours)
        if hour is not None
    }
