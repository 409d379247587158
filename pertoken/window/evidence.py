"""Evidence for rules: series of deployments, services, devices and hosts with their provenance, made of a window."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import NamedTuple

import numpy as np

from pertoken.catalog.market import Market
from pertoken.evidence import Evidence, HoursOfWeek, LazySeries, OperatingPoint, Series
from pertoken.metrics import DEVICE, MIN_STUCK_S, PER_REQUEST_TPOT, SERIES
from pertoken.metrics.series import Histogram, SampleShare
from pertoken.provenance import Provenance, worst
from pertoken.state.service import Demand
from pertoken.store.query.read import KnownEpoch
from pertoken.store.schema.rows import UnreadableMetric
from pertoken.units import HOUR_MS
from pertoken.window.columns import Columns, Floats, Ints, Mask, rows_in_turn, stacked, starts
from pertoken.window.energy import device_energy_mj, timed
from pertoken.window.epochs import EpochsBefore, History
from pertoken.window.figures import peak_shares
from pertoken.window.inventory import Inventory, by
from pertoken.window.measured import MeasuredColumns
from pertoken.window.series import (
    MAX_MINUTE_MS,
    GroupedRows,
    Needed,
    Points,
    demand,
    histogram,
    reported,
    single,
    summarize,
    weighted,
)

LENGTHS = ("prompt_len", "generated_len")
SERIES_OF = {metric.stored: metric.series for metric in DEVICE if metric.series} | {
    "processes": "held",
    "busy": "busy",
    "nvlink_rx_mib_s": "nvlink_bytes_s",
    "memory_traffic_bytes": "memory_traffic_bytes_s",
}
"""Stored metrics -> the series that is missing where they are."""
COUNTED_BY = {
    "prompt_tok_s": {"prompt_tokens"},
    "computed_tok_s": {"prompt_tokens", "computed_tokens"},
    "generated_tok_s": {"generated_tokens"},
    "busy_generated_tok_s": {"generated_tokens"},
}
"""Rates -> the engine metrics that make them late when counted late."""
OF_HOSTS = ("host_memory_free", "host_memory_used", "host_cpus_used")
"""Series of hosts that devices and deployments on them have too."""
OF_DEVICES = (*(name for name, spec in SERIES.items() if spec.owner == "device"), *OF_HOSTS)
ITL = "itl_s"
FROM_HISTOGRAMS = tuple(name for name, spec in SERIES.items() if isinstance(spec.computation, Histogram))
"""Series of a deployment that are made of bucket counts."""
OF_DEPLOYMENTS = tuple(name for name in SERIES if name not in (*FROM_HISTOGRAMS, "held", "observed_h"))
"""All other series of a deployment."""


def remedies(gaps: Iterable[UnreadableMetric]) -> dict[str, str]:
    """Return how to switch each missing series on, where the agent stored it, from rows of unreadable metrics."""
    return {
        SERIES_OF[gap.metric]: f"{gap.reason}; {gap.remedy}" if gap.remedy else gap.reason or ""
        for gap in gaps
        if gap.metric in SERIES_OF
    }


MEMORY_USED = "memory_used_bytes"


@dataclass(frozen=True, eq=False)
class DeviceSeries:
    """Observations of devices, of one or of several together, from the buckets of a window."""

    inventory: Inventory
    measured: MeasuredColumns
    missing: Mapping[int, Sequence[UnreadableMetric]]
    """Rows of unreadable metrics, by owner."""
    owners_known_since: Mapping[int, int]
    """Devices -> since when their owners are known again, where they once were unknown."""

    def find(self, name: str, device_ids: tuple[int, ...]) -> Points | None:
        """Return the observations of a series of some devices together; None if it was not measured."""
        if not device_ids:
            return None
        if name == "energy_w":
            return self.energy([(None, device_id) for device_id in device_ids])
        if name in OF_HOSTS:
            hosts = dict.fromkeys(self.inventory.devices[device_id].host_id for device_id in device_ids)
            return self.of_hosts(name, tuple(hosts))
        if name == "held":
            # Nobody knows who holds it where processes cannot be read: that none was seen means nothing then.
            return None if self._lacks("processes", device_ids) else self._held(device_ids)
        if isinstance(SERIES[name].computation, SampleShare) and not self._reports_throttling(device_ids):
            return None
        return self.measured.points(name, device_ids)

    def energy(self, allocated: Sequence[tuple[int | None, int]]) -> Points | None:
        """Return the power by energy of devices together: all of it, or the share that an epoch held.

        Energy comes from the device's counter, else from its power over time.
        """
        devices, values, sampled = [], [], False
        for epoch_id, device_id in allocated:
            rows = timed(self.measured, device_id)
            energy_mj = device_energy_mj(rows)
            sampled = sampled or bool((np.isnan(rows.floats("energy_counter_mj")) & ~np.isnan(energy_mj)).any())
            share = 1.0 if epoch_id is None else self.measured.share(epoch_id, device_id, rows)
            devices.append(rows)
            values.append(energy_mj / rows.floats("duration_ms") * share)
        points = _summed(devices, values) if devices else None
        return points and replace(points, provenance=Provenance.INTEGRAL if sampled else Provenance.COUNTER)

    def of_hosts(self, name: str, host_ids: Sequence[int]) -> Points | None:
        """Return the memory in bytes, or CPUs, that hosts together use or have free."""
        total, metric = ("cpu_count", "cpu_util_1e4") if name == "host_cpus_used" else ("memory_bytes", MEMORY_USED)
        present = [getattr(self.inventory.host.get(host_id), total, None) for host_id in host_ids]
        totals: list[int] = [value for value in present if value is not None]
        if not totals or len(totals) < len(present):
            return None
        hosts = [rows.where(rows.ints(f"{metric}_n") > 0) for rows in map(self.measured.host, host_ids)]
        values = [rows.floats(f"{metric}_sum") / rows.floats(f"{metric}_n") for rows in hosts]
        if name == "host_memory_free":
            values = [size - used for size, used in zip(totals, values, strict=True)]
        elif name == "host_cpus_used":
            values = [count * share / 1e4 for count, share in zip(totals, values, strict=True)]
        return _summed(hosts, values)

    def observed_ms(self, device_id: int) -> float:
        """Return the observed time of a device since its owners are known."""
        rows = self.measured.device_time(device_id)
        since_ts = self.owners_known_since.get(device_id, 0)  # earlier, no share of it was stored
        return float(rows.where(rows.ints("ts") >= since_ts).ints("observed_ms").sum())

    def _held(self, device_ids: Sequence[int]) -> Points | None:
        """Return the share of its observed time that some process held a device, a mean over several."""
        ts, shares, times = [], [], []
        for device_id in device_ids:
            rows, held_ns = self.measured.device_time(device_id), self.measured.held_ns(device_id)
            counts = (rows.ints("duration_ms") > 0) & (rows.ints("ts") >= self.owners_known_since.get(device_id, 0))
            ms = rows.floats("duration_ms")[counts]
            ts.append(rows.ints("ts")[counts])
            shares.append(held_ns[counts] / 1e6 / ms)
            times.append(ms)
        return weighted(np.concatenate(ts), np.concatenate(shares), np.concatenate(times), Provenance.REPORTED)

    def _reports_throttling(self, device_ids: Sequence[int]) -> bool:
        """Return whether these are NVIDIA GPUs that report why their clocks are slow."""
        kinds = {(row.kind, row.vendor) for device_id in device_ids if (row := self.inventory.devices.get(device_id))}
        return kinds == {("gpu", "nvidia")} and not self._lacks("throttle_reasons", device_ids)

    def _lacks(self, metric: str, device_ids: Sequence[int]) -> bool:
        return any(gap.metric == metric for device_id in device_ids for gap in self.missing.get(device_id, ()))


def _summed(members: Sequence[Columns], values: Sequence[Floats]) -> Points | None:
    """Return the sum over members of each bucket in which all of them were read; `values` are by member."""
    masks = [~np.isnan(value) for value in values]
    kept = [rows.where(mask) for rows, mask in zip(members, masks, strict=True)]
    ts = np.concatenate([rows.ints("ts") for rows in kept])
    value = np.concatenate([value[mask] for value, mask in zip(values, masks, strict=True)])
    ms = np.concatenate([rows.floats("duration_ms") for rows in kept])
    order = np.argsort(ts, kind="stable")
    begins = starts(ts[order])
    if not len(begins):
        return None
    is_full = np.diff(begins, append=len(ts)) == len(members)
    total, weight = (np.add.reduceat(array[order], begins)[is_full] for array in (value, ms))
    return weighted(ts[order][begins][is_full], total, weight, Provenance.REPORTED)


MAX_POINTS = 64
"""Minutes that are kept. More of them add little: errors of the model itself are the same in all."""
MIN_BUSY_SHARE = 0.5
"""Busy share of a minute below which its mean batch is mostly the coming and going of single requests."""
MIN_TOKENS = 50
"""Generated tokens of a minute below which their number is mostly chance."""
MIN_REQUESTS = 5
"""Requests that ended in a minute from which its own mean length counts; else the mean of the whole window."""
NEEDED = ("running", "dram_active", "tensor_active")
"""Series that operating points are made of, beside the rows of the epoch."""


def operating_points(
    rows: Columns, observations: Mapping[str, Points | None], generated_len: float | None
) -> tuple[OperatingPoint, ...]:
    """Return up to `MAX_POINTS` minutes of one epoch, oldest first.

    They are spread over running batch, tokens per request and share of prefill, the newest of each first.
    `observations`: of the epoch and its devices, by the names in `NEEDED`. `generated_len`: mean tokens generated per
    request of the window, None where the engine exposes none.
    """
    running_all_time = _values_at(observations.get("running"), rows.ints("ts"))
    steady = _steady(rows, running_all_time)
    steady_rows = rows.where(steady)
    if not len(steady_rows):
        return ()
    generated, prompt = steady_rows.floats("generated_tokens"), np.nan_to_num(steady_rows.floats("prompt_tokens"))
    busy_share = steady_rows.floats("busy_ms") / steady_rows.floats("observed_ms")
    running = np.maximum(1.0, running_all_time[steady] / busy_share)
    token_s = running * steady_rows.floats("busy_ms") / 1000 / generated
    cached = np.minimum(1.0, np.nan_to_num(steady_rows.floats("cached_tokens")) / np.maximum(prompt, 1.0))
    length = _generated_len(steady_rows, generated, generated_len)
    has_length = np.isfinite(length)
    prompt_len = length * prompt / generated  # so that prefilled tokens per generated token are those counted
    computed_share = prompt * (1 - cached) / (prompt * (1 - cached) + generated)
    strata = np.column_stack(
        (
            np.floor(2 * np.log2(running)),
            np.floor(np.log2(np.maximum(prompt_len + np.nan_to_num(length), 1.0))),
            np.floor(4 * computed_share),
        )
    )
    ts = steady_rows.ints("ts")
    kept = np.sort(np.flatnonzero(has_length)[_spread(strata[has_length], ts[has_length])])
    memory_active, gemm_active = (
        np.minimum(1.0, _values_at(observations.get(name), ts) / np.minimum(busy_share, 1.0))
        for name in ("dram_active", "tensor_active")
    )
    return tuple(
        OperatingPoint(
            ts=int(ts[row]),
            running=float(running[row]),
            token_s=float(token_s[row]),
            prompt_len=float(prompt_len[row]),
            generated_len=float(length[row]),
            cached_share=float(cached[row]),
            memory_active=_value(memory_active, row),
            gemm_active=_value(gemm_active, row),
        )
        for row in kept
    )


def _steady(rows: Columns, running: Floats) -> Mask:
    """Return which rows are whole minutes in which the deployment mostly worked, with all that is needed known."""
    observed, busy = rows.floats("observed_ms"), rows.floats("busy_ms")
    works = (rows.floats("generated_tokens") >= MIN_TOKENS) & (running > 0)
    minutes = (observed > 0) & (observed <= MAX_MINUTE_MS)
    # A busy time that is only bounded is right while there was always a request.
    bound = rows.ints("busy_provenance") >= Provenance.BOUND
    return np.asarray(works & minutes & (busy >= MIN_BUSY_SHARE * observed) & ((running >= 1) | ~bound))


def _generated_len(rows: Columns, generated: Floats, window_mean: float | None) -> Floats:
    """Return mean tokens generated per request of each minute; NaN where nobody counted requests."""
    requests = np.nan_to_num(rows.floats("requests_finished"))
    total = requests.sum()
    mean = window_mean if window_mean is not None else generated.sum() / total if total > 0 else np.nan
    return np.maximum(1.0, np.where(requests >= MIN_REQUESTS, generated / np.maximum(requests, 1.0), mean))


def _spread(strata: Floats, ts: Ints) -> Ints:
    """Return the places of up to `MAX_POINTS` rows: first the newest of each stratum, then the next of each."""
    if not len(strata):
        return np.empty(0, np.int64)
    _, stratum = np.unique(strata, axis=0, return_inverse=True)
    order = np.lexsort((-ts, stratum.ravel()))
    begins = np.flatnonzero(np.diff(stratum.ravel()[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
    places: Ints = order[np.lexsort((-ts[order], rank))][:MAX_POINTS]
    return places


def _values_at(points: Points | None, ts: Ints) -> Floats:
    """Return the values in the buckets that begin at `ts`; NaN where nothing was read."""
    if points is None:
        return np.full(len(ts), np.nan)
    position = np.clip(np.searchsorted(points.ts, ts), 0, len(points.ts) - 1)
    return np.where(points.ts[position] == ts, points.values[position], np.nan)


def _value(values: Floats, row: int) -> float | None:
    return float(values[row]) if values[row] > 0 else None


class WindowSeries(NamedTuple):
    """A series of the columns of a window: made when it is read, and its observations found again when asked for.

    A tuple, since a run over 1,000 deployments has 300,000 of them, and a frozen dataclass takes four times as long to
    make.
    """

    reader: "EvidenceReader"
    kind: str
    ids: tuple[int, ...]
    name: str

    def series(self) -> Series | None:
        """Return its summary; None if it was not measured."""
        return self.reader.made(self)

    def quantile(self, q: float) -> float:
        """Return the weighted quantile."""
        return self._points().quantile(q)

    def hours(self) -> HoursOfWeek:
        """Return the mean of each hour of the week."""
        return self._points().hours()

    def _points(self) -> Points:
        points = self.reader.observations(self)
        assert points is not None  # its summary was made of them
        return points


@dataclass(frozen=True, slots=True)
class WindowMinutes:
    """Minutes of a deployment that differ in their load, found when they are asked for."""

    reader: "EvidenceReader"
    deployment_id: int

    def points(self) -> tuple[OperatingPoint, ...]:
        """Return them, oldest first."""
        return self.reader.minutes(self.deployment_id)


PEAK_SHARES = ("mfu", "mbu")
"""Series that are scaled by the peak of the device."""
_BEGUN = "recording has only begun: let the agent run some minutes"
_UNDECLARED = 'the rule reads it and does not declare it: add "{}" to `series` of its decorator'
_NOT_SEEN = "nothing of it was recorded in this window: see `pertoken doctor` on its host"


@dataclass(frozen=True, eq=False)
class EvidenceReader:
    """Series for rules, and the demand of services, made of the buckets of a window."""

    market: Market
    inventory: Inventory
    measured: MeasuredColumns
    missing: Mapping[int, Sequence[UnreadableMetric]]
    """Rows of unreadable metrics, by owner."""
    owners_known_since: Mapping[int, int]
    """Devices -> since when their owners are known again, where they once were unknown."""
    history: History = field(default_factory=History)
    """Earlier epochs, including weeks before the window."""
    series: frozenset[str] | None = None
    """Series that were read; None: all."""
    _made: dict[tuple[str, tuple[int, ...], str], Series | None] = field(default_factory=dict, init=False, repr=False)
    _observed: dict[tuple[str, tuple[int, ...], str], Points | None] = field(
        default_factory=dict, init=False, repr=False
    )
    """Observations of the series that was requested last: its summary, and its hours or quantiles, are made of them."""

    @cached_property
    def _devices(self) -> DeviceSeries:
        return DeviceSeries(self.inventory, self.measured, self.missing, self.owners_known_since)

    def of_deployments(self, deployment_ids: Sequence[int]) -> Evidence:
        """Return the evidence of one deployment, or of several added up bucket by bucket.

        Only the present epoch of each counts, as an earlier one had other knobs or devices. There is no evidence of
        several deployments if one of them did not run in this window.
        """
        if not all(deployment_id in self.inventory.running for deployment_id in deployment_ids):
            return Evidence({}, dict.fromkeys(SERIES, _NOT_SEEN))
        rows = [self.inventory.running[deployment_id] for deployment_id in deployment_ids]
        epochs = EpochsBefore(self.history, tuple(deployment_ids))
        observed_ms = self.measured.time("deployment", tuple(row.epoch_id for row in rows)).observed_ms
        if not observed_ms:
            return Evidence({}, dict.fromkeys(SERIES, _BEGUN), epochs=epochs)
        device_ids, host_ids = self._device_ids(rows), tuple(dict.fromkeys(row.host_id for row in rows))
        series_of = self._lazy("deployment", deployment_ids, (*OF_DEPLOYMENTS, *FROM_HISTOGRAMS), observed_ms)
        remedies = self._remedies(*(row.engine_id for row in rows), *device_ids, *host_ids)
        # A forecast is calibrated on one deployment.
        points = WindowMinutes(self, deployment_ids[0]) if len(rows) == 1 and self.series is None else ()
        return Evidence(series_of, remedies, epochs=epochs, points=points)

    def minutes(self, deployment_id: int) -> tuple[OperatingPoint, ...]:
        """Return minutes of the present epoch of a deployment that differ in their load, oldest first."""
        row = self.inventory.running[deployment_id]
        if self._late([row]):
            return ()  # tokens of a minute are partly of minutes before
        series_of = partial(WindowSeries, self, "deployment", (deployment_id,))
        observations = {name: self.observations(series_of(name)) for name in NEEDED}
        generated_len = self.made(series_of("generated_len"))
        mean = None if generated_len is None else generated_len.mean
        return operating_points(self.measured.epoch(row.epoch_id), observations, mean)

    def of_devices(self, device_ids: Sequence[int]) -> Evidence:
        """Return the evidence of a device, or of several together; nothing where one was not seen."""
        if not all(device_id in self.inventory.devices for device_id in device_ids):
            return Evidence({}, dict.fromkeys(SERIES, _NOT_SEEN))
        observed_ms = [self._devices.observed_ms(device_id) for device_id in device_ids]
        series_of = self._lazy("device", device_ids, OF_DEVICES, min(observed_ms, default=0.0))
        return Evidence(series_of, self._remedies(*device_ids))

    def _lazy(
        self, kind: str, ids: Sequence[int], names: Iterable[str], observed_ms: float
    ) -> dict[str, Series | LazySeries]:
        series_of: dict[str, Series | LazySeries] = {
            name: WindowSeries(self, kind, tuple(ids), name) for name in names if self._was_read(name)
        }
        return series_of | {"observed_h": single(observed_ms / HOUR_MS, Provenance.COUNTER)}

    def made(self, wanted: WindowSeries) -> Series | None:
        """Return the summary of a series, made once; None if it was not measured."""
        key = wanted.kind, wanted.ids, wanted.name
        if key not in self._made:
            self._made[key] = self._histogram_of(wanted) if wanted.name in FROM_HISTOGRAMS else self._summary(wanted)
        return self._made[key]

    def _summary(self, wanted: WindowSeries) -> Series | None:
        points = self.observations(wanted)
        if points is None:
            return None
        if wanted.kind == "device":
            time = self.measured.time("device", wanted.ids)
        else:
            time = self.measured.time("deployment", self._epoch_ids(wanted.ids))
        return points.summary(by_hour=time.by_hour, distribution=wanted)

    def _histogram_of(self, wanted: WindowSeries) -> Series | None:
        rows = [self.inventory.running[subject_id] for subject_id in wanted.ids]
        if wanted.name == ITL and any(row.engine_kind in PER_REQUEST_TPOT for row in rows):
            return None
        computation = SERIES[wanted.name].computation
        assert isinstance(computation, Histogram)
        return self._histogram(rows, computation.metric)

    def observations(self, wanted: WindowSeries) -> Points | None:
        """Return the observations of a series; None if it was not measured."""
        key = wanted.kind, wanted.ids, wanted.name
        if key not in self._observed:
            find = self._devices.find if wanted.kind == "device" else self._find
            points = find(wanted.name, wanted.ids)
            self._observed.clear()
            self._observed[key] = points
        return self._observed[key]

    def _find(self, name: str, deployment_ids: tuple[int, ...]) -> Points | None:
        """Return the observations of a series of deployments together; None if it was not measured."""
        rows = [self.inventory.running[deployment_id] for deployment_id in deployment_ids]
        host_ids = tuple(dict.fromkeys(row.host_id for row in rows))
        if name == "energy_w":
            return self._devices.energy(self._allocated(rows))
        if name == "j_per_token":
            return self._energy_per_token(deployment_ids)
        if name == "stuck_h":
            return self._stuck(rows)
        if name in OF_HOSTS:
            return self._devices.of_hosts(name, host_ids)
        if SERIES[name].owner == "device":
            return self._devices.find(name, self._device_ids(rows))
        if SERIES[name].owner == "host":
            return self.measured.points(name, host_ids)
        points = self.measured.points(name, tuple(row.epoch_id for row in rows))
        if name in PEAK_SHARES:
            return None if points is None else self._peak_share(name, rows, points)
        if points is not None and name == "load_s":
            return replace(points, provenance=Provenance.BOUND)
        return reported(points) if name in COUNTED_BY and name in self._late(rows) else points

    def _stuck(self, rows: Sequence[KnownEpoch]) -> Points | None:
        """Return how long a deployment has had requests and no token, hours; None where its requests are not known."""
        epochs = tuple(row.epoch_id for row in rows)
        generated, *others = (
            self.measured.points(name, epochs) for name in ("generated_tok_s", "prompt_tok_s", "running", "waiting")
        )
        if generated is None or others[1:] == [None, None]:
            return None
        prompt, running, waiting = (np.nan_to_num(_values_at(points, generated.ts)) for points in others)
        served = generated.values + prompt > 0
        others_than_stuck = np.flatnonzero(served | (running + waiting <= 0))
        first = others_than_stuck[-1] + 1 if len(others_than_stuck) else 0
        stuck_s = float(generated.weights[first:].sum()) / 1000
        # Tokens that are counted when a request ends may be of any time before it.
        counts = stuck_s >= MIN_STUCK_S and not (self._late(rows) and served.any())
        hours = np.array([stuck_s * 1000 / HOUR_MS if counts else 0.0])
        return Points(generated.ts[-1:], hours, np.ones(1), Provenance.REPORTED)

    def _epoch_ids(self, deployment_ids: Iterable[int]) -> tuple[int, ...]:
        return tuple(self.inventory.running[deployment_id].epoch_id for deployment_id in deployment_ids)

    def _device_ids(self, rows: Iterable[KnownEpoch]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(device.device_id for row in rows for device in self.inventory.held(row.epoch_id)))

    def demand_of(self, epochs: Sequence[KnownEpoch]) -> Demand:
        """Return the demand on these epochs together, ended ones included.

        Epochs of one deployment follow each other: an hour in which one ended and the next began is served once.
        """
        lengths = {name: self._histogram(epochs, name) for name in LENGTHS}
        members = [
            rows_in_turn([self.measured.epoch(row.epoch_id) for row in deployment])
            for deployment in by(epochs, "deployment_id").values()
        ]
        rows = GroupedRows(stacked(members), [range(len(members))], Needed.RUNNING)
        return demand(rows, lengths, late=self._late(epochs) != set())

    def _late(self, rows: Iterable[KnownEpoch]) -> set[str]:
        """Return the rates of which a bucket's tokens, counted when a request ends, are partly of buckets before."""
        late = {gap.metric for row in rows for gap in self.missing.get(row.engine_id, ()) if gap.status == "late"}
        return {name for name, metrics in COUNTED_BY.items() if late & metrics}

    def _histogram(self, rows: Iterable[KnownEpoch], metric: str) -> Series | None:
        return summarize(
            histogram(
                (upper_bounds, enumerate(counts.tolist()))
                for row in rows
                for upper_bounds, counts in self.measured.histograms.get((row.epoch_id, metric), ())
            )
        )

    def _peak_share(self, name: str, rows: Sequence[KnownEpoch], points: Points) -> Points | None:
        """Return the counted work per busy second as a share of the peak of the device; None if that is not known."""
        if len(rows) != 1:  # estimates for one GPU: these do not add up over deployments
            return None
        knobs = json.loads(rows[0].knobs)
        names = {device.name for device in self.inventory.held(rows[0].epoch_id) if device.parent_id is None}
        accelerator = self.market.accelerator(names.pop()) if len(names) == 1 else None
        scales = peak_shares(knobs.get("dp"), knobs.get("weight_dtype"), accelerator)
        scale = next((scale for series_name, _, scale in scales if series_name == name), None)
        # The engine's own estimate over the catalog's peak.
        provenance = worst((Provenance.LISTED, points.provenance))
        return None if scale is None else replace(points, factor=scale, provenance=provenance)

    def _allocated(self, rows: Iterable[KnownEpoch]) -> list[tuple[int | None, int]]:
        """Return the epochs of deployments, those of their worker ranks included, each with each of its devices."""
        epochs = [
            epoch_id
            for row in rows
            for epoch_id in (row.epoch_id, *self.inventory.workers_of.get(row.deployment_id, ()))
        ]
        return [(epoch, device) for epoch in epochs for device in self.inventory.own_devices.get(epoch, ())]

    def _energy_per_token(self, deployment_ids: tuple[int, ...]) -> Points | None:
        """Return energy per token in the buckets with tokens; energy of the others is spread over them evenly."""
        names = ("energy_w", "prompt_tok_s", "generated_tok_s")
        observations = [self._find(name, deployment_ids) for name in names]
        measured = [points for points in observations if points is not None]
        if len(measured) != len(names):
            return None
        ts = reduce(np.intersect1d, (points.ts for points in measured))
        power, prompt, generated = (points.values[np.isin(points.ts, ts)] for points in measured)
        seconds = measured[-1].weights[np.isin(measured[-1].ts, ts)] / 1000
        tokens, joules = (prompt + generated) * seconds, power * seconds
        served = tokens > 0
        points = weighted(ts[served], joules[served] / tokens[served], tokens[served], measured[0].provenance)
        with_tokens = float(joules[served].sum())
        return points if not with_tokens else points and replace(points, factor=float(joules.sum()) / with_tokens)

    def _was_read(self, name: str) -> bool:
        return self.series is None or name in self.series

    def _remedies(self, *owner_ids: int) -> dict[str, str]:
        missing = remedies(gap for owner_id in owner_ids for gap in self.missing.get(owner_id, ()))
        return missing | {name: _UNDECLARED.format(name) for name in SERIES if not self._was_read(name)}
