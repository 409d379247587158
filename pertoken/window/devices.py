"""Series of devices and of the hosts they are in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pertoken.metrics import SERIES
from pertoken.metrics.computations import SampleShare
from pertoken.provenance import Provenance
from pertoken.window.columns import Columns, Floats, starts
from pertoken.window.inventory import Inventory
from pertoken.window.measured import Measured
from pertoken.window.series.points import Points, weighted
from pertoken.window.series.sources import OF_HOSTS

MEMORY_USED = "memory_used_bytes"


@dataclass(frozen=True, eq=False)
class DeviceSeries:
    """Observations of devices, of one or of several together, from the buckets of a window."""

    inventory: Inventory
    measured: Measured
    missing: Mapping[int, Sequence[Any]]
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
        points = _summed(devices, values) if devices else None
        return points and replace(points, provenance=Provenance.INTEGRAL if sampled else Provenance.COUNTER)

    def of_hosts(self, name: str, host_ids: Sequence[int]) -> Points | None:
        """Return what hosts together use, or have free: bytes of memory, or CPUs."""
        total, metric = ("cpu_count", "cpu_util_1e4") if name == "host_cpus_used" else ("memory_bytes", MEMORY_USED)
        totals: list[Any] = [getattr(self.inventory.host.get(host_id), total, None) for host_id in host_ids]
        if not totals or None in totals:
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
        return float(self._since_owners_known(device_id).ints("observed_ms").sum())

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

    def _since_owners_known(self, device_id: int) -> Columns:
        """Return the buckets of a device since its owners are known: earlier, no share of it was stored."""
        rows = self.measured.device_time(device_id)
        since = self.owners_known_since.get(device_id)
        return rows if since is None else rows.where(rows.ints("ts") >= since)


def _summed(members: Sequence[Columns], values: Sequence[Floats]) -> Points | None:
    """Return the sum over members of each bucket in which all of them were read; `values` are by member."""
    masks = [~np.isnan(value) for value in values]
    ts = np.concatenate([rows.ints("ts")[mask] for rows, mask in zip(members, masks, strict=True)])
    value = np.concatenate([value[mask] for value, mask in zip(values, masks, strict=True)])
    ms = np.concatenate([rows.floats("duration_ms")[mask] for rows, mask in zip(members, masks, strict=True)])
    order = np.argsort(ts, kind="stable")
    begins = starts(ts[order])
    if not len(begins):
        return None
    is_full = np.diff(begins, append=len(ts)) == len(members)
    total, weight = (np.add.reduceat(array[order], begins)[is_full] for array in (value, ms))
    return weighted(ts[order][begins][is_full], total, weight, Provenance.REPORTED)
