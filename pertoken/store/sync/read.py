"""Reads of a shipper on its host's own database: marks behind a cursor, and the rows they stand for.

Plain tuples of the fast-row reader, since a batch is thousands of them. Every read is short, so that the writer's WAL
stays small.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, Table, bindparam, func, select

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import explained, reading
from pertoken.store.query.fast_rows import fetch
from pertoken.store.schema import telemetry as t
from pertoken.store.write.outbox import RAW, SOURCES, Source

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
            spool = fetch(connection, _SPOOL)
            hosts = fetch(connection, _HOSTS)
            if not spool or not hosts:
                return None
            ids = {name: tuple(value for (value,) in fetch(connection, query)) for name, query in _OWNERS.items()}
            owners = {"host_id": tuple(host_id for host_id, _ in hosts), **ids}
            newest_ts = hosts[-1][1]
            ((spool_id, last_seq, acked_batch),) = spool
            chain = next(iter(fetch(connection, _NEWEST_BATCH)), (0, 0))
            return LocalState(
                spool_id,
                last_seq,
                owners["host_id"],
                newest_ts,
                _oldest(connection, owners),
                chain,
                acked_batch,
                owners,
            )

    def knows(self, chain: tuple[int, int]) -> bool:
        """Return whether a batch was stored here with this sequence and checksum; also if batches of that time are
        deleted."""
        with self._reading() as connection:
            ((oldest,),) = fetch(connection, _OLDEST_BATCH)
            stored = fetch(connection, _BATCH, {"seq": chain[0]})
        return stored == [(chain[1],)] or (oldest is not None and chain[0] < oldest)

    def after(self, seq: int, at_most: int) -> Batch | None:
        """Return rows behind up to `at_most` marks after `seq`, oldest first; None if there is none."""
        with self._reading() as connection:
            marks = fetch(connection, _MARKS, {"seq": seq, "at_most": at_most})
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
            rows = {table: list(fetch(connection, _all(table))) for table in (*tables, t.capability, t.event)}
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
_OWNERS = {"device_id": select(t.device.c.device_id), "epoch_id": select(t.epoch.c.epoch_id)}
_MARKS = (
    select(t.outbox.c.source, t.outbox.c.owner_id, t.outbox.c.ts, t.outbox.c.seq)
    .where(t.outbox.c.seq > bindparam("seq"))
    .order_by(t.outbox.c.seq)
    .limit(bindparam("at_most"))
)


def _marked(
    connection: Connection, source: Source, table: Table, owner: str, starts: Mapping[int, Sequence[int]]
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


def _keys(connection: Connection, table: Table, owner: str, owners: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Yield beginnings of a table's key: each owner with each value that stands between it and the time.

    They are found by seeking from one to the next: reading all rows of an owner would grow with its history.
    """
    if _middle(table) is None:
        yield from ({"owner": owner} for owner in owners)
        return
    first, following = _seeks(table, owner)
    for owner_id in owners:
        ((value,),) = fetch(connection, first, {"owner": owner_id})
        while value is not None:
            yield {"owner": owner_id, "middle": value}
            ((value,),) = fetch(connection, following, {"owner": owner_id, "after": value})


def _oldest(connection: Connection, owners: Mapping[str, Sequence[int]]) -> dict[str, int]:
    oldest: dict[str, int] = {}
    for table, owner in (source.tables[0] for source in SOURCES.values() if source.bucket_s):
        query = _first(table, owner)
        starts = [fetch(connection, query, key)[0][0] for key in _keys(connection, table, owner, owners[owner])]
        if known := [ts for ts in starts if ts is not None]:
            oldest[table.name] = min(known)
    return oldest


@cache
def _all(table: Table) -> Select[Any]:
    return select(table)


@cache
def _first(table: Table, owner: str) -> Select[Any]:
    """Return the oldest row of a beginning of the key."""
    return _of_key(select(func.min(table.c.ts)), table, owner)


@cache
def _between(table: Table, owner: str) -> Select[Any]:
    return _of_key(select(table), table, owner).where(table.c.ts >= bindparam("start"), table.c.ts < bindparam("end"))


@cache
def _of_owner(table: Table, owner: str) -> Select[Any]:
    if table is t.epoch_device:
        epochs = select(t.epoch.c.epoch_id).where(t.epoch.c[owner] == bindparam("owner"))
        return select(table).where(table.c.epoch_id.in_(epochs))
    return select(table).where(table.c[owner] == bindparam("owner"))


@cache
def _seeks(table: Table, owner: str) -> tuple[Select[Any], Select[Any]]:
    """Return the first value between an owner and the time, and the one after another."""
    middle = table.c[_middle(table) or ""]
    first = select(func.min(middle)).where(table.c[owner] == bindparam("owner"))
    return first, first.where(middle > bindparam("after"))


def _of_key(query: Select[Any], table: Table, owner: str) -> Select[Any]:
    query = query.where(table.c[owner] == bindparam("owner"))
    middle = _middle(table)
    return query if middle is None else query.where(table.c[middle] == bindparam("middle"))
