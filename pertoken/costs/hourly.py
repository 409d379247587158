"""What a million tokens cost, model by model and hour by hour: from one bucket of each deployment and hour."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from pertoken.costs.ledger import divide
from pertoken.costs.prices import PriceBook, Priced
from pertoken.costs.ranks import FOLLOWING
from pertoken.costs.report import price_book
from pertoken.store import read, sums
from pertoken.store.answers import Rows
from pertoken.store.open import Store
from pertoken.store.rollup import HOUR
from pertoken.store.segments import stretches
from pertoken.units import HOUR_MS, MTOK

_NS = 1_000_000
"""Nanoseconds in a millisecond."""
_HOUR_NS = HOUR_MS * _NS
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

    @property
    def tokens(self) -> int | None:
        """Of all hours of which they are known, whether those have a price or not."""
        known = [each.tokens for each in self.hours if each and each.tokens is not None]
        return sum(known) if known else None


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
    found: defaultdict[str, defaultdict[int, _Sums]] = defaultdict(partial(defaultdict, _Sums))
    with store.read() as connection:
        under_way = read.whole_hour(connection, end)
        # Ranks that follow hold devices, and their head counts their tokens.
        serving = {
            epoch_id: (model, not url.startswith(FOLLOWING))
            for epoch_id, model, url in sums.models(connection, start - HOUR)
        }
        payers = sums.payers(connection)
        devices_of = read.by_epoch(read.epoch_devices(connection, start - HOUR))
        for stretch in stretches(start, end, prices.changes(), under_way=under_way):
            of_device, of_epoch = _rates(payers, devices_of, prices, stretch[0].start)
            # Rows come epoch by epoch, so that what is known of one is looked up once.
            for epoch_id, rows in groupby(sums.served_by_bucket(connection, stretch), itemgetter(0)):
                if epoch_id not in serving:
                    continue  # its buckets were shipped before it was
                model, counts = serving[epoch_id]
                hours, holds, rate = found[model], epoch_id in of_epoch, of_epoch.get(epoch_id)
                rate = None if rate is None else rate * _NS
                for _, ts, whole_ms, prompt, generated in rows:
                    hour = hours[ts - ts % HOUR]
                    if whole_ms and holds:
                        hour.held = True
                        if rate is None:
                            hour.priced = False
                        else:
                            hour.product += whole_ms * rate
                    if not counts:
                        continue
                    if prompt is None or generated is None:
                        hour.counted = False
                    else:
                        hour.tokens += prompt + generated
            for epoch_id, ts, device_id, held_ns in sums.held_by_bucket(connection, stretch):
                if epoch_id in serving and device_id in of_device:
                    found[serving[epoch_id][0]][ts - ts % HOUR].hold(held_ns, of_device[device_id])
    return {
        (model, ts): ModelHour(
            divide(each.product, _HOUR_NS) if each.held and each.priced else None,
            each.tokens if each.counted else None,
        )
        for model, hours in found.items()
        for ts, each in hours.items()
    }


@dataclass(slots=True)
class _Sums:
    """Of one model in one hour, so far."""

    product: int = 0
    """Device time in ns times nano-USD an hour."""
    held: bool = False
    """Whether it held any device: what runs elsewhere does not cost nothing, but nobody here knows what."""
    priced: bool = True
    tokens: int = 0
    counted: bool = True

    def hold(self, held_ns: int, nano_usd_per_hour: int | None) -> None:
        """Devices were held for so long that cost so much; None: not known."""
        self.held = True
        if nano_usd_per_hour is None:
            self.priced = False
        else:
            self.product += held_ns * nano_usd_per_hour


def _rates(
    payers: Rows, devices_of: Mapping[int, Sequence[int]], prices: PriceBook, ts: int
) -> tuple[dict[int, int | None], dict[int, int | None]]:
    """Nano-USD for an hour of each device that is paid for, and of all of an epoch together; None where not known."""
    of_device: dict[int, int | None] = {}
    alike: dict[tuple[str, str, str], int | None] = {}
    for device_id, kind, name, uuid in payers:
        key = kind, name, uuid if prices.alone(uuid) else ""
        if key not in alike:
            price = prices.at(Priced(kind, name, uuid), ts)
            alike[key] = None if price is None else price.nano_usd_per_device_hour
        of_device[device_id] = alike[key]
    of_epoch: dict[int, int | None] = {}
    for epoch_id, device_ids in devices_of.items():
        rates = [of_device[each] for each in device_ids if each in of_device]
        if rates:
            known = [each for each in rates if each is not None]
            of_epoch[epoch_id] = sum(known) if len(known) == len(rates) else None
    return of_device, of_epoch
