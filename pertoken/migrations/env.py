"""Run by Alembic with the connection and the group of tables that `pertoken.migrations` put into its config."""

import re

from alembic import context
from sqlalchemy import MetaData

from pertoken.store.schema import advice, fleet, telemetry

_METADATA = {"telemetry": telemetry.metadata, "advice": advice.metadata, "fleet": fleet.metadata}
_FLEETS_OWN = re.compile(r"_p\d{8}$|_rest$|^fleet_")
"""Partitions and indexes that only a fleet's server has."""


def _tables(metadata: MetaData, sqlite: bool) -> MetaData:
    if not sqlite:
        return metadata
    unqualified = MetaData(naming_convention=metadata.naming_convention)
    for table in metadata.tables.values():
        table.to_metadata(unqualified, schema=None)  # type: ignore[arg-type]
    return unqualified


def _ours(name: str | None, kind: str, parents: object) -> bool:
    # A fleet's server may hold schemas of other people, and partitions that retention makes and drops.
    if _sqlite:
        return True
    return name == _group if kind == "schema" else not (name and _FLEETS_OWN.search(name))


_group: str = context.config.attributes["group"]
_connection = context.config.attributes["connection"]
_sqlite = _connection.dialect.name == "sqlite"
context.configure(
    connection=_connection,
    target_metadata=_tables(_METADATA[_group], _sqlite),
    version_table_schema=None if _sqlite else _group,
    include_schemas=not _sqlite,
    include_name=_ours,
    render_as_batch=_sqlite,
    transactional_ddl=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
