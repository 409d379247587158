"""What one tick leaves for the next, and the moments they happen at."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pertoken.agent.attribution import Holding
from pertoken.agent.busy import Stretch
from pertoken.agent.readings import EngineReading, Gap, ProbeReading
from pertoken.store.rows import Capability, CounterState, EpochRow

OBSERVED_TICKS = 2
"""Ticks one row may span and still count as observed throughout."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a tick happens: `ts` names it, the monotonic clock measures its span."""

    ts: int
    wall_ms: int
    monotonic_ms: int
    interval_s: int


@dataclass(frozen=True, slots=True)
class Span:
    """How much time a row covers, and how much of it was watched."""

    duration_ms: int
    observed_ms: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Kept only if the store took the tick, so that nothing counted is ever dropped."""

    watching_since_ms: int
    """Wall clock of the last stored row, or of the agent's first start: what starts later counts from 0."""
    boot_ms: int
    """When the host booted, as starts of processes are told relative to it."""
    away_ms: int = 0
    """Time between the last stored row and this agent's start, while the host was up."""
    begun: Mapping[int, int] = field(default_factory=dict)
    """Engines noted before this start whose process began while the host was recorded: engine id -> its start."""
    monotonic_ms: int | None = None
    row_ends: Mapping[int, int] = field(default_factory=dict)
    """Monotonic ms up to which the rows of each owner (host, device, deployment) reach."""
    probe: ProbeReading | None = None
    counters: Mapping[int, Mapping[str, CounterState]] = field(default_factory=dict)
    buckets: Mapping[int, Mapping[str, CounterState]] = field(default_factory=dict)
    """Those of buckets of histograms, which are read less often."""
    pages: Mapping[int, Moment] = field(default_factory=dict)
    """When the counters of each engine were last taken, since this start."""
    known_owners: frozenset[int] = frozenset()
    """Host, devices and deployments with rows in the store from before this start."""
    epochs: Mapping[int, EpochRow] = field(default_factory=dict)
    """The open epoch of each deployment."""
    gaps: Mapping[int, tuple[Gap, ...]] | None = None
    """What could not be read, by owner: the capabilities were made of it."""
    capabilities: Mapping[tuple[int, str], Capability] = field(default_factory=dict)
    engines: Mapping[int, EngineReading] = field(default_factory=dict)
    """The last usable reading of each engine."""
    stretches: Mapping[int, Stretch] = field(default_factory=dict)
    """Work of each engine whose time is not reported in full yet."""
    gpu_holdings: Mapping[int, tuple[Holding, ...]] = field(default_factory=dict)
    """By device, since the processes were last listed."""
    cpu_time_ms: Mapping[int, int] = field(default_factory=dict)
    """CPU time of each engine's processes so far."""

    def last_page_ms(self, engine_id: int, moment: Moment) -> int:
        """Wall clock of the last page whose counters were taken; of one before this start, when they last moved."""
        last = self.pages.get(engine_id)
        if last is not None:
            return moment.wall_ms - (moment.monotonic_ms - last.monotonic_ms)
        return 1000 * max((state.ts for state in self.counters.get(engine_id, {}).values()), default=moment.ts)

    def span(self, owner_id: int, moment: Moment, since_ms: int | None = None) -> Span:
        """What a row of `owner_id` covers now: back to its row before, or to the tick before for a new owner.

        `since_ms` (wall clock) cuts it to the life of a process.
        """
        tick_ms = moment.monotonic_ms - (self.monotonic_ms if self.monotonic_ms is not None else moment.monotonic_ms)
        end = self.row_ends.get(owner_id)
        duration = tick_ms if end is None else moment.monotonic_ms - end
        if since_ms is not None:
            duration = min(duration, moment.wall_ms - since_ms)
        duration = max(0, duration)
        return Span(duration, min(duration, tick_ms, OBSERVED_TICKS * 1000 * moment.interval_s))
