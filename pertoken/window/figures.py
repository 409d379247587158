"""Figures made of counts and sums: quotients, shares of time that was observed, and progress of long readings."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pertoken.metrics import (
    ENGINE_COUNTERS,
    GFLOP_PER_BUSY_S,
    MB_PER_BUSY_S,
    PREFIX_HIT_RATE,
    SERIES,
    SPEC_ACCEPTANCE_LENGTH,
    SPEC_ACCEPTANCE_RATE,
)
from pertoken.metrics.series import Gauge, Quotient
from pertoken.units import MTOK

if TYPE_CHECKING:
    from pertoken.catalog.market import Accelerator, Market
    from pertoken.store.query.buckets import CounterTotal


def newest(sums: object, name: str) -> float | None:
    """Return the gauge of a series over all time of a row of sums, idle time included: screens label it "now"."""
    computation = SERIES[name].computation
    assert isinstance(computation, Gauge)
    (stored,) = computation.stored
    return mean(sums, stored, computation.per_unit)


def mean(row: object, name: str, scale: float) -> float | None:
    """Return the mean of a gauge in a row of sums, or in a mapping of them, in its own unit; None without a row."""
    if row is None:
        return None
    if isinstance(row, Mapping):
        return ratio(row.get(f"{name}_sum"), row.get(f"{name}_n"), scale)
    return ratio(getattr(row, f"{name}_sum"), getattr(row, f"{name}_n"), scale)


def ratio(numerator: int | None, denominator: int | None, scale: float) -> float | None:
    """Return a quotient by a scale; None for unknown parts or a zero denominator."""
    return numerator / denominator / scale if numerator is not None and denominator else None


def rate(sums: Mapping[str, int | None], name: str) -> float | None:
    """Return a count per second of the summed time."""
    counted, ms = sums.get(name), sums.get("duration_ms")
    return counted * 1000 / ms if counted is not None and ms else None


def per_mtok(nano_usd: int | None, tokens: int | None) -> int | None:
    """Return nano-USD per million tokens; None without tokens."""
    return round(nano_usd * MTOK / tokens) if nano_usd is not None and tokens else None


def total(values: Sequence[float | None]) -> float | None:
    """Return the sum of the known values; None if all are unknown."""
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None


def whole(value: float | None) -> int | None:
    """Return the value rounded to an integer."""
    return None if value is None else round(value)


STALE_TICKS = 2
"""Ticks without a row after which something is stale: one tick may be late, the next one proves that it is not."""
ROUNDING_MS = 1000
"""Starts are known to the second, and rows end when their tick was read: so much less than expected is no gap."""


def counted_ms(observed_ms: int, expected_ms: int) -> int:
    """Return the observed time of one device or deployment within the expected one, without errors of rounding."""
    return expected_ms if expected_ms - observed_ms < ROUNDING_MS else observed_ms


def observed_share(observed_ms: int, expected_ms: int) -> float | None:
    """Observed of expected time, 0 to 1; None where nothing was to be observed.

    Time beyond the expected (a first row covers the tick before it) adds nothing.
    """
    return min(1.0, observed_ms / expected_ms) if expected_ms > 0 else None


Item = TypeVar("Item")
Progress = Callable[[str, float], None]
"""Called with the name of a phase and the share of it that is done, 0 to 1; not at all for long, or many times."""
TICK_S = 0.2
"""Seconds between two calls of one loop: people see a bar move, and it costs nothing."""


def no_progress(phase: str, share: float) -> None:
    """Show nothing."""


def ticking(items: Iterable[Item], n: int, phase: str, progress: Progress) -> Iterator[Item]:
    """Yield the items, about `n` of them, and report progress every `TICK_S`."""
    progress(phase, 0.0)
    last = time.monotonic()
    for done, item in enumerate(items):
        yield item
        if time.monotonic() - last >= TICK_S:
            last = time.monotonic()
            progress(phase, min(1.0, (done + 1) / max(1, n)))


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


def by_epoch(rows: Iterable[CounterTotal]) -> Mapping[int, Counts]:
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
