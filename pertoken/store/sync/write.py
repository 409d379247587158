"""Rows into a fleet's server: one transaction for a batch and the cursor that records it.

An agent's login has no right on any table. It calls the functions of `store.central.functions`, which check whose rows
it brings, over psycopg alone: a table's rows go as one array for each column, written out as text. Nothing is kept in
the session from one transaction to the next, so that a pooler may hand each to another one.
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Boolean, Integer, SmallInteger, Table

from pertoken.errors import StoreError
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.fleet import ID_TAKEN
from pertoken.store.sync.read import Batch, LocalState, Row

if TYPE_CHECKING:
    import psycopg

_WAIT = "SET LOCAL statement_timeout = '120s'; SET LOCAL lock_timeout = '30s'"
_NUMBERS = (BigInteger, Integer, SmallInteger, Boolean)
_SPECIAL = re.compile(r"^$|[\"\\(),\s]")
_OWNERS = (t.host, t.device, t.engine, t.deployment, t.epoch, t.epoch_device)
_ORDER = (*_OWNERS, *(table for table in t.metadata.sorted_tables if table not in _OWNERS))
"""Rows whose owner the server does not know yet are refused."""
_IDS = frozenset(
    (
        *("device_id", "engine_id", "deployment_id", "epoch_id", "event_id", "bucket_set_id"),
        *("owner_id", "parent_id", "subject_id"),
    )
)
"""Columns that hold ids that may be another one at the server."""
MAX_RENAMED = 8
"""Attempts to store a batch whose ids another host has: each may find those of one more kind."""
_UNKNOWN_FUNCTION, _NO_SCHEMA = "42883", "3F000"


class Overtaken(StoreError):
    """The cursor is not where it was left: another batch got there, or the server lost some."""


class OlderServer(StoreError):
    """The server has no functions for agents: an older pertoken made it ready."""


@dataclass(frozen=True, slots=True)
class Shipper:
    """Identity of a shipper: an id drawn when the process began, and the boot of its machine."""

    shipper_id: int
    boot_id: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    """State of one database at the server."""

    batch: int
    seq: int
    checked_ts: int | None
    """From here on everything was compared once; None before anything was."""
    last: Shipper | None
    """Who shipped last; None before anybody did."""
    chain: tuple[int, int] | None
    """Where that database's chain of batches was then: sequence and checksum."""
    leased: bool
    """Whether the last batch is so new that another machine may still be shipping."""
    now_ts: int
    """The server's clock."""
    ages: dict[str, int]
    """Seconds for which the server keeps `raw`, `1m` and `1h`."""
    schema: str
    aliases: dict[int, int]
    """Ids at the server, by id here, where they differ."""


def enter(connection: "psycopg.Connection[Any]", state: LocalState) -> Standing:
    """Claim the hosts of a database, make its cursor if there is none, and return where it stands."""
    import psycopg

    try:
        with connection.transaction():
            connection.execute(_WAIT)
            cursor = _one(connection, "SELECT fleet.enter(%s, %s::bigint[])", (state.spool_id, list(state.host_ids)))
    except psycopg.Error as error:
        if error.sqlstate in (_UNKNOWN_FUNCTION, _NO_SCHEMA):
            raise OlderServer("its functions for agents are of an older pertoken") from None
        raise
    known = cursor["shipper_id"], cursor["chain_seq"]
    return Standing(
        cursor["batch"],
        cursor["seq"],
        cursor["checked_ts"] or None,
        None if known[0] is None else Shipper(known[0], cursor["boot_id"]),
        (known[1], cursor["chain"]) if known[1] else None,
        cursor["leased"],
        cursor["now_ts"],
        cursor["ages"],
        cursor["schema"],
        {int(key): value for key, value in cursor["aliases"].items()},
    )


class Session:
    """One round at the server: batches one after the other, each whole or not at all."""

    def __init__(
        self, connection: "psycopg.Connection[Any]", state: LocalState, shipper: Shipper, standing: Standing, batch: int
    ) -> None:
        """`batch` is the number of the last batch at the server."""
        self.batch = batch
        self._connection, self._state, self._shipper = connection, state, shipper
        self._aliases = standing.aliases

    def send(self, batch: Batch) -> None:
        """Store a batch after the last one.

        A row of an older revision never replaces a newer. Raises Overtaken if another batch was stored meanwhile,
        StoreError if a row was stored with other values than were sent.
        """
        import psycopg

        for attempt in range(MAX_RENAMED):
            try:
                self._store(batch)
                break
            except psycopg.Error as error:
                if error.sqlstate != ID_TAKEN or attempt == MAX_RENAMED - 1:
                    raise
                self._rename([int(name) for name in (error.diag.message_detail or "").split(",")])
        self.batch += 1

    def _rename(self, ids: list[int]) -> None:
        """Get ids of this host's own for those that another host has."""
        stored = {alias: own for own, alias in self._aliases.items()}
        with self._connection.transaction():
            query = "SELECT fleet.rename(%s, %s::bigint[])"
            renamed = _one(
                self._connection,
                query,
                (self._state.host_ids[-1], [stored.get(local_id, local_id) for local_id in ids]),
            )
        self._aliases |= {int(key): value for key, value in renamed.items()}

    def _store(self, batch: Batch) -> None:
        tables = {table: self.named(table, rows) for table, rows in batch.rows.items() if rows}
        columns = {table: _columns(table, rows) for table, rows in tables.items()}
        crc = 0
        for column_values in columns.values():
            for column in column_values:
                crc = zlib.crc32(column.encode(), crc)
        state, connection = self._state, self._connection
        with connection.transaction():
            connection.execute(_WAIT)
            # First, for the lock: an older batch still under way at the server ends before this one begins.
            values = (state.spool_id, self._shipper.shipper_id, self.batch, batch.seq, batch.rows_n, crc, *state.chain)
            if not _one(connection, "SELECT fleet.advance(%s, %s, %s, %s, %s, %s, %s, %s)", values):
                raise Overtaken("the server's cursor is elsewhere")
            for table in _ORDER:
                if table in columns:
                    put(connection, table, tables[table], columns[table], again=batch.again)

    def named(self, table: Table, rows: Sequence[Row]) -> Sequence[Row]:
        """Return rows with the ids that they have at the server, in an order in which hosts never wait in a circle."""
        if table is t.histogram_set:  # the one table that hosts share
            rows = sorted(rows, key=repr)
        if not self._aliases:
            return rows
        at = {i for i, column in enumerate(table.columns) if column.name in _IDS}
        known: dict[Any, int] = dict(self._aliases)
        if not any(row[i] in known for row in rows for i in at):
            return rows
        return [tuple([known.get(value, value) if i in at else value for i, value in enumerate(row)]) for row in rows]

    def owners(self, owners: Sequence[int]) -> list[int]:
        """Return the ids that owners have at the server."""
        return [self._aliases.get(owner, owner) for owner in owners]

    def sums(self, table: Table, owners: Sequence[int], start: int, end: int, span: int) -> dict[int, tuple[int, int]]:
        """Return count and checksum of rows by the start of each span, as the server has them."""
        names = [column.name for column in table.columns]
        with self._connection.transaction():
            self._connection.execute("SET LOCAL statement_timeout = '120s'")
            query = "SELECT * FROM fleet.sums(%s, %s::text[], %s::bigint[], %s, %s, %s)"
            rows = self._connection.execute(query, (table.name, names, self.owners(owners), start, end, span))
            return {at: (n, int(total)) for at, n, total in rows}

    def note_checked(self, checked_ts: int) -> None:
        """Note that everything from `checked_ts` on was compared once."""
        with self._connection.transaction():
            values = self._state.spool_id, self._shipper.shipper_id, checked_ts
            self._connection.execute("SELECT fleet.note_checked(%s, %s, %s)", values)

    def requests(self) -> list["Request"]:
        """Return what is asked for of these hosts and not answered yet, oldest first."""
        with self._connection.transaction():
            query = "SELECT * FROM fleet.requests(%s::bigint[])"
            return [Request(*row) for row in self._connection.execute(query, (list(self._state.host_ids),))]

    def note_answered(self, request: "Request", rows_n: int, note: str | None) -> None:
        """Note that a request was answered, by how many rows, and what of it could not be."""
        with self._connection.transaction():
            self._connection.execute("SELECT fleet.answered(%s, %s, %s)", (request.request_id, rows_n, note))


def take(
    connection: "psycopg.Connection[Any]", state: LocalState, shipper: Shipper, standing: Standing, *, restart: bool
) -> Session:
    """Begin to ship as the one shipper of this database; with `restart`, nothing that the server holds is trusted."""
    with connection.transaction():
        values = state.spool_id, shipper.shipper_id, shipper.boot_id, restart, state.acked_batch or 0
        batch = _one(connection, "SELECT fleet.take(%s, %s, %s, %s, %s)", values)
    return Session(connection, state, shipper, standing, batch)


@dataclass(frozen=True, slots=True)
class Request:
    """Ticks that somebody asked for at the server, by their time."""

    request_id: int
    start: int
    end: int


def put(
    connection: "psycopg.Connection[Any]", table: Table, rows: Sequence[Row], columns: list[str], *, again: bool = False
) -> None:
    """Store rows of one table, within the caller's transaction; `columns` are the same rows as `_columns` writes them.

    Of a table by time the server returns each row as it stored it (those it held already it leaves), which has to be
    one that was sent. Raises StoreError if it is not.
    """
    names = [column.name for column in table.columns]
    stored = connection.execute("SELECT fleet.put(%s, %s::text[], %s, %s::text[])", (table.name, names, again, columns))
    if not {stored_id for (stored_id,) in stored} <= set(map(_record, rows)):
        raise StoreError(f"{table.name}: the server stored other values than were sent")


def _record(row: Row) -> str:
    """Return a row as PostgreSQL writes a record."""
    values = ["" if value is None else _quoted(value) if value.__class__ is str else str(value) for value in row]
    return f"({','.join(values)})"


def _quoted(text: str) -> str:
    text = text.replace("\0", "")
    if not _SPECIAL.search(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'


def _columns(table: Table, rows: Sequence[Row]) -> list[str]:
    """Return the columns of rows, each as PostgreSQL reads an array."""
    return [_array(values, numbers) for values, numbers in zip(zip(*rows, strict=True), _numbers(table), strict=True)]


@cache
def _numbers(table: Table) -> tuple[bool, ...]:
    return tuple(isinstance(column.type, _NUMBERS) for column in table.columns)


def _array(values: Sequence[Any], numbers: bool) -> str:
    if numbers:
        return "{" + ",".join(map(str, values)).replace("None", "NULL") + "}"
    return "{" + ",".join(["NULL" if value is None else _element(str(value)) for value in values]) + "}"


def _element(text: str) -> str:
    return '"' + text.replace("\0", "").replace("\\", "\\\\").replace('"', '\\"') + '"'


def _one(connection: "psycopg.Connection[Any]", query: str, parameters: Sequence[Any]) -> Any:
    row = connection.execute(query, parameters).fetchone()
    if row is None or row[0] is None:
        raise StoreError("the server does not show this host's row: is its login still enrolled?")
    return row[0]
