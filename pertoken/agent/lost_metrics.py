"""What a device told until now and tells no longer, and what it tells again: as events, so that the day is known."""

from collections.abc import Iterator

from pertoken.agent.readings import DeviceReading
from pertoken.store.rows import Event

WAIT = "wait"
"""Remedy of a gap that passes by itself, as at the begin of a mean: no event."""


def metric_events(before: DeviceReading | None, now: DeviceReading, device_id: int) -> Iterator[Event]:
    """Events for metrics lost or told again between two readings of a device that answered both times."""
    if before is None or before.lost or now.lost or before.gaps == now.gaps:
        return
    name = f"{now.name} ({now.uuid})"
    lost: dict[str, list[str]] = {}
    for gap in now.gaps:
        told = _value(before, gap.metric) is not None and _value(now, gap.metric) is None
        if told and gap.remedy != WAIT:
            lost.setdefault(gap.reason, []).append(gap.metric)
    for reason, metrics in lost.items():
        yield Event("metric_lost", f"{name}: {', '.join(metrics)} cannot be read any more: {reason}", device_id)
    again = [
        gap.metric
        for gap in before.gaps
        if gap.remedy != WAIT and _value(before, gap.metric) is None and _value(now, gap.metric) is not None
    ]
    if again:
        yield Event("metric_back", f"{name}: {', '.join(again)} can be read again", device_id)


def _value(reading: DeviceReading, metric: str) -> object:
    return getattr(reading, metric, None)
