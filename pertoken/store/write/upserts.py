"""INSERT .. ON CONFLICT, each built once: building one costs more than running it."""

from functools import cache
from typing import Any

from sqlalchemy import Table, func

from pertoken.provenance import Provenance
from pertoken.store.connect.open import upsert

_LEARNED = {"instance_type", "region", "purchase", "plug_source"}
"""Columns that an agent may fail to learn again after a restart: unknown does not replace what was known."""


def columns_of(sample: Any) -> dict[str, Any]:
    """Return columns of a flat value by name; `asdict()` copies deeply and costs more than the rest of a write."""
    return {
        name: int(value) if isinstance(value := getattr(sample, name), Provenance) else value
        for name in sample.__slots__
    }


@cache
def replacing(dialect: str, table: Table, kept: tuple[str, ...]) -> Any:
    """Return an upsert that replaces every column but the key and those `kept`."""
    keys = [column.name for column in table.primary_key]
    statement = upsert(dialect, table)
    changed = {c.name: statement.excluded[c.name] for c in table.columns if c.name not in (*keys, *kept)}
    for name in _LEARNED & changed.keys():
        changed[name] = func.coalesce(changed[name], table.c[name])
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


@cache
def adding(dialect: str, table: Table) -> Any:
    """Return a row whose key is there stays as it is."""
    return upsert(dialect, table).on_conflict_do_nothing()
