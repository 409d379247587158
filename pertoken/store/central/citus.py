"""Beyond one server: the same tables distributed by Citus, rows of one device or deployment together.

Everything that a policy or a join looks up is on every node; what grows with time is spread. DEFAULT and day
partitions follow their parent. What was tried of this on real nodes is in docs/scale.md.
"""

from collections.abc import Iterator

from sqlalchemy import Connection

from pertoken.errors import StoreError
from pertoken.store.central.partitions import TIMED
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.postgres import catalog
from pertoken.store.schema import fleet
from pertoken.store.schema import telemetry as t
from pertoken.store.write.rollup import ROLLUPS

REFERENCE = (
    t.host,
    t.device,
    t.engine,
    t.deployment,
    t.epoch,
    t.epoch_device,
    t.histogram_set,
    fleet.agent,
    fleet.enrolment,
)
"""Small, and looked up by every node."""
_OWNERS = {
    t.agent_sample.name: "host_id",
    **{each.samples.name: each.owner for each in ROLLUPS},
    **{table.name: each.owner for each in ROLLUPS for table in each.tables.values()},
}
_TOGETHER = {"device_id": "device_sample", "epoch_id": "deployment_sample", "host_id": "host_sample"}
"""By the column it is distributed on: the table whose shards the others of that column lie beside."""


def require(connection: Connection, place: StoreLocation) -> None:
    """Raises StoreError unless Citus is in this database."""
    ((installed,),) = catalog(connection, "SELECT to_regproc('create_distributed_table') IS NOT NULL")
    if not installed:
        raise StoreError(
            f"{place}: has no Citus: install it on every node and CREATE EXTENSION citus, or leave --citus"
        )


def distributing(connection: Connection) -> Iterator[str]:
    """Statements that spread the tables that are not spread yet."""
    there = {name for (name,) in catalog(connection, "SELECT logicalrelid::regclass::text FROM pg_dist_partition")}
    for table in REFERENCE:
        if table.fullname not in there:
            yield f"SELECT create_reference_table('{table.fullname}')"
    for timed in sorted(TIMED, key=lambda each: each.name not in _TOGETHER.values()):
        owner = _OWNERS[timed.name]
        beside = _TOGETHER[owner]
        colocated = "none" if timed.name == beside else f"telemetry.{beside}"
        if f"telemetry.{timed.name}" not in there:
            yield (
                f"SELECT create_distributed_table('telemetry.{timed.name}', '{owner}', colocate_with => '{colocated}')"
            )
