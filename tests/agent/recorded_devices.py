"""Recording of a stand-in driver by an agent in this process: real probes, real rows, a real database."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from pertoken.agent.probes.nvidia.probe import NvidiaProbe
from pertoken.agent.readings import DriversReading, EngineReading, ProbeReading
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.devices import device_id_of
from pertoken.agent.rows.tick_state import TickState
from pertoken.agent.sampler.child import Probes
from pertoken.agent.sampler.client import Drivers
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import Event, Tick
from pertoken.store.write.writer import Writer
from tests.agent.values import moment, tick_state
from tests.standin_nvml import Library, Machine, ManualClock, installed


class _LocalSampler:
    """A sampler without a process of its own."""

    def __init__(self, probes: Sequence[str]) -> None:
        self._probes = Probes(probes)

    def ask(self, processes: bool) -> None: ...

    def read(self, processes: bool, deadline_s: float, late_s: float | None = None) -> DriversReading:
        return self._probes.read(processes)

    def close(self) -> None:
        self._probes.close()


@dataclass
class Recording:
    """One host that is recorded every 10 s of `clock`, and what is stored of it."""

    where: StoreLocation
    library: Library
    clock: ManualClock
    drivers: Drivers
    writer: Writer
    engines: Callable[[int], tuple[EngineReading, ...]]
    n: int = 0
    kept: TickState = field(default_factory=tick_state)
    ticks: list[Tick] = field(default_factory=list)

    def tick(self, times: int = 1) -> Tick:
        for _ in range(times):
            self.clock.now_s += 10
            probe, events = self.drivers.read(True, 1.0)
            self.add(probe, events)
        return self.ticks[-1]

    def add(self, probe: ProbeReading, events: tuple[Event, ...] = ()) -> None:
        readings = Readings(probe, self.engines(self.n), events=events)
        tick, kept = assemble(self.kept, readings, moment(self.n), AgentCost(1, 1, 1, 0) if self.n else None)
        self.writer.commit(tick)
        self.n, self.kept = self.n + 1, kept
        self.ticks.append(tick)

    def ask(self, query: Any) -> list[Any]:
        with open_store(self.where).read() as connection:
            return list(connection.execute(query).all())

    def hosts(self) -> int:
        """Return how many rows of the host there are."""
        return int(self.ask(select(func.count()).select_from(t.host_sample))[0][0])

    def rows(self, uuid: str) -> list[Any]:
        """Return all rows of a device, oldest first."""
        table = t.device_sample
        return self.ask(select(table).where(table.c.device_id == device_id_of(uuid)).order_by(table.c.ts))

    def reasons(self, uuid: str) -> dict[str, str]:
        """Return why each metric of a device cannot be read now."""
        table = t.capability
        query = select(table).where(table.c.owner_id == device_id_of(uuid), table.c.status != "ok")
        return {row.metric: row.reason for row in self.ask(query)}

    def events(self, kind: str | None = None) -> list[tuple[str, str]]:
        """Return kinds and messages of all events that ticks held, in their order."""
        events = [event for tick in self.ticks for event in tick.events]
        return [(event.kind, event.message) for event in events if kind in (None, event.kind)]


@contextmanager
def recording(
    where: StoreLocation,
    machine: Machine,
    patch: pytest.MonkeyPatch,
    engines: Callable[[int], tuple[EngineReading, ...]] = lambda n: (),
) -> Iterator[Recording]:
    """A recording of this machine, whose tables are laid in `where`."""
    clock = ManualClock()
    patch.setattr("pertoken.agent.sampler.child.VENDORS", {"nvidia": lambda: NvidiaProbe(clock)})
    patch.setattr("pertoken.agent.sampler.client.Sampler", lambda probes: _LocalSampler(probes))
    with installed(machine, clock) as library, Writer(where) as writer:
        drivers = Drivers(["nvidia"], clock)
        try:
            yield Recording(where, library, clock, drivers, writer, engines)
        finally:
            drivers.close()


def copied(new_store: Path, folder: Path) -> StoreLocation:
    """Return a copy of a folder in which tables were laid."""
    shutil.copytree(new_store, folder, dirs_exist_ok=True)
    return locate(str(folder))
