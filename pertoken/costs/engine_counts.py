"""What an engine's further counters tell of a deployment: how requests ended, drafts, prefix cache, FLOPs and bytes."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pertoken.catalog.market import Accelerator, Market
from pertoken.store.answers import Rows

Counts = Mapping[str, int]
"""Growth by metric of `engine_counter`; a metric that did not grow is absent."""

_REASON = re.compile(r'(\w+)\{reason="((?:[^"\\]|\\.)*)"\}')


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """A deployment's further counters over a window. None: its engine does not count it, or nothing of it happened."""

    preemptions: int | None = None
    """Requests put back to the queue for want of KV cache."""
    ended: tuple[tuple[str, int], ...] = ()
    """Requests by how they ended, most first: (`stop`, 120)."""
    failed: int | None = None
    """Requests refused, aborted or failed."""
    prefix_hit_rate: float | None = None
    """Part of the tokens looked up in the prefix cache that were found there."""
    spec_acceptance_rate: float | None = None
    """Part of the drafted tokens that were accepted."""
    spec_acceptance_length: float | None = None
    """Mean tokens a speculative step gives: the accepted ones of its draft and one more."""
    mfu: float | None = None
    """FLOPs the engine counts, of what its GPUs could do in the time it was busy; of the present epoch."""
    mbu: float | None = None
    """Bytes it reads and writes, of what their memory could move in that time; of the present epoch."""
    asleep_ms: int | None = None
    """Time its weights were not loaded (sleep mode)."""


def by_epoch(rows: Rows) -> Mapping[int, Counts]:
    """Growth of every further counter by epoch, of rows of `sums.engine_counter_totals`."""
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for row in rows:
        found[row.epoch_id][row.metric] = row.delta
    return found


def engine_counts(
    epochs: Iterable[Counts],
    preemptions: int | None,
    present: Counts,
    busy_ms: int | None,
    knobs: Mapping[str, object],
    device_names: Collection[str],
    market: Market,
) -> EngineCounts:
    """What the counters of all `epochs` of a deployment tell together, and those of the `present` one of its GPUs.

    `busy_ms`, `knobs` and `device_names` are those of the present epoch.
    """
    estimated = "gflop_per_gpu" in present or "read_mb_per_gpu" in present
    alike = estimated and len(set(device_names)) == 1
    accelerator = market.accelerator(next(iter(device_names))) if alike else None
    counts: dict[str, int] = defaultdict(int)
    for each in epochs:
        for metric, delta in each.items():
            counts[metric] += delta
    ended = {
        match[2]: count
        for metric, count in counts.items()
        if (match := _REASON.fullmatch(metric)) and match[1] == "requests_finished"
    }
    return EngineCounts(
        preemptions=preemptions,
        ended=tuple(sorted(ended.items(), key=lambda each: (-each[1], each[0]))),
        failed=counts.get("requests_failed"),
        prefix_hit_rate=prefix_hit_rate(counts),
        spec_acceptance_rate=spec_acceptance_rate(counts),
        spec_acceptance_length=spec_acceptance_length(counts),
        mfu=mfu(present, busy_ms, knobs.get("dp"), accelerator, knobs.get("weight_dtype")),
        mbu=mbu(present, busy_ms, knobs.get("dp"), accelerator),
        asleep_ms=counts.get("asleep_ms"),
    )


def prefix_hit_rate(counts: Counts) -> float | None:
    """Tokens found in the prefix cache over those looked up."""
    return _share(counts, "prefix_hits", "prefix_queries")


def spec_acceptance_rate(counts: Counts) -> float | None:
    """Accepted over drafted tokens."""
    return _share(counts, "spec_accepted_tokens", "spec_draft_tokens")


def spec_acceptance_length(counts: Counts) -> float | None:
    """1 + accepted tokens / drafts, as vLLM and TensorRT-LLM define it: what one target step yields."""
    accepted = _share(counts, "spec_accepted_tokens", "spec_drafts")
    return None if accepted is None else 1 + accepted


def mfu(
    counts: Counts, busy_ms: int | None, dp: object, accelerator: Accelerator | None, weight_dtype: object
) -> float | None:
    """Model FLOPs utilization: FLOPs per GPU over the dense peak of its weights' format and the busy time."""
    peak = accelerator.peak_flops(weight_dtype) if accelerator and isinstance(weight_dtype, str) else None
    if peak is None or "gflop_per_gpu" not in counts:
        return None
    return _of_peak(counts["gflop_per_gpu"] * 1e9, peak, busy_ms, dp)


def mbu(counts: Counts, busy_ms: int | None, dp: object, accelerator: Accelerator | None) -> float | None:
    """Memory bandwidth utilization: bytes read and written per GPU over its peak bandwidth and the busy time."""
    if accelerator is None or "read_mb_per_gpu" not in counts:
        return None
    moved = (counts["read_mb_per_gpu"] + counts.get("write_mb_per_gpu", 0)) * 1e6
    return _of_peak(moved, accelerator.memory_bytes_per_s, busy_ms, dp)


def _of_peak(amount: float, peak_per_s: float, busy_ms: int | None, dp: object) -> float | None:
    # The engine counts for one GPU of each data-parallel rank, and the ranks are summed.
    if not isinstance(dp, int) or not busy_ms:
        return None
    return amount / dp / (peak_per_s * busy_ms / 1000)


def _share(counts: Counts, part: str, whole: str) -> float | None:
    return counts.get(part, 0) / counts[whole] if counts.get(whole) else None
