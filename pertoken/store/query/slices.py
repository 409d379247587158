"""Roll-ups of a few owners by slices of a window, for the plots of one host or deployment."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, func, select

from pertoken.store.query.fast_rows import Rows, named_tuples
from pertoken.store.query.segments import Segment, whole
from pertoken.store.schema import telemetry as t

HAPPENINGS = 1000


def histogram_slices(
    connection: Connection, segment: Segment, slice_s: int, epoch_ids: Collection[int], metrics: Collection[str]
) -> Rows:
    """Return (slice_ts, metric, upper_bounds, bucket, total) of all these epochs together."""
    of = t.histogram_rollup[segment.seconds].c
    sets = t.histogram_set.c
    slice_ts = _slice(of.ts, slice_s)
    query = (
        select(slice_ts, of.metric, sets.upper_bounds, of.bucket, _sum(of["count"]).label("total"))
        .join(t.histogram_set, sets.bucket_set_id == of.bucket_set_id)
        .where(of.epoch_id.in_(epoch_ids), of.metric.in_(metrics), of.ts >= segment.start, of.ts < segment.end)
        .group_by(slice_ts, of.metric, sets.upper_bounds, of.bucket)
    )
    return named_tuples(connection, query)


def happenings(connection: Connection, until: int) -> Rows:
    """Return (ts, message) of the newest `HAPPENINGS` events and starts of epochs up to `until`, in no order."""
    event, epoch, served = t.event.c, t.epoch.c, t.deployment.c
    events = select(event.ts, event.message).where(event.ts <= until)
    epochs = select(epoch.start_ts.label("ts"), served.served_model, epoch.epoch_id, epoch.deployment_id)
    epochs = epochs.join(t.deployment, served.deployment_id == epoch.deployment_id).where(epoch.start_ts <= until)
    return [
        *((row.ts, row.message) for row in _newest(connection, events, event.ts)),
        *((row.ts, f"{row.served_model}: an epoch began") for row in _newest(connection, epochs, epoch.start_ts)),
    ]


def _newest(connection: Connection, query: Any, ts: Any) -> Rows:
    return named_tuples(connection, query.order_by(ts.desc()).limit(HAPPENINGS))


def _slice(ts: Any, slice_s: int) -> Any:
    return (ts - ts % slice_s).label("slice_ts")


def _sum(values: Any) -> Any:
    return whole(func.sum(values))
