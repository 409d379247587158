"""One engine's reading as its step: identity, increases of its counters, and gaps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pertoken.agent.engines.adapters import tokens
from pertoken.agent.readings import LATE, Endpoint, EngineReading, Unavailable
from pertoken.agent.rows import counters
from pertoken.agent.rows.counters import peak_states, stored_peaks
from pertoken.agent.rows.epochs import bucket_set_id, engine_id_of
from pertoken.agent.rows.tick_state import (
    NO_WORK,
    OBSERVED_TICKS,
    Busy,
    Condition,
    Moment,
    RowInterval,
    TickState,
    WorkInterval,
    busy,
)
from pertoken.metrics import ENGINE_COUNTERS, ENGINE_TOKENS, STORED_GAUGES
from pertoken.provenance import Provenance
from pertoken.store.schema.rows import (
    CounterState,
    DeploymentRow,
    DeploymentSample,
    EngineCounterSample,
    EngineRow,
    Event,
    HistogramSample,
)
from pertoken.store.schema.shared import CONNECTOR, stable_id

MAX_GAUGE = 10**9
"""Requests that no server runs or queues: a page may show any number, and a column holds 64 bits."""


@dataclass(frozen=True, slots=True)
class EngineStep:
    """Rows, events and conditions of one engine in one tick. `deployment` is None until its model was read once."""

    engine: EngineRow
    deployment: DeploymentRow | None
    reading: EngineReading
    row_interval: RowInterval
    moment: Moment
    """When it was read: its row reaches to it."""
    usable: bool
    filed: bool = True
    """Whether it has a row in this tick; the next one covers this tick's time too where it has none."""
    complete: bool = True
    restarted: bool = False
    words: Mapping[str, int | None] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    """Increases of its other counters, without zeros."""
    busy: Busy = NO_WORK
    """How long it worked. Of a page that could not be used: nothing, with the interval that goes on."""
    buckets: tuple[tuple[str, tuple[float, ...], tuple[int, ...]], ...] = ()
    """(metric, upper bounds, increase of each bucket) of its histograms that grew."""
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
        return self.row_interval.observed_ms if self.busy.ms is None else self.busy.ms

    def sample(self, epoch_id: int, ts: int) -> DeploymentSample:
        """Return its row of this tick; tokens are NULL where the page could not be used."""
        gauges = self.reading.gauges if self.usable else {}
        split = self.usable and self.busy.prefill_ms is not None
        return DeploymentSample(
            epoch_id=epoch_id,
            ts=ts,
            duration_ms=self.row_interval.duration_ms,
            observed_ms=self.row_interval.observed_ms if self.usable else 0,
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
    """Return a gauge in the integer scale of its column; None outside the range of gauges."""
    return None if value is None or not 0 <= value <= MAX_GAUGE else round(value * scale)


Words = Mapping[str, int | None]
"""Increases by counter."""


def prefills_for_another(words: Words, knobs: Mapping[str, object]) -> bool:
    """Return whether all requests of an interval were prefilled here and generated elsewhere.

    By the role of its command line, or by a connector to other servers on one that received nothing; and in any case
    because no request generated more than the one token with which a prefill ends.
    """
    generated, finished = words.get("generated_tokens"), words.get("requests_finished")
    sends = knobs.get(CONNECTOR) is not None and knobs.get("role") is None and not words.get("transferred_tokens")
    if not (knobs.get("role") == "prefill" or sends) or generated is None or finished is None:
        return False
    return 0 < generated <= finished


def counted_once(words: Words, knobs: Mapping[str, object]) -> dict[str, int | None]:
    """Return increases without the counts of the server of the other half.

    The output of a prefill is the first token of the decode server, also where only some requests end there. A server
    that decodes only, and counts no transfers, received all its prompts.
    """
    counts = dict(words)
    if prefills_for_another(words, knobs):
        return counts | {"generated_tokens": 0, "requests_finished": 0}
    generated, prefilled = words.get("generated_tokens"), words.get("requests_prefilled")
    if generated is not None and prefilled:
        counts["generated_tokens"] = max(0, generated - prefilled)
    prompt = words.get("prompt_tokens")
    if knobs.get("role") == "decode" and words.get("transferred_tokens") is None and prompt is not None:
        return counts | {"transferred_tokens": prompt, "prompt_tokens": 0, "cached_tokens": 0, "computed_tokens": 0}
    return counts


def load(tick_state: TickState, reading: EngineReading, engine: EngineRow, moment: Moment) -> Mapping[str, int]:
    """Return the counts of one load where this is the first page of a process that started while this agent watched.

    The time is an upper bound: a server is found some seconds after it answers. A process that only listens for a
    server, or serves several models, has none.
    """
    endpoint, start_ms = reading.endpoint, reading.endpoint.process_start_ms
    if start_ms is None or not endpoint.certain or endpoint.model is not None or not reading.counters:
        return {}
    states = tick_state.counters.get(engine.engine_id, {}).values()
    if start_ms < tick_state.watching_since_ms + tick_state.away_ms or any(key.life == engine.life for key in states):
        return {}
    return {"loads": 1, "load_s": max(1, -(-(moment.monotonic_ms - start_ms) // 1000))}


PAGE = "metrics_page"
"""Name under which an engine's fault is kept among the capabilities."""
_IN_TURN = "another process answers in turn, so neither is counted: name each server by its own address"


def engine_steps(
    tick_state: TickState,
    readings: Iterable[EngineReading],
    host_id: int,
    boot_id: str | None,
    moment: Moment,
    baseline: bool,
) -> tuple[list[EngineStep], list[Unavailable], list[Condition]]:
    """Return the step of every engine known now, and the gaps and conditions of engines that were read twice.

    `boot_id`: of the host they were read on. Two readings with one id are one server named twice, with a process that
    cannot be seen: the first is taken.
    """
    steps: dict[int, EngineStep] = {}
    unavailable: list[Unavailable] = []
    conditions: list[Condition] = []
    for reading in readings:
        engine_id = engine_id_of(host_id, reading.endpoint, tick_state.engine_urls)
        previous = tick_state.engines.get(engine_id)
        if engine_id in steps:
            url, taken = reading.endpoint.base_url, steps[engine_id].reading.endpoint.base_url
            reason = f"{url} is the address of an engine that is already read at {taken}, so it was not counted"
            unavailable.append(
                Unavailable(f"engine {url}", "failing", reason, "name each server once in agent.engines")
            )
            conditions.append(Condition(engine_id, f"engine {url}", "engine_named_twice", "twice", reason))
        elif reading.fault_kind != LATE:
            steps[engine_id] = engine_step(tick_state, reading, host_id, boot_id, moment, baseline)
        elif previous is not None:
            steps[engine_id] = late_step(engine_id, previous, tick_state, host_id, boot_id, moment)
    for engine_id, previous in tick_state.engines.items():
        if engine_id not in steps:
            steps[engine_id] = gone_step(engine_id, previous, tick_state, host_id, boot_id, moment)
    return list(steps.values()), unavailable, conditions


def engine_step(
    tick_state: TickState, reading: EngineReading, host_id: int, boot_id: str | None, moment: Moment, baseline: bool
) -> EngineStep:
    """Return the changes of one engine since its last usable page. `boot_id`: of the host it was read on.

    With `baseline`, counters already known are left for the first real tick to take.
    """
    endpoint = reading.endpoint
    engine_id = engine_id_of(host_id, endpoint, tick_state.engine_urls)
    previous = tick_state.engines.get(engine_id)
    usable = reading.fault is None
    if reading.read_ms is not None:
        moment = moment.earlier(reading.read_ms)
    engine = _engine(engine_id, host_id, boot_id, endpoint, reading.version or (previous.version if previous else None))
    deployment = _deployment(engine, reading, previous)
    if not usable:
        row_interval = tick_state.row_interval(deployment.deployment_id, moment) if deployment else RowInterval(0, 0)
        missing = Unavailable(PAGE, "failing", reading.fault or "", reading.remedy)
        fault = Condition(
            engine_id,
            topic="engine",
            kind=f"engine_{reading.fault_kind}",
            state=f"{reading.fault_kind}",
            begins=f"{endpoint.base_url}: {reading.fault}",
            ends=f"{endpoint.base_url} can be read again",
        )
        return EngineStep(
            engine,
            deployment,
            reading,
            row_interval,
            moment,
            usable=False,
            busy=_unfinished(tick_state, engine_id),
            unavailable=(missing,),
            conditions=(fault,),
        )
    states = tick_state.counters.get(engine_id, {})
    if baseline and states:
        return EngineStep(
            engine, deployment, reading, RowInterval(0, 0), moment, usable=True, unavailable=reading.unavailable
        )
    peaks = stored_peaks(tick_state, engine_id)
    advance = _advance(tick_state, reading, previous, engine, moment, peaks)
    if baseline and any(delta is not None for delta in advance.deltas.values()):
        # It began after we last looked, so it counts from 0: the first real tick takes that.
        return EngineStep(
            engine, deployment, reading, RowInterval(0, 0), moment, usable=True, unavailable=reading.unavailable
        )
    peaks_now, peaks_gone = peak_states(engine_id, peaks, advance.peaks, life=engine.life, ts=moment.ts)
    counted_deltas = {series: advance.deltas[series] for series in reading.counters}
    all_words = tokens(counters.word_totals(counted_deltas))
    words = counted_once(all_words, reading.knobs)
    since = endpoint.process_start_ms if advance.restarted else None
    page_ms = tick_state.pages[engine_id].monotonic_ms if engine_id in tick_state.pages else None
    row_interval = (
        tick_state.row_interval(deployment.deployment_id, moment, since, page_ms) if deployment else RowInterval(0, 0)
    )
    counted = {word: delta for word, delta in words.items() if word in ENGINE_COUNTERS and delta}
    if not prefills_for_another(all_words, reading.knobs):
        counted |= {metric: delta for metric, delta in counters.reason_totals(counted_deltas).items() if delta}
    if reading.gauges.get("awake") == 0 and row_interval.observed_ms:
        counted["asleep_ms"] = row_interval.observed_ms
    counted |= load(tick_state, reading, engine, moment)
    events, conditions = _messages(engine, previous, advance)
    return EngineStep(
        engine,
        deployment,
        reading,
        row_interval,
        moment,
        usable=True,
        complete=advance.complete,
        restarted=advance.restarted,
        words=words,
        counted=counted,
        busy=_busy(tick_state, engine_id, reading, words, row_interval, moment, restarted=advance.restarted),
        buckets=tuple(
            (metric, bounds, counts)
            for (metric, bounds), counts in counters.bucket_totals(reading.histograms or {}, advance.deltas).items()
            if any(counts)
        ),
        counts_taken=True,
        states=(*advance.moved, *peaks_now),
        forgotten=(*((engine_id, series) for series in advance.forgotten), *peaks_gone),
        unavailable=reading.unavailable,
        events=events,
        conditions=conditions,
    )


def _advance(
    tick_state: TickState,
    reading: EngineReading,
    previous: EngineReading | None,
    engine: EngineRow,
    moment: Moment,
    peaks: Mapping[str, counters.Peak],
) -> counters.Advance:
    """Return the increases of its counters since the last page that was taken, the reading `previous`."""
    engine_id, start_ms = engine.engine_id, reading.endpoint.process_start_ms
    states, values = tick_state.counters.get(engine_id, {}), reading.counters
    buckets = tick_state.buckets.get(engine_id, {})
    if reading.histograms is not None:
        states = {**states, **buckets}
        values = {**values, **counters.bucket_values(reading.histograms)}
    since_page_ms = tick_state.since_page_ms(engine_id, moment)
    life, elapsed_ms = engine.life, since_page_ms
    if reading.life_ms is not None and (life is None or not reading.endpoint.certain):
        life = counters.page_life(reading.life_ms)
        if _in_turn(states, reading, life, moment.wall_ms - since_page_ms):
            return counters.rebase(states, values, owner_id=engine_id, life=life, ts=moment.ts, reason=_IN_TURN)
    elif (ended := _ended_server(previous, reading)) is not None and reading.life_ms is not None:
        # The process that listens goes on, but it only forwards, or has loaded its model again.
        life = counters.page_life(reading.life_ms)
        states = {series: replace(state, life=ended) for series, state in states.items()}
    from_zero = False
    if start_ms is not None and life == engine.life:
        # One that began while we watched is ours from 0, though its page could not be read before the agent restarted.
        from_zero = start_ms >= tick_state.watching_since_ms or tick_state.begun.get(engine_id) == life
        if not states:
            elapsed_ms = moment.monotonic_ms - start_ms
    advance = counters.advance(
        states,
        values,
        owner_id=engine_id,
        life=life,
        ts=moment.ts,
        from_zero=from_zero,
        elapsed_s=elapsed_ms / 1000,
        unseen_s=since_page_ms / 1000 if since_page_ms > 1000 * OBSERVED_TICKS * moment.interval_s else 0,
        peaks=peaks,
    )
    if advance.restarted and reading.histograms is None:
        # Buckets of the process that ended: the next page with latencies counts from 0.
        advance = replace(advance, forgotten=(*advance.forgotten, *sorted(buckets)))
    return advance


def _in_turn(states: Mapping[str, CounterState], reading: EngineReading, life: int, last_page_ms: int) -> bool:
    """Return whether another process answers than did before and ran already then: several servers behind one URL."""
    page_lives = {life for life in {state.life for state in states.values()} if counters.is_page_life(life)}
    another = bool(page_lives) and life not in page_lives
    return another and reading.started_ms is not None and reading.started_ms <= last_page_ms


def _ended_server(previous: EngineReading | None, reading: EngineReading) -> int | None:
    """Return the life of the server that counted before; None unless the header of the reply names another one.

    The start of a process in the page itself is no such sign: several processes of one server may answer in turn.
    """
    if previous is None or previous.life_ms is None or reading.started_ms is not None:
        return None
    return None if reading.life_ms == previous.life_ms else counters.page_life(previous.life_ms)


def late_step(
    engine_id: int, previous: EngineReading, tick_state: TickState, host_id: int, boot_id: str | None, moment: Moment
) -> EngineStep:
    """Return the step of an engine that is still being read: nothing changed, and nothing is filed."""
    engine = _engine(engine_id, host_id, boot_id, previous.endpoint, previous.version)
    deployment = _deployment(engine, previous, previous)
    return EngineStep(
        engine,
        deployment,
        previous,
        RowInterval(0, 0),
        moment,
        usable=False,
        filed=False,
        busy=_unfinished(tick_state, engine_id),
        unavailable=(tick_state.unavailable or {}).get(engine_id, ()),
        conditions=tuple(condition for (owner, _), condition in tick_state.conditions.items() if owner == engine_id),
    )


def gone_step(
    engine_id: int, previous: EngineReading, tick_state: TickState, host_id: int, boot_id: str | None, moment: Moment
) -> EngineStep:
    """Return the last row of an engine that ended: its counts after its last page are lost."""
    endpoint = previous.endpoint
    engine = _engine(engine_id, host_id, boot_id, endpoint, previous.version)
    deployment = _deployment(engine, previous, previous)
    row_interval = tick_state.row_interval(deployment.deployment_id, moment) if deployment else RowInterval(0, 0)
    event = Event("engine_stopped", f"{endpoint.kind} at {endpoint.base_url} stopped", engine_id)
    return EngineStep(
        engine, deployment, previous, row_interval, moment, usable=False, complete=False, events=(event,), gone=True
    )


def _engine(engine_id: int, host_id: int, boot_id: str | None, endpoint: Endpoint, version: str | None) -> EngineRow:
    return EngineRow(
        engine_id=engine_id,
        host_id=host_id,
        kind=endpoint.kind,
        base_url=endpoint.base_url,
        port=endpoint.port,
        pid=endpoint.pid,
        process_start_ms=endpoint.process_start_ms,
        version=version,
        found_by=endpoint.found_by,
        life=counters.process_life(boot_id, endpoint.process_start_ms),
    )


def _deployment(engine: EngineRow, reading: EngineReading, previous: EngineReading | None) -> DeploymentRow | None:
    model = reading.served_model or (previous.served_model if previous else None)
    if model is None:
        return None
    path = reading.model_path or (previous.model_path if previous else None)
    facts = reading.model_facts or (previous.model_facts if previous else {})
    return DeploymentRow(
        deployment_id=stable_id("deployment", engine.engine_id, model),
        engine_id=engine.engine_id,
        host_id=engine.host_id,
        served_model=model,
        model_path=path,
        model_facts=json.dumps(facts, sort_keys=True) if facts else None,
    )


def _messages(
    engine: EngineRow, previous: EngineReading | None, advance: counters.Advance
) -> tuple[tuple[Event, ...], tuple[Condition, ...]]:
    name, engine_id = f"{engine.kind} at {engine.base_url}", engine.engine_id
    if advance.reason == _IN_TURN:
        begins = f"{name}: {_IN_TURN}"
        return (), (Condition(engine_id, "engine", "engine_restarted", "in turn", begins),)
    if advance.reason:
        kind = "engine_restarted" if advance.restarted else "engine_counter"
        return (Event(kind, f"{name}: {advance.reason}", engine_id),), ()
    return (Event("engine_found", f"{name} found", engine_id),) if previous is None else (), ()


def _unfinished(tick_state: TickState, engine_id: int) -> Busy:
    """Return no busy time, with the interval that goes on: for a tick without a page."""
    return Busy(None, Provenance.COUNTER, tick_state.work_intervals.get(engine_id, WorkInterval()))


def _busy(
    tick_state: TickState,
    engine_id: int,
    reading: EngineReading,
    words: Mapping[str, int | None],
    row_interval: RowInterval,
    moment: Moment,
    *,
    restarted: bool,
) -> Busy:
    """Return how long the engine worked since its last usable page."""
    if reading.endpoint.follows:
        # Worker ranks expose nothing: they work at most all the time. Their head decides where it is known (costs).
        return Busy(row_interval.observed_ms, Provenance.BOUND, WorkInterval())
    last = None if restarted else tick_state.pages.get(engine_id)
    return busy(
        WorkInterval() if restarted else tick_state.work_intervals.get(engine_id, WorkInterval()),
        words,
        observed_ms=row_interval.observed_ms,
        elapsed_ms=row_interval.duration_ms if last is None else moment.monotonic_ms - last.monotonic_ms,
        running=reading.gauges.get("running"),
        waiting=reading.gauges.get("waiting"),
        exact=_is_exact(reading, words),
    )


def _is_exact(reading: EngineReading, words: Mapping[str, int | None]) -> bool:
    """Return whether the time that the engine counts cannot overlap: of one replica, or of requests one after the
    other."""
    if words.get("engine_ms"):
        return reading.knobs.get("dp", 1) == 1
    return reading.gauges.get("requests_per_step") == 1
