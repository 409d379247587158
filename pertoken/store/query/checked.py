"""Rows of identities as readers use them: each value within its domain, and a fault for each that was not.

A host's own login writes these rows. A value that cannot be used is that host's fault: it is replaced and named, and no
row of another host is touched.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from pertoken.printable import short
from pertoken.store.connect.possible import left_out
from pertoken.store.connect.sqlite import driver
from pertoken.store.query.fast_rows import named_tuples
from pertoken.store.schema.domains import DOMAINS, Domain
from pertoken.store.schema.fleet import row_fault

MAX_DEVICES = 160
"""Devices of one host that are read: the largest has 16 GPUs of at most 7 MIG instances, and its CPUs."""
MAX_DEPLOYMENTS = 64
"""Deployments of one host that are read, the newest: a screen of one host has no use for more, and its JSON stays below
1 MB."""
MAX_EPOCHS = 8_192
"""Epochs of one host that are read, the newest: one every ten minutes for eight weeks."""


@dataclass(frozen=True, slots=True)
class RowFault:
    """A kind of value in the rows of one host that is not used as it is stored."""

    host_id: int
    field: str
    """Table and column, such as `epoch.knobs`; the table alone where whole rows are left out."""
    reason: str

    def __str__(self) -> str:
        """`epoch.knobs: tp must be a whole number from 1 to 1024 ranks`."""
        return f"{self.field}: {short(self.reason)}"


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Rows whose values can be used, and the faults of those that were replaced or left out."""

    rows: Sequence[Any]
    faults: frozenset[RowFault] = frozenset()


_OF_HOST = {"newest_ts": DOMAINS["host"]["last_ts"], "host_name": DOMAINS["host"]["name"]}
_OF_DEPLOYMENT = {f"deployment.{name}": name for name in ("served_model", "model_path", "model_facts")}
_OF_ENGINE = {"engine.kind": "engine_kind", "engine.base_url": "base_url"}


def checked_hosts(rows: Iterable[Any]) -> CheckedRows:
    """Return rows of `read.hosts`."""
    return _checked(rows, {f"host.{name}": name for name in DOMAINS["host"]})


def checked_devices(rows: Iterable[Any]) -> CheckedRows:
    """Return rows of `read.devices`; of a host that has more than `MAX_DEVICES` those that were first seen last."""
    valid = _checked(rows, {f"device.{name}": name for name in DOMAINS["device"]})
    return _limited(valid, "device", "device_id", MAX_DEVICES, "first_ts")


def checked_epochs(rows: Iterable[Any]) -> CheckedRows:
    """Return rows of `read.epochs`, oldest first; of a host with too many deployments or epochs the newest."""
    columns = {f"epoch.{name}": name for name in DOMAINS["epoch"]} | _OF_DEPLOYMENT | _OF_ENGINE
    valid = _checked(rows, columns)
    valid = _limited(valid, "deployment", "deployment_id", MAX_DEPLOYMENTS, "newest_ts")
    valid = _limited(valid, "epoch", "epoch_id", MAX_EPOCHS, "start_ts")
    return CheckedRows(sorted(valid.rows, key=lambda row: (row.deployment_id, row.start_ts)), valid.faults)


def refused(connection: Connection, start: int) -> frozenset[RowFault]:
    """Return faults of what hosts shipped since `start`, by a fleet's server, or of rows left out of a host's file."""
    dialect = connection.dialect
    if dialect.name == "sqlite":
        files = (Path(row[2]) for row in driver(connection).execute("PRAGMA database_list"))
        tables = {
            pair for file in files for host_id, names in left_out(file).items() for pair in product([host_id], names)
        }
        return frozenset(RowFault(*pair, "has rows with values or times that are not possible") for pair in tables)
    if not dialect.has_table(connection, row_fault.name, schema=row_fault.schema):
        return frozenset()
    query = select(row_fault.c.host_id, row_fault.c.field, row_fault.c.reason)
    return frozenset(RowFault(*row) for row in named_tuples(connection, query.where(row_fault.c.last_ts >= start)))


def _checked(rows: Iterable[Any], columns: Mapping[str, str]) -> CheckedRows:
    """Return rows with each value within its domain; `columns` are their names by table and column."""
    valid, faults = list(rows), set()
    present = [(source, column, _domain(source)) for source, column in columns.items()]
    present += [("", column, domain) for column, domain in _OF_HOST.items()]
    for source, column, domain in present:
        if not valid or column not in valid[0]._fields:
            continue
        position = valid[0]._fields.index(column)
        replaced = _replaced({row[position] for row in valid}, domain)
        for number, row in enumerate(valid if replaced else ()):
            if row[position] not in replaced:
                continue
            value, reason = replaced[row[position]]
            valid[number] = row._replace(**{column: value})
            if source and reason is not None:
                faults.add(RowFault(row.host_id, source, reason))
    return CheckedRows(valid, frozenset(faults))


def _domain(source: str) -> Domain:
    table, _, column = source.partition(".")
    return DOMAINS[table][column]


def _replaced(values: Iterable[Any], domain: Domain) -> dict[Any, tuple[Any, str | None]]:
    """Return the replacement of each value that is not within its domain, with the reason."""
    results = {value: domain.check(value) for value in values if value is not None}
    return {
        value: (result.value, result.reason)
        for value, result in results.items()
        if result.value is not value or result.reason is not None
    }


def _limited(checked: CheckedRows, table: str, key: str, max_n: int, newest: str) -> CheckedRows:
    """Leave out rows of hosts that have more than `max_n` different keys, but for the newest ones."""
    if len(checked.rows) <= max_n:
        return checked
    newest_by_key: dict[int, dict[int, int]] = defaultdict(dict)
    for row in checked.rows:
        keys, ts = newest_by_key[row.host_id], getattr(row, newest)
        keys[getattr(row, key)] = max(keys.get(getattr(row, key), 0), ts or 0)
    excess = {host_id: len(keys) for host_id, keys in newest_by_key.items() if len(keys) > max_n}
    kept = {
        host_id: set(sorted(newest_by_key[host_id], key=newest_by_key[host_id].__getitem__)[-max_n:])
        for host_id in excess
    }
    rows = [row for row in checked.rows if row.host_id not in kept or getattr(row, key) in kept[row.host_id]]
    faults = {
        RowFault(host_id, table, f"{n:,} in this window: the newest {max_n:,} of a host are read")
        for host_id, n in excess.items()
    }
    return CheckedRows(rows, checked.faults | faults)
