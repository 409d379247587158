"""Ticks of readings whose busy time is looked at, stored where a place is given."""

import getpass
from dataclasses import dataclass, field

from pertoken.agent.readings import EngineReading
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.report.lines import FleetReport
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.rows import DeploymentSample, DeviceShare, Tick
from pertoken.store.write.writer import Writer
from pertoken.units import NANO_USD
from tests.agent.values import START_MS, gpu, probe, tick_state


@dataclass
class Agent:
    """Ticks of readings, stored where a place is given; a tick is `step_ms` after the last one, or now."""

    where: StoreLocation | None = None
    rows: list[DeploymentSample] = field(default_factory=list)
    shares: list[DeviceShare] = field(default_factory=list)
    _kept: TickState = field(default_factory=tick_state)
    _n: int = 0

    def tick(self, *readings: EngineReading, step_ms: int = 10_000, at_ms: int | None = None) -> Tick:
        baseline = self._n == 0
        monotonic_ms = 0 if baseline else (self._kept.monotonic_ms or 0) + step_ms
        if at_ms is not None:
            monotonic_ms = at_ms
        when = Moment(START_MS // 1000 + 10 * self._n, START_MS + monotonic_ms, monotonic_ms, 10)
        cost = None if baseline else AgentCost(1, 1, 1, 0)
        devices = probe(gpu(0, *(readings[0].endpoint.pids if readings else ())))
        tick, self._kept = assemble(self._kept, Readings(devices, readings), when, cost)
        if self.where is not None:
            with Writer(self.where) as writer:
                writer.commit(tick)
                writer.roll_up()
        self._n += 1
        self.rows += [sample for sample in tick.samples if isinstance(sample, DeploymentSample)]
        self.shares += [sample for sample in tick.samples if isinstance(sample, DeviceShare)]
        return tick

    @property
    def busy_ms(self) -> int:
        return sum(row.busy_ms or 0 for row in self.rows)


def report_of(where: StoreLocation, usd_per_hour: int, ticks: int) -> FleetReport:
    with AdviceRepository(where).writing() as connection:
        repository.add_price(
            connection,
            selector="H100",
            nano_usd_per_device_hour=usd_per_hour * NANO_USD,
            from_ts=0,
            set_ts=1,
            set_by=getpass.getuser(),
            note=None,
        )
    return fleet_report(open_store(where), 3600, START_MS // 1000 + 10 * ticks)
