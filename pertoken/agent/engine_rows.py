"""One engine's reading as rows: who it is, what its counters grew by, and what could not be seen."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urlsplit

from pertoken.agent import counters
from pertoken.agent.busy import NO_WORK, Busy, Stretch, busy
from pertoken.agent.engines import tokens
from pertoken.agent.engines.words import COUNTED, SAMPLE
from pertoken.agent.memory import OBSERVED_TICKS, Memory, Moment, Span
from pertoken.agent.readings import EngineReading, Gap
from pertoken.provenance import Provenance
from pertoken.store.ids import stable_id
from pertoken.store.rows import (
    CounterState,
    DeploymentRow,
    DeploymentSample,
    EngineCounterSample,
    EngineRow,
    Event,
    HistogramSample,
)
from pertoken.units import RATIO

PAGE = "metrics_page"
"""Name under which an engine's fault is kept among the capabilities."""


@dataclass(frozen=True, slots=True)
class EngineStep:
    """What one tick knows of one engine. `deployment` is None until its model was read once."""

    engine: EngineRow
    deployment: DeploymentRow | None
    reading: EngineReading
    span: Span
    usable: bool
    complete: bool = True
    restarted: bool = False
    words: Mapping[str, int | None] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    """What its other counters grew by, those that did."""
    busy: Busy = NO_WORK
    """How long it worked. Of a page that could not be used: nothing, with the stretch that goes on."""
    buckets: tuple[tuple[str, tuple[float, ...], tuple[int, ...]], ...] = ()
    """(metric, upper bounds, what each bucket grew by) of its histograms that grew."""
    states: tuple[CounterState, ...] = ()
    forgotten: tuple[str, ...] = ()
    """Counters of a process that is gone."""
    gaps: tuple[Gap, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def at_most_busy_ms(self) -> int:
        """Its busy time; all of its observed time where it works but exposes no time."""
        if not self.usable:
            return 0
        return self.span.observed_ms if self.busy.ms is None else self.busy.ms

    def sample(self, epoch_id: int, ts: int) -> DeploymentSample:
        """Its row of this tick; tokens are NULL where the page could not be used."""
        gauges = self.reading.gauges if self.usable else {}
        return DeploymentSample(
            epoch_id=epoch_id,
            ts=ts,
            duration_ms=self.span.duration_ms,
            observed_ms=self.span.observed_ms if self.usable else 0,
            complete=self.complete,
            busy_ms=self.busy.ms if self.usable else None,
            busy_provenance=int(self.busy.provenance) if self.usable else None,
            **{word: self.words.get(word) for word in SAMPLE},
            running_1e2=_scaled(gauges.get("running"), 100),
            waiting_1e2=_scaled(gauges.get("waiting"), 100),
            kv_use_1e4=_scaled(gauges.get("kv_use"), RATIO),
        )

    def counter_rows(self, epoch_id: int, ts: int) -> tuple[EngineCounterSample, ...]:
        """Its other counters that grew, of the same epoch."""
        return tuple(EngineCounterSample(epoch_id, metric, ts, delta) for metric, delta in self.counted.items())

    def histogram_rows(self, epoch_id: int, ts: int) -> tuple[HistogramSample, ...]:
        """Buckets that grew, of the same epoch."""
        return tuple(
            HistogramSample(epoch_id, metric, ts, set_id, bucket, count)
            for metric, bounds, counts in self.buckets
            for set_id in (bucket_set_id(bounds),)
            for bucket, count in enumerate(counts)
            if count
        )


_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def engine_id_of(host_id: int, reading: EngineReading) -> int:
    """The id of a server: its host, kind and address; by its port if it is of this host, whether it runs or not.

    Of one whose page counts for several models, each has an id.
    """
    endpoint = reading.endpoint
    here = endpoint.found_by == "process" or urlsplit(endpoint.base_url).hostname in _LOOPBACK
    address = endpoint.port if here and endpoint.port else endpoint.base_url
    which = () if endpoint.model is None else (endpoint.model,)
    return stable_id("engine", host_id, endpoint.kind, address, *which)


@cache
def bucket_set_id(bounds: tuple[float, ...]) -> int:
    """The id of a set of upper bounds."""
    return stable_id("buckets", *map(repr, bounds))


def engine_step(memory: Memory, reading: EngineReading, host_id: int, moment: Moment, baseline: bool) -> EngineStep:
    """What changed for one engine since its last usable page.

    With `baseline`, counters already known are left for the first real tick to take.
    """
    endpoint = reading.endpoint
    engine_id = engine_id_of(host_id, reading)
    before = memory.engines.get(engine_id)
    usable = reading.fault is None
    engine = EngineRow(
        engine_id=engine_id,
        host_id=host_id,
        kind=endpoint.kind,
        base_url=endpoint.base_url,
        port=endpoint.port,
        pid=endpoint.pid,
        process_start_ms=endpoint.process_start_ms,
        version=reading.version or (before.version if before else None),
        found_by=endpoint.found_by,
    )
    deployment = _deployment(engine, reading, before)
    if not usable:
        span = memory.span(deployment.deployment_id, moment) if deployment else Span(0, 0)
        gap = Gap(PAGE, "failing", reading.fault or "", reading.remedy)
        event = Event(f"engine_{reading.fault_kind}", f"{endpoint.base_url}: {reading.fault}", engine_id)
        work = Busy(None, Provenance.COUNTER, memory.stretches.get(engine_id, Stretch()))
        return EngineStep(engine, deployment, reading, span, usable=False, busy=work, gaps=(gap,), events=(event,))
    known = memory.counters.get(engine_id, {})
    if baseline and known:
        return EngineStep(engine, deployment, reading, Span(0, 0), usable=True, gaps=reading.gaps)
    advance = _advance(memory, reading, engine_id, moment)
    if baseline and any(delta is not None for delta in advance.deltas.values()):
        # It began after we last looked, so it counts from 0: the first real tick takes that.
        return EngineStep(engine, deployment, reading, Span(0, 0), usable=True, gaps=reading.gaps)
    counted_deltas = {series: advance.deltas[series] for series in reading.counters}
    words = tokens(counters.word_totals(counted_deltas))
    restarted = advance.reset is not None
    since = endpoint.process_start_ms if restarted else None
    span = memory.span(deployment.deployment_id, moment, since) if deployment else Span(0, 0)
    counted = {word: delta for word, delta in words.items() if word in COUNTED and delta}
    counted |= {metric: delta for metric, delta in counters.reason_totals(counted_deltas).items() if delta}
    if reading.gauges.get("awake") == 0 and span.observed_ms:
        counted["asleep_ms"] = span.observed_ms
    return EngineStep(
        engine,
        deployment,
        reading,
        span,
        usable=True,
        complete=advance.complete,
        restarted=restarted,
        words=words,
        counted=counted,
        busy=_busy(memory, engine_id, reading, words, span, moment, restarted=restarted),
        buckets=tuple(
            (metric, bounds, counts)
            for (metric, bounds), counts in counters.bucket_totals(reading.histograms or {}, advance.deltas).items()
            if any(counts)
        ),
        states=tuple(advance.states.values()),
        forgotten=advance.forgotten,
        gaps=reading.gaps,
        events=_events(engine, before, advance.reset),
    )


def _advance(memory: Memory, reading: EngineReading, engine_id: int, moment: Moment) -> counters.Advance:
    """What its counters grew by since the last page that was taken."""
    known, values = memory.counters.get(engine_id, {}), reading.counters
    if reading.histograms is not None:
        known = {**known, **memory.buckets.get(engine_id, {})}
        values = {**values, **counters.bucket_values(reading.histograms)}
    start_ms = reading.endpoint.process_start_ms
    last_page_ms = memory.last_page_ms(engine_id, moment)
    unseen_ms = moment.wall_ms - last_page_ms
    if reading.life_ms is not None and (start_ms is None or not reading.endpoint.certain):
        start_ms = -reading.life_ms
        if _in_turn(known, reading, start_ms, last_page_ms):
            told = "another process answers in turn, so neither is counted: name each server by its own address"
            return counters.rebase(
                known, values, owner_id=engine_id, process_start_ms=start_ms, ts=moment.ts, reset=told
            )
    return counters.advance(
        known,
        values,
        owner_id=engine_id,
        process_start_ms=start_ms,
        ts=moment.ts,
        # One that began under our eyes is ours from 0, though its page could not be read before the agent restarted.
        watching_since_ms=min(memory.watching_since_ms, memory.begun.get(engine_id, memory.watching_since_ms)),
        unseen_s=unseen_ms / 1000 if unseen_ms > 1000 * OBSERVED_TICKS * moment.interval_s else 0,
    )


def _in_turn(known: Mapping[str, CounterState], reading: EngineReading, start_ms: int, last_page_ms: int) -> bool:
    """Whether another process answers than did before and ran already then: no restart, but servers behind one URL."""
    told = {state.process_start_ms for state in known.values() if (state.process_start_ms or 0) < 0}
    another = bool(told) and start_ms not in told
    return another and reading.started_ms is not None and reading.started_ms <= last_page_ms


def gone_step(engine_id: int, before: EngineReading, memory: Memory, host_id: int, moment: Moment) -> EngineStep:
    """The last row of an engine whose process ended: what it counted after its last page, nobody saw."""
    endpoint = before.endpoint
    engine = EngineRow(
        engine_id,
        host_id,
        endpoint.kind,
        endpoint.base_url,
        endpoint.port,
        endpoint.pid,
        endpoint.process_start_ms,
        before.version,
        endpoint.found_by,
    )
    deployment = _deployment(engine, before, before)
    span = memory.span(deployment.deployment_id, moment) if deployment else Span(0, 0)
    event = Event("engine_stopped", f"{endpoint.kind} at {endpoint.base_url} stopped", engine_id)
    return EngineStep(engine, deployment, before, span, usable=False, complete=False, events=(event,))


def _deployment(engine: EngineRow, reading: EngineReading, before: EngineReading | None) -> DeploymentRow | None:
    model = reading.served_model or (before.served_model if before else None)
    if model is None:
        return None
    path = reading.model_path or (before.model_path if before else None)
    facts = reading.model_facts or (before.model_facts if before else {})
    return DeploymentRow(
        deployment_id=stable_id("deployment", engine.engine_id, model),
        engine_id=engine.engine_id,
        host_id=engine.host_id,
        served_model=model,
        model_path=path,
        model_facts=json.dumps(facts, sort_keys=True) if facts else None,
    )


def _events(engine: EngineRow, before: EngineReading | None, reset: str | None) -> tuple[Event, ...]:
    if reset:
        return (Event("engine_restarted", f"{engine.kind} at {engine.base_url}: {reset}", engine.engine_id),)
    if before is None:
        return (Event("engine_found", f"{engine.kind} at {engine.base_url} found", engine.engine_id),)
    return ()


def _busy(
    memory: Memory,
    engine_id: int,
    reading: EngineReading,
    words: Mapping[str, int | None],
    span: Span,
    moment: Moment,
    *,
    restarted: bool,
) -> Busy:
    """Return how long the engine worked since its last usable page."""
    if reading.endpoint.follows:
        # Worker ranks expose nothing: they work at most all the time. Their head decides where it is known (costs).
        return Busy(span.observed_ms, Provenance.BOUND, Stretch())
    last = None if restarted else memory.pages.get(engine_id)
    return busy(
        Stretch() if restarted else memory.stretches.get(engine_id, Stretch()),
        words,
        observed_ms=span.observed_ms,
        elapsed_ms=span.duration_ms if last is None else moment.monotonic_ms - last.monotonic_ms,
        running=reading.gauges.get("running"),
        waiting=reading.gauges.get("waiting"),
        exact=_is_exact(reading, words),
    )


def _is_exact(reading: EngineReading, words: Mapping[str, int | None]) -> bool:
    """Whether the time that the engine counts cannot overlap: of one replica, or of requests one after the other."""
    if words.get("engine_ms"):
        return reading.knobs.get("dp", 1) == 1
    return reading.gauges.get("requests_per_step") == 1


def _scaled(value: float | None, scale: int) -> int | None:
    return None if value is None else round(value * scale)
