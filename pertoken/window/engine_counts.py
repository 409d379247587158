"""Figures from engine counters other than tokens: ends of requests, drafts, prefix cache, FLOPs and bytes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pertoken.metrics import (
    ENGINE_COUNTERS,
    GFLOP_PER_BUSY_S,
    MB_PER_BUSY_S,
    PREFIX_HIT_RATE,
    SPEC_ACCEPTANCE_LENGTH,
    SPEC_ACCEPTANCE_RATE,
)
from pertoken.metrics.series import Quotient

if TYPE_CHECKING:
    from pertoken.catalog.market import Accelerator, Market
    from pertoken.store.query.fast_rows import Rows

Counts = Mapping[str, int]
"""Increase by name of `metrics.ENGINE_COUNTERS`, or `NAME{reason="..."}`. A counter without an increase is absent."""

_REASON = re.compile(r'(\w+)\{reason="((?:[^"\\]|\\.)*)"\}')


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """Figures of one deployment over a window. None: its engine does not count it, or the denominator is 0."""

    preemptions: int | None = None
    """Requests put back to the queue because the KV cache was full."""
    ended: tuple[tuple[str, int], ...] = ()
    """Finished requests by reason, most frequent first: (`stop`, 120)."""
    prefix_hit_rate: float | None = None
    """Found over looked-up tokens of the prefix cache."""
    spec_acceptance_rate: float | None = None
    """Accepted over drafted tokens."""
    spec_acceptance_length: float | None = None
    """Mean tokens per speculative step: the accepted draft tokens and one more."""
    mfu: float | None = None
    """Model FLOPs utilization of the present epoch: counted FLOPs over the peak of its GPUs in its busy time."""
    mbu: float | None = None
    """Memory bandwidth utilization of the present epoch: counted bytes over the peak in its busy time."""
    counted: tuple[tuple[str, int], ...] = ()
    """Increase of each counter that a screen shows directly, by its name in `metrics.ENGINE_COUNTERS`."""


def by_epoch(rows: Rows) -> Mapping[int, Counts]:
    """Return the increase of each counter by epoch, from rows of `sums.engine_counter_totals`."""
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    for row in rows:
        counts[row.epoch_id][row.metric] = row.delta
    return counts


def engine_counts(
    epochs: Iterable[Counts],
    preemptions: int | None,
    present: Counts,
    busy_ms: int | None,
    knobs: Mapping[str, object],
    device_names: Collection[str],
    market: Market,
) -> EngineCounts:
    """Return the figures of one deployment, from the counters of all its `epochs`.

    MFU and MBU are those of the `present` epoch, as are `busy_ms`, `knobs` and `device_names`. They are None on devices
    of several kinds.
    """
    counts_work = "gflop_per_gpu" in present or "read_mb_per_gpu" in present
    same_device = counts_work and len(set(device_names)) == 1
    accelerator = market.accelerator(next(iter(device_names))) if same_device else None
    counts: dict[str, int] = defaultdict(int)
    for epoch in epochs:
        for metric, delta in epoch.items():
            counts[metric] += delta
    ended = {
        match[2]: count
        for metric, count in counts.items()
        if (match := _REASON.fullmatch(metric)) and match[1] == "requests_finished"
    }
    shares = {
        name: sum(present.get(counter, 0) for counter in quotient.above) * scale / (busy_ms / 1000)
        for name, quotient, scale in peak_shares(knobs.get("dp"), knobs.get("weight_dtype"), accelerator)
        if busy_ms and quotient.above[0] in present
    }
    return EngineCounts(
        preemptions=preemptions,
        ended=tuple(sorted(ended.items(), key=lambda item: (-item[1], item[0]))),
        prefix_hit_rate=_quotient(counts, PREFIX_HIT_RATE),
        spec_acceptance_rate=_quotient(counts, SPEC_ACCEPTANCE_RATE),
        spec_acceptance_length=_quotient(counts, SPEC_ACCEPTANCE_LENGTH),
        mfu=shares.get("mfu"),
        mbu=shares.get("mbu"),
        counted=tuple(
            (name, counts[name])
            for name, engine_counter in ENGINE_COUNTERS.items()
            if engine_counter.shown and name in counts
        ),
    )


def peak_shares(
    dp: object, weight_dtype: object, accelerator: Accelerator | None
) -> Iterator[tuple[str, Quotient, float]]:
    """Yield (series, quotient, scale) for MFU and MBU; quotient times scale is a share of the peak of the device.

    MFU is FLOPs over the dense peak of the weight format, MBU is bytes over the peak bandwidth. An engine counts for
    one GPU of each data-parallel rank, and the ranks are summed.
    """
    if accelerator is None or not isinstance(dp, int):
        return
    peak = accelerator.peak_flops(weight_dtype) if isinstance(weight_dtype, str) else None
    if peak is not None:
        yield "mfu", GFLOP_PER_BUSY_S, 1e9 / dp / peak
    yield "mbu", MB_PER_BUSY_S, 1e6 / dp / accelerator.memory_bytes_per_s


def _quotient(counts: Counts, quotient: Quotient) -> float | None:
    below = sum(counts.get(counter, 0) for counter in quotient.below or ())
    return sum(counts.get(counter, 0) for counter in quotient.above) / below + quotient.plus if below else None
