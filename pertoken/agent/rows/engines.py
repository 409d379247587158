"""One engine's reading as its step: which engine it is, what its counters grew by, and what could not be seen."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pertoken.agent.engines.adapters import tokens
from pertoken.agent.readings import LATE, Endpoint, EngineReading, Unavailable
from pertoken.agent.rows.busy import Busy, Stretch, busy
from pertoken.agent.rows.conditions import Condition
from pertoken.agent.rows.counting import counters, life_ids
from pertoken.agent.rows.counting.halves import counted_once, prefills_for_another
from pertoken.agent.rows.counting.loads import load
from pertoken.agent.rows.counting.stored_peaks import peak_states, stored_peaks
from pertoken.agent.rows.engine_ids import engine_id_of
from pertoken.agent.rows.engine_step import EngineStep
from pertoken.agent.rows.tick_state import OBSERVED_TICKS, Moment, Span, TickState
from pertoken.metrics import ENGINE_COUNTERS
from pertoken.provenance import Provenance
from pertoken.store.schema.rows import CounterState, DeploymentRow, EngineRow, Event
from pertoken.store.schema.shared import stable_id

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
    """Return the step of every engine known now, and what to report of readings that are of an engine already read.

    `boot_id`: of the host they were read on. Two readings with one id are one server named twice where its process
    cannot be seen: the first is taken.
    """
    steps: dict[int, EngineStep] = {}
    unavailable: list[Unavailable] = []
    conditions: list[Condition] = []
    for reading in readings:
        engine_id = engine_id_of(host_id, reading.endpoint, tick_state.engine_urls)
        before = tick_state.engines.get(engine_id)
        if engine_id in steps:
            url, taken = reading.endpoint.base_url, steps[engine_id].reading.endpoint.base_url
            reason = f"{url} is the address of an engine that is already read at {taken}, so it was not counted"
            unavailable.append(
                Unavailable(f"engine {url}", "failing", reason, "name each server once in agent.engines")
            )
            conditions.append(Condition(engine_id, f"engine {url}", "engine_named_twice", "twice", reason))
        elif reading.fault_kind != LATE:
            steps[engine_id] = engine_step(tick_state, reading, host_id, boot_id, moment, baseline)
        elif before is not None:
            steps[engine_id] = late_step(engine_id, before, tick_state, host_id, boot_id, moment)
    for engine_id, before in tick_state.engines.items():
        if engine_id not in steps:
            steps[engine_id] = gone_step(engine_id, before, tick_state, host_id, boot_id, moment)
    return list(steps.values()), unavailable, conditions


def engine_step(
    tick_state: TickState, reading: EngineReading, host_id: int, boot_id: str | None, moment: Moment, baseline: bool
) -> EngineStep:
    """Return what changed for one engine since its last usable page. `boot_id`: of the host it was read on.

    With `baseline`, counters already known are left for the first real tick to take.
    """
    endpoint = reading.endpoint
    engine_id = engine_id_of(host_id, endpoint, tick_state.engine_urls)
    before = tick_state.engines.get(engine_id)
    usable = reading.fault is None
    if reading.read_ms is not None:
        moment = moment.earlier(reading.read_ms)
    engine = _engine(engine_id, host_id, boot_id, endpoint, reading.version or (before.version if before else None))
    deployment = _deployment(engine, reading, before)
    if not usable:
        span = tick_state.span(deployment.deployment_id, moment) if deployment else Span(0, 0)
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
            span,
            moment,
            usable=False,
            busy=_unfinished(tick_state, engine_id),
            unavailable=(missing,),
            conditions=(fault,),
        )
    known = tick_state.counters.get(engine_id, {})
    if baseline and known:
        return EngineStep(engine, deployment, reading, Span(0, 0), moment, usable=True, unavailable=reading.unavailable)
    peaks = stored_peaks(tick_state, engine_id)
    advance = _advance(tick_state, reading, before, engine, moment, peaks)
    if baseline and any(delta is not None for delta in advance.deltas.values()):
        # It began after we last looked, so it counts from 0: the first real tick takes that.
        return EngineStep(engine, deployment, reading, Span(0, 0), moment, usable=True, unavailable=reading.unavailable)
    peaks_now, peaks_gone = peak_states(engine_id, peaks, advance.peaks, life=engine.life, ts=moment.ts)
    counted_deltas = {series: advance.deltas[series] for series in reading.counters}
    all_words = tokens(counters.word_totals(counted_deltas))
    words = counted_once(all_words, reading.knobs)
    since = endpoint.process_start_ms if advance.restarted else None
    page_ms = tick_state.pages[engine_id].monotonic_ms if engine_id in tick_state.pages else None
    span = tick_state.span(deployment.deployment_id, moment, since, page_ms) if deployment else Span(0, 0)
    counted = {word: delta for word, delta in words.items() if word in ENGINE_COUNTERS and delta}
    if not prefills_for_another(all_words, reading.knobs):
        counted |= {metric: delta for metric, delta in counters.reason_totals(counted_deltas).items() if delta}
    if reading.gauges.get("awake") == 0 and span.observed_ms:
        counted["asleep_ms"] = span.observed_ms
    counted |= load(tick_state, reading, engine, moment)
    return EngineStep(
        engine,
        deployment,
        reading,
        span,
        moment,
        usable=True,
        complete=advance.complete,
        restarted=advance.restarted,
        words=words,
        counted=counted,
        busy=_busy(tick_state, engine_id, reading, words, span, moment, restarted=advance.restarted),
        buckets=tuple(
            (metric, bounds, counts)
            for (metric, bounds), counts in counters.bucket_totals(reading.histograms or {}, advance.deltas).items()
            if any(counts)
        ),
        counts_taken=True,
        states=(*advance.moved, *peaks_now),
        forgotten=(*((engine_id, series) for series in advance.forgotten), *peaks_gone),
        unavailable=reading.unavailable,
        events=_events(engine, before, advance),
        conditions=_conditions(engine, advance.reason),
    )


def _advance(
    tick_state: TickState,
    reading: EngineReading,
    before: EngineReading | None,
    engine: EngineRow,
    moment: Moment,
    peaks: Mapping[str, counters.Peak],
) -> counters.Advance:
    """Return what its counters increased by since the last page that was taken, the reading `before`."""
    engine_id, start_ms = engine.engine_id, reading.endpoint.process_start_ms
    known, values = tick_state.counters.get(engine_id, {}), reading.counters
    buckets = tick_state.buckets.get(engine_id, {})
    if reading.histograms is not None:
        known = {**known, **buckets}
        values = {**values, **counters.bucket_values(reading.histograms)}
    since_page_ms = tick_state.since_page_ms(engine_id, moment)
    life, elapsed_ms = engine.life, since_page_ms
    if reading.life_ms is not None and (life is None or not reading.endpoint.certain):
        life = life_ids.page_life(reading.life_ms)
        if _in_turn(known, reading, life, moment.wall_ms - since_page_ms):
            return counters.rebase(known, values, owner_id=engine_id, life=life, ts=moment.ts, reason=_IN_TURN)
    elif (ended := _ended_server(before, reading)) is not None and reading.life_ms is not None:
        # The process that listens goes on, but it only forwards, or has loaded its model again.
        life = life_ids.page_life(reading.life_ms)
        known = {series: replace(state, life=ended) for series, state in known.items()}
    from_zero = False
    if start_ms is not None and life == engine.life:
        # One that began while we watched is ours from 0, though its page could not be read before the agent restarted.
        from_zero = start_ms >= tick_state.watching_since_ms or tick_state.begun.get(engine_id) == life
        if not known:
            elapsed_ms = moment.monotonic_ms - start_ms
    advance = counters.advance(
        known,
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


def _in_turn(known: Mapping[str, CounterState], reading: EngineReading, life: int, last_page_ms: int) -> bool:
    """Return whether another process answers than did before and ran already then: several servers behind one URL."""
    page_lives = {life for life in {state.life for state in known.values()} if life_ids.is_page_life(life)}
    another = bool(page_lives) and life not in page_lives
    return another and reading.started_ms is not None and reading.started_ms <= last_page_ms


def _ended_server(before: EngineReading | None, reading: EngineReading) -> int | None:
    """Return the life of the server that counted before; None unless the header of the reply names another one.

    The start of a process in the page itself is no such sign: several processes of one server may answer in turn.
    """
    if before is None or before.life_ms is None or reading.started_ms is not None:
        return None
    return None if reading.life_ms == before.life_ms else life_ids.page_life(before.life_ms)


def late_step(
    engine_id: int, before: EngineReading, tick_state: TickState, host_id: int, boot_id: str | None, moment: Moment
) -> EngineStep:
    """Return the step of an engine that is still being read: nothing changed, and nothing is filed."""
    engine = _engine(engine_id, host_id, boot_id, before.endpoint, before.version)
    deployment = _deployment(engine, before, before)
    return EngineStep(
        engine,
        deployment,
        before,
        Span(0, 0),
        moment,
        usable=False,
        filed=False,
        busy=_unfinished(tick_state, engine_id),
        unavailable=(tick_state.unavailable or {}).get(engine_id, ()),
        conditions=tuple(condition for (owner, _), condition in tick_state.conditions.items() if owner == engine_id),
    )


def gone_step(
    engine_id: int, before: EngineReading, tick_state: TickState, host_id: int, boot_id: str | None, moment: Moment
) -> EngineStep:
    """Return the last row of an engine whose process ended: what it counted after its last page, nobody saw."""
    endpoint = before.endpoint
    engine = _engine(engine_id, host_id, boot_id, endpoint, before.version)
    deployment = _deployment(engine, before, before)
    span = tick_state.span(deployment.deployment_id, moment) if deployment else Span(0, 0)
    event = Event("engine_stopped", f"{endpoint.kind} at {endpoint.base_url} stopped", engine_id)
    return EngineStep(
        engine, deployment, before, span, moment, usable=False, complete=False, events=(event,), gone=True
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
        life=life_ids.process_life(boot_id, endpoint.process_start_ms),
    )


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


def _events(engine: EngineRow, before: EngineReading | None, advance: counters.Advance) -> tuple[Event, ...]:
    if advance.reason == _IN_TURN:
        return ()
    if advance.reason:
        kind = "engine_restarted" if advance.restarted else "engine_counter"
        return (Event(kind, f"{engine.kind} at {engine.base_url}: {advance.reason}", engine.engine_id),)
    if before is None:
        return (Event("engine_found", f"{engine.kind} at {engine.base_url} found", engine.engine_id),)
    return ()


def _conditions(engine: EngineRow, reason: str | None) -> tuple[Condition, ...]:
    if reason != _IN_TURN:
        return ()
    begins = f"{engine.kind} at {engine.base_url}: {reason}"
    return (Condition(engine.engine_id, "engine", "engine_restarted", "in turn", begins),)


def _unfinished(tick_state: TickState, engine_id: int) -> Busy:
    """Return no busy time, and what is not reported in full yet: for a tick without a page."""
    return Busy(None, Provenance.COUNTER, tick_state.stretches.get(engine_id, Stretch()))


def _busy(
    tick_state: TickState,
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
    last = None if restarted else tick_state.pages.get(engine_id)
    return busy(
        Stretch() if restarted else tick_state.stretches.get(engine_id, Stretch()),
        words,
        observed_ms=span.observed_ms,
        elapsed_ms=span.duration_ms if last is None else moment.monotonic_ms - last.monotonic_ms,
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
