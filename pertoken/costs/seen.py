"""What a report is made of: one reading of the telemetry in one transaction, and who asks for what of it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from sqlalchemy import Connection

from pertoken.catalog.market import load_market
from pertoken.costs import ranks
from pertoken.costs.detected import detected_prices
from pertoken.costs.engine_counts import Counts, by_epoch
from pertoken.costs.lines import STALE_TICKS
from pertoken.costs.money import allocations, following, stretch
from pertoken.costs.observed import observed_share
from pertoken.costs.prices import Price, PriceBook
from pertoken.costs.quantiles import histogram, quantile
from pertoken.store import read, sums
from pertoken.store.answers import Rows, asking
from pertoken.store.rollup import HOUR, MINUTE
from pertoken.store.segments import Segment, divided_hours, segments, stretches
from pertoken.store.shares import held

SLICES_S = (60, 300, 600, 3600, 7200, 43_200, 86_400)
"""Lengths of slices of a window. From some hours on they are whole hours: a fleet has too many minutes."""
_MOST_SLICES = 15
"""As many as the fleet's table has cells for."""
_NONE: Mapping[str, Any] = {}


class Seen:
    """The telemetry of the last `window_s` seconds. Rows are of `store.read` and `store.sums`.

    What there is, is known from the start; what it did, once it was asked (`ask`).
    """

    def __init__(self, connection: Connection, prices_set: Iterable[Price], window_s: int, now_ts: int) -> None:
        self.window_s, self.now = window_s, now_ts
        self.start = start = now_ts - window_s
        self.slice_s = next((s for s in SLICES_S if window_s <= s * _MOST_SLICES), SLICES_S[-1])
        self._under_way = read.whole_hour(connection, now_ts)
        self._settled_s = read.settled_s(connection)
        with asking(connection):
            self.hosts, devices = read.hosts(connection), read.devices(connection, start)
            self.epochs = read.epochs(connection, start)
            its_devices = read.epoch_devices(connection, start // MINUTE * MINUTE)
        self.intervals = {row.host_id: read.noted_every_s(connection, row.interval_s) for row in self.hosts}
        self.reporting = frozenset(
            row.host_id for row in self.hosts if now_ts - row.newest_ts <= STALE_TICKS * self.intervals[row.host_id]
        )
        """Hosts that report: only what they hold has a *now*."""
        self.devices = {row.device_id: row for row in devices}
        self.prices = book_of(prices_set, devices, now_ts)
        self.led = ranks.heads(self.epochs)
        """Epochs of ranks that follow -> the deployment that leads them."""
        self.of_epoch = {row.epoch_id: row.deployment_id for row in self.epochs if row.epoch_id not in self.led}
        self._devices_of = read.by_epoch(its_devices)
        changes = self.prices.changes()
        self._gone = read.without_minutes(connection, divided_hours(start, now_ts, changes, under_way=self._under_way))
        self._alike = [
            (each, following(connection, each, self.led, self.of_epoch))
            for each in stretches(start, now_ts, changes, under_way=self._under_way, without_minutes=self._gone)
        ]

    def ask(self, connection: Connection) -> None:
        """Ask what it did, within `asking`: while Python works on what is read first, a server finds the rest."""
        start, now = self.start, self.now
        window = segments(start, now, under_way=self._under_way, without_minutes=self._gone)
        # A host whose clock is ahead must not hide the newest minutes of all others.
        last = max((row.newest_ts for row in self.hosts if row.newest_ts <= now + HOUR), default=now)
        until = (last - 1) // MINUTE * MINUTE + MINUTE
        recent = (Segment(MINUTE, until - read.recent_s(connection), last + 1),)
        paid = [stretch(connection, *each) for each in self._alike]
        recently, shared = sums.deployment_totals(connection, recent), sums.shared_time(connection, recent)
        recent_devices, recent_hosts = sums.device_totals(connection, recent), sums.host_totals(connection, recent)
        gaps, events = read.missing(connection), read.events(connection, start)
        agents = read.newest_agent_samples(connection)

        self.places = {device_id: n for n, device_id in enumerate(self.devices)}
        """In which order devices are shown."""
        self.device_names = {device_id: _device_name(row) for device_id, row in self.devices.items()}
        self.current = {row.deployment_id: row for row in self.epochs if row.epoch_id in self.of_epoch}
        self.own: dict[int, list[Any]] = defaultdict(list)
        """Epochs of a deployment, oldest first."""
        for row in self.epochs:
            if row.epoch_id in self.of_epoch:
                self.own[row.deployment_id].append(row)
        self.following: dict[int, list[int]] = defaultdict(list)
        """Epochs of the ranks that follow a deployment."""
        for epoch_id, deployment_id in self.led.items():
            self.following[deployment_id].append(epoch_id)
        self.epoch_devices = ranks.devices(self._devices_of, self.epochs, self.led)

        self.gaps, self.events = list(gaps), list(events)  # waits for all that was asked so far
        # What only the lines of deployments need is found while the rest is worked out.
        self._histograms = sums.histograms(connection, window, ("ttft_s", "tpot_s"))
        self._counts = sums.engine_counter_totals(connection, window)
        self._slices = sums.generated_by_slice(connection, start // self.slice_s * self.slice_s, now, self.slice_s)

        self.agents = {row.host_id: row for row in agents if row.host_id is not None}
        self.gaps_of = _grouped(self.gaps, 0)
        self.lost = {gap.owner_id: gap.since_ts for gap in self.gaps if gap.metric == "device"}
        """Devices that answer nothing -> since when."""
        self.hidden = {gap.owner_id for gap in self.gaps if gap.metric == "processes"}
        """Devices of which nobody can say who holds them."""
        self.money = allocations(paid, self.devices, self._devices_of, self.prices)
        self._sums, self._recent = _by_epoch(each.totals for each in paid), _by_epoch((recently,))
        self.recent_devices = {row.device_id: row for row in recent_devices}
        self.recent_hosts = {row.host_id: row for row in recent_hosts}
        self.held_by = held(shared, recently, self._devices_of)
        """device_id -> epoch_id -> (held_ns, busy_ns), lately."""

    def totals(self, deployment_id: int) -> Mapping[str, Any]:
        """Sums over the window of all epochs of a deployment; a column that is NULL in all of them is None."""
        return self._together(self._sums, deployment_id)

    def recent(self, deployment_id: int) -> Mapping[str, Any]:
        """The same over the newest minutes."""
        return self._together(self._recent, deployment_id)

    def _together(self, by_epoch: Mapping[int, Mapping[str, Any]], deployment_id: int) -> Mapping[str, Any]:
        return _added([by_epoch[row.epoch_id] for row in self.own[deployment_id] if row.epoch_id in by_epoch])

    def observed(self, deployment_id: int) -> tuple[int, int]:
        """Milliseconds of the window in which a deployment was observed, and in which it should have been."""
        row, observed_ms = self.current[deployment_id], self.totals(deployment_id).get("observed_ms") or 0
        return observed_ms, self._expected_ms(row, self.own[deployment_id][0].start_ts)

    def bill_observed(self) -> float | None:
        """Share of the time priced devices should have been there that was observed; None if none has a price."""
        observed_ms = expected_ms = 0
        for device_id, row in self.devices.items():
            if row.parent_id is None and (device_id in self.money.priced_devices or self.price(device_id) is not None):
                ms = self._expected_ms(row, row.first_ts)
                expected_ms += ms
                observed_ms += min(ms, self.money.observed_ms.get(device_id, 0))
        return observed_share(observed_ms, expected_ms)

    def _expected_ms(self, row: Any, first_ts: int) -> int:
        """How long rows of a device or deployment should have been there, by its newest row.

        On a host that reports it was there until its newest row; on one that stopped nobody knows, so until now.
        """
        settled = row.newest_ts // self._settled_s * self._settled_s
        until = min(settled, self.now) if row.host_id in self.reporting else self.now
        return 1000 * max(0, until - max(self.start // MINUTE * MINUTE, first_ts))

    def busy_ms(self, epoch_id: int) -> int:
        """How long an epoch was busy in the window."""
        return self._sums.get(epoch_id, _NONE).get("busy_ms") or 0

    @cached_property
    def holding(self) -> Mapping[int, Mapping[int, int]]:
        """epoch_id -> device_id -> held_ns, lately."""
        found: dict[int, dict[int, int]] = defaultdict(dict)
        for device_id, by in self.held_by.items():
            for epoch_id, (held_ns, _) in by.items():
                found[epoch_id][device_id] = held_ns
        return found

    @cached_property
    def counts(self) -> Mapping[int, Counts]:
        """Growth of what an engine counts beside tokens, by epoch."""
        return by_epoch(self._counts)

    @cached_property
    def slices(self) -> Mapping[int, str]:
        """Rows of `sums.generated_by_slice` by epoch, as they are told."""
        return dict(self._slices)

    @cached_property
    def _latencies(self) -> Mapping[tuple[int, str], Sequence[tuple[str, str]]]:
        found: dict[tuple[int, str], list[tuple[str, str]]] = defaultdict(list)
        for epoch_id, metric, upper_bounds, counts in self._histograms:
            found[self.of_epoch.get(epoch_id, 0), metric].append((upper_bounds, counts))
        return dict(found)

    def latency(self, deployment_id: int, metric: str, q: float) -> float | None:
        """A quantile over the window, in seconds."""
        return quantile(histogram(self._latencies.get((deployment_id, metric), ())), q)

    def price(self, device_id: int) -> Price | None:
        """What an hour of a device costs now."""
        return self.prices.at(self.devices[device_id], self.now)


def book_of(prices_set: Iterable[Price], devices: Iterable[Any], now_ts: int) -> PriceBook:
    """Prices people set, and list prices of detected instances for devices (rows of `read.devices`) without one."""
    today = datetime.fromtimestamp(now_ts, UTC).date()
    return PriceBook(prices_set, detected_prices(devices, load_market(), today))


def _by_epoch(parts: Iterable[Rows]) -> dict[int, Mapping[str, Any]]:
    """Rows of `sums.deployment_totals` of several times, added up by epoch."""
    found: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for rows in parts:
        for row in rows:
            found[row.epoch_id].append(row._asdict())
    return {epoch_id: _added(each) for epoch_id, each in found.items()}


def _added(parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Sums by name, of a provenance the worst; one that is NULL in all parts is None."""
    if len(parts) < 2:
        return parts[0] if parts else _NONE
    together: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if name == "busy_provenance" and value is not None:
                together[name] = max(together.get(name, value), value)
            elif name != "epoch_id" and value is not None:
                together[name] = together.get(name, 0) + value
    return together


def _grouped(rows: Iterable[Any], key: int) -> dict[int, list[Any]]:
    """Rows by the value at a position, which is found faster than by its name."""
    found: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        found[row[key]].append(row)
    return dict(found)


def _device_name(row: Any) -> str:
    return f"{row.name} #{row.slot}" if row.slot is not None else str(row.name)
