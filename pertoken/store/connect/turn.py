"""The right to be the one advisor of a database: a second one waits until the first ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pertoken.errors import StoreError, StoreInaccessible
from pertoken.schedule.jobs import ADVISOR
from pertoken.store.connect.location import ProgramLock, StoreLocation
from pertoken.store.connect.open import explained, reading, writing
from pertoken.store.connect.sqlite import catalog, set_local
from pertoken.store.schema.fleet import ADVISOR as ADVISOR_ROLE

if TYPE_CHECKING:
    from sqlalchemy import Connection

_HELD = (
    "EXISTS (SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted "
    "AND objsubid = 2 AND classid = :program AND objid = :lock AND pg_has_role(usename, :role, 'member') "
    "AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
)
"""Whether an advisor has the lock. Any login can take its key, so that the lock of another one stops no advisor."""
_VALUES = {"program": 1_886_745_968, "lock": 1, "role": ADVISOR_ROLE}
"""Key of the advisory lock, a number of this program and one of the advisor; and the role of advisors."""


def is_served(location: StoreLocation) -> bool:
    """Return whether an advisor serves a database. Raises StoreError if the server cannot be asked."""
    if location.folder is not None:
        return ProgramLock(location.file("advice").parent, ADVISOR).owner() is not None
    with explained(location), reading(location, "advice").connect() as connection:
        return bool(catalog(connection, f"SELECT {_HELD}", **_VALUES)[0][0])


class AdvisorTurn:
    """Lock of the one advisor on a database; the kernel or the server frees it however the process ends.

    On a server the lock belongs to a transaction that stays open, so that it holds behind PgBouncer too.
    """

    def __init__(self, location: StoreLocation) -> None:
        self._location = location
        folder = None if location.folder is None else location.file("advice").parent
        self._lock = None if folder is None else ProgramLock(folder, ADVISOR)
        self._held = False
        self._connection: Connection | None = None

    def take(self) -> bool:
        """Return whether this process has the turn, which it takes where it is free.

        Raises StoreError if the server cannot be asked, or the folder cannot be written.
        """
        if self._lock is not None:
            self._held = self._held or _acquired(self._lock)
            return self._held
        try:
            with explained(self._location):
                return self._take_on_server()
        except StoreError:
            self.release()
            raise

    def release(self) -> None:
        """Release the turn; harmless where it is not held."""
        if self._lock is not None:
            self._lock.release()
        if self._connection is not None:
            self._connection.invalidate()  # closes it, and asks nothing of a server that may be gone
            self._connection.close()
        self._connection, self._held = None, False

    def _take_on_server(self) -> bool:
        if self._connection is not None:
            catalog(self._connection, "SELECT 1")  # raises if the server ended the session, and the lock with it
            return True
        connection = writing(self._location, "advice").connect()
        try:
            set_local(connection, idle_in_transaction_session_timeout="0")
            take = f"SELECT pg_try_advisory_xact_lock(:program, :lock) OR NOT {_HELD}"
            ((taken,),) = catalog(connection, take, **_VALUES)
        except BaseException:
            connection.close()
            raise
        if taken:
            self._connection = connection
        else:
            connection.close()
        return bool(taken)


def _acquired(lock: ProgramLock) -> bool:
    try:
        lock.acquire()
    except StoreInaccessible:
        raise
    except StoreError:
        return False
    return True
