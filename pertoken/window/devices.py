"""Series of devices and of the hosts they are in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pertoken.metrics import RollUp, rolled
from pertoken.provenance import Provenance
from pertoken.window.columns import Columns
from pertoken.window.inventory import Inventory
from pertoken.window.measured import Measured
from pertoken.window.series import points as series
from pertoken.window.series.of_window import Find, Finders
from pertoken.window.series.points import Points
from pertoken.window.series.sources import THROTTLED


@dataclass(frozen=True, eq=False)
class DeviceSeries:
    """Observations of devices, of one or of several together, from the buckets of a window."""

    inventory: Inventory
    measured: Measured
    missing: Mapping[int, Sequence[Any]]
    """Rows of unreadable metrics, by owner."""
    owners_known_since: Mapping[int, int]
    """Devices -> since when their owners are known again, where they once were unknown."""

    def finders(self, ids: tuple[int, ...]) -> Finders:
        """Return how to find the observations of each series of some devices together."""
        # Nobody knows who holds it where processes cannot be read: that none was seen means nothing then.
        hidden = any(gap.metric == "processes" for subject_id in ids for gap in self.missing.get(subject_id, ()))
        alone = [(None, subject_id) for subject_id in ids]
        hosts = tuple(dict.fromkeys(self.inventory.devices[subject_id].host_id for subject_id in ids))
        finders: Find = {
            "energy_w": partial(self.energy, alone),
            "host_memory_free": partial(self.host_memory_free, hosts),
            **({} if hidden else {"held": partial(self._held, ids)}),
        }
        return Finders(finders, (), partial(self.gauges, ids))

    def gauges(self, device_ids: Sequence[int]) -> dict[str, Callable[[], Points | None]]:
        """Return how to find the gauges of some devices together, by series."""
        if not device_ids:
            return {}

        def of(names: Sequence[str], per_unit: float, mean: bool) -> Points | None:
            devices = [self.measured.device(device_id) for device_id in device_ids]
            values = [np.sum([series.gauge_means(rows, name) for name in names], axis=0) / per_unit for rows in devices]
            return series.of_devices(devices, values, mean=mean)

        readers: dict[str, Callable[[], Points | None]] = {
            metric.series: partial(of, (metric.stored,), metric.per_unit, not metric.summed)
            for metric in rolled(RollUp.GAUGE)
            if metric.series
        }
        return readers | {
            "nvlink_bytes_s": partial(of, ("nvlink_rx_mib_s", "nvlink_tx_mib_s"), 2**-20, True),
            **{name: partial(self._throttled, device_ids, stored) for name, stored in THROTTLED.items()},
        }

    def energy(self, allocated: Sequence[tuple[int | None, int]]) -> Points | None:
        """Return the power by energy of devices together: all of it, or the share that an epoch held.

        Energy is that of the device's counter, else of its power over time.
        """
        devices, values, sampled = [], [], False
        for epoch_id, device_id in allocated:
            rows = self.measured.device(device_id)
            rows = rows.where(rows.ints("duration_ms") > 0)
            counter, integral = rows.floats("energy_counter_mj"), rows.floats("energy_integral_mj")
            sampled = sampled or bool((np.isnan(counter) & ~np.isnan(integral)).any())
            share = 1.0 if epoch_id is None else self.measured.share(epoch_id, device_id, rows)
            devices.append(rows)
            values.append(np.where(np.isnan(counter), integral, counter) / rows.floats("duration_ms") * share)
        points = series.of_devices(devices, values) if devices else None
        return points and replace(points, provenance=Provenance.INTEGRAL if sampled else Provenance.COUNTER)

    def host_memory_free(self, host_ids: Sequence[int]) -> Points | None:
        """Return the memory of hosts together that nothing uses."""
        sizes = {row.host_id: row.memory_bytes for row in self.inventory.hosts}
        if not host_ids or any(sizes.get(host_id) is None for host_id in host_ids):
            return None
        hosts = [self.measured.host(host_id) for host_id in host_ids]
        values = [
            sizes[host_id] - series.gauge_means(rows, "memory_used_bytes")
            for host_id, rows in zip(host_ids, hosts, strict=True)
        ]
        return series.of_devices(hosts, values)

    def observed_ms(self, device_id: int) -> float:
        """Return the observed time of a device since its owners are known."""
        return float(self._since_owners_known(device_id).ints("observed_ms").sum())

    def _held(self, device_ids: Sequence[int]) -> Points | None:
        """Return the share of its observed time that some process held a device, a mean over several."""
        ts, shares, times = [], [], []
        for device_id in device_ids:
            rows, held_ns = self.measured.device_time(device_id), self.measured.held_ns(device_id)
            some = (rows.ints("duration_ms") > 0) & (rows.ints("ts") >= self.owners_known_since.get(device_id, 0))
            ms = rows.floats("duration_ms")[some]
            ts.append(rows.ints("ts")[some])
            shares.append(held_ns[some] / 1e6 / ms)
            times.append(ms)
        return series.over(ts, shares, times, Provenance.REPORTED)

    def _throttled(self, device_ids: Sequence[int], counted: str) -> Points | None:
        """Return the share of samples in which reasons of a kind slowed the clocks, a mean over the devices."""
        kinds = {(row.kind, row.vendor) for device_id in device_ids if (row := self.inventory.devices.get(device_id))}
        unread = any(
            gap.metric == "throttle_reasons" for device_id in device_ids for gap in self.missing.get(device_id, ())
        )
        if unread or kinds != {("gpu", "nvidia")}:
            return None
        devices = [self.measured.device(device_id) for device_id in device_ids]
        values = [rows.floats(counted) / np.maximum(rows.floats("samples"), 1) for rows in devices]
        return series.of_devices(devices, values, mean=True)

    def _since_owners_known(self, device_id: int) -> Columns:
        """Return the buckets of a device since its owners are known: earlier, no share of it was stored."""
        rows = self.measured.device_time(device_id)
        since = self.owners_known_since.get(device_id)
        return rows if since is None else rows.where(rows.ints("ts") >= since)
