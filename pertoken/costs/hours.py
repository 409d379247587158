"""Dollars per million tokens by model and hour, and of hosts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from pertoken.costs.bill import Bill, bill
from pertoken.costs.ledger import NOTHING, ServedCost, divide
from pertoken.costs.lines import BilledBuckets
from pertoken.costs.prices.book import PriceBook
from pertoken.printable import natural_key
from pertoken.store.connect.open import Store
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.units import HOUR_MS, MTOK, first_hour
from pertoken.window.columns import NULL, Ints, Mask
from pertoken.window.figures import STALE_TICKS, observed_share, per_mtok
from pertoken.window.inventory import Inventory, KnownEpoch, follows


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
    """Dollars, among the others, of deployments without known tokens."""
    estimated: bool = False
    """Whether dollars of the hour were divided by time, as its minutes were deleted."""
    cached_tokens: int | None = None
    generated_tokens: int | None = None
    requests: int | None = None
    """Requests that ended."""

    @property
    def recorded(self) -> bool:
        """Whether dollars, tokens or time are known."""
        return self.nano_usd is not None or self.tokens is not None or self.observed_ms > 0

    @property
    def observed(self) -> float | None:
        """Share of the hour that was observed; None if nothing was to be observed."""
        return observed_share(self.observed_ms, self.expected_ms)

    @property
    def served(self) -> ServedCost:
        """Its dollars and tokens. A deployment whose tokens are not known is left out with its dollars."""
        if self.nano_usd is None or self.tokens is None:
            return NOTHING
        prompt = self.tokens - (self.generated_tokens or 0)
        return ServedCost(self.nano_usd - self.uncounted_nano_usd, prompt, self.generated_tokens, self.requests)

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
    """One model over whole hours of the clock; the last one is under way."""

    model: str
    start_ts: int
    hours: tuple[ModelHour | None, ...]
    """Oldest first; None: it was not known."""

    @property
    def together(self) -> ModelHour:
        """All hours with known dollars and tokens, with the share of all hours that was observed."""
        nano_usd = tokens = observed_ms = expected_ms = uncounted_nano_usd = 0
        counted = estimated = False
        counts: dict[str, int] = {}
        for hour in self.hours:
            if hour is None:
                continue
            observed_ms += hour.observed_ms
            expected_ms += hour.expected_ms
            if hour.nano_usd is None or hour.tokens is None:
                continue
            counted, estimated = True, estimated or hour.estimated
            nano_usd += hour.nano_usd
            tokens += hour.tokens
            uncounted_nano_usd += hour.uncounted_nano_usd
            for name in ("cached_tokens", "generated_tokens", "requests"):
                if (count := getattr(hour, name)) is not None:
                    counts[name] = counts.get(name, 0) + count
        if not counted:
            return ModelHour(None, None, observed_ms, expected_ms)
        return ModelHour(nano_usd, tokens, observed_ms, expected_ms, uncounted_nano_usd, estimated, **counts)

    @property
    def tokens(self) -> int | None:
        """Tokens of all hours with a count, with or without a price."""
        return self.total("tokens")

    def total(self, name: str) -> int | None:
        """Return the sum of a count of `ModelHour` over all hours with one; None without any."""
        known_values = [getattr(hour, name) for hour in self.hours if hour and getattr(hour, name) is not None]
        return sum(known_values) if known_values else None


_COUNTS = ("prompt_tokens", "generated_tokens", "observed_ms", "cached_tokens", "requests_finished")


def model_hours(
    bill: Bill, named: Callable[[KnownEpoch], str] = attrgetter("served_model")
) -> dict[str, list[ModelHour | None]]:
    """Return the cost and tokens of each model's deployments in each hour of the clock that the window touches.

    `named` gives the name under which the row of an epoch is counted: its model, service or owner. Dollars are lines
    of the bill: the hours of deployments whose devices all have a price sum to what these carry of it.

    None stands for an unknown hour; a model without any other is left out.
    """
    return _Hours(bill.by_bucket(HOUR), bill.prices, named).by_model()


class _Hours:
    """Hours by dense numbers: a slot is an epoch in an hour, a cell a model in an hour."""

    def __init__(self, billed: BilledBuckets, prices: PriceBook, named: Callable[[KnownEpoch], str]) -> None:
        self._billed, self._prices = billed, prices
        self._window, self._inventory = billed.window, billed.window.inventory
        self._first = self._window.start // HOUR
        self._n_hours = -(-self._window.end // HOUR) - self._first
        rows = sorted(self._inventory.epochs, key=lambda row: row.epoch_id)
        self._epoch_ids = np.array([row.epoch_id for row in rows], np.int64)
        self._counts = np.array([not follows(row) for row in rows], bool)
        """Worker ranks hold devices, and their head rank counts their tokens."""
        names = [named(row) for row in rows]
        self._models = sorted(set(names))
        number = {model: n for n, model in enumerate(self._models)}
        self._model_of = np.array([number[name] for name in names], np.int64)
        self._n_cells = len(self._models) * self._n_hours

    def by_model(self) -> dict[str, list[ModelHour | None]]:
        """Return all hours; one in which a model should have been read and was not is there, too."""
        if not self._n_cells:
            return {}
        n_slots = len(self._epoch_ids) * self._n_hours
        slots, prompt, generated, observed, cached, requests = self._served()
        has_prompt, has_generated = (_any(slots[column != NULL], n_slots) for column in (prompt, generated))
        counted = has_prompt & has_generated & np.repeat(self._counts, self._n_hours)
        tokens = _sum(slots, np.where(prompt == NULL, 0, prompt) + np.where(generated == NULL, 0, generated), n_slots)
        cells = self._cells(np.arange(n_slots))
        cell_tokens, cell_observed_ms = (
            _sum(cells[counted], column[counted], self._n_cells).tolist()
            for column in (tokens, _sum(slots, observed, n_slots))
        )
        cell_counted = _any(cells[counted], self._n_cells).tolist()
        counts = (self._counted(slots, column, counted) for column in (cached, generated, requests))
        nano_usd, uncounted_nano_usd, held = self._dollars(counted)
        estimated = self._estimated_cells(set(slots.tolist()))
        expected = self._expected_ms()
        recorded = (_any(cells[slots], self._n_cells) | held | (expected > 0)).tolist()
        rows = zip(
            nano_usd,
            (tokens if is_known else None for tokens, is_known in zip(cell_tokens, cell_counted, strict=True)),
            cell_observed_ms,
            expected.tolist(),
            uncounted_nano_usd,
            (cell in estimated for cell in range(self._n_cells)) if estimated else repeat(False, self._n_cells),
            *counts,
            strict=True,
        )
        hours = [ModelHour._make(row) if is_known else None for row, is_known in zip(rows, recorded, strict=True)]
        by_model = (hours[n : n + self._n_hours] for n in range(0, self._n_cells, self._n_hours))
        return {
            model: model_hours for model, model_hours in zip(self._models, by_model, strict=True) if any(model_hours)
        }

    def _served(self) -> tuple[Ints, ...]:
        """Return slot, `_COUNTS` of each bucket of an epoch that is known."""
        columns = [np.zeros((1 + len(_COUNTS), 0), np.int64)]
        for part in self._billed.parts:
            slots, is_known = self._slots(part.served.ints("epoch_id"), part.served.ints("ts") // HOUR)
            values = (part.served.ints(name)[is_known] for name in _COUNTS)
            columns.append(np.stack([slots, *values]))
        return tuple(np.concatenate(columns, axis=1))

    def _counted(self, slots: Ints, column: Ints, counted: Mask) -> Iterator[int | None]:
        """Yield the sum of a count of each cell, over the slots whose tokens are known; None where it is not known."""
        is_counted = (column != NULL) & counted[slots]
        cells = self._cells(slots[is_counted])
        sums, present = _sum(cells, column[is_counted], self._n_cells).tolist(), _any(cells, self._n_cells).tolist()
        return (total if is_known else None for total, is_known in zip(sums, present, strict=True))

    def _slots(self, epoch_ids: Ints, hours: Ints) -> tuple[Ints, Mask]:
        """Return the slot of each row with a known epoch, and the mask of these rows."""
        positions = np.minimum(np.searchsorted(self._epoch_ids, epoch_ids), len(self._epoch_ids) - 1)
        is_known = self._epoch_ids[positions] == epoch_ids
        return (positions * self._n_hours + hours - self._first)[is_known], is_known

    def _cells(self, slots: Ints) -> Ints:
        return self._model_of[slots // self._n_hours] * self._n_hours + slots % self._n_hours

    def _dollars(self, counted: Mask) -> tuple[list[int | None], list[int], Mask]:
        """Return the nano-USD of each cell (None: nothing was held, or a device has no price), those among them of
        epochs without known tokens, and whether something was held."""
        columns = [(owned.epoch_id, owned.bucket, owned.nano_usd, owned.held_ns) for owned in self._billed.owned]
        epoch_ids, hours, nano_usd, held_ns = (np.concatenate(column) for column in zip(*columns, strict=True))
        epoch_ids, hours, nano_usd = (column[held_ns > 0] for column in (epoch_ids, hours, nano_usd))
        slots, is_known = self._slots(epoch_ids, hours)
        cells, nano_usd = self._cells(slots), nano_usd[is_known]
        held, unpriced = _any(cells, self._n_cells), _any(cells[nano_usd == NULL], self._n_cells)
        priced = (held & ~unpriced).tolist()
        uncounted = ~counted[slots] & self._counts[slots // self._n_hours]
        together, of_uncounted = (
            _sum(cells[rows], nano_usd[rows], self._n_cells).tolist() for rows in (slice(None), uncounted)
        )
        return (
            [nano if is_priced else None for nano, is_priced in zip(together, priced, strict=True)],
            [nano if is_priced else 0 for nano, is_priced in zip(of_uncounted, priced, strict=True)],
            held,
        )

    def _estimated_cells(self, served_slots: set[int]) -> set[int]:
        """Return the cells in which the price of a device changed while only the hour's sum is kept."""
        number = {epoch_id: n for n, epoch_id in enumerate(self._epoch_ids.tolist())}
        payers = {device_id: row for device_id, row in self._inventory.devices.items() if row.parent_id is None}
        slots: set[int] = set()
        for previous, part in pairwise(self._billed.parts):
            if not part.divides_hour:
                continue
            rates = (self._prices.rates(payers.values(), ts) for ts in (previous.start, part.start))
            repriced = {device_id for device_id, old, new in zip(payers, *rates, strict=True) if old != new}
            slots |= {
                number[epoch_id] * self._n_hours + part.start // HOUR - self._first
                for epoch_id, device_ids in self._inventory.own_devices.items()
                if epoch_id in number and not repriced.isdisjoint(device_ids)
            }
        return set(self._cells(np.array(sorted(slots & served_slots), np.int64)).tolist())

    def _expected_ms(self) -> Ints:
        """Return for how long deployments of each model should have been read in each hour, added up."""
        expected_ms = np.zeros(self._n_cells, np.int64)
        number = dict(zip(self._epoch_ids.tolist(), self._model_of.tolist(), strict=True))
        intervals = _intervals(self._inventory, self._window.start, self._window.end)
        for (model, first, last), n in Counter((number[epoch], *interval) for epoch, *interval in intervals).items():
            if first >= last:
                continue  # by a clock that was ahead, it begins after the window
            begin, end = first // HOUR, -(-last // HOUR)
            offset = model * self._n_hours - self._first
            expected_ms[offset + begin : offset + end] += n * HOUR_MS
            expected_ms[offset + begin] -= 1000 * n * (first - begin * HOUR)
            expected_ms[offset + end - 1] -= 1000 * n * (end * HOUR - last)
        return expected_ms


def _sum(slots: Ints, values: Ints, n: int) -> Ints:
    """Add whole numbers by slot, exactly."""
    total = np.zeros(n, np.int64)
    np.add.at(total, slots, values)
    return total


def _any(slots: Ints, n: int) -> Mask:
    present = np.zeros(n, bool)
    present[slots] = True
    return present


def _intervals(inventory: Inventory, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (epoch, first, last): when each epoch that counts tokens should have been read.

    On a host that reports, an open epoch lasts as long as its deployment was there; on one that stopped nobody knows,
    so that it should have been read until now.
    """
    for row in inventory.epochs:
        if follows(row):
            continue
        last = row.newest_ts if row.end_ts is None else row.end_ts
        silent = row.end_ts is None and start <= last < end - STALE_TICKS * MINUTE
        if silent and row.host_id not in inventory.reporting:
            last = end
        yield row.epoch_id, max(start, row.start_ts), min(end, last)


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


@dataclass(frozen=True, slots=True)
class HostCost:
    """One host over whole hours of the clock; the last one is under way."""

    name: str
    devices: int
    """Accelerators."""
    unpriced_devices: int
    """Accelerators without a price in some of the time."""
    nano_usd: int | None
    """Dollars of all its devices with a price, allocated or not; None if none has a price."""
    tokens: int | None
    """Prompt (cached included) and generated tokens of the engines on it; None if none are known."""
    generated_tokens: int | None = None
    requests: int | None = None

    @property
    def served(self) -> ServedCost:
        """Its dollars and tokens; without dollars where an accelerator has no price."""
        nano_usd = None if self.unpriced_devices else self.nano_usd
        prompt = None if self.tokens is None else self.tokens - (self.generated_tokens or 0)
        return ServedCost(nano_usd, prompt, self.generated_tokens, self.requests)

    @property
    def nano_usd_per_mtok(self) -> int | None:
        """Nano-USD for a million tokens; None where an accelerator has no price, or no token was served."""
        return None if self.unpriced_devices else per_mtok(self.nano_usd, self.tokens)


def host_costs(store: Store, hours: int, now_ts: int, *, dated: bool = False) -> tuple[HostCost, ...]:
    """Return every host of the last `hours` hours of the clock, the one under way included, dearest first.

    `dated`: `now_ts`, a whole minute, is in the past, and everything is as of then. Raises StoreError.
    """
    nano_usd: Counter[int] = Counter()
    unpriced: defaultdict[int, set[int]] = defaultdict(set)
    with bill(store, first_hour(hours, now_ts), now_ts, dated=dated) as priced:
        inventory = priced.inventory
        for line in priced.device_costs():
            device = inventory.devices[line.device_id]
            if line.nano_usd is not None:
                nano_usd[device.host_id] += line.nano_usd
            elif device.kind != "cpu":
                unpriced[device.host_id].add(line.device_id)
        served = {row[0]: row[1:] for row in priced.window.tokens() if row[1] is not None}
    tokens, generated, requests = Counter[int](), Counter[int](), Counter[int]()
    for row in inventory.served:
        if row.epoch_id in served:
            for counts, count in zip((tokens, generated, requests), served[row.epoch_id], strict=True):
                counts[row.host_id] += count or 0
    accelerators = Counter(row.host_id for row in priced.payers.values() if row.kind != "cpu")
    lines = (
        HostCost(
            row.name,
            accelerators[row.host_id],
            len(unpriced[row.host_id]),
            nano_usd.get(row.host_id),
            *(counts.get(row.host_id) for counts in (tokens, generated, requests)),
        )
        for row in inventory.hosts
    )
    return tuple(sorted(lines, key=lambda line: (-(line.nano_usd or 0), natural_key(line.name))))
