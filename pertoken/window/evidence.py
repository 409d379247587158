"""Evidence for rules: series of deployments, services, devices and hosts with their provenance, made of a window."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from pertoken.catalog.market import Market
from pertoken.evidence import Evidence, LazySeries, OperatingPoint, Series
from pertoken.metrics import PER_REQUEST_TPOT, QUOTIENTS, SERIES, Quotient
from pertoken.provenance import Provenance, worst
from pertoken.state.demand import Demand
from pertoken.units import HOUR_MS
from pertoken.window import engine_counts
from pertoken.window.columns import Columns, Ints, in_turn
from pertoken.window.devices import DeviceSeries
from pertoken.window.epochs.history import EpochsBefore, History
from pertoken.window.inventory import Inventory, by
from pertoken.window.measured import Measured
from pertoken.window.parts import HISTOGRAMS_PART, Parts
from pertoken.window.series import alone
from pertoken.window.series import points as series
from pertoken.window.series.demand import demand
from pertoken.window.series.histograms import histogram
from pertoken.window.series.minutes import ACTIVITY, operating_points
from pertoken.window.series.of_window import NUMBERS, READERS, Find, Finders, WindowMinutes, WindowSeries
from pertoken.window.series.points import Points
from pertoken.window.series.sources import (
    COUNTED_BY,
    FROM_HISTOGRAMS,
    ITL,
    LENGTHS,
    OF_DEPLOYMENTS,
    OF_DEVICES,
    TRAFFIC,
    remedies,
)

_BEGUN = "recording has only begun: let the agent run some minutes"
_NOT_SEEN = "nothing of it was recorded in this window: see `pertoken doctor` on its host"


@dataclass(frozen=True, eq=False)
class EvidenceReader:
    """Series for rules, and the demand of services, made of the buckets of a window."""

    market: Market
    inventory: Inventory
    measured: Measured
    missing: Mapping[int, Sequence[Any]]
    """Rows of unreadable metrics, by owner."""
    owners_known_since: Mapping[int, int]
    """Devices -> since when their owners are known again, where they once were unknown."""
    history: History = field(default_factory=History)
    """Earlier epochs, including those of weeks before the window."""
    number: int = field(default_factory=NUMBERS.__next__)
    """Number by which a `WindowSeries` refers to it."""
    _made: dict[tuple[str, tuple[int, ...], str], Series | None] = field(default_factory=dict, init=False, repr=False)
    _latest: dict[tuple[str, tuple[int, ...]], Finders] = field(default_factory=dict, init=False, repr=False)
    """Of the subject that was requested last: rules read several series of one subject."""
    _observed: dict[tuple[str, tuple[int, ...], str], Points | None] = field(
        default_factory=dict, init=False, repr=False
    )
    """Observations of the series that was requested last: its summary, and its hours or quantiles, are made of them."""
    _times: dict[tuple[int, ...], series.Buckets] = field(default_factory=dict, init=False, repr=False)
    """Buckets of the epochs that were requested last."""

    def __post_init__(self) -> None:
        READERS[self.number] = self

    @cached_property
    def _devices(self) -> DeviceSeries:
        return DeviceSeries(self.inventory, self.measured, self.missing, self.owners_known_since)

    @property
    def parts(self) -> Parts:
        """Parts of the window."""
        return self.measured.parts

    @property
    def histograms(self) -> Mapping[tuple[int, str], Sequence[tuple[str, Ints]]]:
        """(upper bounds as stored, observations by bucket) by epoch and metric."""
        histograms: Mapping[tuple[int, str], Sequence[tuple[str, Ints]]] = self.parts[HISTOGRAMS_PART]
        return histograms

    def of_deployments(self, deployment_ids: Sequence[int]) -> Evidence:
        """Return what was measured on one deployment, or on several added up bucket by bucket.

        Only the present epoch of each counts, as an earlier one had other knobs or devices. There is no evidence of
        several deployments if one of them did not run in this window.
        """
        if not all(deployment_id in self.inventory.running for deployment_id in deployment_ids):
            return Evidence({}, dict.fromkeys(SERIES, _NOT_SEEN))
        rows = [self.inventory.running[deployment_id] for deployment_id in deployment_ids]
        epochs = EpochsBefore(self.history, tuple(deployment_ids))
        alone = len(rows) == 1
        observed_ms = self.measured.times_alone.observed_ms(rows[0].epoch_id) if alone else self._observed_ms(rows)
        if not observed_ms:
            return Evidence({}, dict.fromkeys(SERIES, _BEGUN), epochs=epochs)
        device_ids, host_ids = self._device_ids(rows), tuple(dict.fromkeys(row.host_id for row in rows))
        series_of = self._lazy("deployment", deployment_ids, (*OF_DEPLOYMENTS, *FROM_HISTOGRAMS), observed_ms)
        remedies = self._remedies(*(row.engine_id for row in rows), *device_ids, *host_ids)
        points = WindowMinutes(self, deployment_ids[0]) if alone else ()  # a forecast is calibrated on one deployment
        return Evidence(series_of, remedies, epochs=epochs, points=points)

    def _observed_ms(self, rows: Sequence[Any]) -> float:
        """Return the time in which all members were observed."""
        buckets = self._times_together(rows)
        return float(buckets.least(buckets.rows.floats("observed_ms")).sum())

    def minutes(self, deployment_id: int) -> tuple[OperatingPoint, ...]:
        """Return minutes of the present epoch of a deployment that differ in their load, oldest first."""
        row = self.inventory.running[deployment_id]
        if self._late([row]):
            return ()  # tokens of a minute are partly of minutes before
        own = partial(WindowSeries, self, "deployment", (deployment_id,))
        activity = {name: self.observations(own(name)) for name in ACTIVITY}
        generated_len = self.made(own("generated_len"))
        mean = None if generated_len is None else generated_len.mean
        return operating_points(self._served(row.epoch_id), activity, mean)

    def of_devices(self, device_ids: Sequence[int]) -> Evidence:
        """Return what was measured on a device, or on several together; nothing where one was not seen."""
        if not all(device_id in self.inventory.devices for device_id in device_ids):
            return Evidence({}, dict.fromkeys(SERIES, _NOT_SEEN))
        observed_ms = [self._devices.observed_ms(device_id) for device_id in device_ids]
        series_of = self._lazy("device", device_ids, OF_DEVICES, min(observed_ms, default=0.0))
        return Evidence(series_of, self._remedies(*device_ids))

    def _lazy(
        self, kind: str, ids: Sequence[int], names: Iterable[str], observed_ms: float
    ) -> dict[str, Series | LazySeries]:
        series_of: dict[str, Series | LazySeries] = {name: WindowSeries(self, kind, tuple(ids), name) for name in names}
        return series_of | {"observed_h": series.single(observed_ms / HOUR_MS, Provenance.COUNTER)}

    def made(self, of: WindowSeries) -> Series | None:
        """Return the summary of a series, made once; None if it was not measured."""
        key = of.kind, of.ids, of.name
        if key not in self._made:
            self._made[key] = self._histogram_of(of) if of.name in FROM_HISTOGRAMS else self._summary(of)
        return self._made[key]

    def _summary(self, of: WindowSeries) -> Series | None:
        points = self.observations(of)
        if points is None:
            return None
        if of.kind == "device":
            by_hour = any(series.by_hour(self.measured.device_time(subject_id)) for subject_id in of.ids)
        else:
            rows = [self.inventory.running[subject_id] for subject_id in of.ids]
            by_hour = any(self.measured.times_alone.by_hour(row.epoch_id) for row in rows)
        return points.summary(by_hour=by_hour, distribution=of)

    def _histogram_of(self, of: WindowSeries) -> Series | None:
        rows = [self.inventory.running[subject_id] for subject_id in of.ids]
        if of.name != ITL:
            return self._histogram(rows, of.name)
        per_request = any(row.engine_kind in PER_REQUEST_TPOT for row in rows)
        return None if per_request else self._histogram(rows, "tpot_s")

    def observations(self, of: WindowSeries) -> Points | None:
        """Return the observations of a series; None if it was not measured."""
        key = of.kind, of.ids, of.name
        if key not in self._observed:
            find = self._alone(of) if len(of.ids) == 1 else None
            points = find() if find is not None else self._finders(of.kind, of.ids).find(of.name)
            self._observed.clear()
            self._observed[key] = points
        return self._observed[key]

    def _alone(self, of: WindowSeries) -> Callable[[], Points | None] | None:
        """Return a function that finds a series of one subject; None if it is not found for all subjects at once."""
        if of.kind == "device":
            return self.measured.of_device_alone(of.ids[0], of.name)
        row = self.inventory.running[of.ids[0]]
        device_ids = self._device_ids([row])
        if of.name in alone.OF_DEVICES:
            return self.measured.of_device_alone(device_ids[0], of.name) if len(device_ids) == 1 else None
        find = self.measured.of_deployment_alone(row.epoch_id, of.name)
        if find is not None and of.name in COUNTED_BY and of.name in self._late([row]):
            return partial(series.reported, find)
        return find

    def _finders(self, kind: str, ids: tuple[int, ...]) -> Finders:
        """Return how to find the observations of each series of deployments or of devices."""
        if (kind, ids) not in self._latest:
            finders = self._devices.finders(ids) if kind == "device" else self._finders_of_deployments(ids)
            self._latest.clear()
            self._latest[kind, ids] = finders
        return self._latest[kind, ids]

    def _finders_of_deployments(self, ids: tuple[int, ...]) -> Finders:
        rows = [self.inventory.running[subject_id] for subject_id in ids]
        buckets, all_columns = self._times_together(rows), cache(partial(self._together, rows))
        busy, origin = series.busy(buckets), series.busy_provenance(buckets)
        host_ids = tuple(dict.fromkeys(row.host_id for row in rows))
        allocated = self._allocated(rows)

        def of(make: Callable[..., Points | None], *arguments: Any, **options: Any) -> Callable[[], Points | None]:
            return lambda: make(all_columns(), *arguments, **options)

        finders: Find = {
            "prompt_tok_s": of(series.rate, "prompt_tokens"),
            "computed_tok_s": of(series.rate, "computed_tokens"),
            "generated_tok_s": partial(series.rate, buckets, "generated_tokens"),
            "busy_generated_tok_s": partial(series.ratio, busy, "generated_tokens", "busy_ms", origin, 1000),
            "cached_share": of(series.ratio, "cached_tokens", "prompt_tokens"),
            "requests_s": of(series.rate, "requests_finished"),
            "busy": partial(series.ratio, buckets, "busy_ms", "observed_ms", origin),
            "running": of(series.while_busy, "running_1e2", 1e2, mean=False),
            "waiting": of(series.gauge, "waiting_1e2", 1e2),
            "kv_use": of(series.while_busy, "kv_use_1e4", 1e4, mean=True, largest=1.0),
            "preemptions": of(series.rate, "preemptions", per_ms=HOUR_MS),
            "memory_traffic_bytes_s": partial(self._memory_traffic, host_ids),
            "host_memory_free": partial(self._devices.host_memory_free, host_ids),
            "arrival_dispersion": of(series.dispersion, "requests_finished"),
            "energy_w": partial(self._devices.energy, allocated),
            "j_per_token": of(self._energy_per_token, allocated),
        }

        def more() -> Find:
            return {**self._devices.gauges(self._device_ids(rows)), **self._engine_counts(rows, buckets, origin)}

        return Finders(finders, self._late(rows), more)

    def _together(self, rows: Iterable[Any]) -> series.Buckets:
        return series.together([self._served(row.epoch_id) for row in rows])

    def _times_together(self, rows: Iterable[Any]) -> series.Buckets:
        """Return the buckets with their `DEPLOYMENT_TIME` at least."""
        epoch_ids = tuple(row.epoch_id for row in rows)
        if epoch_ids not in self._times:
            buckets = series.together([series.with_busy(self.measured.epoch_time(epoch_id)) for epoch_id in epoch_ids])
            self._times.clear()
            self._times[epoch_ids] = buckets
        return self._times[epoch_ids]

    def _device_ids(self, rows: Iterable[Any]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(device.device_id for row in rows for device in self.inventory.held(row.epoch_id)))

    def demand_of(self, epochs: Sequence[Any]) -> Demand:
        """Return what was asked of these epochs together, those that ended in the window included.

        Epochs of one deployment follow each other: an hour in which one ended and the next began is served once.
        """
        lengths = {name: self._histogram(epochs, name) for name in LENGTHS}
        deployments = by(epochs, "deployment_id").values()
        members = [in_turn([self._served(row.epoch_id) for row in deployment]) for deployment in deployments]
        return demand(series.together(members), lengths, late=self._late(epochs) != set())

    def _served(self, epoch_id: int) -> Columns:
        return series.with_busy(self.measured.epoch(epoch_id))

    def _late(self, rows: Iterable[Any]) -> set[str]:
        """Return the rates of which a bucket's tokens, counted when a request ends, are partly of buckets before."""
        late = {gap.metric for row in rows for gap in self.missing.get(row.engine_id, ()) if gap.status == "late"}
        return {name for name, metrics in COUNTED_BY.items() if late & metrics}

    def _histogram(self, rows: Iterable[Any], metric: str) -> Series | None:
        return series.histogram(
            histogram(
                (upper_bounds, enumerate(counts.tolist()))
                for row in rows
                for upper_bounds, counts in self.histograms.get((row.epoch_id, metric), ())
            )
        )

    def _engine_counts(
        self, rows: Sequence[Any], buckets: series.Buckets, busy: Provenance
    ) -> dict[str, Callable[[], Points | None]]:
        """Return quotients of what the engines count beside tokens, of each bucket in which they counted."""

        def of(quotient: Quotient, scale: float | None = None) -> Points | None:
            return series.of_counts(self._counts(rows, quotient.counters), buckets, quotient, scale)

        readers: dict[str, Callable[[], Points | None]] = {
            name: partial(of, quotient) for name, quotient in QUOTIENTS.items()
        }
        readers["asleep"] = lambda: series.part_of_time(self._counts(rows, ("asleep_ms",)), buckets, "asleep_ms")
        readers["load_s"] = partial(series.with_provenance, readers["load_s"], Provenance.BOUND)
        if len(rows) != 1:  # estimates for one GPU: these do not add up over deployments
            return readers
        knobs = json.loads(rows[0].knobs)
        names = {device.name for device in self.inventory.held(rows[0].epoch_id) if device.parent_id is None}
        accelerator = self.market.accelerator(names.pop()) if len(names) == 1 else None
        # The engine's own estimate over the catalog's peak.
        origin = worst((Provenance.LISTED, busy))
        for name, quotient, share in engine_counts.peak_shares(knobs.get("dp"), knobs.get("weight_dtype"), accelerator):
            readers[name] = partial(series.with_provenance, partial(of, quotient, share), origin)
        return readers

    def _counts(self, rows: Sequence[Any], names: Iterable[str]) -> list[Columns]:
        """Return the deltas of further counters of each epoch that has some; none where nobody counts `names`."""
        counters = self.measured.counters if self.measured.counts_any(names) else {}
        return [counters[row.epoch_id] for row in rows if row.epoch_id in counters]

    def _allocated(self, rows: Iterable[Any]) -> list[tuple[int | None, int]]:
        """Return the epochs of deployments, those of their worker ranks included, each with each of its devices."""
        epochs = [
            epoch_id
            for row in rows
            for epoch_id in (row.epoch_id, *self.inventory.workers_of.get(row.deployment_id, ()))
        ]
        return [(epoch, device) for epoch in epochs for device in self.inventory.own_devices.get(epoch, ())]

    def _energy_per_token(self, buckets: series.Buckets, allocated: Sequence[tuple[int | None, int]]) -> Points | None:
        """Return energy per token in the buckets with tokens; energy of the others is spread over them evenly."""
        power = self._devices.energy(allocated)
        prompt, generated = (series.rates(buckets, name) for name in ("prompt_tokens", "generated_tokens"))
        ts = np.intersect1d(prompt[0], generated[0])
        if power is None or not len(ts := np.intersect1d(ts, power.ts)):
            return None
        seconds = generated[2][np.isin(generated[0], ts)] / 1000
        tokens = (prompt[1][np.isin(prompt[0], ts)] + generated[1][np.isin(generated[0], ts)]) * seconds
        joules = power.values[np.isin(power.ts, ts)] * seconds
        some = tokens > 0
        points = series.weighted(ts[some], joules[some] / tokens[some], tokens[some], power.provenance)
        with_tokens = float(joules[some].sum())
        return points if not with_tokens else points and replace(points, factor=float(joules.sum()) / with_tokens)

    def _memory_traffic(self, host_ids: Sequence[int]) -> Points | None:
        """Return the memory traffic of the CPUs of all hosts together."""
        return series.rate(series.together([self.measured.host(host_id) for host_id in host_ids]), TRAFFIC)

    def _remedies(self, *owner_ids: int) -> dict[str, str]:
        return remedies(gap for owner_id in owner_ids for gap in self.missing.get(owner_id, ()))
