"""Inventory of a window: hosts, devices, deployments with their epochs, and which devices each held."""

from __future__ import annotations

import ipaddress
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection

from pertoken.printable import natural_key
from pertoken.provenance import Provenance
from pertoken.state.deployment import owner_of
from pertoken.store.query import read
from pertoken.store.query.read import KnownDevice as KnownDevice
from pertoken.store.query.read import KnownEpoch as KnownEpoch
from pertoken.store.query.read import KnownHost as KnownHost
from pertoken.store.query.read import RowFault, checked_devices, checked_epochs, checked_hosts, refused
from pertoken.store.query.rollups import AllocatedBucket, RollupRow, pipelined
from pertoken.store.schema.shared import DEMO_MACHINE
from pertoken.store.schema.telemetry import MINUTE
from pertoken.window.figures import STALE_TICKS

Row = TypeVar("Row")
FOLLOWING = "rendezvous://"
"""How the address of ranks that follow begins."""


def heads(epochs: Iterable[KnownEpoch]) -> Mapping[int, int]:
    """Epoch of ranks that follow -> the deployment that leads them, for all of `read.epochs` that can be joined."""
    rows = list(epochs)
    leading = [(row, address) for row in rows if not follows(row) and (address := _meeting(row)) is not None]
    head_of: dict[int, int] = {}
    for row in rows:
        address = _meeting(row) if follows(row) else None
        if address is None:
            continue
        led_by = {
            head.deployment_id
            for head, met in leading
            if met == address
            and (head.engine_kind, head.host_id == row.host_id) == (row.engine_kind, False)
            and _same_model(row, head)
            and _overlap(row, head)
        }
        if len(led_by) == 1:
            head_of[row.epoch_id] = led_by.pop()
    return head_of


def devices(
    held: Mapping[int, tuple[int, ...]], epochs: Iterable[KnownEpoch], led: Mapping[int, int]
) -> dict[int, tuple[int, ...]]:
    """Devices of each epoch, with those of the ranks that follow it while it lasts."""
    rows = list(epochs)
    followers: dict[int, list[KnownEpoch]] = defaultdict(list)
    for row in rows:
        if row.epoch_id in led:
            followers[led[row.epoch_id]].append(row)
    return {
        row.epoch_id: (
            *held.get(row.epoch_id, ()),
            *(
                device
                for follower in followers.get(row.deployment_id, ())
                if _overlap(follower, row)
                for device in held.get(follower.epoch_id, ())
            ),
        )
        for row in rows
    }


class BusyShare(NamedTuple):
    """Part of the observed time of a bucket in which a deployment was busy, and the worst provenance of that."""

    part: float
    provenance: int


def busy_shares(buckets: Iterable[RollupRow], of_epoch: Mapping[int, int]) -> dict[tuple[int, int], BusyShare]:
    """Return how busy each deployment was, by (deployment, ts)."""
    busy: dict[tuple[int, int], int] = {}
    observed: dict[tuple[int, int], int] = {}
    provenance: dict[tuple[int, int], int] = {}
    for row in buckets:
        key = of_epoch.get(row.epoch_id, 0), row.ts
        if row.busy_ms is not None:
            busy[key] = busy.get(key, 0) + row.busy_ms
            observed[key] = observed.get(key, 0) + row.observed_ms
            provenance[key] = max(provenance.get(key, 0), row.busy_provenance or 0)
    return {key: BusyShare(min(1.0, busy[key] / ms), provenance[key]) for key, ms in observed.items() if ms}


def worker_busy_ns(
    share: AllocatedBucket, led: Mapping[int, int], busy: Mapping[tuple[int, int], BusyShare]
) -> tuple[int, int]:
    """Return how long worker ranks were busy of the time they held a device, with its provenance.

    They are busy while their head is. Where nothing is known of the head, their own row is an upper bound.
    """
    head = busy.get((led[share.epoch_id], share.ts))
    if head is None:
        return int(share.busy_ns), int(Provenance.BOUND)
    return round(share.held_ns * head.part), head.provenance


def follows(row: KnownEpoch) -> bool:
    """Return whether an epoch is of worker ranks, with the head rank on another host."""
    return row.base_url.startswith(FOLLOWING)


def _meeting(row: KnownEpoch) -> str | None:
    """Return the rendezvous address of an epoch's ranks; None if other hosts cannot meet there."""
    address = json.loads(row.knobs).get("rendezvous") if "rendezvous" in row.knobs else None
    if not isinstance(address, str):
        return None
    return None if any(map(_loopback, (address, address.rpartition(":")[0].strip("[]")))) else address


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _same_model(follower: KnownEpoch, head: KnownEpoch) -> bool:
    """Return whether two epochs may serve one model. Ray workers do not know theirs: the address alone decides then."""
    names = [name.rstrip("/") for name in (head.model_path, head.served_model) if name]
    return follower.model_path is None or follower.model_path.rstrip("/") in names


def _overlap(first: KnownEpoch, second: KnownEpoch) -> bool:
    ends = [row.end_ts for row in (first, second) if row.end_ts is not None]
    return max(first.start_ts, second.start_ts) < min(ends, default=math.inf)


MAX_FAULTY_HOSTS, MAX_FAULTS = 5, 3
"""Hosts with rows that cannot be used, and faults of each, that sentences name; of more only the number."""
STOPPED_S = 900
"""A deployment without a row for so long, while its host has newer ones, does not run any more."""


@dataclass(frozen=True)
class Inventory:
    """Rows of `store.query.read`, joined. Ranks that follow a head rank of another host belong to its deployment."""

    now_ts: int
    hosts: Sequence[KnownHost]
    devices: Mapping[int, KnownDevice]
    """By id, in the order in which they are shown."""
    epochs: Sequence[KnownEpoch]
    """Of all deployments and ranks, oldest first for each deployment."""
    own_devices: Mapping[int, tuple[int, ...]]
    """Devices of each epoch, without those of its worker ranks."""
    intervals_s: Mapping[int, int]
    """By host: seconds between two signs of life."""
    settled_s: int
    """Multiple of seconds up to which the newest rows of a host that reports are in its roll-ups."""
    faults: frozenset[RowFault] = frozenset()
    """Values of hosts that cannot be used as they are stored."""

    @cached_property
    def host(self) -> Mapping[int, KnownHost]:
        """Row of each host, by id."""
        return {row.host_id: row for row in self.hosts}

    @property
    def is_generated(self) -> bool:
        """Whether a host was generated by `pertoken demo`: its dollars are nobody's."""
        return any((row.machine_id or "").startswith(DEMO_MACHINE) for row in self.hosts)

    @cached_property
    def heads(self) -> Mapping[int, int]:
        """Epochs of worker ranks -> the deployment of their head rank."""
        return heads(self.epochs)

    @cached_property
    def deployment_of(self) -> Mapping[int, int]:
        """Epochs, but those of worker ranks -> their deployment."""
        return {row.epoch_id: row.deployment_id for row in self.epochs if row.epoch_id not in self.heads}

    @cached_property
    def served(self) -> Sequence[KnownEpoch]:
        """Epochs that are not of worker ranks."""
        return [row for row in self.epochs if row.epoch_id in self.deployment_of]

    @cached_property
    def epochs_of(self) -> Mapping[int, Sequence[KnownEpoch]]:
        """Epochs of each deployment, oldest first."""
        return by(self.served, "deployment_id")

    @cached_property
    def newest(self) -> Mapping[int, KnownEpoch]:
        """The newest epoch of each deployment."""
        return {row.deployment_id: row for row in self.served}

    @cached_property
    def running(self) -> Mapping[int, KnownEpoch]:
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
        workers: dict[int, list[int]] = defaultdict(list)
        for epoch_id, deployment_id in self.heads.items():
            workers[deployment_id].append(epoch_id)
        return workers

    @cached_property
    def head_rows(self) -> Mapping[int, KnownEpoch]:
        """Row that names the model and owner of each epoch: of a worker rank the newest of its head rank."""
        return {
            row.epoch_id: self.newest.get(self.heads[row.epoch_id], row) if row.epoch_id in self.heads else row
            for row in self.epochs
        }

    def owners(self, basis: str) -> dict[int, str | None]:
        """Return who pays for each epoch, by a basis of `settings.owners`; None where nobody is known.

        A worker rank has the owner of its head rank where it has none of its own.
        """
        ranks_of = ((row, self.head_rows[row.epoch_id]) for row in self.epochs)
        return {
            row.epoch_id: owner_of(json.loads(row.knobs), basis) or owner_of(json.loads(head.knobs), basis)
            for row, head in ranks_of
        }

    @cached_property
    def epoch_devices(self) -> Mapping[int, tuple[int, ...]]:
        """Devices of each epoch, those of its worker ranks included."""
        return devices(self.own_devices, self.epochs, self.heads)

    @cached_property
    def partitions(self) -> Mapping[int, Sequence[KnownDevice]]:
        """Rows of the partitions of each device."""
        return by((row for row in self.devices.values() if row.parent_id is not None), "parent_id")

    @cached_property
    def reporting(self) -> frozenset[int]:
        """Hosts that report: only their devices have a *now*."""
        return frozenset(
            row.host_id
            for row in self.hosts
            if self.now_ts - row.newest_ts <= STALE_TICKS * self.intervals_s[row.host_id]
        )

    @cached_property
    def device_names(self) -> Mapping[int, str]:
        """Name of each device for people."""
        return {device_id: device_name(row) for device_id, row in self.devices.items()}

    @cached_property
    def order(self) -> Mapping[int, int]:
        """Position of each device on screens."""
        return {device_id: n for n, device_id in enumerate(self.devices)}

    def held(self, epoch_id: int) -> list[KnownDevice]:
        """Return the rows of an epoch's devices."""
        return [
            self.devices[device_id] for device_id in self.epoch_devices.get(epoch_id, ()) if device_id in self.devices
        ]


def read_inventory(connection: Connection, start: int, now_ts: int, as_of: int | None = None) -> Inventory:
    """Read the inventory since `start`; nothing later than `as_of`, a whole minute, where it is given."""
    with pipelined(connection):
        hosts, devices = read.hosts(connection, as_of), read.devices(connection, start, as_of)
        first = start // MINUTE * MINUTE  # of the first minute that is billed: what ended in it holds a part of it
        epochs, held = read.epochs(connection, first, as_of), read.epoch_devices(connection, first)
    checked = checked_hosts(hosts), checked_devices(devices), checked_epochs(epochs)
    ordered = sorted(checked[0].rows, key=lambda row: natural_key(row.name))
    order = {row.host_id: n for n, row in enumerate(ordered)}
    # A host's own file may hold rows of a host that it has not.
    devices = [row for row in checked[1].rows if row.host_id in order]
    epochs = [row for row in checked[2].rows if row.host_id in order]

    def shown_at(row: KnownDevice) -> tuple[int, bool, int, str]:
        """Return the sort key of a device: by host, accelerators by slot before CPUs."""
        return order[row.host_id], row.kind == "cpu", -1 if row.slot is None else row.slot, row.uuid

    return Inventory(
        now_ts=now_ts,
        hosts=ordered,
        devices={row.device_id: row for row in sorted(devices, key=shown_at)},
        epochs=epochs,
        own_devices=read.by_epoch(held),
        intervals_s={row.host_id: read.noted_every_s(connection, row.interval_s) for row in checked[0].rows},
        settled_s=read.settled_s(connection),
        faults=refused(connection, start).union(*(part.faults for part in checked)),
    )


def fault_sentences(inventory: Inventory) -> list[str]:
    """Return a sentence for each host with values that cannot be used as they are stored, by name."""
    faults: dict[int, list[str]] = defaultdict(list)
    for fault in inventory.faults:
        faults[fault.host_id].append(str(fault))
    names = [(host_id, row.name) for host_id, row in inventory.host.items() if host_id in faults]
    sentences = []
    for host_id, name in names[:MAX_FAULTY_HOSTS]:
        reasons = sorted(faults[host_id])
        more = f"; and {len(reasons) - MAX_FAULTS} more" if len(reasons) > MAX_FAULTS else ""
        sentences.append(
            f"Values in rows of {name} are not used as they came: {'; '.join(reasons[:MAX_FAULTS])}{more}."
        )
    if len(names) > MAX_FAULTY_HOSTS:
        sentences.append(f"Values in rows of {len(names) - MAX_FAULTY_HOSTS} more hosts are not used as they came.")
    return sentences


def shown_place(stored_place: object, inventory: Inventory) -> str:
    """Return how people call a database: its place, and that it is a demo where it is one."""
    return f"generated demo, {stored_place}" if inventory.is_generated else str(stored_place)


def device_name(row: KnownDevice) -> str:
    """Return the name of a device for people, with its slot."""
    return f"{row.name} #{row.slot}" if row.slot is not None else row.name


def by(rows: Iterable[Row], key: str) -> dict[int, list[Row]]:
    """Return rows by the value of a column."""
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        groups[getattr(row, key)].append(row)
    return groups
