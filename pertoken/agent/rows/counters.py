"""Deltas of counters between two readings, across restarts of the process that counts and of the agent itself.

A series is `word` or `word{label="value"}`; a histogram bucket is a counter too, as `word{...} le=bound`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import MappingProxyType
from typing import NamedTuple

from pertoken.agent.readings import HistogramReading
from pertoken.agent.rows.tick_state import TickState
from pertoken.store.schema.rows import CounterState
from pertoken.store.schema.shared import stable_id

_MAX_ID = 2**63 - 1


def boot_life(boot_id: str | None) -> int | None:
    """Return the id of one boot of a host, the life of its device counters; None if the boot is unknown."""
    return None if boot_id is None else _positive("boot", boot_id)


def process_life(boot_id: str | None, start_ms: int | None) -> int | None:
    """Return the id of one process of this host by its boot and its start after that; None if either is unknown."""
    return None if boot_id is None or start_ms is None else _positive("process", boot_id, start_ms)


def page_life(told_ms: int) -> int:
    """Return the id of a process elsewhere by the number its own page gives each of its lives."""
    return -_positive("page", told_ms)


def is_page_life(life: int | None) -> bool:
    """Return whether only a page reveals this life."""
    return life is not None and life < 0


def comparable(first: int | None, second: int | None) -> bool:
    """Return whether different ids mean different lives: both are known, and by one kind of evidence."""
    return first is not None and second is not None and (first < 0) == (second < 0)


def _positive(*parts: str | int) -> int:
    return stable_id(*parts) & _MAX_ID or 1


_REASON = re.compile(r'[{,](reason="(?:[^"\\]|\\.)*")')
_REMEMBERED = 4096
"""Series names that are parsed once."""
MAX_GENERATED_TOKENS_PER_S = 1_000_000
"""Tokens that no server generates in a second: an assumption, far above any published rate of one server."""
MAX_PROMPT_TOKENS_PER_S = 100_000_000
"""Prompt tokens that no server takes in a second, most of them from its prefix cache: an assumption like the others."""
MAX_REQUESTS_PER_S = 1_000_000
MAX_OTHER_PER_S = 10**11
"""Of every other counter: 10^9 FLOPs and 10^6 bytes, summed over hundreds of ranks, stay below it."""
_MAX_PER_S: Mapping[str, int] = {
    "generated_tokens": MAX_GENERATED_TOKENS_PER_S,
    "prompt_tokens": MAX_PROMPT_TOKENS_PER_S,
    "cached_tokens": MAX_PROMPT_TOKENS_PER_S,
    "computed_tokens": MAX_PROMPT_TOKENS_PER_S,
    "prefix_queries": MAX_PROMPT_TOKENS_PER_S,
    "prefix_hits": MAX_PROMPT_TOKENS_PER_S,
    "requests_finished": MAX_REQUESTS_PER_S,
    "requests_failed": MAX_REQUESTS_PER_S,
    "preemptions": MAX_REQUESTS_PER_S,
}
_MARGIN_S = 10
"""Added to the time between two readings: a page is read some time before or after the tick it belongs to."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Increments of one reading of one owner."""

    deltas: dict[str, int | None]
    """Delta by series of this reading; None where it is not known, or not ours to count."""
    states: dict[str, CounterState]
    """Every state to keep for the owner, also of series that vanished."""
    moved: tuple[CounterState, ...]
    """The new ones among them: all that has to be stored."""
    complete: bool
    """False if something was counted that no reading saw."""
    reason: str | None = None
    """Why it is not complete, for people."""
    restarted: bool = False
    """Whether the process restarted, or may have."""
    missing: tuple[str, ...] = ()
    """Series of this life of the process that this reading lacks. They keep their state."""
    forgotten: tuple[str, ...] = ()
    """Series of an ended life that this reading lacks: their states are to be removed."""
    peaks: Mapping[str, Peak] = field(default_factory=dict)
    """Of the series of this life that fell or jumped: to be kept and passed with the next reading."""


class Peak(NamedTuple):
    """Value of a living process's counter before it fell, or jumped beyond any possible count.

    Neither number changes while the counter counts on, so that storing them costs nothing then.
    """

    value: int
    fallen: int
    """Size of its fall since; less than 0 after a jump. The count is its present value, and so much beyond that."""

    def after(self, change: int) -> Peak:
        """Return the peak after a change that is not counted."""
        return Peak(self.value, self.fallen - change)


def advance(
    states: Mapping[str, CounterState],
    values: Mapping[str, int],
    *,
    owner_id: int,
    life: int | None,
    ts: int,
    from_zero: bool,
    elapsed_s: float,
    unseen_s: float = 0,
    peaks: Mapping[str, Peak] = MappingProxyType({}),
) -> Advance:
    """Return the delta of every series in `values` (absolute counts) since `states`, all of one owner.

    `life`: id of the counting process, None if nothing reveals it. `ts`: epoch seconds of the reading.
    `from_zero`: whether an owner without states counts from 0, because its process began while this host was watched;
    else its values are only remembered. `elapsed_s`: time since the reading before, or since the process began.
    `unseen_s`: how long no page was seen, where one was missed. `peaks`: of the reading before.

    - Same process: the difference. A series that appears late counts from 0.
    - A value that falls in a process known to go on is no count: unknown, and counted from there on. If it passes its
      old value again, the fall may have been an error of the page: together no more is counted than lies beyond the
      old value.
    - Where nothing reveals the process, a fall is the only sign of a restart: the series counts from 0, which adds too
      little if it had passed its old value. Where pages were missed meanwhile, and it could have counted all that
      again, the reading is incomplete.
    - Another process: everything counts from 0, and the reading is incomplete, since what the old process counted
      after its last reading is lost.
    - A delta beyond what a server can count in the time is unknown.
    - A state stored before lives had ids (schema 0005), whose process cannot be identified: unknown.

    Every unknown delta makes the reading incomplete, except for values that are only remembered.
    """
    # Nearly every series is a known one of a process that goes on: only what differs costs more than a look-up.
    lives = {stored_life for stored_life in {state.life for state in states.values()} if comparable(stored_life, life)}
    restarted = bool(lives) and life not in lives
    ours = bool(states) or from_zero

    deltas: dict[str, int | None] = {}
    kept_states: dict[str, CounterState] = {}
    moved: list[CounterState] = []
    kept_peaks = {} if restarted else dict(peaks)
    fell, earlier, unidentified, implausible, passed = [], [], [], [], []
    for name, value in values.items():
        state = states.get(name)
        delta: int | None
        if state is None:
            delta = value if ours else None
        elif state.life is None and state.process_start_ms is not None:
            delta = None
            unidentified.append(name)
        elif restarted:
            delta = value
        elif state.life != life and state.life in lives:
            delta = value
            earlier.append(name)
        elif value < state.value:
            delta = None if lives else value
            fell.append(name)
            peak = kept_peaks.pop(name, Peak(state.value, 0))
            # Else it starts again, or is back from a jump to where it may well have come meanwhile.
            if lives and not 0 <= value - peak.value <= _max_increase(name, elapsed_s):
                kept_peaks[name] = peak.after(value - state.value)
        else:
            delta = value - state.value
            if name in kept_peaks and state.value < kept_peaks[name].value <= value:
                passed.append(name)
                delta = max(0, delta - kept_peaks.pop(name).fallen)
        if delta and delta > _max_increase(name, elapsed_s):
            implausible.append(f"{name} increased by {delta} in {elapsed_s:.0f} s, more than a server can count")
            delta = None
            if state is not None and not restarted:
                kept_peaks[name] = peaks.get(name, Peak(state.value, 0)).after(value - state.value)
        deltas[name] = delta
        if state is None or state.value != value or state.life != life or state.process_start_ms is not None:
            state = CounterState(owner_id, name, value, life, ts)
            moved.append(state)
        kept_states[name] = state
    absent = tuple(sorted(states.keys() - values.keys()))
    reason, may_have_restarted = None, restarted
    if restarted:
        reason = "its process was restarted: what it counted after the last reading before is lost"
    elif earlier:
        reason = f"{min(earlier)} was last read of an earlier process: what that counted afterwards is lost"
        may_have_restarted = True
    elif fell:
        first = min(fell)
        after = "what it counted meanwhile is unknown" if lives else "counted from 0 again"
        reason = f"{first} fell from {states[first].value} to {values[first]}: {after}"
        may_have_restarted = not lives
    elif implausible:
        reason = f"{min(implausible)}: not counted"
    elif passed:
        first = min(passed)
        reason = f"{first} rose past {peaks[first].value}, from which it fell before: what is beyond that is counted"
    elif unidentified:
        reason = (
            f"{min(unidentified)} was last read by an older pertoken, and its process cannot be identified: "
            "what it counted since is unknown"
        )
    elif not lives and unseen_s and any(map(deltas.get, states)) and _may_have_restarted(values, unseen_s):
        reason = f"not seen for {unseen_s:.0f} s, and nothing reveals whether it was restarted meanwhile"
        may_have_restarted = True
    return Advance(
        deltas=deltas,
        states=kept_states if restarted else kept_states | {name: states[name] for name in absent},
        moved=tuple(moved),
        complete=reason is None,
        reason=reason,
        restarted=may_have_restarted,
        missing=() if restarted else absent,
        forgotten=absent if restarted else (),
        peaks=kept_peaks,
    )


def rebase(
    states: Mapping[str, CounterState],
    values: Mapping[str, int],
    *,
    owner_id: int,
    life: int | None,
    ts: int,
    reason: str,
) -> Advance:
    """Count nothing now and go on from these values: for a reading that does not follow from the one before."""
    rebased = {name: CounterState(owner_id, name, value, life, ts) for name, value in values.items()}
    return Advance(
        deltas=dict.fromkeys(values),
        states=rebased,
        moved=tuple(rebased.values()),
        complete=False,
        reason=reason,
        forgotten=tuple(sorted(set(states) - set(values))),
    )


@lru_cache(_REMEMBERED)
def word(series: str) -> str:
    """Return the word a series counts: `prompt_tokens` of `prompt_tokens{engine="0"}`."""
    return series.partition("{")[0].partition(" ")[0]


def word_totals(deltas: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return growth by word over all its series without buckets; None where none of them could be counted."""
    totals: dict[str, int | None] = {}
    for series, delta in deltas.items():
        if not is_bucket(series):
            total = totals.setdefault(word(series), None)
            totals[word(series)] = total if delta is None else (total or 0) + delta
    return totals


def reason_totals(deltas: Mapping[str, int | None]) -> dict[str, int]:
    """Return growth of series with a label `reason` by word and reason, as `word{reason="stop"}`."""
    totals: dict[str, int] = {}
    for series, delta in deltas.items():
        metric = _by_reason(series)
        if metric is not None and delta is not None:
            totals[metric] = totals.get(metric, 0) + delta
    return totals


def bucket_values(histograms: Mapping[str, HistogramReading]) -> dict[str, int]:
    """Return every bucket of every histogram as a counter of its own."""
    return {
        name: count
        for series, histogram in histograms.items()
        for name, count in zip(_bucket_names(series, histogram.upper_bounds), histogram.counts, strict=True)
    }


def bucket_totals(
    histograms: Mapping[str, HistogramReading], deltas: Mapping[str, int | None]
) -> dict[tuple[str, tuple[float, ...]], tuple[int, ...]]:
    """Return observations by (word, upper bounds), one count per bucket, summed over the series of the word.

    Series that could not be counted (delta None) add nothing; a word without any other is left out.
    """
    totals: dict[tuple[str, tuple[float, ...]], tuple[int, ...]] = {}
    for series, histogram in histograms.items():
        by_bucket = [deltas[name] for name in _bucket_names(series, histogram.upper_bounds)]
        counts = tuple(delta for delta in by_bucket if delta is not None)
        if len(counts) == len(by_bucket):
            key = (word(series), histogram.upper_bounds)
            total = totals.get(key, (0,) * len(counts))
            totals[key] = tuple(a + b for a, b in zip(total, counts, strict=True))
    return totals


def _max_increase(series: str, elapsed_s: float) -> float:
    """Return by how much a series can have increased between two readings."""
    max_per_s = MAX_REQUESTS_PER_S if is_bucket(series) else _MAX_PER_S.get(word(series), MAX_OTHER_PER_S)
    return max_per_s * (elapsed_s + _MARGIN_S)


def _may_have_restarted(values: Mapping[str, int], unseen_s: float) -> bool:
    """Return whether a server could have generated from 0 to its present count while it was not seen."""
    generated = sum(value for series, value in values.items() if word(series) == "generated_tokens")
    return generated <= MAX_GENERATED_TOKENS_PER_S * unseen_s


@lru_cache(512)
def _bucket_names(series: str, upper_bounds: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(f"{series} le={bound!r}" for bound in (*upper_bounds, float("inf")))


@lru_cache(_REMEMBERED)
def is_bucket(series: str) -> bool:
    """Return whether a series is one bucket of a histogram."""
    return not series.endswith("}") and " le=" in series


@lru_cache(_REMEMBERED)
def _by_reason(series: str) -> str | None:
    reason = _REASON.search(series)
    return None if reason is None or is_bucket(series) else f"{word(series)}{{{reason[1]}}}"


def stored_peaks(tick_state: TickState, engine_id: int) -> dict[str, Peak]:
    """Return the peaks of an engine, by series, as they were last stored."""
    value_owner, fallen_owner = _owners(engine_id)
    values = _states(tick_state, value_owner)
    if not values:
        return {}
    fallen = _states(tick_state, fallen_owner)
    return {series: Peak(state.value, fallen[series].value) for series, state in values.items() if series in fallen}


def peak_states(
    engine_id: int, previous_peaks: Mapping[str, Peak], peaks: Mapping[str, Peak], *, life: int | None, ts: int
) -> tuple[tuple[CounterState, ...], tuple[tuple[int, str], ...]]:
    """Return the states to store for the peaks that changed, and (owner, series) of those to remove."""
    if previous_peaks == peaks:
        return (), ()
    owners = _owners(engine_id)
    states = (
        CounterState(owner_id, series, number, life, ts)
        for series, peak in peaks.items()
        if previous_peaks.get(series) != peak
        for owner_id, number in zip(owners, peak, strict=True)
    )
    return tuple(states), tuple(
        (owner_id, series) for series in previous_peaks.keys() - peaks.keys() for owner_id in owners
    )


def _states(tick_state: TickState, owner_id: int) -> dict[str, CounterState]:
    return {**tick_state.counters.get(owner_id, {}), **tick_state.buckets.get(owner_id, {})}


@cache
def _owners(engine_id: int) -> tuple[int, int]:
    """Return the owners of the values and of the falls of an engine's peaks."""
    return stable_id("peak", engine_id), stable_id("peak fallen", engine_id)
