"""What a report is made of: one reading of the telemetry in one transaction, and who asks for what of it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from pertoken.catalog.market import load_market
from pertoken.costs import ranks
from pertoken.costs.detected import detected_prices
from pertoken.costs.engine_counts import by_epoch
from pertoken.costs.money import allocations, following, held
from pertoken.costs.prices import Price, PriceBook, Priced
from pertoken.costs.quantiles import histogram, quantile
from pertoken.store import read, sums
from pertoken.store.answers import asking
from pertoken.store.rollup import MINUTE
from pertoken.store.segments import Segment, segments, stretches

SLICES_S = (60, 300, 600, 3600, 7200, 43_200, 86_400)
"""Lengths of slices of a window. From some hours on they are whole hours: a fleet has too many minutes."""
_MOST_SLICES = 15
"""As many as the fleet's table has cells for."""
_NONE: Mapping[str, Any] = {}


class Seen:
    """The telemetry of the last `window_s` seconds. Rows are of `store.read` and `store.sums`."""

    def __init__(self, connection: Connection, prices_set: Iterable[Price], window_s: int, now_ts: int) -> None:
        self.window_s, self.now = window_s, now_ts
        self.start = start = now_ts - window_s
        self.hosts = read.hosts(connection)
        devices = read.devices(connection, start)
        self.prices = prices = book_of(prices_set, devices, now_ts)
        self.epochs = read.epochs(connection, start)
        self.led = ranks.heads(self.epochs)
        """Epochs of ranks that follow -> the deployment that leads them."""
        self.of_epoch = {row.epoch_id: row.deployment_id for row in self.epochs if row.epoch_id not in self.led}
        self.agents = read.newest_agent_samples(connection)
        self.intervals = {row.host_id: read.noted_every_s(connection, row.interval_s) for row in self.hosts}
        self.gaps = read.missing(connection)
        self.events = read.events(connection, start)
        its_devices = read.epoch_devices(connection, start)

        under_way = read.whole_hour(connection, now_ts)
        window = segments(start, now_ts, under_way=under_way)
        priced_alike = [
            (stretch, following(connection, stretch, self.led, self.of_epoch))
            for stretch in stretches(start, now_ts, prices.changes(), under_way=under_way)
        ]
        last = max((row.newest_ts for row in self.hosts), default=now_ts)
        until = (last - 1) // MINUTE * MINUTE + MINUTE
        recent = (Segment(MINUTE, until - read.recent_s(connection), last + 1),)
        self.slice_s = next((s for s in SLICES_S if window_s <= s * _MOST_SLICES), SLICES_S[-1])
        with asking(connection):
            paid = [held(connection, *each) for each in priced_alike]
            totals, recently = (sums.deployment_totals(connection, each) for each in (window, recent))
            recent_devices, recent_hosts = sums.device_totals(connection, recent), sums.host_totals(connection, recent)
            shares = sums.share_time(connection, recent)
            latencies = sums.histograms(connection, window, ("ttft_s", "tpot_s"))
            counts = sums.engine_counter_totals(connection, window)
            slices = sums.generated_by_slice(connection, start // self.slice_s * self.slice_s, now_ts, self.slice_s)

            self.devices = {row.device_id: row for row in devices}
            self.places = {device_id: n for n, device_id in enumerate(self.devices)}
            """In which order devices are shown."""
            self.priced = {
                device_id: Priced(row.kind, row.name, row.uuid, row.parent_id)
                for device_id, row in self.devices.items()
            }
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
            self.epoch_devices = ranks.devices(its_devices, self.epochs, self.led)
            self.gaps_of = _grouped(self.gaps, 0)
            self.lost = {gap.owner_id: gap.since_ts for gap in self.gaps if gap.metric == "device"}
            """Devices that answer nothing -> since when."""
            self.hidden = {gap.owner_id for gap in self.gaps if gap.metric == "processes"}
            """Devices of which nobody can say who holds them."""

            self.money = allocations(paid, self.priced, prices)
            self._sums_by_epoch = {row.epoch_id: row._asdict() for row in totals}
            self._recent_by_epoch = {row.epoch_id: row._asdict() for row in recently}
            self.recent_devices = {row.device_id: row for row in recent_devices}
            self.recent_hosts = {row.host_id: row for row in recent_hosts}
            self.held_by_device, self.held_by_epoch = _grouped(shares, 0), _grouped(shares, 1)
            self._latencies: dict[tuple[int, str], list[tuple[str, str]]] = defaultdict(list)
            for epoch_id, metric, upper_bounds, each in latencies:
                self._latencies[self.of_epoch.get(epoch_id, 0), metric].append((upper_bounds, each))
            self.counts = by_epoch(counts)
            self.slices = dict(slices)
            """By epoch, as it is told."""

    def totals(self, deployment_id: int) -> Mapping[str, Any]:
        """Sums over the window of all epochs of a deployment; a column that is NULL in all of them is None."""
        return _together(self._sums_by_epoch, self.own[deployment_id])

    def recent(self, deployment_id: int) -> Mapping[str, Any]:
        """The same over the newest minutes."""
        return _together(self._recent_by_epoch, self.own[deployment_id])

    def busy_ms(self, epoch_id: int) -> int:
        """How long an epoch was busy in the window."""
        return self._sums_by_epoch.get(epoch_id, _NONE).get("busy_ms") or 0

    def latency(self, deployment_id: int, metric: str, q: float) -> float | None:
        """A quantile over the window, in seconds."""
        return quantile(histogram(self._latencies.get((deployment_id, metric), ())), q)

    def price(self, device_id: int) -> Price | None:
        """What an hour of a device costs now."""
        return self.prices.at(self.priced[device_id], self.now)


def book_of(prices_set: Iterable[Price], devices: Iterable[Any], now_ts: int) -> PriceBook:
    """Prices people set, and list prices of detected instances for devices (rows of `read.devices`) without one."""
    today = datetime.fromtimestamp(now_ts, UTC).date()
    return PriceBook(prices_set, detected_prices(devices, load_market(), today))


def _together(by_epoch: Mapping[int, Mapping[str, Any]], epochs: Iterable[Any]) -> Mapping[str, Any]:
    found = [by_epoch[row.epoch_id] for row in epochs if row.epoch_id in by_epoch]
    if len(found) < 2:
        return found[0] if found else _NONE
    together: dict[str, Any] = {}
    for sums_ in found:
        for name, value in sums_.items():
            if name != "epoch_id" and value is not None:
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
