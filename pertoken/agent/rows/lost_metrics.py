"""Events for metrics that a device stops or resumes reporting, so that the day is known."""

from collections.abc import Iterator

from pertoken.agent.readings import DeviceReading
from pertoken.store.schema.rows import Event

WAIT = "wait"
"""Remedy where waiting is enough, as at the begin of a mean: no event."""


def metric_events(before: DeviceReading | None, now: DeviceReading, device_id: int) -> Iterator[Event]:
    """Yield events for metrics lost or reported again between two readings of a device that answered both times."""
    if before is None or before.lost or now.lost or before.unavailable == now.unavailable:
        return
    name = f"{now.name} ({now.uuid})"
    lost: dict[str, list[str]] = {}
    for missing in now.unavailable:
        lost_now = _known(before, missing.metric) and not _known(now, missing.metric)
        if lost_now and missing.remedy != WAIT:
            lost.setdefault(missing.reason, []).append(missing.metric)
    for reason, metrics in lost.items():
        yield Event("metric_lost", f"{name}: {', '.join(metrics)} cannot be read any more: {reason}", device_id)
    again = [
        missing.metric
        for missing in before.unavailable
        if missing.remedy != WAIT and not _known(before, missing.metric) and _known(now, missing.metric)
    ]
    if again:
        yield Event("metric_back", f"{name}: {', '.join(again)} can be read again", device_id)


def _known(reading: DeviceReading, metric: str) -> bool:
    if metric == "processes":  # not listed in each reading
        return not any(missing.metric == metric for missing in reading.unavailable)
    return getattr(reading, metric, None) is not None
