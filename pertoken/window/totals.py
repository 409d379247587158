"""Sums of each interval of a window (device time, tokens served, allocation of devices), and its present state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sqlalchemy import Connection

from pertoken.provenance import Provenance
from pertoken.store.query import buckets, read, rollups
from pertoken.store.query.buckets import CounterTotal
from pertoken.store.query.read import AgentTick
from pertoken.store.query.rollups import RollupRow, Segment, Segments, allocated_ns, scaled
from pertoken.store.schema.rows import StoredEvent
from pertoken.store.schema.rows import UnreadableMetric as UnreadableMetric
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.window.figures import Counts, by_epoch
from pertoken.window.inventory import Inventory, busy_shares, worker_busy_ns
from pertoken.window.series import histogram, quantile

Following = Mapping[tuple[int, int], tuple[int, int]]
"""(device_id, epoch_id) -> (busy_ns, its provenance) of worker ranks."""
Shares = Mapping[int, Mapping[int, tuple[int, int]]]
"""device_id -> epoch_id -> (held_ns, busy_ns)."""
Sums = Mapping[str, int | None]
"""Sums of the columns of roll-ups by name; a column that is NULL in all rows is None or absent."""
_NONE: Sums = {}


class HeldTime(NamedTuple):
    """Device time between two cuts of a window, and its owners."""

    start: int
    divides_hour: bool
    """Whether it begins within an hour without minutes."""
    times: Sequence[tuple[int, int, int]]
    """(device_id, duration_ms, observed_ms)."""
    shares: Shares
    bounds: Collection[int]
    """Epochs with an upper bound as busy time."""


@dataclass(frozen=True, slots=True)
class IntervalSums:
    """Sums between two cuts of a window."""

    start: int
    divides_hour: bool
    """Whether it begins within an hour without minutes."""
    times: Sequence[tuple[int, int, int]]
    """Of `buckets.device_time`."""
    totals: Sequence[RollupRow]
    """Of `buckets.deployment_totals`."""
    shared: Sequence[tuple[int, int, int, int]]
    """Of `buckets.shared_time`."""
    following: Following

    def held_time(self, inventory: Inventory) -> HeldTime:
        """Return the device time and its owners."""
        shares = allocated_ns(self.shared, self.totals, inventory.own_devices, inventory.head_rows)
        for (device_id, epoch_id), (busy_ns, _) in self.following.items():
            if epoch_id in shares.get(device_id, ()):
                shares[device_id][epoch_id] = shares[device_id][epoch_id][0], busy_ns
        return HeldTime(self.start, self.divides_hour, self.times, shares, self._bounds())

    def _bounds(self) -> set[int]:
        bounds = {row.epoch_id for row in self.totals if (row.busy_provenance or 0) >= Provenance.BOUND}
        bounds -= {epoch_id for _, epoch_id in self.following}
        return bounds | {epoch for (_, epoch), (_, origin) in self.following.items() if origin == Provenance.BOUND}


class WorkerBusy(NamedTuple):
    """Busy time of a worker rank on one device in one bucket: it is busy while its head rank is."""

    device_id: int
    epoch_id: int
    ts: int
    busy_ns: int
    provenance: int


def worker_busy(connection: Connection, segments: Segments, inventory: Inventory) -> Iterator[WorkerBusy]:
    """Yield the busy time of worker ranks, bucket by bucket."""
    heads = inventory.heads
    if not heads:
        return
    deployments = frozenset(heads.values())
    leading = [epoch for epoch, deployment in inventory.deployment_of.items() if deployment in deployments]
    for segment in segments:
        busy = busy_shares(rollups.deployment_buckets(connection, segment, leading), inventory.deployment_of)
        for row in rollups.share_buckets(connection, segment, tuple(heads)):
            busy_ns, provenance = worker_busy_ns(row, heads, busy)
            busy_ns = scaled(busy_ns, *segment.part) if segment.part else busy_ns
            yield WorkerBusy(row.device_id, row.epoch_id, row.ts, busy_ns, provenance)


def following(connection: Connection, segments: Segments, inventory: Inventory) -> Following:
    """Return the busy time of worker ranks."""
    busy_by_rank: dict[tuple[int, int], tuple[int, int]] = {}
    for rank in worker_busy(connection, segments, inventory):
        busy_ns, provenance = busy_by_rank.get((rank.device_id, rank.epoch_id), (0, 0))
        busy_by_rank[rank.device_id, rank.epoch_id] = busy_ns + rank.busy_ns, max(provenance, rank.provenance)
    return busy_by_rank


def interval_sums(connection: Connection, segments: Segments, followers: Following) -> IntervalSums:
    """Query the sums of an interval."""
    return IntervalSums(
        segments[0].begin,
        segments[0].begin > segments[0].start,
        buckets.device_time(connection, segments),
        buckets.deployment_totals(connection, segments),
        buckets.shared_time(connection, segments),
        followers,
    )


@dataclass(frozen=True)
class Totals:
    """Sums over the window. Results of the database are fetched when a figure is first read."""

    inventory: Inventory
    intervals: Sequence[IntervalSums]

    @cached_property
    def _by_epoch(self) -> Mapping[int, Sums]:
        return summed(interval.totals for interval in self.intervals)

    @cached_property
    def _by_deployment(self) -> Mapping[int, Sums]:
        return by_deployment(self._by_epoch, self.inventory)

    def of(self, deployment_id: int) -> Sums:
        """Return the sums of all epochs of a deployment."""
        return self._by_deployment[deployment_id]

    def of_epochs(self, epoch_ids: Iterable[int]) -> Sums:
        """Return the sums of some epochs."""
        return _added([self._by_epoch[epoch_id] for epoch_id in epoch_ids if epoch_id in self._by_epoch])

    def busy_ms(self, epoch_id: int) -> int:
        """Return how long an epoch was busy."""
        return self._by_epoch.get(epoch_id, _NONE).get("busy_ms") or 0


@dataclass(frozen=True)
class Details:
    """Details of deployments that only their own lines show: latencies, engine counters, and tokens by slice."""

    inventory: Inventory
    histograms: Sequence[tuple[int, str, str, str]]
    counters: Sequence[CounterTotal]
    sliced: Sequence[tuple[int, str]]

    @cached_property
    def counts(self) -> Mapping[int, Counts]:
        """Increase of counters beside tokens, by epoch."""
        return by_epoch(self.counters)

    @cached_property
    def _slices(self) -> Mapping[int, str]:
        return dict(self.sliced)

    def slices(self, epoch_id: int) -> Iterator[tuple[int, ...]]:
        """Yield (start, generated tokens, observed ms, newest row with a token, or 0) of slices with known tokens."""
        return buckets.unpacked(self._slices.get(epoch_id, ""))

    @cached_property
    def _latencies(self) -> Mapping[tuple[int, str], Sequence[tuple[str, str]]]:
        groups: dict[tuple[int, str], list[tuple[str, str]]] = defaultdict(list)
        for epoch_id, metric, upper_bounds, counts in self.histograms:
            groups[self.inventory.deployment_of.get(epoch_id, 0), metric].append((upper_bounds, counts))
        return dict(groups)

    def histogram(self, deployment_id: int, metric: str) -> dict[tuple[float, ...], list[int]]:
        """Return the counts of a latency (`ttft_s`, `tpot_s`) in buckets, by their upper bounds in seconds."""
        parts = self._latencies.get((deployment_id, metric), ())
        return histogram((upper_bounds, buckets.unpacked(counts)) for upper_bounds, counts in parts)

    def latency(self, deployment_id: int, metric: str, q: float) -> float | None:
        """Return a quantile over the window, in seconds."""
        return quantile(self.histogram(deployment_id, metric), q)


def by_deployment(by_epoch: Mapping[int, Sums], inventory: Inventory) -> dict[int, Sums]:
    """Return the sums of all epochs of each deployment together."""
    return {
        deployment_id: _added([by_epoch[row.epoch_id] for row in rows if row.epoch_id in by_epoch])
        for deployment_id, rows in inventory.epochs_of.items()
    }


def summed(parts: Iterable[Iterable[RollupRow]]) -> dict[int, Sums]:
    """Return rows of `buckets.deployment_totals` of several times, added up by epoch."""
    rows_of: dict[int, list[Sums]] = defaultdict(list)
    for rows in parts:
        for row in rows:
            rows_of[row.epoch_id].append(row._asdict())
    return {epoch_id: _added(rows) for epoch_id, rows in rows_of.items()}


def _added(parts: Sequence[Sums]) -> Sums:
    """Add by name; of a provenance take the worst."""
    if len(parts) < 2:
        return parts[0] if parts else _NONE
    together: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            if name == "busy_provenance" and value is not None:
                together[name] = max(together.get(name, value), value)
            elif name != "epoch_id" and value is not None:
                together[name] = together.get(name, 0) + value
    return together


@dataclass(frozen=True)
class Recent:
    """Rows of the newest minutes. Results of the database are fetched when a figure is first read."""

    inventory: Inventory
    _deployments: Sequence[RollupRow]
    _shared: Sequence[tuple[int, int, int, int]]
    _devices: Sequence[RollupRow]
    _hosts: Sequence[RollupRow]
    _gaps: Sequence[UnreadableMetric]
    _events: Sequence[StoredEvent]
    _agents: Sequence[AgentTick]
    _newest: Sequence[tuple[int, int]]

    def wait(self) -> None:
        """Wait for all that was asked of the database so far."""
        len(self._newest)

    def of(self, deployment_id: int) -> Sums:
        """Return the sums of all epochs of a deployment."""
        return self._by_deployment[deployment_id]

    @cached_property
    def _by_deployment(self) -> Mapping[int, Sums]:
        return by_deployment(summed((self._deployments,)), self.inventory)

    @cached_property
    def devices(self) -> Mapping[int, RollupRow]:
        """Sums by device."""
        return {row.device_id: row for row in self._devices}

    @cached_property
    def hosts(self) -> Mapping[int, RollupRow]:
        """Sums by host."""
        return {row.host_id: row for row in self._hosts}

    @cached_property
    def newest_ts(self) -> Mapping[int, int]:
        """`ts` of the newest row of each device."""
        return dict(self._newest)

    @cached_property
    def gaps(self) -> Sequence[UnreadableMetric]:
        """Metrics that cannot be read."""
        return list(self._gaps)

    @cached_property
    def gaps_of(self) -> Mapping[int, Sequence[UnreadableMetric]]:
        """The same by owner."""
        gaps: dict[int, list[UnreadableMetric]] = defaultdict(list)
        for row in self.gaps:
            gaps[row[0]].append(row)  # by position, which is faster than by name
        return gaps

    @cached_property
    def events(self) -> Sequence[StoredEvent]:
        """Events of the window, newest first."""
        return list(self._events)

    @cached_property
    def agents(self) -> Mapping[int, AgentTick]:
        """Cost of the agent of each host at its newest tick."""
        return {row.host_id: row for row in self._agents if row.host_id is not None}

    @cached_property
    def lost(self) -> Mapping[int, int]:
        """Devices that do not answer -> since when."""
        return {gap.owner_id: gap.since_ts for gap in self.gaps if gap.metric == "device"}

    @cached_property
    def hidden(self) -> frozenset[int]:
        """Devices with owners that cannot be read."""
        return frozenset(gap.owner_id for gap in self.gaps if gap.metric == "processes")

    @cached_property
    def held_by(self) -> Mapping[int, Mapping[int, tuple[int, int]]]:
        """device_id -> epoch_id -> (held_ns, busy_ns)."""
        inventory = self.inventory
        return allocated_ns(self._shared, self._deployments, inventory.own_devices, inventory.head_rows)

    @cached_property
    def allocated(self) -> Mapping[int, Mapping[int, int]]:
        """epoch_id -> device_id -> held_ns."""
        allocated: dict[int, dict[int, int]] = defaultdict(dict)
        for device_id, by in self.held_by.items():
            for epoch_id, (held_ns, _) in by.items():
                allocated[epoch_id][device_id] = held_ns
        return allocated


def read_recent(connection: Connection, inventory: Inventory, start: int, as_of: int | None = None) -> Recent:
    """Query the present state, or the state at `as_of`; events since `start`."""
    now_ts = inventory.now_ts
    # A host whose clock is ahead must not hide the newest minutes of all others.
    last = max((row.newest_ts for row in inventory.hosts if row.newest_ts <= now_ts + HOUR), default=now_ts)
    until = (last - 1) // MINUTE * MINUTE + MINUTE
    # The minute that begins at `as_of` is of the time after it.
    newest = (Segment(MINUTE, until - read.recent_s(connection), last + 1 if as_of is None else until),)
    return Recent(
        inventory,
        buckets.deployment_totals(connection, newest),
        buckets.shared_time(connection, newest),
        buckets.device_totals(connection, newest),
        buckets.host_totals(connection, newest),
        read.missing(connection, as_of),
        read.events(connection, start, as_of),
        read.newest_agent_samples(connection, as_of),
        read.newest_of_devices(connection, start, as_of),
    )
