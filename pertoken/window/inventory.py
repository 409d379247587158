"""What there was in a window: hosts, devices, deployments with their epochs, and which devices each held."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection

from pertoken.printable import natural_key
from pertoken.store.query import read
from pertoken.store.query.fast_rows import pipelined
from pertoken.store.schema.rollup_tables import MINUTE
from pertoken.window import ranks
from pertoken.window.observed import STALE_TICKS

STOPPED_S = 900
"""A deployment without a row for so long, while its host has newer ones, does not run any more."""


@dataclass(frozen=True)
class Inventory:
    """Rows of `store.query.read`, joined. Ranks that follow a head rank of another host belong to its deployment."""

    now_ts: int
    hosts: Sequence[Any]
    devices: Mapping[int, Any]
    """By id, in the order in which they are shown."""
    epochs: Sequence[Any]
    """Of all deployments and ranks, oldest first for each deployment."""
    own_devices: Mapping[int, tuple[int, ...]]
    """Devices of each epoch, without those of its worker ranks."""
    intervals_s: Mapping[int, int]
    """By host: seconds between two signs of life."""
    settled_s: int
    """Multiple of seconds up to which the newest rows of a host that reports are in its roll-ups."""

    @cached_property
    def host(self) -> Mapping[int, Any]:
        """Row of each host, by id."""
        return {row.host_id: row for row in self.hosts}

    @cached_property
    def heads(self) -> Mapping[int, int]:
        """Epochs of worker ranks -> the deployment of their head rank."""
        return ranks.heads(self.epochs)

    @cached_property
    def deployment_of(self) -> Mapping[int, int]:
        """Epochs, but those of worker ranks -> their deployment."""
        return {row.epoch_id: row.deployment_id for row in self.epochs if row.epoch_id not in self.heads}

    @cached_property
    def served(self) -> Sequence[Any]:
        """Epochs that are not of worker ranks."""
        return [row for row in self.epochs if row.epoch_id in self.deployment_of]

    @cached_property
    def epochs_of(self) -> Mapping[int, Sequence[Any]]:
        """Epochs of each deployment, oldest first."""
        return by(self.served, "deployment_id")

    @cached_property
    def newest(self) -> Mapping[int, Any]:
        """The newest epoch of each deployment."""
        return {row.deployment_id: row for row in self.served}

    @cached_property
    def running(self) -> Mapping[int, Any]:
        """The newest epoch of each deployment that still runs, as far as its host knows."""
        newest = {row.host_id: row.newest_ts for row in self.hosts}
        return {
            deployment_id: row
            for deployment_id, row in self.newest.items()
            if row.newest_ts is None or (newest.get(row.host_id) or 0) - row.newest_ts <= STOPPED_S
        }

    @cached_property
    def workers_of(self) -> Mapping[int, Sequence[int]]:
        """Epochs of the worker ranks of each deployment."""
        found: dict[int, list[int]] = defaultdict(list)
        for epoch_id, deployment_id in self.heads.items():
            found[deployment_id].append(epoch_id)
        return found

    @cached_property
    def epoch_devices(self) -> Mapping[int, tuple[int, ...]]:
        """Devices of each epoch, those of its worker ranks included."""
        return ranks.devices(self.own_devices, self.epochs, self.heads)

    @cached_property
    def partitions(self) -> Mapping[int, Sequence[Any]]:
        """Rows of the partitions of each device."""
        return by((row for row in self.devices.values() if row.parent_id is not None), "parent_id")

    @cached_property
    def reporting(self) -> frozenset[int]:
        """Hosts that report: only what they hold has a *now*."""
        return frozenset(
            row.host_id
            for row in self.hosts
            if self.now_ts - row.newest_ts <= STALE_TICKS * self.intervals_s[row.host_id]
        )

    @cached_property
    def device_names(self) -> Mapping[int, str]:
        """What people call each device."""
        return {device_id: device_name(row) for device_id, row in self.devices.items()}

    @cached_property
    def order(self) -> Mapping[int, int]:
        """Position of each device on screens."""
        return {device_id: n for n, device_id in enumerate(self.devices)}

    def held(self, epoch_id: int) -> list[Any]:
        """Return the rows of an epoch's devices."""
        return [self.devices[each] for each in self.epoch_devices.get(epoch_id, ()) if each in self.devices]


def read_inventory(connection: Connection, start: int, now_ts: int, as_of: int | None = None) -> Inventory:
    """Read what was there since `start`; nothing later than `as_of`, a whole minute, where it is given."""
    with pipelined(connection):
        hosts, devices = read.hosts(connection, as_of), read.devices(connection, start, as_of)
        epochs = read.epochs(connection, start, as_of)
        held = read.epoch_devices(connection, start // MINUTE * MINUTE)
    ordered = sorted(hosts, key=lambda row: natural_key(row.name))
    place = {row.host_id: n for n, row in enumerate(ordered)}

    def shown_at(row: Any) -> tuple[int, bool, int, str]:
        """Return the sort key of a device: by host, accelerators by slot before CPUs."""
        return place[row.host_id], row.kind == "cpu", -1 if row.slot is None else row.slot, row.uuid

    return Inventory(
        now_ts=now_ts,
        hosts=ordered,
        devices={row.device_id: row for row in sorted(devices, key=shown_at)},
        epochs=epochs,
        own_devices=read.by_epoch(held),
        intervals_s={row.host_id: read.noted_every_s(connection, row.interval_s) for row in hosts},
        settled_s=read.settled_s(connection),
    )


def device_name(row: Any) -> str:
    """Return what people call a device: its name and slot."""
    return f"{row.name} #{row.slot}" if row.slot is not None else str(row.name)


def by(rows: Iterable[Any], key: str) -> dict[int, list[Any]]:
    """Return rows by the value of a column."""
    found: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        found[getattr(row, key)].append(row)
    return found
