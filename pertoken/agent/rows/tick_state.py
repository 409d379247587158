"""State that one tick leaves for the next, and the moments of ticks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor

from pertoken.agent.readings import DeviceProcess, EngineReading, ProbeReading, Unavailable
from pertoken.provenance import Provenance
from pertoken.store.schema.rows import Capability, CounterState, EpochRow, Event
from pertoken.store.schema.shared import OTHER
from pertoken.units import SHARE, apportion

_PARTS = 5040
"""Parts of one unit of SM time: so that up to ten engines in a process have whole ones."""


@dataclass(frozen=True, slots=True)
class OwnerShare:
    """Share of a device that one owner (an engine id, or `OTHER`) has, in millionths."""

    owner: int
    share_1e6: int
    provenance: Provenance


def gpu_allocations(
    processes: Sequence[DeviceProcess], engines_of_pid: Mapping[int, Sequence[int]]
) -> tuple[OwnerShare, ...]:
    """Return shares of a GPU by the processes on it; none if it is free.

    One owner has all of it, as the driver reported. Several share it by their SM time since the list before; where that
    is not reported for all of them, or nobody computed, by their memory, or equally where a driver hides the memory:
    both are assumptions about time, and marked so. So is an equal part of a process that several engines run in.
    """
    memory: dict[int, int] = defaultdict(int)
    sm_time: dict[int, int] = defaultdict(int)
    shared = False
    for process in processes:
        owners = engines_of_pid.get(process.pid, (OTHER,))
        shared = shared or len(owners) > 1
        for owner in owners:
            memory[owner] += (process.memory_bytes or 0) // len(owners)
            sm_time[owner] += (process.sm_time or 0) * _PARTS // len(owners)
    if len(memory) <= 1:
        return tuple(OwnerShare(owner, SHARE, Provenance.REPORTED) for owner in memory)
    every = sorted(memory)
    if any(sm_time.values()) and all(process.sm_time is not None for process in processes):
        provenance = Provenance.ASSUMED if shared else Provenance.INTEGRAL
        return _split(every, [sm_time[owner] for owner in every], provenance)
    hidden = any(process.memory_bytes is None for process in processes)
    weights = [1] * len(every) if hidden else [memory[owner] for owner in every]
    return _split(every, weights, Provenance.ASSUMED)


def partition_allocations(slices: Sequence[tuple[int, Sequence[OwnerShare]]]) -> tuple[OwnerShare, ...]:
    """Return shares of a GPU by its MIG devices: (part of the GPU in millionths, owners) of each.

    A part that no MIG device takes, or nobody holds, has no owner.
    """
    shares: dict[int, tuple[int, Provenance]] = {}
    for part_1e6, allocations in slices:
        for held in allocations:
            share, provenance = shares.get(held.owner, (0, held.provenance))
            share += part_1e6 * held.share_1e6 // SHARE
            shares[held.owner] = share, max(provenance, held.provenance)
    return tuple(OwnerShare(owner, share, provenance) for owner, (share, provenance) in sorted(shares.items()) if share)


def cpu_allocations(cpu_ms: Mapping[int, int | None]) -> tuple[OwnerShare, ...]:
    """Return shares of the host's CPUs among the engines that compute on them, by their CPU time since the tick before.

    A CPU always does foreign work; the host is taken to be there for its engines, so they share all of it. Where
    a time could not be read, or none of them worked, they share it equally and that is an assumption.
    """
    owners = sorted(cpu_ms)
    if len(owners) <= 1:
        return tuple(OwnerShare(owner, SHARE, Provenance.REPORTED) for owner in owners)
    used = [cpu_ms[owner] for owner in owners]
    known_ms = [ms for ms in used if ms is not None]
    if len(known_ms) < len(owners) or not any(known_ms):
        return _split(owners, [1] * len(owners), Provenance.ASSUMED)
    return _split(owners, known_ms, Provenance.COUNTER)


def _split(owners: Sequence[int], weights: Sequence[int], provenance: Provenance) -> tuple[OwnerShare, ...]:
    if not any(weights):
        weights = [1] * len(owners)
    return tuple(
        OwnerShare(owner, share, provenance)
        for owner, share in zip(owners, apportion(SHARE, weights), strict=True)
        if share
    )


@dataclass(frozen=True, slots=True)
class WorkInterval:
    """Work of one engine since the last reading in which nothing ran. Times in milliseconds."""

    possible_ms: float = 0.0
    """Observed time: the engine cannot have worked longer."""
    owed_ms: float = 0.0
    """Work of the interval before that its readings had no time left for; part of `possible_ms`."""
    owed_prefill_ms: float = 0.0
    owed_decode_ms: float = 0.0
    """Of `owed_ms`, at most."""
    engine_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    request_steps: float = 0.0
    """Steps summed over requests: generated tokens less accepted drafts."""
    steps: float = 0.0
    reported_ms: int = 0
    reported_prefill_ms: int = 0
    reported_decode_ms: int = 0
    provenance: Provenance = Provenance.COUNTER
    """Of the work so far."""

    @property
    def worked_ms(self) -> float:
        """Busy time by the counters, before the cap."""
        return self.owed_ms + (self.engine_ms or self.prefill_ms + self.decode_ms / self._overlap)

    @property
    def _overlap(self) -> float:
        """Mean requests in a step; 1 where steps are not counted."""
        return max(1.0, self.request_steps / self.steps) if self.steps else 1.0

    def split(self, reported_ms: int) -> tuple[int, int]:
        """Return how much of the time reported so far was prefill and decode, each at most."""
        worked_ms = min(self.possible_ms, self.worked_ms)
        if not worked_ms:
            return 0, 0
        prefill_ms = self.owed_prefill_ms + self.prefill_ms
        decode_ms = self.owed_decode_ms + self.decode_ms / self._overlap
        prefill, decode = (reported_ms * min(1.0, ms / worked_ms) for ms in (prefill_ms, decode_ms))
        return floor(prefill), ceil(decode)

    @property
    def settled(self) -> bool:
        """Whether counted work has its time: a counter that is printed with few digits moves late, in large steps."""
        return not self.request_steps or self.engine_ms + self.prefill_ms + self.decode_ms > 0


@dataclass(frozen=True, slots=True)
class Busy:
    """Busy time of one reading. `ms` is None where the engine works but exposes no time."""

    ms: int | None
    provenance: Provenance
    work_interval: WorkInterval
    """Work interval that the next reading continues."""
    prefill_ms: int | None = None
    decode_ms: int | None = None
    """Of `ms`, at most; None where the engine does not count both."""


NO_WORK = Busy(0, Provenance.COUNTER, WorkInterval())


def busy(
    work_interval: WorkInterval,
    deltas: Mapping[str, int | None],
    *,
    observed_ms: int,
    elapsed_ms: int,
    running: float | None,
    waiting: float | None,
    exact: bool,
) -> Busy:
    """Return the busy time of a reading that continues `work_interval`; `ms` is at most `observed_ms`.

    `deltas`: increases of the engine's counters by word since its last usable page, `elapsed_ms` ago. Only
    `observed_ms` of that time count: work is taken to be spread evenly over it. `running`, `waiting`: requests at this
    reading. `exact`: whether the counted times cannot overlap.
    """
    part = min(1.0, observed_ms / elapsed_ms) if elapsed_ms > 0 else 1.0

    def delta(word: str) -> float:
        return (deltas.get(word) or 0) * part

    steps = max(0.0, delta("generated_tokens") - delta("spec_accepted_tokens"))
    work = replace(
        work_interval,
        possible_ms=work_interval.possible_ms + observed_ms,
        engine_ms=work_interval.engine_ms + delta("engine_ms"),
        prefill_ms=work_interval.prefill_ms + delta("prefill_ms"),
        decode_ms=work_interval.decode_ms + delta("decode_ms"),
        request_steps=work_interval.request_steps + steps,
        steps=work_interval.steps + delta("steps"),
    )
    timed = {word for word in ("engine_ms", "prefill_ms", "decode_ms") if deltas.get(word) is not None}
    # Prefill time alone is all the work there is as long as nothing was generated.
    counts_time = bool(timed - {"prefill_ms"}) or (bool(timed) and not work.request_steps)
    if not exact and any(map(delta, timed)):
        work = replace(work, provenance=Provenance.BOUND)
    signs = (running, deltas.get("computed_tokens"), deltas.get("generated_tokens"))
    if not counts_time and (any(signs) or all(sign is None for sign in signs)):
        return Busy(None, Provenance.BOUND, work)
    unreported_ms = min(work.possible_ms, work.worked_ms) - work.reported_ms
    ms = max(0, min(floor(unreported_ms), observed_ms))
    prefill_ms, decode_ms = work.split(work.reported_ms + ms)
    prefill_ms = max(0, min(ms, prefill_ms - work.reported_prefill_ms))
    decode_ms = max(0, min(ms, decode_ms - work.reported_decode_ms))
    idle = not (any(signs) if running is None else running or waiting)
    if idle and work.settled:
        owed_ms = max(0.0, unreported_ms - ms)
        origin = work.provenance if owed_ms else Provenance.COUNTER
        worked_ms = work.reported_ms + ms + owed_ms
        prefill_end_ms, decode_end_ms = work.split(ceil(worked_ms))
        next_interval = WorkInterval(
            possible_ms=owed_ms,
            owed_ms=owed_ms,
            owed_prefill_ms=min(owed_ms, max(0, prefill_end_ms - work.reported_prefill_ms - prefill_ms)),
            owed_decode_ms=min(owed_ms, max(0, decode_end_ms - work.reported_decode_ms - decode_ms)),
            provenance=origin,
        )
    else:
        next_interval = replace(
            work,
            reported_ms=work.reported_ms + ms,
            reported_prefill_ms=work.reported_prefill_ms + prefill_ms,
            reported_decode_ms=work.reported_decode_ms + decode_ms,
        )
    provenance = work.provenance if ms else Provenance.COUNTER
    if not {"prefill_ms", "decode_ms"} <= timed:
        return Busy(ms, provenance, next_interval)
    return Busy(ms, provenance, next_interval, prefill_ms, decode_ms)


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds now for an owner (a host, a device or an engine)."""

    owner_id: int
    topic: str
    """An owner has one condition of a topic at a time. The event of its end is `{topic}_back`."""
    kind: str
    """Kind of the event of its begin."""
    state: str
    """Distinguishes it from another condition of the topic. Its messages may differ from tick to tick."""
    begins: str
    ends: str | None = None
    """Message when it no longer holds; None: its end is no event."""

    @property
    def key(self) -> Key:
        """Its owner and topic."""
        return self.owner_id, self.topic


Key = tuple[int, str]
Conditions = Mapping[Key, Condition]


def followed(
    previous: Conditions, conditions: Collection[Condition], judged: Collection[int]
) -> tuple[Conditions, list[Event]]:
    """Return the conditions to remember after a tick, and the events of their begin and end.

    `judged` are the owners that this tick knows in full; the conditions of other owners stay.
    """
    remembered = {key: condition for key, condition in previous.items() if condition.owner_id not in judged}
    events = []
    for key, condition in {condition.key: condition for condition in conditions}.items():
        if key in previous and previous[key].state == condition.state:
            remembered[key] = previous[key]
        else:
            remembered[key] = condition
            events.append(Event(condition.kind, condition.begins, condition.owner_id))
    for key, condition in previous.items():
        if key not in remembered and condition.ends is not None:
            events.append(Event(f"{condition.topic}_back", condition.ends, condition.owner_id))
    return remembered, events


OBSERVED_TICKS = 2
"""Ticks one row may cover and still count as observed throughout."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Moment of a tick: `ts` names it, the time since the host's boot measures its interval."""

    ts: int
    """Recorded time (`agent.clocks`), epoch seconds."""
    wall_ms: int
    """The wall clock as it is set: only to compare with the times that pages of other hosts expose."""
    monotonic_ms: int
    """Milliseconds since the host booted, time suspended included."""
    interval_s: int
    offset_ms: int | None = None
    """Recorded time minus time since boot; None where no time is recorded."""

    def earlier(self, monotonic_ms: int) -> Moment:
        """Return an earlier time that is filed with the same tick."""
        return replace(self, wall_ms=self.wall_ms - self.monotonic_ms + monotonic_ms, monotonic_ms=monotonic_ms)


@dataclass(frozen=True, slots=True)
class RowInterval:
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
    """Engines noted before this start that began while the host was recorded: engine id -> its life."""
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
    """States of buckets of histograms, which are read less often."""
    pages: Mapping[int, Moment] = field(default_factory=dict)
    """When the counters of each engine were last taken, since this start."""
    known_owners: frozenset[int] = frozenset()
    """Host, devices and deployments with rows in the store from before this start."""
    epochs: Mapping[int, EpochRow] = field(default_factory=dict)
    """The open epoch of each deployment."""
    unavailable: Mapping[int, tuple[Unavailable, ...]] | None = None
    """Gaps by owner: the capabilities were made of them."""
    capabilities: Mapping[tuple[int, str], Capability] = field(default_factory=dict)
    engine_urls: Mapping[int, str] = field(default_factory=dict)
    """Base URLs of this host's engines as they were stored before this start, by engine id."""
    conditions: Conditions = field(default_factory=dict)
    """Those that hold, and so have had the event of their begin."""
    engines: Mapping[int, EngineReading] = field(default_factory=dict)
    """The last usable reading of each engine."""
    work_intervals: Mapping[int, WorkInterval] = field(default_factory=dict)
    """Work of each engine that is not reported in full yet."""
    gpu_allocations: Mapping[int, tuple[OwnerShare, ...]] = field(default_factory=dict)
    """By device, since the processes were last listed."""
    cpu_time_ms: Mapping[int, int] = field(default_factory=dict)
    """CPU time of each engine's processes so far."""

    def since_page_ms(self, engine_id: int, moment: Moment) -> int:
        """Return the time since counters of a page were last taken; by an earlier agent, since they moved."""
        last = self.pages.get(engine_id)
        if last is not None:
            return moment.monotonic_ms - last.monotonic_ms
        moved = 1000 * max((state.ts for state in self.counters.get(engine_id, {}).values()), default=moment.ts)
        return max(1000 * moment.ts - moved, moment.monotonic_ms - self.watching_since_ms)

    def row_interval(
        self, owner_id: int, moment: Moment, since_ms: int | None = None, page_ms: int | None = None
    ) -> RowInterval:
        """Return the time that a row of `owner_id` covers: since its last row, or for a new owner since the last tick.

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
        return RowInterval(duration, max(0, min(duration, observed, OBSERVED_TICKS * 1000 * moment.interval_s)))
