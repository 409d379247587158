"""Questions of an import: which hosts are recorded already, since when and until when."""

from dataclasses import dataclass, fields

from sqlalchemy import Connection, func, select

from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rollup_tables import HOUR, MINUTE
from pertoken.store.schema.rows import EpochRow, HostRow


@dataclass(frozen=True, slots=True)
class RecordedHost:
    """A host, and the stretch of time that its roll-ups cover."""

    host_id: int
    name: str
    machine_id: str | None
    first_ts: int
    """When it was first seen."""
    until_ts: int | None
    """End of its newest bucket; None without any."""
    uuids: frozenset[str]
    """Of its devices."""


def hosts(connection: Connection) -> list[RecordedHost]:
    """Return all hosts of a database."""
    until: dict[int, int] = {}
    for seconds in (HOUR, MINUTE):
        table = t.host_rollup[seconds]
        for host_id, ts in connection.execute(select(table.c.host_id, func.max(table.c.ts)).group_by(table.c.host_id)):
            # The hour under way has minutes; an hour without any was whole when they were deleted.
            until[host_id] = ts + seconds
    uuids: dict[int, set[str]] = {}
    for host_id, uuid in connection.execute(select(t.device.c.host_id, t.device.c.uuid)):
        uuids.setdefault(host_id, set()).add(uuid)
    of = t.host.c
    return [
        RecordedHost(
            row.host_id,
            row.name,
            row.machine_id,
            row.first_ts,
            until.get(row.host_id),
            frozenset(uuids.get(row.host_id, ())),
        )
        for row in connection.execute(select(of.host_id, of.name, of.machine_id, of.first_ts))
    ]


def newest_host(connection: Connection) -> HostRow | None:
    """Return the host that was seen last; None in a database without any."""
    columns = [t.host.c[field.name] for field in fields(HostRow)]
    row = connection.execute(select(*columns).order_by(t.host.c.last_ts.desc(), t.host.c.host_id).limit(1)).first()
    return None if row is None else HostRow(*row)


def gateway_counted_until(connection: Connection, engine_id: int) -> int | None:
    """Return the end of the newest bucket in which a gateway counted tokens; None without any."""
    epochs = (
        select(t.epoch.c.epoch_id)
        .join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
        .where(t.deployment.c.engine_id == engine_id)
    )
    for seconds in (MINUTE, HOUR):
        of = t.engine_counter_rollup[seconds].c
        newest = connection.execute(select(func.max(of.ts)).where(of.epoch_id.in_(epochs))).scalar()
        if newest is not None:
            return int(newest) + seconds
    return None


def open_epochs(connection: Connection, host_id: int) -> list[EpochRow]:
    """Return the epochs of a host's deployments that have not ended."""
    devices: dict[int, list[int]] = {}
    for epoch_id, device_id in connection.execute(select(t.epoch_device)):
        devices.setdefault(epoch_id, []).append(device_id)
    query = select(t.epoch).join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
    return [
        EpochRow(
            row.epoch_id,
            row.deployment_id,
            row.start_ts,
            row.end_ts,
            row.engine_version,
            row.knobs,
            tuple(sorted(devices.get(row.epoch_id, ()))),
        )
        for row in connection.execute(query.where(t.deployment.c.host_id == host_id, t.epoch.c.end_ts.is_(None)))
    ]
