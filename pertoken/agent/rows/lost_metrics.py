"""What a device told until now and tells no longer, and what it tells again: as events, so that the day is known."""

from collections.abc import Iterator

from pertoken.agent.readings import DeviceReading
from pertoken.store.schema.rows import Event

WAIT = "wait"
"""Remedy of a gap that passes by itself, as at the begin of a mean: no event."""


def metric_events(before: DeviceReading | None, now: DeviceReading, device_id: int) -> Iterator[Event]:
    """Events for metrics lost or told again between two readings of a device that answered both times."""
    if before is None or before.lost or now.lost or before.gaps == now.gaps:
        return
    name = f"{now.name} ({now.uuid})"
    lost: dict[str, list[str]] = {}
    for gap in now.gaps:
        lost_now = _known(before, gap.metric) and not _known(now, gap.metric)
        if lost_now and gap.remedy != WAIT:
            lost.setdefault(gap.reason, []).append(gap.metric)
    for reason, metrics in lost.items():
        yield Event("metric_lost", f"{name}: {', '.join(metrics)} cannot be read any more: {reason}", device_id)
    again = [
        gap.metric
        for gap in before.gaps
        if gap.remedy != WAIT and not _known(before, gap.metric) and _known(now, gap.metric)
    ]
    if again:
        yield Event("metric_back", f"{name}: {', '.join(again)} can be read again", device_id)


def _known(reading: DeviceReading, metric: str) -> bool:
    if metric == "processes":  # not listed in each reading
        return not any(gap.metric == metric for gap in reading.gaps)
    return getattr(reading, metric, None) is not None
