"""What a million tokens cost, model by model and hour by hour: summed where it is stored, in two statements."""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from pertoken.costs.ledger import divide
from pertoken.costs.prices import PriceBook, Priced
from pertoken.costs.ranks import FOLLOWING
from pertoken.costs.report import price_book
from pertoken.store import read, sums
from pertoken.store.open import Store
from pertoken.store.rollup import HOUR
from pertoken.store.segments import stretches
from pertoken.units import HOUR_MS, MTOK

_HOUR_NS = HOUR_MS * 1_000_000
Key = tuple[str, int]
"""A served model and the start of an hour."""


class ModelHour(NamedTuple):
    """One model in one hour. Tokens are prompt (cached included) and generated; None: not all of it is known."""

    nano_usd: int | None
    tokens: int | None

    @property
    def nano_usd_per_mtok(self) -> int | None:
        """Nano-USD for a million tokens; None if not known, or none was served."""
        if self.nano_usd is None or not self.tokens:
            return None
        return divide(self.nano_usd * MTOK, self.tokens)


@dataclass(frozen=True, slots=True)
class ModelHours:
    """One model over whole hours of the clock, the last of which is under way."""

    model: str
    start_ts: int
    hours: tuple[ModelHour | None, ...]
    """Oldest first; None: nothing was recorded of it."""

    @property
    def together(self) -> ModelHour:
        """All hours of which dollars and tokens are both known."""
        known = [each for each in self.hours if each and each.nano_usd is not None and each.tokens is not None]
        return ModelHour(
            sum(each.nano_usd or 0 for each in known) if known else None,
            sum(each.tokens or 0 for each in known) if known else None,
        )


def hourly(store: Store, hours: int, now_ts: int) -> tuple[ModelHours, ...]:
    """Every model served in the last so many hours of the clock, the one under way included, dearest first.

    Raises StoreError.
    """
    start = now_ts // HOUR * HOUR - (hours - 1) * HOUR
    found = model_hours(store, start, now_ts, price_book(store, now_ts))
    slots = range(start, now_ts, HOUR)
    models = (
        ModelHours(model, start, tuple(found.get((model, ts)) for ts in slots)) for model in {m for m, _ in found}
    )
    return tuple(sorted(models, key=lambda each: (-(each.together.nano_usd or 0), each.model)))


def model_hours(store: Store, start: int, end: int, prices: PriceBook) -> dict[Key, ModelHour]:
    """By served model and start of the hour, over [start, end): what its deployments held and served.

    Device time is multiplied by its price and rounded once for a model's hour, so that it may differ from the bill,
    which is split to the nano-dollar device by device, by less than one nano-dollar for each device and stretch.
    Raises StoreError.
    """
    held: defaultdict[Key, int] = defaultdict(int)
    unpriced: set[Key] = set()
    tokens: dict[Key, int | None] = {}
    with store.read() as connection:
        under_way = read.whole_hour(connection, end)
        apart = bool(prices.detected) or sums.named(connection, prices.selectors)
        for stretch in stretches(start, end, prices.changes(), under_way=under_way):
            known: dict[Priced, int | None] = {}
            for model, ts, kind, name, uuid, held_ns in sums.held_by_hour(connection, stretch, apart):
                device = Priced(kind, name, uuid)
                if device not in known:
                    price = prices.at(device, stretch[0].start)
                    known[device] = None if price is None else price.nano_usd_per_device_hour
                nano_usd_per_hour = known[device]
                if nano_usd_per_hour is None:
                    unpriced.add((model, ts))
                else:
                    held[model, ts] += held_ns * nano_usd_per_hour
            for model, ts, prompt, generated, unknown in sums.tokens_by_hour(connection, stretch, FOLLOWING):
                before = tokens.get((model, ts), 0)
                tokens[model, ts] = None if unknown or before is None else before + prompt + generated
    return {
        key: ModelHour(None if key in unpriced else divide(held[key], _HOUR_NS), tokens.get(key, 0))
        for key in held.keys() | unpriced | tokens.keys()
    }
