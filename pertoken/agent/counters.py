"""What counters grew by between two readings, across restarts of whoever counts and of the agent itself.

A series is `word` or `word{label="value"}`; a histogram bucket is a counter too, as `word{...} le=bound`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from pertoken.agent.readings import HistogramReading
from pertoken.store.rows import CounterState

_REASON = re.compile(r'[{,](reason="(?:[^"\\]|\\.)*")')
_REMEMBERED = 4096
"""Series whose names are taken apart once."""
SAME_START_MS = 20
"""Two starts of a process this close are one start: kernels tell it in ticks of 10 ms, and it is rounded twice."""
MOST_TOK_S = 1_000_000
"""Tokens that no server generates in a second: an assumption, far above any that is published of one server."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What one reading of one owner adds."""

    deltas: dict[str, int | None]
    """Growth by series of this reading; None where it was counted before anybody watched."""
    states: dict[str, CounterState]
    """All that is to be remembered of the owner, vanished series included."""
    complete: bool
    """False if something was counted that no reading saw."""
    reset: str | None = None
    """Why it is not complete, for people."""
    missing: tuple[str, ...] = ()
    """Series of this life of the process that this reading lacks. They keep their state."""
    forgotten: tuple[str, ...] = ()
    """Series of an ended life that this reading lacks: their states are to be removed."""


def advance(
    states: Mapping[str, CounterState],
    values: Mapping[str, int],
    *,
    owner_id: int,
    process_start_ms: int | None,
    ts: int,
    watching_since_ms: int,
    unseen_s: float = 0,
) -> Advance:
    """Growth of every series in `values` (absolute counts) since `states`, all of one owner.

    `process_start_ms`: Unix time at which the counting process started; None if it cannot be seen; negative if only
    its own page tells it, by another clock, which tells lives apart and nothing more. `ts`: epoch seconds of the
    reading. `watching_since_ms`: Unix time since which this host is watched: what an owner counted that started
    before and was never read is not ours to count. `unseen_s`: how long no page was seen, where one was missed.

    - Nothing known of the owner: counts from 0 if its process started since we watch, else only remembers.
    - Same process: the difference. A series that appears late counts from 0. One that fell was reset: it
      counts from 0 and the reading is not complete. Only that tells a restart of a process whose start cannot
      be seen; a series that had grown past its old value by then adds too little, never too much. Where pages
      were missed meanwhile, and it could have counted all that anew, the reading is not complete.
    - Another process: everything counts from 0, and the reading is not complete, since what the old process
      counted after its last reading is lost.
    """
    # Nearly every series is one that is known, of a process that goes on: only what differs costs more than a look.
    fell = sorted(name for name, value in values.items() if name in states and value < states[name].value)
    starts = {state.process_start_ms for state in states.values()}
    lives = {start_ms for start_ms in starts if _of_one_clock(start_ms, process_start_ms)}
    told = bool(lives)
    restarted = told and not any(_same(start, process_start_ms) for start in lives)
    ours = bool(states) or (process_start_ms is not None and process_start_ms >= watching_since_ms - SAME_START_MS)
    goes_on = not restarted and len(lives) <= 1

    deltas: dict[str, int | None] = {}
    now: dict[str, CounterState] = {}
    for name, value in values.items():
        state = states.get(name)
        if state is None or restarted or value < state.value:
            deltas[name] = value if ours else None
        elif goes_on or state.process_start_ms not in lives or _same(state.process_start_ms, process_start_ms):
            deltas[name] = value - state.value
        else:
            deltas[name] = value  # of a life before the one that the others are of
        if state is None or state.value != value or state.process_start_ms != process_start_ms:
            state = CounterState(owner_id, name, value, process_start_ms, ts)
        now[name] = state
    absent = tuple(sorted(states.keys() - values.keys()))
    reset = None
    if restarted:
        reset = "its process was restarted: what it counted after the last reading before is lost"
    elif fell:
        first = states[fell[0]]
        reset = f"{fell[0]} fell from {first.value} to {values[fell[0]]}: counted from 0 again"
    elif (
        not told
        and unseen_s
        and any(name in states and delta for name, delta in deltas.items())
        and _may_have_restarted(values, unseen_s)
    ):
        reset = f"not seen for {unseen_s:.0f} s, and nothing tells whether it was restarted meanwhile"
    return Advance(
        deltas=deltas,
        states=now if restarted else now | {name: states[name] for name in absent},
        complete=reset is None,
        reset=reset,
        missing=() if restarted else absent,
        forgotten=absent if restarted else (),
    )


def rebase(
    states: Mapping[str, CounterState],
    values: Mapping[str, int],
    *,
    owner_id: int,
    process_start_ms: int | None,
    ts: int,
    reset: str,
) -> Advance:
    """Nothing is counted, and what is counted from here on is: for a reading that does not go on from the last."""
    return Advance(
        deltas=dict.fromkeys(values),
        states={name: CounterState(owner_id, name, value, process_start_ms, ts) for name, value in values.items()},
        complete=False,
        reset=reset,
        forgotten=tuple(sorted(set(states) - set(values))),
    )


@lru_cache(_REMEMBERED)
def word(series: str) -> str:
    """The word a series counts: `prompt_tokens` of `prompt_tokens{engine="0"}`."""
    return series.partition("{")[0].partition(" ")[0]


def word_totals(deltas: Mapping[str, int | None]) -> dict[str, int | None]:
    """Growth by word over all its series, buckets left out; None where no series of the word could be counted."""
    totals: dict[str, int | None] = {}
    for series, delta in deltas.items():
        if not is_bucket(series):
            before = totals.setdefault(word(series), None)
            totals[word(series)] = before if delta is None else (before or 0) + delta
    return totals


def reason_totals(deltas: Mapping[str, int | None]) -> dict[str, int]:
    """Growth of series with a label `reason` by word and reason, as `word{reason="stop"}`."""
    totals: dict[str, int] = {}
    for series, delta in deltas.items():
        metric = _by_reason(series)
        if metric is not None and delta is not None:
            totals[metric] = totals.get(metric, 0) + delta
    return totals


def bucket_values(histograms: Mapping[str, HistogramReading]) -> dict[str, int]:
    """Every bucket of every histogram as a counter of its own."""
    return {
        name: count
        for series, histogram in histograms.items()
        for name, count in zip(_bucket_names(series, histogram.upper_bounds), histogram.counts, strict=True)
    }


def bucket_totals(
    histograms: Mapping[str, HistogramReading], deltas: Mapping[str, int | None]
) -> dict[tuple[str, tuple[float, ...]], tuple[int, ...]]:
    """Observations by (word, upper bounds), one count per bucket, summed over the series of the word.

    Series that could not be counted (delta None) add nothing; a word without any other is left out.
    """
    totals: dict[tuple[str, tuple[float, ...]], tuple[int, ...]] = {}
    for series, histogram in histograms.items():
        grown = [deltas[name] for name in _bucket_names(series, histogram.upper_bounds)]
        counts = tuple(delta for delta in grown if delta is not None)
        if len(counts) == len(grown):
            key = (word(series), histogram.upper_bounds)
            before = totals.get(key, (0,) * len(counts))
            totals[key] = tuple(a + b for a, b in zip(before, counts, strict=True))
    return totals


def _of_one_clock(start_ms: int | None, other_ms: int | None) -> bool:
    """Whether both starts are known, and by the same clock: our host's, or the page's own."""
    return start_ms is not None and other_ms is not None and (start_ms < 0) == (other_ms < 0)


def _may_have_restarted(values: Mapping[str, int], unseen_s: float) -> bool:
    """Whether a server could have generated from 0 what it shows now while it was not seen."""
    generated = sum(value for series, value in values.items() if word(series) == "generated_tokens")
    return generated <= MOST_TOK_S * unseen_s


def _same(start_ms: int | None, other_ms: int | None) -> bool:
    return start_ms is not None and other_ms is not None and abs(start_ms - other_ms) <= SAME_START_MS


@lru_cache(512)
def _bucket_names(series: str, upper_bounds: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(f"{series} le={bound!r}" for bound in (*upper_bounds, float("inf")))


@lru_cache(_REMEMBERED)
def is_bucket(series: str) -> bool:
    """Whether a series is one bucket of a histogram."""
    return not series.endswith("}") and " le=" in series


@lru_cache(_REMEMBERED)
def _by_reason(series: str) -> str | None:
    reason = _REASON.search(series)
    return None if reason is None or is_bucket(series) else f"{word(series)}{{{reason[1]}}}"
