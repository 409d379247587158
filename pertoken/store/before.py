"""What an agent that starts has to know of what was stored before it."""

from collections import defaultdict
from dataclasses import fields

from sqlalchemy import Connection, func, select

from pertoken.store import rows
from pertoken.store import telemetry as t
from pertoken.store.open import explained
from pertoken.store.place import Place
from pertoken.store.seal import DAY


class Before:
    """Questions over the one writing connection. All raise StoreError if it cannot be read."""

    def __init__(self, place: Place, connection: Connection) -> None:
        self.place, self._connection = place, connection

    def counters(self) -> tuple[rows.CounterState, ...]:
        """The last state of every counter."""
        with explained(self.place), self._connection.begin():
            found = self._connection.execute(select(t.counter_state)).mappings()
            return tuple(rows.CounterState(**row) for row in found)

    def boot(self, host_id: int) -> tuple[str | None, int | None]:
        """(boot id, boot time in Unix ms) under which this host's rows were last written."""
        with explained(self.place), self._connection.begin():
            query = select(t.host.c.boot_id, t.host.c.boot_ms).where(t.host.c.host_id == host_id)
            found = self._connection.execute(query).first()
            return (found.boot_id, found.boot_ms) if found else (None, None)

    def begun(self, host_id: int) -> dict[int, int]:
        """Engines whose process began while this host was recorded, and when (Unix ms)."""
        with explained(self.place), self._connection.begin():
            found = self._connection.execute(
                select(t.engine.c.engine_id, t.engine.c.process_start_ms)
                .join(t.host, t.host.c.host_id == t.engine.c.host_id)
                .where(t.engine.c.host_id == host_id, t.engine.c.process_start_ms >= t.host.c.first_ts * 1000)
            )
            return {engine_id: start_ms for engine_id, start_ms in found}

    def open_epochs(self, host_id: int) -> tuple[rows.EpochRow, ...]:
        """Epochs of this host that have not ended, newest last."""
        with explained(self.place), self._connection.begin():
            connection = self._connection
            found = connection.execute(
                select(t.epoch)
                .join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
                .where(t.deployment.c.host_id == host_id, t.epoch.c.end_ts.is_(None))
                .order_by(t.epoch.c.start_ts)
            ).mappings()
            devices = defaultdict(list)
            for epoch_id, device_id in connection.execute(select(t.epoch_device)):
                devices[epoch_id].append(device_id)
            return tuple(rows.EpochRow(**row, device_ids=tuple(sorted(devices[row["epoch_id"]]))) for row in found)

    def last_ts(self, host_id: int, now_ts: int) -> int | None:
        """`ts` of this host's newest row; None for a new host.

        Rows more than a day ahead of the clock, which says `now_ts`, were filed by a wrong one and are passed over;
        unless the clock is behind the host's first row, and so is wrong itself.
        """
        ts = t.host_sample.c.ts
        newest = select(func.max(ts)).where(t.host_sample.c.host_id == host_id)
        first = select(t.host.c.first_ts).where(t.host.c.host_id == host_id)
        with explained(self.place), self._connection.begin():
            found: int | None = self._connection.execute(newest).scalar()
            first_ts = self._connection.execute(first).scalar()
            if found is not None and found > now_ts + DAY and first_ts is not None and first_ts <= now_ts:
                found = self._connection.execute(newest.where(ts <= now_ts + DAY)).scalar()
            return found

    def known_owners(self, host_id: int) -> frozenset[int]:
        """This host, its devices and its deployments, as far as they were ever stored."""
        with explained(self.place), self._connection.begin():
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
        """What could and could not be read when that was last noted."""
        names = [each.name for each in fields(rows.Capability)]
        with explained(self.place), self._connection.begin():
            found = self._connection.execute(select(*(t.capability.c[name] for name in names))).mappings()
            return tuple(rows.Capability(**row) for row in found)
