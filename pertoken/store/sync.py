"""Shipping from a host to a fleet's server: read what is marked, write it there, compare both.

Front door: `read` (`Local`, batches of marked rows), `write` (into the server), `check` (the hourly comparison).
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Boolean, Connection, Integer, SmallInteger, Table, bindparam, func, select

from pertoken.errors import StoreError
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import explained, reading
from pertoken.store.query.rollups import Query, fetch
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.fleet import ID_TAKEN
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.store.write.outbox import RAW, ROLLED, SOURCES, MarkSource

if TYPE_CHECKING:
    import psycopg


Row = tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows by table, as they are now; `seq` is the last mark they cover (unchanged where a cursor does not move)."""

    rows: dict[Table, list[Row]]
    seq: int
    again: bool = False
    """Whether they replace rows of the same revision: the server's differ from ours."""

    @property
    def rows_n(self) -> int:
        """Rows of all tables."""
        return sum(map(len, self.rows.values()))


@dataclass(frozen=True, slots=True)
class LocalState:
    """Identity of a host's database and its progress."""

    spool_id: int
    last_seq: int
    host_ids: tuple[int, ...]
    """The last one is the one that is recorded now."""
    newest_ts: int
    oldest_ts: dict[str, int]
    """Of ticks (`raw`) and of each roll-up table, where it holds any."""
    chain: tuple[int, int]
    """Sequence and checksum of the newest batch that was stored here (`telemetry.batch`)."""
    acked_batch: int | None
    """The server's count of batches when marks were last deleted."""
    owners: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Values of each owner column: host_id, device_id, epoch_id."""


class Local:
    """A host's telemetry, read only."""

    def __init__(self, location: StoreLocation) -> None:
        self._location, self._engine = location, reading(location, "telemetry")

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with explained(self._location), self._engine.connect() as connection, connection.begin():
            yield connection

    def state(self) -> LocalState | None:
        """Return whose database this is; None while nothing is to be shipped or nothing was recorded."""
        with self._reading() as connection:
            spool: Sequence[tuple[int, int, int | None]] = fetch(connection, _SPOOL)
            hosts: Sequence[tuple[int, int]] = fetch(connection, _HOSTS)
            if not spool or not hosts:
                return None
            ids = {name: _ids(connection, query) for name, query in _OWNER_IDS.items()}
            owners = {"host_id": tuple(host_id for host_id, _ in hosts), **ids}
            newest_ts = hosts[-1][1]
            ((spool_id, last_seq, acked_batch),) = spool
            chains: Sequence[tuple[int, int]] = fetch(connection, _NEWEST_BATCH)
            return LocalState(
                spool_id,
                last_seq,
                owners["host_id"],
                newest_ts,
                _oldest(connection, owners),
                chains[0] if chains else (0, 0),
                acked_batch,
                owners,
            )

    def knows(self, chain: tuple[int, int]) -> bool:
        """Return whether a batch was stored here with this sequence and checksum; also if batches of that time are
        deleted."""
        with self._reading() as connection:
            (oldest,) = _first_column(connection, _OLDEST_BATCH)
            stored: Sequence[tuple[int]] = fetch(connection, _BATCH, {"seq": chain[0]})
        return stored == [(chain[1],)] or (oldest is not None and chain[0] < oldest)

    def after(self, seq: int, at_most: int) -> Batch | None:
        """Return rows behind up to `at_most` marks after `seq`, oldest first; None if there is none."""
        with self._reading() as connection:
            marks: Sequence[tuple[str, int, int, int]] = fetch(connection, _MARKS, {"seq": seq, "at_most": at_most})
            if not marks:
                return None
            starts: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
            for name, owner_id, ts, _ in marks:
                starts[name][owner_id].append(ts)
            rows: dict[Table, list[Row]] = {}
            for name in sorted(starts):
                for table, owner in SOURCES[name].tables:
                    rows.setdefault(table, []).extend(_marked(connection, SOURCES[name], table, owner, starts[name]))
        return Batch(rows, marks[-1][3])

    def identities(self, seq: int) -> Batch:
        """Return every row without time: hosts, devices, epochs, events and what cannot be read."""
        tables = (t.host, t.device, t.engine, t.deployment, t.epoch, t.epoch_device, t.histogram_set)
        with self._reading() as connection:
            rows: dict[Table, list[Row]] = {
                table: list(fetch(connection, _all(table))) for table in (*tables, t.capability, t.event)
            }
        return Batch(rows, seq, again=True)

    def between(self, table: Table, owner: str, owners: Sequence[int], start: int, end: int) -> list[Row]:
        """Return a table's rows of some owners with start <= ts < end."""
        query, rows = _between(table, owner), list[Row]()
        with self._reading() as connection:
            for key in _keys(connection, table, owner, owners):
                rows += fetch(connection, query, {**key, "start": start, "end": end})
        return rows


_SPOOL = select(t.spool.c.spool_id, t.spool.c.last_seq, t.spool.c.acked_batch)
_NEWEST_BATCH = select(t.batch.c.seq, t.batch.c.chain).order_by(t.batch.c.seq.desc()).limit(1)
_OLDEST_BATCH = select(func.min(t.batch.c.seq))
_BATCH = select(t.batch.c.chain).where(t.batch.c.seq == bindparam("seq"))
_HOSTS = select(t.host.c.host_id, t.host.c.last_ts).order_by(t.host.c.last_ts)
_OWNER_IDS = {"device_id": select(t.device.c.device_id), "epoch_id": select(t.epoch.c.epoch_id)}
_MARKS = (
    select(t.outbox.c.source, t.outbox.c.owner_id, t.outbox.c.ts, t.outbox.c.seq)
    .where(t.outbox.c.seq > bindparam("seq"))
    .order_by(t.outbox.c.seq)
    .limit(bindparam("at_most"))
)


def _marked(
    connection: Connection, source: MarkSource, table: Table, owner: str, starts: Mapping[int, Sequence[int]]
) -> Iterator[Row]:
    """Yield the rows of a source's table behind its marks: the starts of buckets by owner."""
    if not source.bucket_s:
        for starts_of in starts:
            yield from fetch(connection, _of_owner(table, owner), {"owner": starts_of})
        return
    query = _between(table, owner)
    after = 1 if source in RAW else 0  # a tick is named by its end
    runs = {owner_id: _runs(sorted(buckets), source.bucket_s) for owner_id, buckets in starts.items()}
    for key in _keys(connection, table, owner, starts):
        for start, end in runs[key["owner"]]:
            yield from fetch(connection, query, {**key, "start": start + after, "end": end + after})


def _runs(starts: Iterable[int], bucket_s: int) -> list[tuple[int, int]]:
    """Return the (start, end) of buckets that follow each other: one question instead of one for each bucket."""
    runs: list[tuple[int, int]] = []
    for start in starts:
        if runs and runs[-1][1] == start:
            runs[-1] = runs[-1][0], start + bucket_s
        else:
            runs.append((start, start + bucket_s))
    return runs


def _middle(table: Table) -> str | None:
    """Return the key column that stands between the owner and the time, if one does."""
    second = list(table.primary_key)[1].name if len(table.primary_key) > 1 else None
    return second if second != "ts" and "ts" in table.c else None


def _ids(connection: Connection, query: Query) -> tuple[int, ...]:
    rows: Sequence[tuple[int]] = fetch(connection, query)
    return tuple(row_id for (row_id,) in rows)


def _first_column(connection: Connection, query: Query, **values: object) -> tuple[int | None, ...]:
    rows: Sequence[tuple[int | None]] = fetch(connection, query, values)
    return tuple(value for (value,) in rows)


def _keys(connection: Connection, table: Table, owner: str, owners: Iterable[int]) -> Iterator[dict[str, int]]:
    """Yield beginnings of a table's key: each owner with each value that stands between it and the time.

    They are found by seeking from one to the next: reading all rows of an owner would grow with its history.
    """
    if _middle(table) is None:
        yield from ({"owner": owner} for owner in owners)
        return
    first, following = _seeks(table, owner)
    for owner_id in owners:
        (value,) = _first_column(connection, first, owner=owner_id)
        while value is not None:
            yield {"owner": owner_id, "middle": value}
            (value,) = _first_column(connection, following, owner=owner_id, after=value)


def _oldest(connection: Connection, owners: Mapping[str, Sequence[int]]) -> dict[str, int]:
    oldest: dict[str, int] = {}
    for table, owner in (source.tables[0] for source in SOURCES.values() if source.bucket_s):
        query = _first(table, owner)
        starts = [_first_column(connection, query, **key)[0] for key in _keys(connection, table, owner, owners[owner])]
        if recorded := [ts for ts in starts if ts is not None]:
            oldest[table.name] = min(recorded)
    return oldest


@cache
def _all(table: Table) -> Query:
    return select(table)


@cache
def _first(table: Table, owner: str) -> Query:
    return _of_key(select(func.min(table.c.ts)), table, owner)


@cache
def _between(table: Table, owner: str) -> Query:
    return _of_key(select(table), table, owner).where(table.c.ts >= bindparam("start"), table.c.ts < bindparam("end"))


@cache
def _of_owner(table: Table, owner: str) -> Query:
    if table is t.epoch_device:
        epochs = select(t.epoch.c.epoch_id).where(t.epoch.c[owner] == bindparam("owner"))
        return select(table).where(table.c.epoch_id.in_(epochs))
    return select(table).where(table.c[owner] == bindparam("owner"))


@cache
def _seeks(table: Table, owner: str) -> tuple[Query, Query]:
    """Return the first value between an owner and the time, and the one after another."""
    middle = table.c[_middle(table) or ""]
    first = select(func.min(middle)).where(table.c[owner] == bindparam("owner"))
    return first, first.where(middle > bindparam("after"))


def _of_key(query: Query, table: Table, owner: str) -> Query:
    query = query.where(table.c[owner] == bindparam("owner"))
    middle = _middle(table)
    return query if middle is None else query.where(table.c[middle] == bindparam("middle"))


_WAIT = "SET LOCAL statement_timeout = '120s'; SET LOCAL lock_timeout = '30s'"
_NUMBERS = (BigInteger, Integer, SmallInteger, Boolean)
_SPECIAL = re.compile(r"^$|[\"\\(),\s]")
_OWNER_TABLES = (t.host, t.device, t.engine, t.deployment, t.epoch, t.epoch_device)
_ORDER = (*_OWNER_TABLES, *(table for table in t.metadata.sorted_tables if table not in _OWNER_TABLES))
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
class ShipperIdentity:
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
    last: ShipperIdentity | None
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


def enter(connection: psycopg.Connection, state: LocalState) -> Standing:
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
    shipper_id, chain_seq = cursor["shipper_id"], cursor["chain_seq"]
    return Standing(
        cursor["batch"],
        cursor["seq"],
        cursor["checked_ts"] or None,
        None if shipper_id is None else ShipperIdentity(shipper_id, cursor["boot_id"]),
        (chain_seq, cursor["chain"]) if chain_seq else None,
        cursor["leased"],
        cursor["now_ts"],
        cursor["ages"],
        cursor["schema"],
        {int(key): value for key, value in cursor["aliases"].items()},
    )


class Session:
    """One round at the server: batches one after the other, each whole or not at all."""

    def __init__(
        self,
        connection: psycopg.Connection,
        state: LocalState,
        shipper: ShipperIdentity,
        standing: Standing,
        batch: int,
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
        local_ids = {alias: local_id for local_id, alias in self._aliases.items()}
        with self._connection.transaction():
            query = "SELECT fleet.rename(%s, %s::bigint[])"
            renamed = _one(
                self._connection,
                query,
                (self._state.host_ids[-1], [local_ids.get(stored_id, stored_id) for stored_id in ids]),
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
        id_positions = {i for i, column in enumerate(table.columns) if column.name in _IDS}
        aliases: dict[int | str | None, int] = {local_id: stored_id for local_id, stored_id in self._aliases.items()}
        if not any(row[i] in aliases for row in rows for i in id_positions):
            return rows
        return [
            tuple([aliases.get(value, value) if i in id_positions else value for i, value in enumerate(row)])
            for row in rows
        ]

    def owners(self, owners: Sequence[int]) -> list[int]:
        """Return the ids that owners have at the server."""
        return [self._aliases.get(owner, owner) for owner in owners]

    def sums(
        self, table: Table, owners: Sequence[int], start: int, end: int, interval_s: int
    ) -> dict[int, tuple[int, int]]:
        """Return count and checksum of rows by the start of each interval, as the server has them."""
        names = [column.name for column in table.columns]
        with self._connection.transaction():
            self._connection.execute("SET LOCAL statement_timeout = '120s'")
            query = "SELECT * FROM fleet.sums(%s, %s::text[], %s::bigint[], %s, %s, %s)"
            rows = self._connection.execute(query, (table.name, names, self.owners(owners), start, end, interval_s))
            return {start_ts: (n, int(total)) for start_ts, n, total in rows}

    def note_checked(self, checked_ts: int) -> None:
        """Note that everything from `checked_ts` on was compared once."""
        with self._connection.transaction():
            values = self._state.spool_id, self._shipper.shipper_id, checked_ts
            self._connection.execute("SELECT fleet.note_checked(%s, %s, %s)", values)

    def requests(self) -> list[TickRequest]:
        """Return what is asked for of these hosts and not answered yet, oldest first."""
        with self._connection.transaction():
            query = "SELECT * FROM fleet.requests(%s::bigint[])"
            return [TickRequest(*row) for row in self._connection.execute(query, (list(self._state.host_ids),))]

    def note_answered(self, request: TickRequest, rows_n: int, note: str | None) -> None:
        """Note that a request was answered, by how many rows, and what of it could not be."""
        with self._connection.transaction():
            self._connection.execute("SELECT fleet.answered(%s, %s, %s)", (request.request_id, rows_n, note))


def take(
    connection: psycopg.Connection, state: LocalState, shipper: ShipperIdentity, standing: Standing, *, restart: bool
) -> Session:
    """Begin to ship as the one shipper of this database; with `restart`, nothing that the server holds is trusted."""
    with connection.transaction():
        values = state.spool_id, shipper.shipper_id, shipper.boot_id, restart, state.acked_batch or 0
        batch = _one(connection, "SELECT fleet.take(%s, %s, %s, %s, %s)", values)
    return Session(connection, state, shipper, standing, batch)


@dataclass(frozen=True, slots=True)
class TickRequest:
    """Ticks that somebody asked for at the server, by their time."""

    request_id: int
    start: int
    end: int


def put(
    connection: psycopg.Connection, table: Table, rows: Sequence[Row], columns: list[str], *, again: bool = False
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


def _array(values: Sequence[object], numbers: bool) -> str:
    if numbers:
        return "{" + ",".join(map(str, values)).replace("None", "NULL") + "}"
    return "{" + ",".join(["NULL" if value is None else _element(str(value)) for value in values]) + "}"


def _element(text: str) -> str:
    return '"' + text.replace("\0", "").replace("\\", "\\\\").replace('"', '\\"') + '"'


def _one(connection: psycopg.Connection, query: str, parameters: Sequence[object]) -> Any:
    row = connection.execute(query, parameters).fetchone()
    if row is None or row[0] is None:
        raise StoreError("the server does not show this host's row: is its login still enrolled?")
    return row[0]


DAY = 86_400
_SETTLE_S = 2 * MINUTE
"""How long after its end an hour may still be recomputed by the rows of its last minute."""

Sum = tuple[int, int]
"""(rows, checksum)"""


@dataclass(frozen=True, slots=True, eq=False)
class DifferingInterval:
    """Rows of one table over an interval in which the two sides differ."""

    table: Table
    owner: str
    start: int
    rows: list[Row]
    local_sum: Sum
    server_sum: Sum


def differing(
    local: Local, session: Session, state: LocalState, ages: dict[str, int], day: int
) -> Iterator[DifferingInterval]:
    """Yield intervals of the day that begins at `day` (Unix s) in which the server does not hold what this host does.

    Minutes are compared by the hour, hours by the day, and only what is over and still kept at the server. The oldest
    hour here may be half deleted: then the server holds more of it, which is no loss.
    """
    closed = closed_until(state)
    for source in ROLLED:
        table, owner = source.tables[0]
        oldest = state.oldest_ts.get(table.name)
        if oldest is None:
            continue
        kept_from = state.newest_ts - ages["1m" if source.bucket_s == MINUTE else "1h"] + HOUR
        start = max(day, oldest // HOUR * HOUR, -(-kept_from // HOUR) * HOUR)
        end = min(day + DAY, closed)
        if start >= end:
            continue
        interval_s = HOUR if source.bucket_s == MINUTE else DAY
        owners = state.owners[owner]
        local_rows: dict[int, list[Row]] = {}
        ts = [column.name for column in table.columns].index("ts")
        for row in local.between(table, owner, owners, start, end):
            local_rows.setdefault(int(row[ts] or 0) // interval_s * interval_s, []).append(row)
        server_sums = session.sums(table, owners, start, end, interval_s)
        for interval_start, rows in sorted(local_rows.items()):
            local_sum = checksum(session.named(table, rows))
            if server_sums.get(interval_start) != local_sum:
                yield DifferingInterval(
                    table, owner, interval_start, rows, local_sum, server_sums.get(interval_start, (0, 0))
                )


def closed_until(state: LocalState) -> int:
    """Return the end of the last hour that is compared: later ones may still be recomputed."""
    return (state.newest_ts - _SETTLE_S) // HOUR * HOUR


def checksum(rows: Sequence[Row]) -> Sum:
    """Return count and checksum of rows as SQLite gives them."""
    total = 0
    for row in rows:
        text = ",".join(["~" if value is None else str(value) for value in row])
        total += int.from_bytes(sha256(text.encode()).digest()[:8]) >> 4
    return len(rows), total
