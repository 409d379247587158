"""Device time and tokens of models by the hour, made of the buckets of a window and of prices."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

import numpy as np

from pertoken.costs.hours.hour import ModelHour
from pertoken.costs.ledger import divide
from pertoken.costs.prices.book import PriceBook
from pertoken.store.schema.domains import MAX_DURATION_MS
from pertoken.store.schema.rollup_tables import HOUR, MINUTE
from pertoken.units import HOUR_MS
from pertoken.window.columns import NULL, Columns, Ints
from pertoken.window.inventory import Inventory
from pertoken.window.observed import STALE_TICKS
from pertoken.window.ranks import follows
from pertoken.window.reading import ServedBuckets, Window

T = TypeVar("T")

_NS = 1_000_000
"""Nanoseconds in a millisecond."""
_HOUR_NS = HOUR_MS * _NS
_MODEL_HOUR: Callable[[Sequence[Any]], ModelHour] = partial(tuple.__new__, ModelHour)
"""As `ModelHour._make`, without a call into Python for each."""


def model_hours(
    window: Window, prices: PriceBook, named: Callable[[str], str] = str
) -> dict[str, list[ModelHour | None]]:
    """Return what each model's deployments held and served in each hour of the clock that the window touches.

    `named` gives the name under which a served model is counted: its service, or its own.

    None stands for an hour of which nothing is known; a model without any other is left out.

    Device time is multiplied by its price and rounded once for a model's hour, so that it may differ from the bill,
    which is split to the nano-dollar device by device, by less than one nano-dollar for each device and stretch.
    """
    hours = _Hours(window, prices, named)
    for part in window.served(prices.changes()):
        hours.add(part)
    return hours.by_model()


class _Hours:
    """Rows of all epochs, by dense numbers of epoch, hour and price, so that they add up as columns."""

    def __init__(self, window: Window, prices: PriceBook, named: Callable[[str], str]) -> None:
        self._window, self._inventory, self._prices = window, window.inventory, prices
        self._first = window.start // HOUR
        self._n_hours = -(-window.end // HOUR) - self._first
        rows = sorted(self._inventory.epochs, key=lambda row: row.epoch_id)
        self._epoch_ids = np.array([row.epoch_id for row in rows], np.int64)
        self._counts = np.array([not follows(row) for row in rows], bool)
        """Worker ranks hold devices, and their head rank counts their tokens."""
        self._name_of = {model: named(model) for model in {row.served_model for row in rows}}
        self._models = sorted(set(self._name_of.values()))
        number = {model: n for n, model in enumerate(self._models)}
        self._model_of = np.array([number[self._name_of[row.served_model]] for row in rows], np.int64)
        self._rates: list[int | None] = []
        """Distinct prices of an hour: of a device, or of all of an epoch's together. None: not known."""
        self._allocated: list[Ints] = []
        """Columns (epoch and hour, rate, held ns)."""
        self._served: list[Ints] = []
        """Columns (epoch and hour, prompt tokens, generated tokens, observed ms)."""
        self._estimated: set[tuple[int, int]] = set()
        """(epoch_id, hour) in which the price of a device changed while only the hour's sum is kept."""
        self._before: Mapping[int, int | None] = {}

    def add(self, part: ServedBuckets) -> None:
        """Add the buckets of a stretch in which every price stays the same."""
        of_device, of_epoch = _rates(self._inventory, self._prices, part.start)
        if part.is_part and self._before:
            repriced = {device_id for device_id, rate in of_device.items() if self._before[device_id] != rate}
            self._estimated |= {
                (epoch_id, part.start // HOUR)
                for epoch_id, device_ids in self._inventory.own_devices.items()
                if not repriced.isdisjoint(device_ids)
            }
        self._before = of_device
        slots, rows = self._slots(part.served)
        self._served.append(
            np.column_stack(
                [slots, *(rows.ints(name) for name in ("prompt_tokens", "generated_tokens", "observed_ms"))]
            )
        )
        whole_ms = np.clip(rows.ints("whole_ms"), 0, MAX_DURATION_MS)  # NULL is negative
        self._hold(slots, whole_ms * _NS, rows.ints("epoch_id"), of_epoch)
        if len(part.shared):
            slots, rows = self._slots(part.shared)
            self._hold(slots, rows.ints("held_ns"), rows.ints("device_id"), of_device)

    def _slots(self, rows: Columns) -> tuple[Ints, Columns]:
        """Return the number of each row's epoch and hour, and the rows; those of an epoch that is not known go."""
        epochs = rows.ints("epoch_id")
        at = np.minimum(np.searchsorted(self._epoch_ids, epochs), max(len(self._epoch_ids) - 1, 0))
        known = self._epoch_ids[at] == epochs if len(self._epoch_ids) else np.zeros(len(rows), bool)
        if not known.all():
            at, rows = at[known], rows.where(known)
        return at * self._n_hours + rows.ints("ts") // HOUR - self._first, rows

    def _hold(self, slots: Ints, held_ns: Ints, owners: Ints, rates: Mapping[int, int | None]) -> None:
        """Add time in which devices were held at the price of `owners`; what has no device that is paid for goes."""
        ids = np.array(sorted(rates), np.int64)
        if not len(ids):
            return
        numbers = np.array([self._rate(rates[owner]) for owner in ids.tolist()], np.int64)
        at = np.minimum(np.searchsorted(ids, owners), len(ids) - 1)
        held_ns = np.minimum(held_ns, MAX_DURATION_MS * _NS)
        some = (ids[at] == owners) & (held_ns > 0)
        self._allocated.append(np.column_stack([slots[some], numbers[at[some]], held_ns[some]]))

    def _rate(self, nano_usd_per_hour: int | None) -> int:
        if nano_usd_per_hour not in self._rates:
            self._rates.append(nano_usd_per_hour)
        return self._rates.index(nano_usd_per_hour)

    def by_model(self) -> dict[str, list[ModelHour | None]]:
        """Return all that was added; an hour in which a model should have been read and was not is there, too."""
        n_slots = len(self._epoch_ids) * self._n_hours
        slots, prompt, generated, observed = _columns(self._served, 4)
        has_prompt, has_generated = (_any(slots[column != NULL], n_slots) for column in (prompt, generated))
        counted = has_prompt & has_generated & np.repeat(self._counts, self._n_hours)
        tokens = _sum(slots, np.where(prompt == NULL, 0, prompt) + np.where(generated == NULL, 0, generated), n_slots)
        observed_ms = _sum(slots, observed, n_slots)
        cells = self._model_of.repeat(self._n_hours) * self._n_hours + np.tile(
            np.arange(self._n_hours), len(self._epoch_ids)
        )
        """Number of the model and hour of each slot."""
        n_cells = len(self._models) * self._n_hours
        if not n_cells:
            return {}
        cell_tokens, cell_observed_ms = (
            _sum(cells[counted], column[counted], n_cells).tolist() for column in (tokens, observed_ms)
        )
        cell_counted = _any(cells[counted], n_cells).tolist()
        nano_usd, uncounted_nano_usd = self._dollars(cells, counted, n_cells)
        estimated = self._estimated_cells(cells, slots)
        expected = self._expected_ms(n_cells)
        allocated, _, _ = _columns(self._allocated, 3)
        recorded = _any(cells[np.concatenate([slots, allocated])], n_cells) | (expected > 0)
        rows = map(
            _MODEL_HOUR,
            zip(
                nano_usd,
                (tokens if known else None for tokens, known in zip(cell_tokens, cell_counted, strict=True)),
                cell_observed_ms,
                expected.tolist(),
                uncounted_nano_usd,
                (cell in estimated for cell in range(n_cells)) if estimated else repeat(False, n_cells),
                strict=True,
            ),
        )
        hours = [row if known else None for row, known in zip(rows, recorded.tolist(), strict=True)]
        by_model = (hours[at : at + self._n_hours] for at in range(0, n_cells, self._n_hours))
        return {
            model: model_hours for model, model_hours in zip(self._models, by_model, strict=True) if any(model_hours)
        }

    def _dollars(self, cells: Ints, counted: Any, n_cells: int) -> tuple[list[int | None], list[int]]:
        """Return the nano-USD of each cell (None: nothing was held, or a device has no price), and those among them
        of epochs without known tokens."""
        slots, rates, ns = _columns(self._allocated, 3)
        uncounted = ~counted[slots] & self._counts[slots // self._n_hours]
        at = cells[slots]
        held, unpriced = _any(at, n_cells), np.zeros(n_cells, bool)
        products, of_others = [0] * n_cells, [0] * n_cells
        for number, rate in enumerate(self._rates):
            of_rate = rates == number
            if rate is None:
                unpriced |= _any(at[of_rate], n_cells)
                continue
            products = _plus(products, _sum(at[of_rate], ns[of_rate], n_cells), rate)
            others = of_rate & uncounted
            if others.any():
                of_others = _plus(of_others, _sum(at[others], ns[others], n_cells), rate)
        known = (held & ~unpriced).tolist()
        return _divided(products, known, None), _divided(of_others, known, 0) if any(of_others) else of_others

    def _estimated_cells(self, cells: Ints, slots: Ints) -> set[int]:
        served_slots = set(slots.tolist()) if self._estimated else set()
        number = {epoch_id: n for n, epoch_id in enumerate(self._epoch_ids.tolist())}
        at = (
            number[epoch_id] * self._n_hours + hour - self._first
            for epoch_id, hour in self._estimated
            if epoch_id in number
        )
        return {int(cells[slot]) for slot in at if slot in served_slots}

    def _expected_ms(self, n_cells: int) -> Ints:
        """Return for how long deployments of each model should have been read in each hour, added up."""
        expected_ms = np.zeros(n_cells, np.int64)
        for (model, first, last), n in Counter(_spans(self._inventory, self._window.start, self._window.end)).items():
            if first >= last:
                continue  # by a clock that was ahead, it begins after the window
            begin, end = first // HOUR, -(-last // HOUR)
            at = self._models.index(self._name_of[model]) * self._n_hours - self._first
            expected_ms[at + begin : at + end] += n * HOUR_MS
            expected_ms[at + begin] -= 1000 * n * (first - begin * HOUR)
            expected_ms[at + end - 1] -= 1000 * n * (end * HOUR - last)
        return expected_ms


def _columns(parts: Sequence[Ints], width: int) -> tuple[Ints, ...]:
    values = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty((0, width), np.int64)
    return tuple(values.T)


def _sum(slots: Ints, values: Ints, n: int) -> Ints:
    """Add whole numbers by slot, exactly."""
    total = np.zeros(n, np.int64)
    np.add.at(total, slots, values)
    return total


def _plus(products: Sequence[int], ns: Ints, rate: int) -> list[int]:
    """Add a rate times each duration: such products are beyond 64 bits."""
    return [product + duration_ns * rate for product, duration_ns in zip(products, ns.tolist(), strict=True)]


def _divided(products: Sequence[int], known: Sequence[bool], unknown: T) -> list[int | T]:
    """Return nano-USD of products of a rate and nanoseconds, `unknown` where they are not known."""
    return [
        divide(product, _HOUR_NS) if is_known else unknown for product, is_known in zip(products, known, strict=True)
    ]


def _any(slots: Ints, n: int) -> Any:
    present = np.zeros(n, bool)
    present[slots] = True
    return present


def _spans(inventory: Inventory, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    """Yield (model, first, last): when each epoch that counts tokens should have been read.

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
        yield row.served_model, max(start, row.start_ts), min(end, last)


def _rates(inventory: Inventory, prices: PriceBook, ts: int) -> tuple[dict[int, int | None], dict[int, int | None]]:
    """Nano-USD for an hour of each device that is paid for, and of all of an epoch together; None where not known."""
    paid = {device_id: row for device_id, row in inventory.devices.items() if row.parent_id is None}
    of_device = dict(zip(paid, prices.rates(paid.values(), ts), strict=True))
    of_epoch: dict[int, int | None] = {}
    for epoch_id, device_ids in inventory.own_devices.items():
        rates = [of_device[device_id] for device_id in device_ids if device_id in of_device]
        if rates:
            of_epoch[epoch_id] = None if None in rates else sum(rates)  # type: ignore[arg-type]
    return of_device, of_epoch
