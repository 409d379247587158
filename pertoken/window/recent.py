"""Present state: sums over the newest minutes, metrics that cannot be read, and events."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection

from pertoken.store.query import read, sums
from pertoken.store.query.device_shares import allocated_ns
from pertoken.store.query.fast_rows import Rows
from pertoken.store.query.segments import Segment
from pertoken.store.schema.rollup_tables import HOUR, MINUTE
from pertoken.window.inventory import Inventory
from pertoken.window.totals import Sums, by_deployment, summed


@dataclass(frozen=True)
class Recent:
    """Rows of the newest minutes. Results of the database are fetched when a figure is first read."""

    inventory: Inventory
    _deployments: Rows
    _shared: Rows
    _devices: Rows
    _hosts: Rows
    _gaps: Rows
    _events: Rows
    _agents: Rows
    _newest: Rows

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
    def devices(self) -> Mapping[int, Any]:
        """Sums by device."""
        return {row.device_id: row for row in self._devices}

    @cached_property
    def hosts(self) -> Mapping[int, Any]:
        """Sums by host."""
        return {row.host_id: row for row in self._hosts}

    @cached_property
    def newest_ts(self) -> Mapping[int, int]:
        """`ts` of the newest row of each device."""
        return dict(self._newest)

    @cached_property
    def gaps(self) -> Sequence[Any]:
        """Metrics that cannot be read."""
        return list(self._gaps)

    @cached_property
    def gaps_of(self) -> Mapping[int, Sequence[Any]]:
        """The same by owner."""
        gaps: dict[int, list[Any]] = defaultdict(list)
        for row in self.gaps:
            gaps[row[0]].append(row)  # by position, which is faster than by name
        return gaps

    @cached_property
    def events(self) -> Sequence[Any]:
        """What happened in the window, newest first."""
        return list(self._events)

    @cached_property
    def agents(self) -> Mapping[int, Any]:
        """What the agent of each host cost at its newest tick."""
        return {row.host_id: row for row in self._agents if row.host_id is not None}

    @cached_property
    def lost(self) -> Mapping[int, int]:
        """Devices that do not answer -> since when."""
        return {gap.owner_id: gap.since_ts for gap in self.gaps if gap.metric == "device"}

    @cached_property
    def hidden(self) -> frozenset[int]:
        """Devices whose owners cannot be read."""
        return frozenset(gap.owner_id for gap in self.gaps if gap.metric == "processes")

    @cached_property
    def held_by(self) -> Mapping[int, Mapping[int, tuple[int, int]]]:
        """device_id -> epoch_id -> (held_ns, busy_ns)."""
        return allocated_ns(self._shared, self._deployments, self.inventory.own_devices)

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
    now = inventory.now_ts
    # A host whose clock is ahead must not hide the newest minutes of all others.
    last = max((row.newest_ts for row in inventory.hosts if row.newest_ts <= now + HOUR), default=now)
    until = (last - 1) // MINUTE * MINUTE + MINUTE
    # The minute that begins at `as_of` is of the time after it.
    newest = (Segment(MINUTE, until - read.recent_s(connection), last + 1 if as_of is None else until),)
    return Recent(
        inventory,
        sums.deployment_totals(connection, newest),
        sums.shared_time(connection, newest),
        sums.device_totals(connection, newest),
        sums.host_totals(connection, newest),
        read.missing(connection, as_of),
        read.events(connection, start, as_of),
        read.newest_agent_samples(connection, as_of),
        read.newest_of_devices(connection, start, as_of),
    )
