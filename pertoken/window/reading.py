"""Window: everything recorded in an interval, read in one transaction. All figures start from it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection

from pertoken.metrics import HISTOGRAMS
from pertoken.store.connect.open import Store
from pertoken.store.query import read, rollups
from pertoken.store.query.buckets import (
    buckets,
    counted_metrics,
    deployment_buckets,
    deployment_counters,
    deployment_histograms,
    device_time,
    engine_counter_totals,
    generated_by_slice,
    histogram_buckets,
    histogram_sets,
    histograms,
    tokens,
    weekly_energy,
    weekly_plug_energy,
)
from pertoken.store.query.rollups import (
    HistogramSlice,
    Segment,
    Segments,
    divided_hours,
    histogram_slices,
    intervals,
    pipelined,
)
from pertoken.store.schema.telemetry import HOUR, MINUTE, histogram_rollup
from pertoken.window.figures import Progress, no_progress
from pertoken.window.inventory import Inventory, by, fault_sentences, read_inventory
from pertoken.window.totals import (
    Details,
    Following,
    Recent,
    Totals,
    WorkerBusy,
    following,
    interval_sums,
    read_recent,
    worker_busy,
)

if TYPE_CHECKING:  # numpy, and what computes with it, is loaded by the methods that need it: the first screen does not
    from pertoken.catalog.market import Market
    from pertoken.evidence import Comparison
    from pertoken.window.columns import Columns, Ints
    from pertoken.window.energy import EpochEnergy
    from pertoken.window.epochs import OutputCounts
    from pertoken.window.evidence import EvidenceReader
    from pertoken.window.like_for_like import HourlyOutcomes
    from pertoken.window.measured import Histograms
    from pertoken.window.tenants import TenantCounts

SLICES_S = (60, 300, 600, 3600, 7200, 43_200, 86_400)
"""Lengths of slices of a window. From some hours on they are whole hours: a fleet has too many minutes."""
DAY = 86_400
MAX_SLICES = 15
"""Cells of a sparkline in the fleet's table."""
_TOKENS = ("prompt_tokens", "cached_tokens", "generated_tokens")
SERVED = ("epoch_id", "ts", "whole_ms", "whole_busy_ms", *_TOKENS, "observed_ms", "requests_finished")
SHARED = ("epoch_id", "ts", "device_id", "held_ns", "busy_ns")
PRESENT = ("device_id", "ts", "duration_ms")


WindowInterval = tuple[Segments, Following]


def first_recorded(store: Store) -> int | None:
    """Return when the first host was first seen; None if nothing was recorded. Raises StoreError."""
    with store.read() as connection:
        return read.first_ts(connection)


def recorded_interval(store: Store) -> tuple[int | None, int | None]:
    """Return the times of the oldest and the newest row of any host; None if there is none. Raises StoreError."""
    with store.read() as connection:
        return read.first_and_last(connection)


def faults_of_hosts(store: Store, start: int, end: int, *, dated: bool) -> list[str]:
    """Return a sentence for each host with values that cannot be used, seen since `start`. Raises StoreError."""
    with store.read() as connection:
        return fault_sentences(Window(connection, start, end, dated=dated).inventory)


def fault_counts(store: Store, start: int, end: int) -> dict[str, int]:
    """Return how many kinds of values cannot be used since `start`, by host that has some. Raises StoreError."""
    with store.read() as connection:
        inventory = Window(connection, start, end).inventory
    return Counter(inventory.host[fault.host_id].name for fault in inventory.faults if fault.host_id in inventory.host)


def newest_epoch(store: Store) -> tuple[int | None, int]:
    """Return when the newest epoch began, and how many there are: it changes with every epoch. Raises StoreError."""
    with store.read() as connection:
        return read.newest_epoch(connection)


def weekly_power_w(connection: Connection, device_ids: Collection[int]) -> dict[int, list[tuple[int, float]]]:
    """Return the mean watts of each device by the start of each week (Monday 00:00 UTC), oldest first.

    They are its measured energy over its time, else the mean of its power samples. Weeks without either are left out.
    """
    weekly: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for device_id, week, energy_mj, measured_ms, power_mw, samples in weekly_energy(connection, device_ids):
        if measured_ms:
            weekly[device_id].append((week, energy_mj / measured_ms))  # mJ/ms is W
        elif samples:
            weekly[device_id].append((week, power_mw / samples / 1000))
    return dict(weekly)


def weekly_plug_w(connection: Connection, host_ids: Collection[int]) -> dict[int, list[tuple[int, float]]]:
    """Return the mean watts of each server at its plug by the start of each week in which they were measured."""
    weekly: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for host_id, week, plug_mj, plug_ms in weekly_plug_energy(connection, host_ids):
        weekly[host_id].append((week, plug_mj / plug_ms))
    return dict(weekly)


class ServedBuckets(NamedTuple):
    """Buckets between two cuts of a window."""

    start: int
    divides_hour: bool
    """Whether it begins within an hour without minutes."""
    served: Columns
    """`SERVED`: time each epoch held its devices whole and was busy, its tokens and observed time."""
    shared: Columns
    """`SHARED`: time each epoch held a part of a device, and was busy on it."""
    device_time: Sequence[tuple[int, int, int]]
    """Of `buckets.device_time`."""
    worker_busy: Sequence[WorkerBusy]


class Window:
    """Telemetry of [start, end). Each part is read when it is asked for, in the caller's transaction.

    Nothing in it has a price. Instants at which prices change are passed as `cuts`, so that no sum crosses one.
    `dated`: `end`, a whole minute, is in the past, and everything is as of then.
    """

    def __init__(self, connection: Connection, start: int, end: int, *, dated: bool = False) -> None:
        self._connection = connection
        self.start, self.end = start, end
        self._as_of = end if dated else None
        self._whole_hour = read.whole_hour(connection, end)
        """Whether the hour that `end` lies in is as new as its minutes."""
        self._has_minutes: dict[int, bool] = {}
        """By start of an hour, as far as looked up."""

    @cached_property
    def inventory(self) -> Inventory:
        """Hosts, devices, deployments and epochs of the window."""
        return read_inventory(self._connection, self.start, self.end, self._as_of)

    @contextmanager
    def pipelined(self) -> Iterator[None]:
        """Send queries without waiting for results: the server works while Python does."""
        with pipelined(self._connection):
            yield

    @property
    def slice_s(self) -> int:
        """Length of the slices of a sparkline."""
        return next((s for s in SLICES_S if self.end - self.start <= s * MAX_SLICES), SLICES_S[-1])

    def intervals(self, cuts: Iterable[int]) -> tuple[WindowInterval, ...]:
        """Return the segments between two cuts each, and their busy time of worker ranks."""
        return tuple(
            (segments, following(self._connection, segments, self.inventory)) for segments in self._segments(cuts)
        )

    def totals(self, window_intervals: Sequence[WindowInterval]) -> Totals:
        """Query the sums of each interval; within `pipelined` the server works while Python does."""
        return Totals(self.inventory, [interval_sums(self._connection, *interval) for interval in window_intervals])

    def details(self) -> Details:
        """Query the details that only lines of deployments show."""
        connection, hours = self._connection, self._hours()
        return Details(
            self.inventory,
            histograms(connection, hours, ("ttft_s", "tpot_s")),
            engine_counter_totals(connection, hours),
            generated_by_slice(connection, self.start // self.slice_s * self.slice_s, self.end, self.slice_s),
        )

    def recent(self) -> Recent:
        """Query the present state."""
        return read_recent(self._connection, self.inventory, self.start, self._as_of)

    def served(self, cuts: Iterable[int]) -> Iterator[ServedBuckets]:
        """Yield the buckets of all epochs between two cuts each."""
        from pertoken.window.columns import columns

        for segments in self._segments(cuts):
            yield ServedBuckets(
                segments[0].begin,
                segments[0].begin > segments[0].start,
                columns(SERVED, buckets(self._connection, "deployment", segments, SERVED)),
                columns(SHARED, buckets(self._connection, "share", segments, SHARED)),
                device_time(self._connection, segments),
                tuple(worker_busy(self._connection, segments, self.inventory)),
            )

    def device_buckets(self, cuts: Iterable[int]) -> Iterator[Columns]:
        """Yield `PRESENT` of the buckets of all devices between two cuts each."""
        from pertoken.window.columns import columns

        for segments in self._segments(cuts):
            yield columns(PRESENT, buckets(self._connection, "device", segments, PRESENT))

    def tenant_tokens(self) -> TenantCounts:
        """Return the counts of gateways for tenants, by hour and model."""
        from pertoken.window.tenants import read_tenants

        return read_tenants(self._connection, self._hours())

    def device_time(self, cuts: Iterable[int]) -> Iterator[tuple[int, int, Sequence[tuple[int, int, int]]]]:
        """Yield (first, last, rows of `buckets.device_time`) between two cuts each."""
        for segments in self._segments(cuts):
            yield segments[0].begin, segments[-1].until, device_time(self._connection, segments)

    def tokens(self) -> Sequence[tuple[int, int | None, int | None, int]]:
        """Return rows of `buckets.tokens` over the window."""
        return tokens(self._connection, self._hours())

    def outcomes(self, deployment_id: int, bucket_s: int = HOUR) -> HourlyOutcomes | Comparison:
        """Return the whole hours in which a deployment served, over all of its epochs, or why none can be used.

        `bucket_s`: length of an "hour". Minutes compare short trials; with less, ticks are added up.
        """
        from pertoken.evidence import Comparison
        from pertoken.window.epochs import hours_in_turn, outcomes_of, with_spreads, with_starts
        from pertoken.window.like_for_like import HourlyOutcomes

        used: list[HourlyOutcomes] = []
        refused = Comparison(code="not-measured", reason="no hour, or no device, of it is stored")
        epochs = self.inventory.epochs_of.get(deployment_id, ())
        buckets = self._outcome_buckets(deployment_id, bucket_s) if epochs else {}
        for epoch in epochs:
            rows, devices = buckets.get(epoch.epoch_id), self.inventory.epoch_devices.get(epoch.epoch_id)
            if rows is not None and devices:
                outcomes = outcomes_of(rows, len(devices), epoch.start_ts, epoch.end_ts, bucket_s)
                if isinstance(outcomes, HourlyOutcomes):
                    used.append(outcomes)
                else:
                    refused = outcomes
        if not any(map(len, used)):
            return refused
        # An engine was started at the latest when its first epoch began; the next ones begin with a restart.
        starts = {int(epoch.start_ts) for epoch in epochs}
        starts.update(read.restarts(self._connection, epochs[-1].engine_id, self.end))
        outcomes = with_starts(hours_in_turn(used), sorted(starts), bucket_s)
        return with_spreads(outcomes, self._lengths([epoch.epoch_id for epoch in epochs], bucket_s))

    def outcomes_together(self, deployment_ids: Iterable[int], bucket_s: int = HOUR) -> HourlyOutcomes | Comparison:
        """Return the whole hours of deployments that share requests as those of one, or why none can be used."""
        from pertoken.evidence import Comparison
        from pertoken.window.columns import columns
        from pertoken.window.epochs import OUTCOME_COLUMNS, EpochHours, outcomes_together, with_starts

        hours: list[EpochHours] = []
        starts: set[int] = set()
        for deployment_id in deployment_ids:
            epochs = self.inventory.epochs_of.get(deployment_id, ())
            buckets = self._outcome_buckets(deployment_id, bucket_s) if epochs else {}
            for epoch in epochs:
                devices = self.inventory.epoch_devices.get(epoch.epoch_id, ())
                rows = buckets.get(epoch.epoch_id) if devices else None
                measured = columns(OUTCOME_COLUMNS, ()) if rows is None else rows
                hours.append(EpochHours(measured, len(devices), epoch.start_ts, epoch.end_ts))
                starts.add(int(epoch.start_ts))
            starts.update(read.restarts(self._connection, epochs[-1].engine_id, self.end) if epochs else ())
        outcomes = outcomes_together(hours, bucket_s)
        return outcomes if isinstance(outcomes, Comparison) else with_starts(outcomes, sorted(starts), bucket_s)

    def _lengths(self, epoch_ids: Collection[int], bucket_s: int) -> Sequence[HistogramSlice]:
        """Return the histograms of lengths of some epochs by bucket; none for buckets that roll-ups do not hold."""
        from pertoken.window.epochs import LENGTHS

        if bucket_s not in histogram_rollup:
            return []
        return histogram_slices(self._connection, Segment(bucket_s, self.start, self.end), bucket_s, epoch_ids, LENGTHS)

    def hourly_tokens(self, deployment_id: int, bucket_s: int = HOUR) -> tuple[Ints, Ints]:
        """Return the starts of the whole hours in which a deployment counted tokens, and its tokens in each."""
        import numpy as np

        from pertoken.window.epochs import tokens_of

        rows = self._outcome_buckets(deployment_id, bucket_s).values()
        ts = np.concatenate([row.ints("ts") for row in rows] or [np.zeros(0, np.int64)])
        tokens = np.concatenate([tokens_of(row) for row in rows] or [np.zeros(0, np.int64)])
        return ts[tokens > 0], tokens[tokens > 0]

    def outputs(self, deployment_id: int, bucket_s: int = HOUR) -> OutputCounts:
        """Return the counts of a deployment's outputs in each whole hour, over all of its epochs.

        `bucket_s`: length of an "hour". With less than a minute only tokens and requests are known.
        """
        from pertoken.window.columns import columns
        from pertoken.window.epochs import COUNTERS, OUTPUT_COLUMNS, OUTPUT_LENGTHS, output_counts

        start, end = self._whole_buckets(bucket_s)
        of_one = (self._connection, bucket_s, start, end, deployment_id)
        rows = columns(OUTPUT_COLUMNS, deployment_buckets(*of_one, OUTPUT_COLUMNS))
        if bucket_s not in (HOUR, MINUTE):
            return output_counts(rows, bucket_s, None, (), {})
        names = ("epoch_id", "ts", *COUNTERS)
        counters = columns(names, deployment_counters(*of_one, tuple(COUNTERS.values())))
        lengths = deployment_histograms(*of_one, OUTPUT_LENGTHS)
        return output_counts(rows, bucket_s, counters, lengths, histogram_sets(self._connection))

    def restarted_ts(self, engine_id: int) -> int | None:
        """Return when an engine last restarted, None if it did not within the window."""
        restarts = read.restarts(self._connection, engine_id, self.end)
        return restarts[-1] if restarts and restarts[-1] >= self.start else None

    def _outcome_buckets(self, deployment_id: int, bucket_s: int) -> Mapping[int, Columns]:
        """Return `OUTCOME_COLUMNS` of the whole buckets of one deployment in the window, by epoch."""
        from pertoken.window.columns import by_owner, columns
        from pertoken.window.epochs import OUTCOME_COLUMNS

        start, end = self._whole_buckets(bucket_s)
        buckets = deployment_buckets(self._connection, bucket_s, start, end, deployment_id, OUTCOME_COLUMNS)
        return by_owner(columns(OUTCOME_COLUMNS, buckets))

    def _whole_buckets(self, bucket_s: int) -> tuple[int, int]:
        """Return the start of the first whole bucket of the window, and the end of the last one."""
        return -(-self.start // bucket_s) * bucket_s, self.end // bucket_s * bucket_s

    def evidence(
        self, market: Market, progress: Progress = no_progress, series: Collection[str] | None = None
    ) -> EvidenceReader:
        """Read the evidence for all series, or for some of them.

        `progress` is called between statements, and as rows come in.
        """
        from pertoken.window.epochs import read_history
        from pertoken.window.evidence import EvidenceReader
        from pertoken.window.measured import (
            COLUMNS,
            COUNTED_PART,
            COUNTERS,
            HISTOGRAMS_PART,
            PARTS,
            MeasuredColumns,
            parts_of,
        )

        @cache
        def counted() -> Collection[str]:
            return counted_metrics(self._connection, self._resolution, COUNTERS)

        parts = PARTS if series is None else parts_of(series, counted)
        measured = MeasuredColumns(
            self._parts([part for part in parts if part in COLUMNS], progress),
            self.inventory.own_devices,
            self._histograms(progress) if HISTOGRAMS_PART in parts else None,
            counted() if COUNTED_PART in parts else (),
        )
        device_names = {device_id: row.name for device_id, row in self.inventory.devices.items()}
        return EvidenceReader(
            market,
            self.inventory,
            measured,
            by(read.missing(self._connection, self._as_of), "owner_id"),
            read.owners_known_since(self._connection),
            read_history(self._connection, device_names, self.end, self._as_of),
            None if series is None else frozenset(series),
        )

    def energy(self, progress: Progress = no_progress) -> dict[int, EpochEnergy]:
        """Read the energy of the devices that each epoch held, and of its part of their servers."""
        from pertoken.window.energy import energy_by_epoch, nodes_of
        from pertoken.window.measured import MeasuredColumns

        parts = self._parts(("device", "host", "deployment_time", "share"), progress)
        return energy_by_epoch(
            MeasuredColumns(parts, self.inventory.own_devices), nodes_of(self.inventory.devices.values())
        )

    @cached_property
    def _resolution(self) -> Segments:
        from pertoken.window.measured import resolution

        owners = len(self.inventory.devices) + len(self.inventory.epochs)
        return resolution(self._connection, self.start, self.end, owners)

    def _parts(self, names: Iterable[str], progress: Progress) -> Mapping[str, Columns]:
        from pertoken.window.measured import read_part

        return {name: read_part(self._connection, self._resolution, name, progress) for name in names}

    def _histograms(self, progress: Progress) -> Histograms:
        """Read histograms day by day: memory stays small, and progress is seen."""
        from pertoken.window.series import counts_of

        groups: dict[tuple[int, str], dict[str, Ints]] = {}
        metrics, upper_bounds = tuple(HISTOGRAMS), histogram_sets(self._connection)
        days = self._segments(range(self.start // DAY * DAY + DAY, self.end, DAY))
        for done, segments in enumerate(days):
            progress("reading histograms", done / len(days))
            rows = histogram_buckets(self._connection, segments, metrics, tuple(upper_bounds))
            for epoch_id, metric, bounds, counts in counts_of(rows, metrics, upper_bounds):
                by_bounds = groups.setdefault((epoch_id, metric), {})
                by_bounds[bounds] = by_bounds[bounds] + counts if bounds in by_bounds else counts
        return {key: tuple(by_bounds.items()) for key, by_bounds in groups.items()}

    def _hours(self) -> Segments:
        (segments,) = self._segments(())
        return segments

    def _segments(self, cuts: Iterable[int]) -> tuple[Segments, ...]:
        """Return the buckets between two cuts each; hours without minutes are divided by time."""
        cuts = tuple(cuts)
        divided = divided_hours(self.start, self.end, cuts, under_way=self._whole_hour)
        unread = [hour for hour in divided if hour not in self._has_minutes]
        gone = rollups.without_minutes(self._connection, unread)
        self._has_minutes |= {hour: hour not in gone for hour in unread}
        without = [hour for hour in divided if not self._has_minutes[hour]]
        return intervals(self.start, self.end, cuts, under_way=self._whole_hour, without_minutes=without)
