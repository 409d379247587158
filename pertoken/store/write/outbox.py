"""Outbox of rows to be shipped: a mark for every row that changed, with a sequence of this file's own.

A mark names its rows by source, owner and bucket; a row that changes again moves its mark to a new sequence, so that
shipping is what lies behind a cursor, in whatever order of time rows were written. Marks are written in the
transaction of the rows themselves and deleted when the server has acknowledged them.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from pertoken.store.connect.sqlite import run_many
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.telemetry import MINUTE
from pertoken.store.write.rollup import ROLLUPS, replacing

_COLUMNS = tuple(column.name for column in t.outbox.columns)
Mark = tuple[str, int, int]
"""(source, owner_id, ts)"""


@dataclass(frozen=True, slots=True, eq=False)
class MarkSource:
    """Rows that one kind of mark stands for: tables, and the column of each that holds the mark's owner."""

    name: str
    tables: tuple[tuple[Table, str], ...]
    bucket_s: int = 0
    """Length of the bucket; 0: rows without time."""


IDENTITY = MarkSource(
    "host", ((t.host, "host_id"), (t.device, "host_id"), (t.engine, "host_id"), (t.deployment, "host_id"))
)
EPOCH = MarkSource("epoch", ((t.epoch, "deployment_id"), (t.epoch_device, "deployment_id")))
HISTOGRAM_SET = MarkSource("histogram_set", ((t.histogram_set, "bucket_set_id"),))
CAPABILITY = MarkSource("capability", ((t.capability, "owner_id"),))
EVENT = MarkSource("event", ((t.event, "event_id"),))
UNTIMED = (IDENTITY, EPOCH, HISTOGRAM_SET, CAPABILITY, EVENT)
ROLLED = tuple(
    MarkSource(table.name, ((table, rollup.owner),), seconds)
    for rollup in ROLLUPS
    for seconds, table in rollup.tables.items()
)
RAW = tuple(
    MarkSource(
        rollup.samples.name,
        ((rollup.samples, rollup.owner), *(((t.agent_sample, "host_id"),) if rollup.name == "host" else ())),
        MINUTE,
    )
    for rollup in ROLLUPS
)
"""Ticks, by the minute they belong to."""
SOURCES = {source.name: source for source in (*UNTIMED, *ROLLED, *RAW)}
_RAW_OF = {rollup.tables[MINUTE].name: rollup.samples.name for rollup in ROLLUPS}


def switch(connection: Connection, on: bool, raw: bool = False) -> None:
    """Begin or end marking. Off forgets what was not shipped; on again takes it up by comparing with the server."""
    spool_id = connection.execute(select(t.spool.c.spool_id)).scalar()
    if not on:
        connection.execute(delete(t.outbox))
        connection.execute(delete(t.spool))
    elif spool_id is None:
        connection.execute(insert(t.spool).values(spool_id=secrets.randbits(62), last_seq=0, raw=int(raw)))
    else:
        connection.execute(update(t.spool).values(raw=int(raw)))


def marking(connection: Connection) -> bool:
    """Return whether this database is shipped from."""
    return connection.execute(select(t.spool.c.spool_id)).first() is not None


def mark(connection: Connection, marks: Iterable[Mark]) -> None:
    """Mark rows as changed, in the caller's transaction. Nothing happens where nothing is shipped."""
    spool = connection.execute(select(t.spool)).first()
    if spool is None:
        return
    due: dict[Mark, int] = {}
    for mark in marks:
        due[mark] = 0
        if spool.raw and mark[0] in _RAW_OF:
            due[_RAW_OF[mark[0]], mark[1], mark[2]] = 0
    if not due:
        return
    seq = spool.last_seq
    rows = [(source, owner_id, ts, seq + n) for n, (source, owner_id, ts) in enumerate(due, 1)]
    run_many(connection, replacing(connection.dialect.name, t.outbox, ()), _COLUMNS, rows)
    connection.execute(update(t.spool).values(last_seq=seq + len(rows)))


def settle(connection: Connection, seq: int, limit: int, batch: int | None = None) -> int:
    """Delete up to `limit` marks that the server holds (up to `seq`), oldest first; returns how many.

    The number of its last batch, if given, is kept: a server that has fewer later lost what these marks stood for.
    """
    oldest = connection.execute(select(func.min(t.outbox.c.seq))).scalar()
    if oldest is None or oldest > seq:
        return 0
    if batch is not None:
        connection.execute(update(t.spool).values(acked_batch=batch))
    return connection.execute(delete(t.outbox).where(t.outbox.c.seq <= min(seq, oldest + limit - 1))).rowcount


def bound(connection: Connection, most: int) -> tuple[int, int]:
    """Keep the oldest marks from being more than `most`: those of ticks go first, roll-ups only when none is left.

    Returns (marks of ticks given up, marks of roll-ups left to the comparison with the server).
    """
    over = connection.execute(select(func.count()).select_from(t.outbox)).scalar_one() - most
    if over <= 0:
        return 0, 0
    raw = _oldest(connection, [source.name for source in RAW], over)
    rest = _oldest(connection, [rolled.name for rolled in ROLLED], over - raw) if over > raw else 0
    return raw, rest


def give_up(connection: Connection, before_ts: int) -> int:
    """Delete the marks of ticks that are deleted themselves, those before `before_ts`; returns how many."""
    names = [source.name for source in RAW]
    old = t.outbox.c.source.in_(names), t.outbox.c.ts < before_ts - MINUTE
    return connection.execute(delete(t.outbox).where(*old)).rowcount


def _oldest(connection: Connection, sources: Sequence[str], n: int) -> int:
    marks = t.outbox.alias()
    oldest = select(marks.c.seq).where(marks.c.source.in_(sources)).order_by(marks.c.seq).limit(n)
    return connection.execute(delete(t.outbox).where(t.outbox.c.seq.in_(oldest))).rowcount
