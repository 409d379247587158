"""What a million tokens cost, model by model and hour by hour."""

from pertoken.costs.hours.hour import Key, ModelHour, ModelHours
from pertoken.costs.hours.model_hours import model_hours_of
from pertoken.costs.prices.book import PriceBook
from pertoken.costs.prices.stored import price_book
from pertoken.store.connect.open import Store
from pertoken.store.schema.rollup_tables import HOUR
from pertoken.window.reading import Window


def hourly(store: Store, hours: int, now_ts: int, *, dated: bool = False) -> tuple[ModelHours, ...]:
    """Every model served in the last so many hours of the clock, the one under way included, dearest first.

    `dated`: `now_ts`, a whole minute, is in the past, and everything is as of then. Raises StoreError.
    """
    start = now_ts // HOUR * HOUR - (hours - 1) * HOUR
    found = model_hours(store, start, now_ts, dated=dated)
    slots = range(start, now_ts, HOUR)
    models = (
        ModelHours(model, start, tuple(found.get((model, ts)) for ts in slots)) for model in {m for m, _ in found}
    )
    return tuple(sorted(models, key=lambda each: (-(each.together.nano_usd or 0), each.model)))


def model_hours(
    store: Store, start: int, end: int, prices: PriceBook | None = None, *, dated: bool = False
) -> dict[Key, ModelHour]:
    """Return what each served model cost in each hour of [start, end), by the prices set and listed, or by these.

    `dated` as in `hourly`. Raises StoreError.
    """
    with store.read() as connection:
        window = Window(connection, start, end, dated=dated)
        if prices is None:
            prices = price_book(store, connection, window.inventory.devices.values(), end)
        return model_hours_of(window, prices)
