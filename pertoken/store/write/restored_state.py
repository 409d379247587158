"""State restored at agent start: counters, lives, epochs and times of the rows a previous run stored."""

from dataclasses import fields

from sqlalchemy import Connection, func, select

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import explained
from pertoken.store.query.read import open_epochs
from pertoken.store.schema import rows
from pertoken.store.schema import telemetry as t


class RestoredState:
    """State of the previous run, read over the one writing connection. Every method raises StoreError."""

    def __init__(self, location: StoreLocation, connection: Connection) -> None:
        self.location, self._connection = location, connection

    def counters(self) -> tuple[rows.CounterState, ...]:
        """Return the last state of every counter."""
        with explained(self.location), self._connection.begin():
            stored = self._connection.execute(select(t.counter_state)).mappings()
            return tuple(rows.CounterState(**row) for row in stored)

    def boot(self, host_id: int) -> tuple[str | None, int | None]:
        """Return (boot id, boot time in Unix ms) under which this host's rows were last written."""
        with explained(self.location), self._connection.begin():
            query = select(t.host.c.boot_id, t.host.c.boot_ms).where(t.host.c.host_id == host_id)
            row = self._connection.execute(query).first()
            return (row.boot_id, row.boot_ms) if row else (None, None)

    def lives(self, host_id: int, since_ms: int) -> dict[int, int]:
        """Return the life of each engine of this host whose process began `since_ms` after a boot, or later."""
        with explained(self.location), self._connection.begin():
            rows = self._connection.execute(
                select(t.engine.c.engine_id, t.engine.c.life).where(
                    t.engine.c.host_id == host_id,
                    t.engine.c.life.is_not(None),
                    t.engine.c.process_start_ms >= since_ms,
                )
            )
            return {engine_id: life for engine_id, life in rows}

    def engine_urls(self, host_id: int) -> dict[int, str]:
        """Return the base URL of every engine of this host, by engine id."""
        with explained(self.location), self._connection.begin():
            query = select(t.engine.c.engine_id, t.engine.c.base_url).where(t.engine.c.host_id == host_id)
            return {row.engine_id: row.base_url for row in self._connection.execute(query)}

    def open_epochs(self, host_id: int) -> tuple[rows.EpochRow, ...]:
        """Return epochs of this host that have not ended, newest last."""
        with explained(self.location), self._connection.begin():
            return tuple(open_epochs(self._connection, host_id))

    def newest_ts(self, host_id: int) -> int | None:
        """Return the highest `ts` of this host's rows, the last one's unless the clock was set back; None without."""
        with explained(self.location), self._connection.begin():
            query = select(func.max(t.host_sample.c.ts)).where(t.host_sample.c.host_id == host_id)
            newest: int | None = self._connection.execute(query).scalar()
            return newest

    def seconds_taken(self, host_id: int, start: int, end: int) -> frozenset[int]:
        """Return each `ts` of this host's rows with start <= ts < end."""
        with explained(self.location), self._connection.begin():
            sample = t.host_sample.c
            query = select(sample.ts).where(sample.host_id == host_id, sample.ts >= start, sample.ts < end)
            return frozenset(self._connection.execute(query).scalars())

    def known_owners(self, host_id: int) -> frozenset[int]:
        """This host, its devices and its deployments, as far as they were ever stored."""
        with explained(self.location), self._connection.begin():
            return frozenset(
                self._connection.execute(
                    select(t.host.c.host_id)
                    .where(t.host.c.host_id == host_id)
                    .union_all(
                        select(t.device.c.device_id).where(t.device.c.host_id == host_id),
                        select(t.deployment.c.deployment_id).where(t.deployment.c.host_id == host_id),
                    )
                ).scalars()
            )

    def capabilities(self) -> tuple[rows.Capability, ...]:
        """Return what could and could not be read when that was last noted."""
        names = [field.name for field in fields(rows.Capability)]
        with explained(self.location), self._connection.begin():
            stored = self._connection.execute(select(*(t.capability.c[name] for name in names))).mappings()
            return tuple(rows.Capability(**row) for row in stored)
