"""State that one tick leaves for the next, and the moments of ticks."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pertoken.agent.readings import EngineReading, ProbeReading, Unavailable
from pertoken.agent.rows.allocation import Allocation
from pertoken.agent.rows.busy import Stretch
from pertoken.agent.rows.conditions import Conditions
from pertoken.store.schema.rows import Capability, CounterState, EpochRow

OBSERVED_TICKS = 2
"""Ticks one row may span and still count as observed throughout."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Moment of a tick: `ts` names it, the time since the host's boot measures its span."""

    ts: int
    """Recorded time (`agent.host.recorded_clock`), epoch seconds."""
    wall_ms: int
    """The wall clock as it is set: only to compare with the times that pages of other hosts expose."""
    monotonic_ms: int
    """Milliseconds since the host booted, time suspended included."""
    interval_s: int
    offset_ms: int | None = None
    """Recorded time minus time since boot; None where no time is recorded."""

    def earlier(self, monotonic_ms: int) -> "Moment":
        """Return an earlier time that is filed with the same tick."""
        return replace(self, wall_ms=self.wall_ms - self.monotonic_ms + monotonic_ms, monotonic_ms=monotonic_ms)


@dataclass(frozen=True, slots=True)
class Span:
    """Time that a row covers, and the part of it that was watched."""

    duration_ms: int
    observed_ms: int


@dataclass(frozen=True, slots=True)
class TickState:
    """Kept only if the store took the tick, so that nothing counted is ever dropped."""

    watching_since_ms: int
    """Milliseconds from the host's boot to the last stored row, 0 if that is of an earlier boot, or to the agent's
    first start: a process that starts later counts from 0."""
    boot_ms: int
    """Unix time of the host's boot by the wall clock of the agent's start: for people only."""
    away_ms: int = 0
    """Time between the last stored row and this agent's start, while the host was up."""
    begun: Mapping[int, int] = field(default_factory=dict)
    """Engines noted before this start whose process began while the host was recorded: engine id -> its life."""
    last_ts: int | None = None
    """`ts` of the last row of this host."""
    newest_ts: int | None = None
    """The highest `ts` there is: above `last_ts` after the clock was set back."""
    set_back_ts: int = 0
    """The highest `ts` of rows from before the clock was last set back: up to it, seconds may have rows already."""
    monotonic_ms: int | None = None
    row_ends: Mapping[int, int] = field(default_factory=dict)
    """Monotonic ms up to which the rows of each owner (host, device, deployment) reach."""
    row_ts: Mapping[int, int] = field(default_factory=dict)
    """`ts` of the last row of each owner."""
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
    unavailable: Mapping[int, tuple[Unavailable, ...]] | None = None
    """What could not be read, by owner: the capabilities were made of it."""
    capabilities: Mapping[tuple[int, str], Capability] = field(default_factory=dict)
    engine_urls: Mapping[int, str] = field(default_factory=dict)
    """Base URLs of this host's engines as they were stored before this start, by engine id."""
    conditions: Conditions = field(default_factory=dict)
    """Those that hold, and so have had the event of their begin."""
    engines: Mapping[int, EngineReading] = field(default_factory=dict)
    """The last usable reading of each engine."""
    stretches: Mapping[int, Stretch] = field(default_factory=dict)
    """Work of each engine whose time is not reported in full yet."""
    gpu_allocations: Mapping[int, tuple[Allocation, ...]] = field(default_factory=dict)
    """By device, since the processes were last listed."""
    cpu_time_ms: Mapping[int, int] = field(default_factory=dict)
    """CPU time of each engine's processes so far."""

    def since_page_ms(self, engine_id: int, moment: Moment) -> int:
        """Return the time since the last page whose counters were taken; since they last moved, for one of an agent
        before this one."""
        last = self.pages.get(engine_id)
        if last is not None:
            return moment.monotonic_ms - last.monotonic_ms
        moved = 1000 * max((state.ts for state in self.counters.get(engine_id, {}).values()), default=moment.ts)
        return max(1000 * moment.ts - moved, moment.monotonic_ms - self.watching_since_ms)

    def span(self, owner_id: int, moment: Moment, since_ms: int | None = None, page_ms: int | None = None) -> Span:
        """Return what a row of `owner_id` covers now: back to its row before, or to the tick before for a new owner.

        `since_ms` (since the host's boot) cuts it to the life of a process. Observed is the time since the tick before,
        or since `page_ms`, the time of the last page of an engine: its counters cover all the time between two pages.
        """
        last_ms = self.monotonic_ms if self.monotonic_ms is not None else moment.monotonic_ms
        end = self.row_ends.get(owner_id, last_ms)
        duration = moment.monotonic_ms - end
        if since_ms is not None:
            duration = min(duration, moment.monotonic_ms - since_ms)
        duration = max(0, duration)
        observed = moment.monotonic_ms - (last_ms if page_ms is None else page_ms)
        return Span(duration, max(0, min(duration, observed, OBSERVED_TICKS * 1000 * moment.interval_s)))
