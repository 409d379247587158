"""The databases that are shown: a fleet of hosts in one SQLite file, which goes on recording while it is watched.

They are made as those of `benchmarks.advise`: hours for `DAYS`, minutes for `MINUTES_S`. A host is heard of once a
minute, as at the server of a fleet.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.advise import MINUTE, make, roll_ups
from pertoken.store.connect.location import locate

DAYS, MINUTES_S = 30, 86_400
IDLE_OF = 200
"""Deployments for each idle host that `benchmarks.advise` adds."""
SIGNS_OF_LIFE_S = 2.0
"""Time between two commits while a fleet is watched: each is of a thirtieth of the hosts."""


class Recorded:
    """One database: `hosts` of `gpus` each."""

    def __init__(self, folder: Path, hosts: int, gpus: int, *, days: int = DAYS, minutes_s: int = MINUTES_S) -> None:
        self.folder, self.hosts = folder, hosts
        self._until = int(time.time()) // MINUTE * MINUTE
        deployments = hosts * gpus
        while deployments // gpus + max(1, deployments // IDLE_OF) > hosts:
            deployments -= gpus
        make(folder, deployments, days, self._until, minutes_s=minutes_s, gpus=gpus)
        self._file = locate(str(folder)).file("telemetry")
        with closing(self._open()) as connection:
            connection.execute("UPDATE host SET interval_s = ?", (MINUTE,))
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def advance(self) -> None:
        """Record until now, so that no host is stale."""
        with closing(self._open()) as connection:
            self._advance(connection)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record within the block: a commit every two seconds, and minutes as they end."""
        stop = threading.Event()

        def run() -> None:
            with closing(self._open()) as connection:
                n = 0
                while not stop.wait(SIGNS_OF_LIFE_S):
                    self._advance(connection)
                    n += 1
                    hosts = (int(time.time()), n % 30)
                    connection.execute("UPDATE host SET last_ts = ? WHERE host_id % 30 = ?", hosts)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._file, isolation_level=None, timeout=30)
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    def _advance(self, connection: sqlite3.Connection) -> None:
        now = int(time.time()) // MINUTE * MINUTE
        if now <= self._until:
            return
        connection.execute("BEGIN")
        for table in ("host", "device", "engine", "deployment"):
            connection.execute(f"UPDATE {table} SET last_ts = ?", (now - 1,))
        connection.execute("CREATE TEMP TABLE IF NOT EXISTS bucket(ts)")
        connection.execute("DELETE FROM bucket")
        connection.executemany("INSERT INTO bucket VALUES (?)", ((ts,) for ts in range(self._until, now, MINUTE)))
        self._load(connection)
        roll_ups(connection, MINUTE)
        connection.execute("COMMIT")
        self._until = now

    @staticmethod
    def _load(connection: sqlite3.Connection) -> None:
        """Make the table of loads again, from who holds what: every engine works a half of the time."""
        connection.execute("DROP TABLE IF EXISTS load")
        connection.execute(
            "CREATE TEMP TABLE load AS SELECT e.epoch_id, d.device_id, 50 AS busy, 12 AS running, 0 AS waiting,"
            " 14 AS tpot_ms FROM device d LEFT JOIN epoch_device e USING (device_id)"
        )
