"""Batches: each transaction of the writing connection with its checksums, its number and the high-water mark."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, insert, select

from pertoken.errors import StoreError
from pertoken.store.connect.bulk import run_many
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import begun, explained
from pertoken.store.integrity.checksums import HOUR, Checksums, chained
from pertoken.store.integrity.high_water_mark import Acknowledged, HighWaterMark, acknowledged
from pertoken.store.schema import telemetry as t

_COLUMNS = tuple(column.name for column in t.batch.columns)
_INSERT = insert(t.batch)


class Batches:
    """The transactions of the one writer of a folder, numbered without gaps."""

    def __init__(self, location: StoreLocation, connection: Connection) -> None:
        """Go on where the last writer ended. Raises StoreError."""
        self._location, self._connection = location, connection
        with explained(location):
            self.checksums = Checksums(connection)
        self.last = Acknowledged(0, 0)
        """The last batch stored; sequence 0 before the first."""
        self._chain = 0
        self.lost: tuple[Acknowledged, Acknowledged] | None = None
        """(last batch found, last batch acknowledged) where the second is not there any more."""
        with explained(location), connection.begin():
            newest = connection.execute(select(t.batch).order_by(t.batch.c.seq.desc()).limit(1)).first()
            # Rows of a schema without checksums count as they are found, once.
            counted = connection.execute(select(t.seal.c.ts).limit(1)).first() is not None
            if newest is None and not counted and connection.execute(select(t.host.c.host_id).limit(1)).first():
                self.checksums.checksum_all()
        if newest is not None:
            self.last, self._chain = Acknowledged(newest.seq, newest.ts), newest.chain
        acknowledged_batch = acknowledged(location.file("telemetry"))
        if acknowledged_batch is not None and acknowledged_batch.seq > self.last.seq:
            # The gap stays in the sequence: who checks it later finds it too.
            self.lost, self.last = (self.last, acknowledged_batch), acknowledged_batch
        self.high_water_mark_missing = acknowledged_batch is None and newest is not None
        """Whether batches were found without a high-water mark."""
        try:
            self._high_water_mark = HighWaterMark(location.file("telemetry"))
            if self.high_water_mark_missing:
                self._high_water_mark.write(self.last)
        except OSError as error:
            raise StoreError(f"{location}: cannot be written: {error.strerror}") from None

    @contextmanager
    def transaction(self, ts: int | None = None) -> Iterator[None]:
        """One transaction with the checksums of what changes in it and its place in the sequence, a batch.

        Samples of other hours than that of `ts` have a batch for each hour ahead of it, so that the batches of an hour
        count the rows of that hour. Raises StoreError, with nothing of it stored. Without the `ts` of a tick it is that
        of the last one, and where nothing changed there is no batch.
        """
        checksums, done, chain = self.checksums, self.last, self._chain
        try:
            with explained(self._location), begun(self._connection):
                yield
                changed, samples = checksums.store()
                if changed or ts is not None:
                    last_ts = done.ts if ts is None else ts
                    counted = samples.pop(last_ts // HOUR * HOUR, (0, 0))
                    batches = []
                    for at, (n, crc_sum) in (*sorted(samples.items()), (last_ts, counted)):
                        done = Acknowledged(done.seq + 1, at)
                        chain = chained(chain, done.seq, done.ts, n, crc_sum)
                        batches.append((done.seq, done.ts, n, crc_sum, chain))
                    run_many(self._connection, _INSERT, _COLUMNS, batches)
        except BaseException:
            checksums.discard()
            raise
        if done is not self.last:
            self.last, self._chain = done, chain
            self._high_water_mark.write(done)

    def flush(self) -> bool:
        """Flush the high-water mark to the disk, now and then: no transaction waits for that.

        Return whether its file had been deleted, and was made again.
        """
        restored = self._high_water_mark.restore(self.last)
        self._high_water_mark.flush()
        return restored

    def close(self) -> None:
        """Flush and close the high-water mark."""
        self._high_water_mark.close()
