"""`python -m pertoken.agent.shipper.child FOLDER`: a child of the agent that ships its host's telemetry to a server.

It reads the folder, never writes it, and may hang or be killed at any moment: the server knows how far it came, and a
batch that is sent again changes nothing. Its first line of input holds the settings, and each line after it asks for
one round; it ends when its input does. Its output is a line of JSON for each thing the agent should know, the last one
of a round being `done` or `failed`.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from sqlalchemy import create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from pertoken.agent.host.proc import own_boot_id
from pertoken.errors import PertokenError, StoreError
from pertoken.installed import install_command
from pertoken.store.central.server import Maintained, keep_partitions
from pertoken.store.connect.location import DatabaseServer, StoreLocation
from pertoken.store.connect.open import REVISIONS
from pertoken.store.connect.sqlite import catalog
from pertoken.store.schema.telemetry import HOUR
from pertoken.store.sync import (
    DAY,
    Batch,
    DifferingInterval,
    Local,
    LocalState,
    OlderServer,
    Row,
    Session,
    Standing,
    Sum,
    closed_until,
    differing,
    enter,
    take,
)
from pertoken.store.sync import ShipperIdentity as Identity
from pertoken.store.write.outbox import RAW, ROLLED

if TYPE_CHECKING:
    import psycopg


MARKS = 2000
"""Marks of one batch: about 0.5 to 5 MB of rows."""
ROWS = 20_000
"""Rows of one batch that goes by time, not by marks."""
_OLDER = "its tables are of an older pertoken: run `pertoken db init-fleet` there"
END_S = 5.0
"""How long a call under way may take to end once the agent is gone."""

Report = Callable[..., None]
"""Reports to the agent: acked=SEQ, kind=EVENT and message=TEXT, done=True, failed=TEXT; nothing as a sign of life."""


class Shipper:
    """Shipper of one folder, round after round. Everything it remembers only saves work."""

    def __init__(
        self, local: Local, server: DatabaseServer, report: Report, stop: threading.Event, boot_id: str | None = None
    ) -> None:
        self._local, self._server, self._report, self._stop = local, server, report, stop
        self._identity = Identity(secrets.randbits(62), boot_id or own_boot_id())
        self._spool_id: int | None = None
        self._batch = 0
        self._acked = 0
        self._identities_ts: int | None = None
        self._days: list[int] = []
        """Days yet to compare, newest last."""
        self._checked_hour: int | None = None
        self._maintained_day: int | None = None
        self._differed: dict[tuple[str, int], Sum] = {}

    def round(self) -> None:
        """Ship the rows that are there, compare the days that are due, and answer requests.

        Raises StoreError in one line; rows stored by then stay stored.
        """
        state = self._local.state()
        if state is None:
            return
        try:
            import psycopg
        except ModuleNotFoundError:
            raise StoreError(f"shipping needs psycopg: {install_command('postgres')}") from None
        connection = self._server.connect()
        try:
            with connection:
                connection.autocommit = True  # transactions are begun and ended by name
                session = self._enter(connection, state)
                self._drain(session)
                self._compare(session, state)
                self._answer(session, state)
            self._maintain(state)
        except OlderServer:
            raise StoreError(f"{self._server}: {_OLDER}") from None
        except (psycopg.Error, SQLAlchemyError) as error:
            raise StoreError(f"{self._server}: {self._server.message_of(error)}") from None

    def _enter(self, connection: psycopg.Connection[tuple[object, ...]], state: LocalState) -> Session:
        standing = enter(connection, state)
        if standing.schema in REVISIONS["telemetry"][:-1]:
            raise StoreError(f"{self._server}: {_OLDER}")
        restart = self._went_back(state, standing)
        session = take(connection, state, self._identity, standing, restart=restart)
        if restart:
            self._differed.clear()
        if restart or self._spool_id != state.spool_id:
            self._spool_id, self._identities_ts = state.spool_id, None
            self._plan(state, None if restart else standing.checked_ts)
        self._ages = standing.ages
        self._batch, self._acked = session.batch, 0 if restart else standing.seq
        self._report(acked=self._acked, batch=self._batch)
        if state.newest_ts > standing.now_ts + DAY:
            ahead_h = (state.newest_ts - standing.now_ts) // HOUR
            text = f"this host's clock is {ahead_h} h ahead of the server's: rows more than a day ahead are not stored"
            self._report(kind="ship_clock", message=text)
        if self._identities_ts is None or state.newest_ts - self._identities_ts >= DAY:
            self._send(session, self._local.identities(self._acked))
            self._identities_ts = state.newest_ts
        if restart or (standing.seq == 0 and standing.batch > 0):
            # Also after a round that failed before all of it was sent: no mark was shipped since.
            self._send_open_hour(session, state)
        return session

    def _send_open_hour(self, session: Session, state: LocalState) -> None:
        """Send the rows that are too new to be compared: their marks may be deleted."""
        for source in ROLLED:
            ((table, owner),) = source.tables
            rows = self._local.between(table, owner, state.owners[owner], closed_until(state), state.newest_ts + 1)
            for part in _parts(rows):
                self._send(session, Batch({table: part}, self._acked, again=True))

    def _went_back(self, state: LocalState, standing: Standing) -> bool:
        """Return whether this database or the server is an older copy of itself: neither is then as the other knew it.

        Raises StoreError where another machine is shipping a copy of this database.
        """
        last = standing.last
        another = last is not None and last.shipper_id != self._identity.shipper_id
        if (standing.chain is not None and not self._local.knows(standing.chain)) or state.last_seq < standing.seq:
            if another and standing.leased and last is not None and last.boot_id != self._identity.boot_id:
                text = (
                    "another machine ships a copy of this host's database: a clone needs a machine-id, a database and "
                    "a login of its own"
                )
                self._report(kind="ship_cloned", message=text)
                raise StoreError(text)
            text = "this host's database is not the one that shipped last, but an earlier copy: all of it is compared"
            self._report(kind="ship_restored", message=text)
            return True
        acked_batch = max(self._batch if self._spool_id == state.spool_id else 0, state.acked_batch or 0)
        if standing.batch < acked_batch or (self._spool_id == state.spool_id and standing.seq < self._acked):
            # What was acknowledged is gone: the server was replaced by a copy that lagged behind it.
            text = f"the server went back from batch {acked_batch} to {standing.batch}; all it holds is compared"
            self._report(kind="ship_lost", message=text)
            return True
        return False

    def _plan(self, state: LocalState, checked_ts: int | None) -> None:
        """Plan the days to compare: all of them, or the last two and those before `checked_ts`, never compared yet."""
        oldest = min(state.oldest_ts.values(), default=state.newest_ts) // DAY * DAY
        newest = state.newest_ts // DAY * DAY
        reached = newest + DAY if checked_ts is None else checked_ts
        self._days = [day for day in range(oldest, newest + 1, DAY) if day < reached or day >= newest - DAY]

    def _drain(self, session: Session) -> None:
        while not self._stop.is_set():
            batch = self._local.after(self._acked, MARKS)
            if batch is None:
                return
            self._send(session, batch)
            self._acked = batch.seq
            self._report(acked=batch.seq, batch=self._batch)

    def _send(self, session: Session, batch: Batch) -> None:
        session.send(batch)
        self._batch = session.batch
        self._report()

    def _compare(self, session: Session, state: LocalState) -> None:
        hour = state.newest_ts // HOUR
        if self._checked_hour is not None and hour != self._checked_hour:
            # What closed since, and one older day in turn: in a month everything that is kept.
            days = {state.newest_ts // DAY * DAY, (state.newest_ts - HOUR) // DAY * DAY}
            oldest = min(state.oldest_ts.values(), default=state.newest_ts) // DAY * DAY
            days_kept = max(1, (state.newest_ts - oldest) // DAY)
            days.add(state.newest_ts // DAY * DAY - hour % days_kept * DAY)
            self._days = sorted({*self._days, *days})
        self._checked_hour = hour
        while self._days and not self._stop.is_set():
            day = self._days[-1]
            for interval in differing(self._local, session, state, self._ages, day):
                self._again(session, interval)
                if self._stop.is_set():
                    return
            self._days.pop()
            session.note_checked(day)
            self._report()
            self._drain(session)  # what is new goes first

    def _again(self, session: Session, interval: DifferingInterval) -> None:
        key = interval.table.name, interval.start
        if self._differed.get(key) == interval.local_sum:
            # Sent once already. More rows than here: they are past their age here.
            if interval.server_sum[0] <= interval.local_sum[0]:
                self._report(
                    kind="ship_differs",
                    message=f"{interval.table.name}: the server keeps rows of a newer revision than this host's, "
                    "or refuses these",
                )
            return
        self._differed[key] = interval.local_sum
        for part in _parts(interval.rows):
            self._send(session, Batch({interval.table: part}, self._acked, again=True))

    def _answer(self, session: Session, state: LocalState) -> None:
        """Send the ticks that somebody asked for at the server."""
        for request in session.requests():
            sent = 0
            for part in self._ticks(state, request.start, min(request.end, state.newest_ts + 1)):
                self._send(session, part)
                sent += part.rows_n
            oldest = state.oldest_ts.get("host_sample", state.newest_ts)
            note = f"ticks before {oldest} are deleted on the host" if request.start < oldest else None
            session.note_answered(request, sent, note)

    def _maintain(self, state: LocalState) -> None:
        """Once a day keep the server's partitions where this login owns them; else `pertoken db maintain` does."""
        day = state.newest_ts // DAY
        if day == self._maintained_day:
            return
        self._maintained_day = day
        engine = create_engine("postgresql+psycopg://", creator=self._server.connect, poolclass=NullPool)
        with engine.connect() as connection:
            owns = "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'telemetry'"
            ((owned,),) = catalog(connection, owns)
            if owned:
                # By the server's clock too: that of one host must not drop what all of them shipped.
                ((server_ts,),) = catalog(connection, "SELECT extract(epoch FROM now())::bigint")
                connection.rollback()
                with suppress(Maintained):
                    keep_partitions(connection, min(state.newest_ts, server_ts))

    def _ticks(self, state: LocalState, start: int, end: int) -> Iterator[Batch]:
        for source in RAW:
            for table, owner in source.tables:
                oldest = state.oldest_ts.get(source.name, end)
                for hour in range(max(start, oldest), end, HOUR):
                    rows = self._local.between(table, owner, state.owners[owner], hour, min(hour + HOUR, end))
                    yield from (Batch({table: part}, self._acked) for part in _parts(rows))


def _parts(rows: list[Row]) -> Iterator[list[Row]]:
    for start in range(0, len(rows), ROWS):
        yield rows[start : start + ROWS]


def serve(shipper: Shipper, requests: SimpleQueue[str | None], report: Report, stop: threading.Event) -> None:
    """Do a round for each line of `requests`, until it yields None or `stop` is set."""
    while requests.get() is not None and not stop.is_set():
        try:
            shipper.round()
        except PertokenError as error:
            report(failed=str(error))
        else:
            report(done=True)


def main() -> None:
    """Read the settings, then ship when asked until the agent is gone."""
    with suppress(OSError):  # a service may be forbidden to
        os.nice(5)
    options = json.loads(sys.stdin.readline())
    requests: SimpleQueue[str | None] = SimpleQueue()
    stop = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            requests.put(line)
        stop.set()
        requests.put(None)
        time.sleep(END_S)
        os._exit(0)  # a call to a server that does not answer cannot be ended otherwise

    threading.Thread(target=listen, name="asked", daemon=True).start()

    def report(**values: object) -> None:
        print(json.dumps(values), flush=True)

    server = DatabaseServer.from_json(options["server"])
    shipper = Shipper(Local(StoreLocation(folder=Path(sys.argv[1]))), server, report, stop)
    try:
        serve(shipper, requests, report, stop)
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
