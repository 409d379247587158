"""Comparison of a server's rows with all that a host ever committed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import text

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import reading
from pertoken.store.schema import telemetry as t
from tests.fleet.servers import owners, rolled

Rows = Mapping[str, Sequence[tuple[Any, ...]]]
"""Roll-up rows by table."""
RESTORED = {"ship_restored", "ship_differs", "ship_lost"}
"""Events that name rows of which the host holds another revision than the server, or none."""


def stored(server: StoreLocation, where: StoreLocation) -> dict[str, list[tuple[Any, ...]]]:
    """Return what a server holds of a host under the host's own ids: one that another host had first has another."""
    with reading(server, "telemetry").connect() as connection, connection.begin():
        aliases = "SELECT id, stored_id FROM fleet.alias WHERE host_id = ANY (:ids)"
        ids = owners(where)
        alias: dict[int, int] = {own: other for own, other in connection.execute(text(aliases), {"ids": ids})}
        by_table = rolled(connection, [alias.get(row_id, row_id) for row_id in ids])
    back = {other: own for own, other in alias.items()}
    for name, rows in by_table.items():
        columns = t.metadata.tables[f"telemetry.{name}"].columns.keys()
        at = {i for i, column in enumerate(columns) if column in ("host_id", "device_id", "epoch_id")}
        by_table[name] = [tuple(back.get(v, v) if i in at else v for i, v in enumerate(row)) for row in rows]
    return by_table


def differing(ours: Rows, theirs: Rows, lives: Iterable[Rows], events: Iterable[str]) -> tuple[str, ...]:
    """Return what is neither at the server in the host's newest revision nor named by an event; () if all is well.

    `lives` are what the host held before its database was replaced by older copies of itself.
    """
    known: dict[str, set[tuple[Any, ...]]] = {}
    for life in lives:
        for name, rows in life.items():
            known.setdefault(name, set()).update(_by_key(name, rows))
    named = not RESTORED.isdisjoint(events)
    differences = []
    for name, rows in ours.items():
        local_rows, server_rows = _by_key(name, rows), _by_key(name, theirs[name])
        before = known.get(name, set()) if named else set()
        if len(server_rows) != len(theirs[name]):
            differences.append(f"{name}: a row is there twice")
        if missing := local_rows.keys() - server_rows.keys():
            differences.append(f"{name}: {len(missing)} rows are missing")
        if strange := server_rows.keys() - local_rows.keys() - before:
            differences.append(f"{name}: {len(strange)} rows were never committed")
        changed = [key for key in local_rows.keys() & server_rows.keys() if local_rows[key] != server_rows[key]]
        newer = {
            key
            for key in changed
            if key in before and _revision(name, server_rows[key]) >= _revision(name, local_rows[key])
        }
        if older := set(changed) - newer:
            differences.append(f"{name}: {len(older)} rows are not in their newest revision")
    return tuple(differences)


def _by_key(name: str, rows: Iterable[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    table = t.metadata.tables[f"telemetry.{name}"]
    at = [list(table.columns).index(column) for column in table.primary_key]
    return {tuple(row[i] for i in at): row for row in rows}


def _revision(name: str, row: tuple[Any, ...]) -> int:
    table = t.metadata.tables[f"telemetry.{name}"]
    return int(row[table.columns.keys().index("revision")])
