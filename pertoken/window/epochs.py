"""Earlier epochs of deployments, and their cost of a token at like load.

- `window.epochs`: the epochs of the last weeks with their hours, as rules see them.
- `window.like_for_like`: `compare`, costs per token of two sets of hours; it knows nothing of epochs.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, pairwise

import numpy as np
from sqlalchemy import Connection

from pertoken.evidence import Comparison, Epoch
from pertoken.metrics import ENDED, FINISH_REASONS
from pertoken.provenance import Provenance
from pertoken.state.deployment import knobs
from pertoken.store.query import read
from pertoken.store.query.buckets import NULL, several_epochs_hours
from pertoken.store.query.read import KnownEpoch, checked_epochs
from pertoken.store.query.rollups import HistogramSlice
from pertoken.store.schema.shared import DRIVER
from pertoken.store.schema.telemetry import HOUR
from pertoken.window import inventory
from pertoken.window.columns import Columns, Floats, Ints, Mask, by_owner, columns, rows_in_turn
from pertoken.window.like_for_like import HourlyOutcomes, compare

HISTORY_S = 56 * 24 * HOUR
"""How far back earlier epochs are compared: eight weeks, so that a change of last month is not forgotten."""
MAX_EPOCHS = 16
"""Earlier epochs of a deployment that are compared, the newest ones."""
OUTCOME_COLUMNS = (
    *("epoch_id", "ts", "duration_ms", "observed_ms", "busy_ms", "busy_provenance"),
    *("prompt_tokens", "cached_tokens", "generated_tokens", "requests_finished"),
)
"""Columns of roll-ups that `outcomes_of` reads."""
LENGTHS = ("prompt_len", "generated_len")
"""Histograms with a spread that explains the cost of an hour."""
_OBSERVED = 0.9
"""Part of an hour that must have been observed for it to count."""
_MOSTLY_BUSY = 0.98
"""Busy part of an hour from which an upper bound of the busy time does not depend on the tokens any more."""
MIN_TOKENS = 1000
"""Tokens of an hour from which its cost per token does not depend on a handful of requests."""


@dataclass(frozen=True, eq=False)
class History:
    """Epochs of the last `HISTORY_S` of deployments that had several, and their hours."""

    epochs: Mapping[int, Sequence[KnownEpoch]] = field(default_factory=dict)
    """Rows of `read.epochs` of each deployment, oldest first."""
    devices: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Devices of each epoch, those of its worker ranks included."""
    names: Mapping[int, str] = field(default_factory=dict)
    hours: Mapping[int, Columns] = field(default_factory=dict)
    """By epoch."""
    _made: dict[int, tuple[Epoch, ...]] = field(default_factory=dict, init=False, repr=False)

    def before(self, deployment_id: int) -> tuple[Epoch, ...]:
        """Return the epochs of a deployment before its newest one, oldest first; compared when first asked for."""
        if deployment_id not in self._made:
            epochs = self.epochs.get(deployment_id, ())
            earlier = epochs[:-1][-MAX_EPOCHS:]
            self._made[deployment_id] = tuple(self._epoch(row, epochs[-1]) for row in earlier)
        return self._made[deployment_id]

    def compared(self, earlier_id: int, later_id: int) -> Comparison:
        """Return one epoch against an earlier one of its deployment, or why they cannot be compared."""
        rows = {row.epoch_id: row for epoch in self.epochs.values() for row in epoch}
        if earlier_id not in rows or later_id not in rows:
            return Comparison(code="not-measured", reason="an epoch is no longer stored, or ended over 8 weeks ago")
        return self._compared(rows[earlier_id], rows[later_id])

    def _epoch(self, row: KnownEpoch, present: KnownEpoch) -> Epoch:
        old_knobs = json.loads(row.knobs)
        hours = self.hours.get(row.epoch_id)
        tokens = None if hours is None else int(tokens_of(hours).sum())
        return Epoch(
            start=row.start_ts,
            end=row.end_ts or present.start_ts,
            engine_version=row.engine_version,
            driver=old_knobs.get(DRIVER),
            knobs={name: value for name, value in old_knobs.items() if name in knobs()},
            changed=tuple(self._changes(row, present)),
            tokens=tokens,
            present=self._compared(row, present),
            deployment_id=row.deployment_id,
        )

    def _changes(self, row: KnownEpoch, present: KnownEpoch) -> list[str]:
        old_knobs, new_knobs = json.loads(row.knobs), json.loads(present.knobs)
        changed = [name for name in knobs() if old_knobs.get(name) != new_knobs.get(name)]
        changed += ["engine_version"] if row.engine_version != present.engine_version else []
        changed += ["driver"] if old_knobs.get(DRIVER) != new_knobs.get(DRIVER) else []
        kinds = [
            sorted(self.names.get(device_id, str(device_id)) for device_id in self.devices.get(epoch.epoch_id, ()))
            for epoch in (row, present)
        ]
        return changed + (["devices"] if kinds[0] != kinds[1] else [])

    def _compared(self, row: KnownEpoch, present: KnownEpoch) -> Comparison:
        outcomes = []
        for epoch in (row, present):
            rows, count = self.hours.get(epoch.epoch_id), len(self.devices.get(epoch.epoch_id, ()))
            if rows is None or not count:
                return Comparison(code="not-measured", reason="no hour, or no device, of one of the epochs is stored")
            hourly_outcomes = outcomes_of(rows, count, epoch.start_ts, epoch.end_ts)
            if isinstance(hourly_outcomes, Comparison):
                return hourly_outcomes
            outcomes.append(hourly_outcomes)
        return compare(*outcomes)


@dataclass(frozen=True, slots=True)
class EpochsBefore:
    """Earlier epochs of deployments, compared when they are first read."""

    history: History
    deployment_ids: tuple[int, ...]

    def epochs(self) -> tuple[Epoch, ...]:
        """Return the earlier epochs, oldest first of each deployment."""
        return tuple(epoch for deployment_id in self.deployment_ids for epoch in self.history.before(deployment_id))


def outcomes_of(
    rows: Columns, devices: int, start: int, end: int | None, bucket_s: int = HOUR
) -> HourlyOutcomes | Comparison:
    """Return the whole hours of an epoch on `devices` devices in which it served, or why none of them can be used.

    The hours in which it began and ended are left out: caches are cold then, and the hour is not all its own.
    `bucket_s`: length of the buckets in `rows`.
    """
    ts = rows.ints("ts")
    is_whole = (ts >= start) & (rows.floats("observed_ms") >= _OBSERVED * bucket_s * 1000)
    if end is not None:
        is_whole &= ts + bucket_s <= end
    served = is_whole & (tokens_of(rows) >= MIN_TOKENS) & (rows.ints("generated_tokens") > 0)
    timed = served & (rows.ints("busy_ms") > 0)
    bound = rows.ints("busy_provenance") >= Provenance.BOUND
    used = timed & ~(bound & (rows.floats("busy_ms") >= _MOSTLY_BUSY * rows.floats("observed_ms")))
    if served.any() and not timed.any():
        return Comparison(code="not-measured", reason="its engine exposes no time in which it worked")
    if timed.any() and used.sum() < timed.sum() / 2:
        reason = "the upper bound of its busy time is the whole hour in most of its hours: it cannot be compared"
        return Comparison(code="mostly-busy", reason=reason)
    return _outcomes(rows, used, devices)


@dataclass(frozen=True, slots=True, eq=False)
class EpochHours:
    """Hours of an epoch of a server that shares its requests with other servers."""

    rows: Columns
    """`OUTCOME_COLUMNS` of its buckets."""
    devices: int
    start: int
    end: int | None
    """None: it runs."""


def outcomes_together(epochs: Sequence[EpochHours], bucket_s: int = HOUR) -> HourlyOutcomes | Comparison:
    """Return the whole hours of servers that share requests as those of one, or why none of them can be used.

    Device time and tokens are summed. An hour in which one of the servers began, ended or was not measured is left out.
    """
    measured: list[Columns] = []
    for epoch in epochs:
        ts, end = epoch.rows.ints("ts"), epoch.end
        is_whole: Mask = (ts >= epoch.start) & (epoch.rows.floats("observed_ms") >= _OBSERVED * bucket_s * 1000)
        rows = epoch.rows.where(is_whole & (end is None or ts + bucket_s <= end))
        values = rows.values.copy()
        for name in ("observed_ms", "busy_ms"):
            values[:, rows.index[name]] *= np.where(rows.ints(name) == NULL, 1, epoch.devices)
        measured.append(Columns(rows.index, values))
    if not any(map(len, measured)):
        return Comparison(code="not-measured", reason="no whole hour of its servers is stored")
    rows = rows_in_turn(measured)
    counts = np.unique(np.concatenate([part.ints("ts") for part in measured]), return_counts=True)[1]
    ts, running = rows.ints("ts"), np.zeros(len(rows), np.int64)
    for epoch in epochs:
        running += (ts + bucket_s > epoch.start) & (epoch.end is None or ts < epoch.end)
    values = rows.values.copy()
    values[:, rows.index["duration_ms"]] //= counts
    complete = Columns(rows.index, values).where(counts == running)
    return outcomes_of(complete, 1, 0, None, bucket_s)


def hours_in_turn(epochs: Sequence[HourlyOutcomes]) -> HourlyOutcomes:
    """Return the hours of epochs that ran one after another as one; a column is known if it is in all of them."""
    columns = {column.name: [getattr(epoch, column.name) for epoch in epochs] for column in fields(HourlyOutcomes)}
    known_columns = {name: parts for name, parts in columns.items() if all(part is not None for part in parts)}
    return HourlyOutcomes(**{name: np.concatenate(parts) for name, parts in known_columns.items()})


def with_starts(hours: HourlyOutcomes, starts: Sequence[int], bucket_s: int) -> HourlyOutcomes:
    """Return the hours with the start of the process that served each; without those in which one began.

    `starts`: in order, the first one at or before the first hour.
    """
    starting = np.array(starts, np.int64)
    number, last = (np.searchsorted(starting, hours.ts + offset, "right") for offset in (0, bucket_s - 1))
    is_whole = (number == last) & (number > 0)
    return replace(hours, started_ts=starting[number - 1]).where(is_whole)


def with_spreads(hours: HourlyOutcomes, slices: Iterable[HistogramSlice]) -> HourlyOutcomes:
    """Return the hours with the spread of their lengths, by rows of `slices.histogram_slices` of one hour each.

    A spread is unknown where one of the hours has no histogram.
    """
    counts: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for row in slices:
        bounds = [float(bound) for bound in row.upper_bounds.split(",")] if row.upper_bounds else []
        if bounds and row.total > 0:
            counts[row.metric, row.slice_ts].append((_log_length(bounds, row.bucket), row.total))
    spreads = {
        metric: [_spread(counts[metric, ts]) if (metric, ts) in counts else None for ts in hours.ts.tolist()]
        for metric in LENGTHS
    }
    prompt, generated = (
        None if not spread or None in spread else np.array(spread, np.float64) for spread in spreads.values()
    )
    return replace(hours, prompt_spread=prompt, generated_spread=generated)


def _log_length(bounds: Sequence[float], bucket: int) -> float:
    """Return the logarithm of the geometric middle of a bucket; of its only bound for the first and the last one."""
    low, high = bounds[max(0, min(bucket, len(bounds)) - 1)], bounds[min(bucket, len(bounds) - 1)]
    return (math.log(max(low, 1)) + math.log(max(high, 1))) / 2


def _spread(counts: Sequence[tuple[float, int]]) -> float:
    logs, weights = (np.array(values, np.float64) for values in zip(*counts, strict=True))
    mean = float(np.average(logs, weights=weights))
    return math.sqrt(float(np.average((logs - mean) ** 2, weights=weights)))


def _outcomes(rows: Columns, used: Mask, devices: int) -> HourlyOutcomes:
    rows = rows.where(used)
    tokens = tokens_of(rows).astype(np.float64)
    cached = rows.floats("cached_tokens")
    counts_cached = len(cached) and not np.isnan(cached).any()
    requests = rows.floats("requests_finished")
    counts_requests = len(requests) and (requests > 0).all()
    return HourlyOutcomes(
        ts=rows.ints("ts"),
        device_s_per_token=rows.floats("busy_ms") / 1000 * devices / tokens,
        tokens_per_s=tokens / (rows.floats("duration_ms") / 1000),
        generated_share=rows.floats("generated_tokens") / tokens,
        cached_share=cached / np.maximum(rows.floats("prompt_tokens"), 1) if counts_cached else None,
        tokens_per_request=tokens / requests if counts_requests else None,
    )


def tokens_of(rows: Columns) -> Ints:
    """Return prompt and generated tokens of each hour; 0 where one of them is not known."""
    prompt, generated = rows.ints("prompt_tokens"), rows.ints("generated_tokens")
    tokens: Ints = np.where((prompt == NULL) | (generated == NULL), 0, prompt + generated)
    return tokens


def read_history(connection: Connection, names: Mapping[int, str], now_ts: int, as_of: int | None = None) -> History:
    """Read the epochs of the last eight weeks, and the hours of deployments that had several. `names` of devices."""
    start = (now_ts - HISTORY_S) // HOUR * HOUR
    rows = checked_epochs(read.epochs(connection, start, as_of)).rows
    led = inventory.heads(rows)
    epochs: dict[int, list[KnownEpoch]] = defaultdict(list)
    for row in rows:
        if row.epoch_id not in led and not inventory.follows(row):
            epochs[row.deployment_id].append(row)
    several = {deployment_id: members for deployment_id, members in epochs.items() if len(members) > 1}
    if not several:
        return History()
    held = inventory.devices(read.by_epoch(read.epoch_devices(connection, start)), rows, led)
    hours = columns(OUTCOME_COLUMNS, several_epochs_hours(connection, start, now_ts // HOUR * HOUR, OUTCOME_COLUMNS))
    wanted = {row.epoch_id for row in chain.from_iterable(several.values())}
    return History(
        epochs=several,
        devices={epoch_id: device_ids for epoch_id, device_ids in held.items() if epoch_id in wanted},
        names=names,
        hours={epoch_id: columns for epoch_id, columns in by_owner(hours).items() if epoch_id in wanted},
    )


OUTPUT_COLUMNS = ("epoch_id", "ts", "observed_ms", "prompt_tokens", "generated_tokens", "requests_finished")
"""Columns of roll-ups that `output_counts` reads."""
OUTPUT_LENGTHS = "generated_len"
"""Histogram of the generated tokens of each request."""
ENDED_COUNTS = tuple(f"ended_by_{reason}" for reason in FINISH_REASONS)
"""Counts of requests by how they ended."""
COUNTERS = {
    **dict(zip(ENDED_COUNTS, ENDED, strict=True)),
    "failed": "requests_failed",
    "drafted": "spec_draft_tokens",
    "accepted": "spec_accepted_tokens",
}
"""Counters of engines by the name of their count."""
_TOKENS = {"prompt_tokens": "prompt_tokens", "generated_tokens": "generated_tokens", "requests": "requests_finished"}


@dataclass(frozen=True, slots=True, eq=False)
class OutputCounts:
    """Counts of one deployment by whole hour. A name that its engine never counted is absent."""

    ts: Ints
    """Start of each hour, epoch seconds, rising."""
    counts: Mapping[str, Floats]
    """By name: `prompt_tokens`, `generated_tokens`, `requests`, the names of `COUNTERS`; of the histogram of lengths
    `lengths` (requests), `log_lengths` and `log_lengths_2` (sums of the logarithm and its square), and `empty`."""

    def total(self, *names: str) -> Floats | None:
        """Return the sum of counts, where an absent one is 0; None where all are absent."""
        present = [self.counts[name] for name in names if name in self.counts]
        return np.sum(present, axis=0, dtype=np.float64) if present else None


def output_counts(
    rows: Columns, bucket_s: int, counters: Columns | None, lengths: Iterable[Sequence[int]], sets: Mapping[int, str]
) -> OutputCounts:
    """Return the counts of the observed buckets in `rows`, columns of `OUTPUT_COLUMNS` in order of time.

    `counters`: columns `epoch_id`, `ts` and the names of `COUNTERS`. `lengths`: (ts, set, bucket, count) of the
    histogram `LENGTHS`; `sets`: the upper bounds of each set of buckets, as stored.
    """
    observed: Mask = rows.floats("observed_ms") >= _OBSERVED * bucket_s * 1000
    ts, position = np.unique(rows.ints("ts")[observed], return_inverse=True)
    counts = {
        name: _summed(position, np.nan_to_num(values), len(ts))
        for name, column in _TOKENS.items()
        if not np.isnan(values := rows.floats(column)[observed]).all()
    }
    if counters is not None and len(counters):
        inside, index = _position(ts, counters.ints("ts"))
        for name in COUNTERS:
            values = counters.floats(name)
            if not np.isnan(values).all():
                counts[name] = _summed(index[inside], np.nan_to_num(values[inside]), len(ts))
    return OutputCounts(ts, {**counts, **_lengths(ts, lengths, sets)})


def joined(earlier: OutputCounts, later: OutputCounts) -> OutputCounts:
    """Return the hours of two windows, one after the other. A name that one of them lacks is 0 there."""
    lacking = [np.zeros(len(part.ts)) for part in (earlier, later)]
    counts = {
        name: np.concatenate([earlier.counts.get(name, lacking[0]), later.counts.get(name, lacking[1])])
        for name in sorted({*earlier.counts, *later.counts})
    }
    return OutputCounts(np.concatenate([earlier.ts, later.ts]), counts)


def together(parts: Sequence[OutputCounts]) -> OutputCounts:
    """Return the sums of the counts of servers that share requests. One that generated nothing is left out."""
    if len(parts) == 1:
        return parts[0]
    serving = [part for part in parts if (generated := part.total("generated_tokens")) is not None and generated.any()]
    ts, index = np.unique(np.concatenate([np.zeros(0, np.int64), *(part.ts for part in serving)]), return_inverse=True)
    counts = {}
    for name in sorted({name for part in serving for name in part.counts}):
        values = [part.counts.get(name, np.zeros(len(part.ts))) for part in serving]
        counts[name] = _summed(index, np.concatenate(values), len(ts))
    return OutputCounts(ts, counts)


def _summed(index: Ints, values: Floats, length: int) -> Floats:
    return np.bincount(index, values, length).astype(np.float64)


def _position(ts: Ints, wanted: Ints) -> tuple[Mask, Ints]:
    """Return which instants are among `ts`, and the position of each."""
    index = np.clip(np.searchsorted(ts, wanted), 0, max(0, len(ts) - 1))
    inside: Mask = ts[index] == wanted if len(ts) else np.zeros(len(wanted), bool)
    return inside, index


def _lengths(ts: Ints, rows: Iterable[Sequence[int]], sets: Mapping[int, str]) -> dict[str, Floats]:
    """Return the sums of the histogram of lengths; `empty` (at most one token) where a bucket ends at one."""
    table = np.array([tuple(row) for row in rows], np.int64).reshape(-1, 4)
    inside, index = _position(ts, table[:, 0])
    table, index = table[inside], index[inside]
    if not len(table):
        return {}
    logs = np.zeros(len(table))
    is_empty = np.zeros(len(table), bool)
    ends_at_one = False
    for set_id in np.unique(table[:, 1]).tolist():
        bounds = [float(bound) for bound in sets.get(set_id, "").split(",") if bound]
        ends_at_one |= any(0 < bound <= 1 for bound in bounds)
        middles = np.array(_middles(bounds))
        of_set = table[:, 1] == set_id
        bucket = np.clip(table[of_set, 2], 0, len(middles) - 1)
        logs[of_set] = middles[bucket]
        is_empty[of_set] = np.array([*bounds, math.inf])[bucket] <= 1
    count = table[:, 3].astype(np.float64)
    sums = {"lengths": count, "log_lengths": count * logs, "log_lengths_2": count * logs**2}
    sums |= {"empty": count * is_empty} if ends_at_one else {}
    return {name: _summed(index, values, len(ts)) for name, values in sums.items()}


def _middles(bounds: Sequence[float]) -> list[float]:
    """Return the logarithm of the middle of each bucket of lengths, of the last one its lower bound."""
    edges = [max(1.0, bound) for bound in (1.0, *bounds)]
    return [*((math.log(low) + math.log(high)) / 2 for low, high in pairwise(edges)), math.log(edges[-1])]
