"""Figures from what engines count beside tokens: how requests ended, drafts, prefix cache, FLOPs and bytes."""

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
    Quotient,
)

if TYPE_CHECKING:
    from pertoken.catalog.market import Accelerator, Market
    from pertoken.store.query.fast_rows import Rows

Counts = Mapping[str, int]
"""Increase by name of `metrics.ENGINE_COUNTERS`, or `NAME{reason="..."}`; what did not increase is absent."""

_REASON = re.compile(r'(\w+)\{reason="((?:[^"\\]|\\.)*)"\}')


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """A deployment's further counters over a window. None: its engine does not count it, or the count is 0."""

    preemptions: int | None = None
    """Requests put back to the queue because the KV cache was full."""
    ended: tuple[tuple[str, int], ...] = ()
    """Requests by how they ended, most first: (`stop`, 120)."""
    prefix_hit_rate: float | None = None
    """Part of the tokens looked up in the prefix cache that were found there."""
    spec_acceptance_rate: float | None = None
    """Share of the drafted tokens that were accepted."""
    spec_acceptance_length: float | None = None
    """Mean tokens a speculative step gives: the accepted ones of its draft and one more."""
    mfu: float | None = None
    """FLOPs the engine counts, of what its GPUs could do in the time it was busy; of the present epoch."""
    mbu: float | None = None
    """Bytes it reads and writes, of what their memory could move in that time; of the present epoch."""
    counted: tuple[tuple[str, int], ...] = ()
    """Increase of each counter that a screen shows as it is, by its name in `metrics.ENGINE_COUNTERS`."""


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
    """Return the figures of the counters of all `epochs` of a deployment, and of the GPU counters of the `present` one.

    `busy_ms`, `knobs` and `device_names` are those of the present epoch.
    """
    estimated = "gflop_per_gpu" in present or "read_mb_per_gpu" in present
    alike = estimated and len(set(device_names)) == 1
    accelerator = market.accelerator(next(iter(device_names))) if alike else None
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
        for name, quotient, scale in of_peak(knobs.get("dp"), knobs.get("weight_dtype"), accelerator)
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


def of_peak(dp: object, weight_dtype: object, accelerator: Accelerator | None) -> Iterator[tuple[str, Quotient, float]]:
    """Yield (series, quotient, share of the peak that one unit of it is) of a deployment on such devices.

    Model FLOPs utilization: FLOPs of a GPU over the dense peak of its weights' format. Memory bandwidth utilization:
    bytes it reads and writes over its peak bandwidth. An engine counts for one GPU of each data-parallel rank, and the
    ranks are summed.
    """
    if accelerator is None or not isinstance(dp, int):
        return
    peak = accelerator.peak_flops(weight_dtype) if isinstance(weight_dtype, str) else None
    if peak is not None:
        yield "mfu", GFLOP_PER_BUSY_S, 1e9 / dp / peak
    yield "mbu", MB_PER_BUSY_S, 1e6 / dp / accelerator.memory_bytes_per_s


def _quotient(counts: Counts, of: Quotient) -> float | None:
    below = sum(counts.get(counter, 0) for counter in of.below or ())
    return sum(counts.get(counter, 0) for counter in of.above) / below + of.plus if below else None
