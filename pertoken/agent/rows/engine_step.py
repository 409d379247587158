"""Step of one engine in one tick, and the rows that are stored of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pertoken.agent.readings import EngineReading, Unavailable
from pertoken.agent.rows.busy import NO_WORK, Busy
from pertoken.agent.rows.conditions import Condition
from pertoken.agent.rows.engine_ids import bucket_set_id
from pertoken.agent.rows.tick_state import Moment, Span
from pertoken.metrics import ENGINE_TOKENS, STORED_GAUGES
from pertoken.store.schema.rows import (
    CounterState,
    DeploymentRow,
    DeploymentSample,
    EngineCounterSample,
    EngineRow,
    Event,
    HistogramSample,
)

MAX_GAUGE = 10**9
"""Requests that no server runs or queues: a page may show any number, and a column holds 64 bits."""


@dataclass(frozen=True, slots=True)
class EngineStep:
    """Rows, events and conditions of one engine in one tick. `deployment` is None until its model was read once."""

    engine: EngineRow
    deployment: DeploymentRow | None
    reading: EngineReading
    span: Span
    at: Moment
    """When it was read: what its row reaches to."""
    usable: bool
    filed: bool = True
    """Whether it has a row in this tick; the next one covers this tick's time too where it has none."""
    complete: bool = True
    restarted: bool = False
    words: Mapping[str, int | None] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    """What its other counters grew by, those that did."""
    busy: Busy = NO_WORK
    """How long it worked. Of a page that could not be used: nothing, with the stretch that goes on."""
    buckets: tuple[tuple[str, tuple[float, ...], tuple[int, ...]], ...] = ()
    """(metric, upper bounds, what each bucket grew by) of its histograms that grew."""
    counts_taken: bool = False
    """Whether the counters of its page were taken."""
    states: tuple[CounterState, ...] = ()
    """Those that changed."""
    forgotten: tuple[tuple[int, str], ...] = ()
    """(owner, series) of states to remove: counters of a process that is gone, and peaks that were passed."""
    unavailable: tuple[Unavailable, ...] = ()
    events: tuple[Event, ...] = ()
    conditions: tuple[Condition, ...] = ()
    gone: bool = False
    """Whether its process ended."""

    @property
    def at_most_busy_ms(self) -> int:
        """Its busy time; all of its observed time where it works but exposes no time."""
        if not self.usable:
            return 0
        return self.span.observed_ms if self.busy.ms is None else self.busy.ms

    def sample(self, epoch_id: int, ts: int) -> DeploymentSample:
        """Return its row of this tick; tokens are NULL where the page could not be used."""
        gauges = self.reading.gauges if self.usable else {}
        split = self.usable and self.busy.prefill_ms is not None
        return DeploymentSample(
            epoch_id=epoch_id,
            ts=ts,
            duration_ms=self.span.duration_ms,
            observed_ms=self.span.observed_ms if self.usable else 0,
            complete=self.complete,
            busy_ms=self.busy.ms if self.usable else None,
            busy_provenance=int(self.busy.provenance) if self.usable else None,
            split_ms=self.busy.ms if split else None,
            prefill_ms=self.busy.prefill_ms if split else None,
            decode_ms=self.busy.decode_ms if split else None,
            **{word: self.words.get(word) for word in ENGINE_TOKENS},
            **{gauge.column: _scaled(gauges.get(gauge.name), gauge.per_unit) for gauge in STORED_GAUGES},
        )

    def counter_rows(self, epoch_id: int, ts: int) -> tuple[EngineCounterSample, ...]:
        """Return its other counters that grew, of the same epoch."""
        return tuple(EngineCounterSample(epoch_id, metric, ts, delta) for metric, delta in self.counted.items())

    def histogram_rows(self, epoch_id: int, ts: int) -> tuple[HistogramSample, ...]:
        """Return buckets that grew, of the same epoch."""
        return tuple(
            HistogramSample(epoch_id, metric, ts, set_id, bucket, count)
            for metric, bounds, counts in self.buckets
            for set_id in (bucket_set_id(bounds),)
            for bucket, count in enumerate(counts)
            if count
        )


def _scaled(value: float | None, scale: float) -> int | None:
    """Return a gauge in the integer scale of its column; None for what no gauge can be, or the store not hold."""
    return None if value is None or not 0 <= value <= MAX_GAUGE else round(value * scale)
