"""Counts of outputs by hour: how requests ended, how long their outputs were, and which drafts were accepted."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pertoken.metrics import ENDED, FINISH_REASONS
from pertoken.window.columns import Columns, Floats, Ints, Mask

OUTPUT_COLUMNS = ("epoch_id", "ts", "observed_ms", "prompt_tokens", "generated_tokens", "requests_finished")
"""Columns of roll-ups that `output_counts` reads."""
LENGTHS = "generated_len"
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
_OBSERVED = 0.9
"""Part of an hour that must have been observed for it to count."""


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
    """Return the sums of what servers of the same requests counted. One that generated nothing is left out."""
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
