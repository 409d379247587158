"""State restored at agent start: counters, lives, epochs and times of the rows a previous run stored."""

from collections.abc import Sequence
from dataclasses import fields

from sqlalchemy import Connection, Executable, RowMapping, func, select, union_all

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import explained
from pertoken.store.query.read import open_epochs
from pertoken.store.schema import rows
from pertoken.store.schema import telemetry as t


class RestoredState:
    """State of the previous run, read over the one writing connection. Every method raises StoreError."""

    def __init__(self, location: StoreLocation, connection: Connection) -> None:
        self.location, self._connection = location, connection

    def _rows(self, query: Executable) -> Sequence[RowMapping]:
        with explained(self.location), self._connection.begin():
            return self._connection.execute(query).mappings().all()

    def counters(self) -> tuple[rows.CounterState, ...]:
        """Return the last state of every counter."""
        return tuple(rows.CounterState(**row) for row in self._rows(select(t.counter_state)))

    def boot(self, host_id: int) -> tuple[str | None, int | None]:
        """Return (boot id, boot time in Unix ms) under which this host's rows were last written."""
        stored = self._rows(select(t.host.c.boot_id, t.host.c.boot_ms).where(t.host.c.host_id == host_id))
        return (stored[0]["boot_id"], stored[0]["boot_ms"]) if stored else (None, None)

    def lives(self, host_id: int, since_ms: int) -> dict[int, int]:
        """Return the life of each engine of this host whose process began `since_ms` after a boot, or later."""
        engine = t.engine.c
        query = select(engine.engine_id, engine.life).where(
            engine.host_id == host_id, engine.life.is_not(None), engine.process_start_ms >= since_ms
        )
        return {row["engine_id"]: row["life"] for row in self._rows(query)}

    def engine_urls(self, host_id: int) -> dict[int, str]:
        """Return the base URL of every engine of this host, by engine id."""
        query = select(t.engine.c.engine_id, t.engine.c.base_url).where(t.engine.c.host_id == host_id)
        return {row["engine_id"]: row["base_url"] for row in self._rows(query)}

    def open_epochs(self, host_id: int) -> tuple[rows.EpochRow, ...]:
        """Return epochs of this host that have not ended, newest last."""
        with explained(self.location), self._connection.begin():
            return tuple(open_epochs(self._connection, host_id))

    def newest_ts(self, host_id: int) -> int | None:
        """Return the highest `ts` of this host's rows, the last one's unless the clock was set back; None without."""
        sample = t.host_sample.c
        newest: int | None = self._rows(select(func.max(sample.ts).label("ts")).where(sample.host_id == host_id))[0][
            "ts"
        ]
        return newest

    def seconds_taken(self, host_id: int, start: int, end: int) -> frozenset[int]:
        """Return each `ts` of this host's rows with start <= ts < end."""
        sample = t.host_sample.c
        query = select(sample.ts).where(sample.host_id == host_id, sample.ts >= start, sample.ts < end)
        return frozenset(row["ts"] for row in self._rows(query))

    def known_owners(self, host_id: int) -> frozenset[int]:
        """This host, its devices and its deployments, as far as they were ever stored."""
        owners = (t.host.c.host_id, t.device.c.device_id, t.deployment.c.deployment_id)
        queries = (select(owner.label("owner_id")).where(owner.table.c.host_id == host_id) for owner in owners)
        return frozenset(row["owner_id"] for row in self._rows(union_all(*queries)))

    def capabilities(self) -> tuple[rows.Capability, ...]:
        """Return what could and could not be read when that was last noted."""
        columns = (t.capability.c[field.name] for field in fields(rows.Capability))
        return tuple(rows.Capability(**row) for row in self._rows(select(*columns)))
