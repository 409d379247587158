"""What a million tokens cost, model by model and hour by hour: from one bucket of each deployment and hour."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from sqlalchemy import Connection

from pertoken.costs.ledger import divide
from pertoken.costs.lines import STALE_TICKS
from pertoken.costs.observed import observed_share, silent_hosts
from pertoken.costs.prices import PriceBook, Priced
from pertoken.costs.ranks import FOLLOWING
from pertoken.costs.report import price_book
from pertoken.store import read, sums
from pertoken.store.answers import Rows
from pertoken.store.open import Store
from pertoken.store.rollup import HOUR, MINUTE
from pertoken.store.segments import divided_hours, stretches
from pertoken.units import HOUR_MS, MTOK

_NS = 1_000_000
"""Nanoseconds in a millisecond."""
_HOUR_NS = HOUR_MS * _NS
Key = tuple[str, int]
"""A served model and the start of an hour."""


class ModelHour(NamedTuple):
    """One model in one hour. Tokens are prompt (cached included) and generated, as far as they were observed."""

    nano_usd: int | None
    """None if a device it held has no price."""
    tokens: int | None
    """None if no deployment's tokens are known."""
    observed_ms: int = 0
    """Time in which its deployments were read and their tokens are known."""
    expected_ms: int = 0
    """Time in which its deployments should have been read, since they were first known."""
    uncounted_nano_usd: int = 0
    """Dollars, among the others, of deployments whose tokens are not known."""
    estimated: bool = False
    """Whether dollars of the hour were divided by time, as its minutes were deleted."""

    @property
    def recorded(self) -> bool:
        """Whether anything is known of it."""
        return self.nano_usd is not None or self.tokens is not None or self.observed_ms > 0

    @property
    def observed(self) -> float | None:
        """Share of the hour that was observed; None if nothing was to be observed."""
        return observed_share(self.observed_ms, self.expected_ms)

    @property
    def nano_usd_per_mtok(self) -> int | None:
        """Nano-USD for a million tokens; None if not known, or none was served.

        A deployment whose tokens are not known is left out with its dollars.
        """
        if self.nano_usd is None or not self.tokens:
            return None
        return divide((self.nano_usd - self.uncounted_nano_usd) * MTOK, self.tokens)


@dataclass(frozen=True, slots=True)
class ModelHours:
    """One model over whole hours of the clock, the last of which is under way."""

    model: str
    start_ts: int
    hours: tuple[ModelHour | None, ...]
    """Oldest first; None: it was not known."""

    @property
    def together(self) -> ModelHour:
        """All hours of which dollars and tokens are both known, with the share of all hours that was observed."""
        hours = [each for each in self.hours if each is not None]
        known = [each for each in hours if each.nano_usd is not None and each.tokens is not None]
        return ModelHour(
            sum(each.nano_usd or 0 for each in known) if known else None,
            sum(each.tokens or 0 for each in known) if known else None,
            sum(each.observed_ms for each in hours),
            sum(each.expected_ms for each in hours),
            sum(each.uncounted_nano_usd for each in known),
            any(each.estimated for each in known),
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
    with store.read() as connection:
        under_way, changes = read.whole_hour(connection, end), prices.changes()
        epochs = {row[0]: _Epoch(*row) for row in sums.models(connection, start - HOUR)}
        payers = sums.payers(connection)
        devices_of = read.by_epoch(read.epoch_devices(connection, start - HOUR))
        divided = divided_hours(start, end, changes, under_way=under_way)
        gone = read.without_minutes(connection, divided)
        hours = _Hours(epochs, divided)
        before: Mapping[int, int | None] = {}
        for stretch in stretches(start, end, changes, under_way=under_way, without_minutes=gone):
            of_device, of_epoch = _rates(payers, devices_of, prices, stretch[0].begin)
            if stretch[0].part is not None and before:
                repriced = {each for each, rate in of_device.items() if before[each] != rate}
                holders = (each for each, device_ids in devices_of.items() if not repriced.isdisjoint(device_ids))
                hours.estimated.update((epoch_id, stretch[0].start) for epoch_id in holders)
            before = of_device
            served, shared = sums.served_by_bucket(connection, stretch), sums.held_by_bucket(connection, stretch)
            hours.add(served, of_epoch, shared, of_device)
        expected_ms = _expected(_spans(connection, epochs.values(), start, end))
    return hours.by_model(expected_ms)


class _Epoch(NamedTuple):
    """A row of `sums.models`."""

    epoch_id: int
    model: str
    url: str
    start_ts: int
    end_ts: int | None
    last_ts: int
    host_id: int

    @property
    def counts(self) -> bool:
        """False for ranks that follow: they hold devices, and their head counts their tokens."""
        return not self.url.startswith(FOLLOWING)


@dataclass(slots=True)
class _Sums:
    """One model in one hour, so far."""

    product: int = 0
    """Device time in ns times nano-USD an hour."""
    held: bool = False
    """Whether it held any device: what runs elsewhere does not cost nothing, but nobody here knows what."""
    priced: bool = True
    tokens: int | None = None
    observed_ms: int = 0
    expected_ms: int = 0
    uncounted: int = 0
    """Of the product, that of epochs whose tokens are not known."""
    estimated: bool = False

    def hold(self, held_ns: int, nano_usd_per_hour: int | None) -> None:
        """Devices were held for so long that cost so much; None: not known."""
        self.held = True
        if nano_usd_per_hour is None:
            self.priced = False
        else:
            self.product += held_ns * nano_usd_per_hour

    def add(self, part: "_Part", counts: bool) -> None:
        """Take in an epoch's hour. Without both kinds of tokens none are counted; one that follows has none."""
        self.product += part.product
        self.held |= part.held
        self.priced &= part.priced
        if not counts:
            return
        if part.prompt is None or part.generated is None:
            self.uncounted += part.product
        else:
            self.tokens = part.prompt + part.generated + (self.tokens or 0)
            self.observed_ms += part.observed_ms

    def hour(self) -> ModelHour:
        """What is shown of it."""
        return ModelHour(
            divide(self.product, _HOUR_NS) if self.held and self.priced else None,
            self.tokens,
            self.observed_ms,
            self.expected_ms,
            divide(self.uncounted, _HOUR_NS) if self.uncounted else 0,
            self.estimated,
        )


@dataclass(slots=True)
class _Part(_Sums):
    """One epoch in one hour, so far: what is known of each kind of tokens."""

    prompt: int | None = None
    generated: int | None = None

    def count(self, prompt: int | None, generated: int | None, observed_ms: int) -> None:
        """Tokens that were observed; None: not known."""
        if prompt is not None:
            self.prompt = prompt + (self.prompt or 0)
        if generated is not None:
            self.generated = generated + (self.generated or 0)
        self.observed_ms += observed_ms


class _Hours:
    """Hours of models, added up row by row."""

    def __init__(self, epochs: Mapping[int, _Epoch], divided: Collection[int]) -> None:
        """`divided`: starts of hours with several rows of an epoch; of any other hour one row is all of it."""
        self._epochs, self._divided = epochs, frozenset(divided)
        self._models: defaultdict[str, defaultdict[int, _Sums]] = defaultdict(partial(defaultdict, _Sums))
        self._parts: defaultdict[tuple[int, int], _Part] = defaultdict(_Part)
        """By epoch and hour: hours that are made of several rows, or that lack tokens."""
        self.estimated: set[tuple[int, int]] = set()
        """Epochs and hours without minutes in which the price of a device changed."""

    def add(
        self, served: Rows, of_epoch: Mapping[int, int | None], shared: Rows, of_device: Mapping[int, int | None]
    ) -> None:
        """Add the rows of a stretch: of `sums.served_by_bucket` by what all devices of an epoch cost an hour together,
        and of `sums.held_by_bucket` by what each device does."""
        in_parts, divided = False, self._divided
        for epoch_id, ts, device_id, held_ns in shared:
            if device_id in of_device:
                self._parts[epoch_id, ts - ts % HOUR].hold(held_ns, of_device[device_id])
                in_parts = True
        # Rows come epoch by epoch, so that what is known of one is looked up once.
        for epoch_id, rows in groupby(served, itemgetter(0)):
            if epoch_id not in self._epochs:
                continue  # its buckets were shipped before it was
            hours = self._models[self._epochs[epoch_id].model]
            holds, rate = epoch_id in of_epoch, of_epoch.get(epoch_id)
            rate = None if rate is None else rate * _NS
            for _, ts, whole_ms, prompt, generated, observed_ms in rows:
                since = ts - ts % HOUR
                if in_parts or prompt is None or generated is None or since in divided:
                    hour: _Sums = self._parts[epoch_id, since]
                    self._parts[epoch_id, since].count(prompt, generated, observed_ms)
                else:  # nearly always, so that it is done without a call
                    hour = hours[since]
                    hour.tokens = prompt + generated + (hour.tokens or 0)
                    hour.observed_ms += observed_ms
                if whole_ms and holds:
                    hour.held = True
                    if rate is None:
                        hour.priced = False
                    else:
                        hour.product += whole_ms * rate

    def by_model(self, expected_ms: Mapping[Key, int]) -> dict[Key, ModelHour]:
        """All that was added; an hour in which a model should have been read and was not is there, too."""
        for (epoch_id, since), part in self._parts.items():
            epoch = self._epochs.get(epoch_id)
            if epoch is not None:
                hour = self._models[epoch.model][since]
                hour.add(part, epoch.counts)
                hour.estimated |= (epoch_id, since) in self.estimated
        for (model, since), ms in expected_ms.items():
            self._models[model][since].expected_ms = ms
        return {(model, ts): hour.hour() for model, hours in self._models.items() for ts, hour in hours.items()}


def _spans(connection: Connection, epochs: Iterable[_Epoch], start: int, end: int) -> Iterator[tuple[str, int, int]]:
    """(model, first, last): when each epoch that counts tokens should have been read.

    On a host that reports, an open epoch lasts as long as its deployment was there; on one that stopped nobody knows,
    so that it should have been read until now.
    """
    silent: Collection[int] | None = None
    for each in epochs:
        if not each.counts:
            continue
        last = each.last_ts if each.end_ts is None else each.end_ts
        if each.end_ts is None and start <= last < end - STALE_TICKS * MINUTE:
            if silent is None:
                silent = silent_hosts(connection, end)
            last = end if each.host_id in silent else last
        yield each.model, max(start, each.start_ts), min(end, last)


def _expected(spans: Iterable[tuple[str, int, int]]) -> dict[Key, int]:
    """Milliseconds of each hour that the spans of a model cover together."""
    found: dict[Key, int] = {}
    for (model, first, last), n in Counter(spans).items():
        for ts in range(first // HOUR * HOUR, last, HOUR):
            seconds = HOUR if first <= ts and ts + HOUR <= last else min(last, ts + HOUR) - max(first, ts)
            found[model, ts] = found.get((model, ts), 0) + 1000 * n * seconds
    return found


def _rates(
    payers: Rows, devices_of: Mapping[int, Sequence[int]], prices: PriceBook, ts: int
) -> tuple[dict[int, int | None], dict[int, int | None]]:
    """Nano-USD for an hour of each device that is paid for, and of all of an epoch together; None where not known."""
    of_device: dict[int, int | None] = {}
    alike: dict[tuple[str, str, str], int | None] = {}
    for device_id, kind, name, uuid in payers:
        key = kind, name, uuid if prices.alone(uuid) else ""
        if key not in alike:
            alike[key] = prices.rate(Priced(kind, name, uuid), ts)
        of_device[device_id] = alike[key]
    of_epoch: dict[int, int | None] = {}
    for epoch_id, device_ids in devices_of.items():
        rates = [of_device[each] for each in device_ids if each in of_device]
        if rates:
            of_epoch[epoch_id] = None if None in rates else sum(rates)  # type: ignore[arg-type]
    return of_device, of_epoch
