"""Cost per million tokens by model and hour."""

from collections.abc import Callable

from pertoken.costs.bill import bill
from pertoken.costs.hours.hour import ModelHours
from pertoken.costs.hours.model_hours import model_hours
from pertoken.printable import natural_key
from pertoken.store.connect.open import Store
from pertoken.units import first_hour


def hourly(
    store: Store, hours: int, now_ts: int, *, dated: bool = False, named: Callable[[str], str] = str
) -> tuple[ModelHours, ...]:
    """Return every model served in the last `hours` hours of the clock, the one under way included, dearest first.

    `named` gives the name under which a served model is counted: its service, or its own. `dated`: `now_ts`, a whole
    minute, is in the past, and everything is as of then. Raises StoreError.
    """
    start = first_hour(hours, now_ts)
    with bill(store, start, now_ts, dated=dated) as priced:
        by_model = model_hours(priced, lambda row: named(row.served_model))
    models = (ModelHours(model, start, tuple(hours_of_model)) for model, hours_of_model in by_model.items())
    return tuple(sorted(models, key=lambda model: (-(model.together.nano_usd or 0), natural_key(model.model))))
