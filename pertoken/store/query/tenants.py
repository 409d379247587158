"""Counters of gateways over a window."""

from sqlalchemy import Connection, func, select

from pertoken.store.query.fast_rows import Rows, named_tuples
from pertoken.store.query.segments import Segment
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.words import GATEWAY

_EPOCHS = (
    select(t.epoch.c.epoch_id, t.deployment.c.engine_id)
    .join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
    .join(t.engine, t.engine.c.engine_id == t.deployment.c.engine_id)
    .where(t.engine.c.found_by == GATEWAY)
    .subquery("gateway_epochs")
)


def gateways(connection: Connection) -> Rows:
    """Return (engine_id, host_id, base_url, kind, life) of every gateway, once for each host and address it is read
    at."""
    of = t.engine.c
    query = select(of.engine_id, of.host_id, of.base_url, of.kind, of.life)
    return named_tuples(connection, query.where(of.found_by == GATEWAY))


def tenant_counters(connection: Connection, segment: Segment) -> Rows:
    """Return (engine_id, ts, metric, delta) of the buckets of a segment in which a gateway counted tokens of
    tenants."""
    of, own = t.engine_counter_rollup[segment.seconds].c, _EPOCHS.c
    query = select(own.engine_id, of.ts, of.metric, func.sum(of.delta).label("delta"))
    query = query.where(of.epoch_id == own.epoch_id, of.ts >= segment.start, of.ts < segment.end)
    return named_tuples(connection, query.group_by(own.engine_id, of.ts, of.metric))
