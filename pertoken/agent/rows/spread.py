"""Rows that cover a long time, split over the buckets of the roll-ups.

After an absence (of the agent, of a device, of a suspended host) one row covers all of it. A roll-up files a row whole
under the bucket in which it ends, so that hours of device time would be paid for in one minute, at the price of that
minute. The time is therefore split into one row for each minute of the last day and for each hour before. The energy
of a device is split by time as well, so that no bucket shows more power than the device draws. Everything else that was
counted meanwhile is known as a sum only: it stays on the last row, the one whose reading counted it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from pertoken.agent.rows.tick_state import OBSERVED_TICKS, Moment, TickState
from pertoken.store.schema.rows import DeploymentSample, DeviceSample, DeviceShare, EpochRow, HostSample
from pertoken.store.schema.telemetry import HOUR, MINUTE

DAY = 24 * HOUR
_WORK = ("busy_ms", "split_ms", "prefill_ms", "decode_ms")
MAX_SPLIT_S = 31 * DAY
"""Time before this is filed under the oldest bucket within it, so that the work of one tick stays bounded."""


@dataclass(frozen=True, slots=True)
class Part:
    """One bucket's part of a row: where it ends (epoch seconds), and how long it is."""

    ts: int
    duration_ms: int


def spread(samples: Sequence[Any], tick_state: TickState, moment: Moment, epochs: Mapping[int, EpochRow]) -> list[Any]:
    """Return the samples of a tick, those that cover a long time in parts; `epochs` by deployment.

    The durations, the times observed and busy, and the energy of the parts of a row add up to those of the row.
    """
    limit_ms = OBSERVED_TICKS * 1000 * moment.interval_s
    if moment.ts <= tick_state.set_back_ts or all(getattr(sample, "duration_ms", 0) <= limit_ms for sample in samples):
        return list(samples)
    deployments = {epoch.epoch_id: deployment_id for deployment_id, epoch in epochs.items()}
    observed = {sample.epoch_id: sample.observed_ms for sample in samples if isinstance(sample, DeploymentSample)}
    rows: list[Any] = []
    for sample in samples:
        if getattr(sample, "duration_ms", 0) <= limit_ms:
            rows.append(sample)
            continue
        match sample:
            case DeviceSample() | DeviceShare():
                owner = sample.device_id
            case HostSample():
                owner = sample.host_id
            case DeploymentSample():
                owner = deployments.get(sample.epoch_id, 0)
            case _:
                rows.append(sample)
                continue
        after_ts = max(tick_state.row_ts.get(owner, 0), tick_state.set_back_ts)
        rows += _split(sample, parts(sample.ts, sample.duration_ms, after_ts), observed)
    return rows


def parts(ts: int, duration_ms: int, after_ts: int) -> tuple[Part, ...]:
    """Return the parts of a row that covers the `duration_ms` until `ts`, in order; all end after `after_ts`.

    The bucket in which a long absence begins has rows of its owner already, of which the older may be deleted: were it
    computed again, they would be missing. Its part is filed under the next one.
    """
    start_ms = 1000 * ts - duration_ms
    oldest = max(start_ms // 1000, after_ts, ts - MAX_SPLIT_S)
    minutes_from = max(oldest, (ts - DAY) // HOUR * HOUR)
    ends = [
        *range(oldest // HOUR * HOUR + HOUR, minutes_from + 1, HOUR),
        *range(minutes_from // MINUTE * MINUTE + MINUTE, ts, MINUTE),
    ]
    if duration_ms > 1000 * HOUR:
        del ends[:1]
    limits_ms = [start_ms, *(1000 * end for end in ends), 1000 * ts]
    durations = (until - since for since, until in pairwise(limits_ms))
    return tuple(Part(end, duration) for end, duration in zip((*ends, ts), durations, strict=True))


def _split(sample: Any, buckets: Sequence[Part], observed_of: Mapping[int, int]) -> list[Any]:
    if len(buckets) == 1:
        return [sample]
    durations = [bucket.duration_ms for bucket in buckets]
    if isinstance(sample, DeviceSample):
        return _split_device(sample, buckets, durations)
    if isinstance(sample, HostSample):
        observed = _latest(sample.observed_ms, durations)
        hosts: list[Any] = [
            HostSample(sample.host_id, part.ts, part.duration_ms, seen)
            for part, seen in zip(buckets[:-1], observed, strict=False)
        ]
        return [*hosts, replace(sample, duration_ms=durations[-1], observed_ms=observed[-1])]
    observed_ms = observed_of.get(sample.epoch_id, 0)
    observed = _latest(observed_ms, durations)
    if isinstance(sample, DeviceShare):
        return [
            replace(sample, ts=part.ts, duration_ms=part.duration_ms, busy_ms=busy_ms)
            for part, busy_ms in zip(buckets, _busy(sample.busy_ms, durations, observed), strict=True)
        ]
    worked = [
        dict(zip(_WORK, parts_ms, strict=True))
        for parts_ms in zip(*(_busy(getattr(sample, name), durations, observed) for name in _WORK), strict=True)
    ]
    rows: list[Any] = [
        DeploymentSample(
            sample.epoch_id,
            part.ts,
            part.duration_ms,
            seen,
            complete=True,
            busy_provenance=sample.busy_provenance,
            **work,
        )
        for part, seen, work in zip(buckets[:-1], observed, worked, strict=False)
    ]
    return [*rows, replace(sample, duration_ms=durations[-1], observed_ms=observed[-1], **worked[-1])]


def _split_device(sample: DeviceSample, buckets: Sequence[Part], durations: Sequence[int]) -> list[Any]:
    values = [
        {
            "ts": part.ts,
            "duration_ms": part.duration_ms,
            "observed_ms": observed_ms,
            "energy_counter_mj": counter_mj,
            "energy_integral_mj": integral_mj,
        }
        for part, observed_ms, counter_mj, integral_mj in zip(
            buckets,
            _latest(sample.observed_ms, durations),
            _evenly(sample.energy_counter_mj, durations),
            _evenly(sample.energy_integral_mj, durations),
            strict=True,
        )
    ]
    *earlier, last = values
    return [*(DeviceSample(sample.device_id, **key) for key in earlier), sample._replace(**last)]


def _latest(amount: int, durations: Sequence[int]) -> list[int]:
    """Return how much of an amount of time each part has if it is the latest time of all."""
    shares = []
    for duration in reversed(durations):
        shares.append(min(amount, duration))
        amount -= shares[-1]
    return shares[::-1]


def _busy(busy_ms: int | None, durations: Sequence[int], observed: Sequence[int]) -> list[Any]:
    """Return the busy time of each part: what was observed is the latest; any other is spread evenly over the rest."""
    if busy_ms is None:
        return [None] * len(durations)
    latest = _latest(min(busy_ms, sum(observed)), observed)
    unobserved = [duration - seen for duration, seen in zip(durations, observed, strict=True)]
    rest = _evenly(busy_ms - sum(latest), unobserved)
    return [a + b for a, b in zip(latest, rest, strict=True)]


def _evenly(amount: int | None, durations: Sequence[int]) -> list[Any]:
    """Return how much of an amount each part has if it is spread evenly over these times; all None if not known."""
    if amount is None:
        return [None] * len(durations)
    total = max(1, sum(durations))
    marks = [0, *(amount * reached // total for reached in accumulate(durations))]
    shares = [until - since for since, until in pairwise(marks)]
    shares[-1] += amount - marks[-1]
    return shares
