"""Checksums follow every change made over the writing connection, whichever statement makes it."""

from pathlib import Path

import pytest
from sqlalchemy import delete, insert, update

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import savepoint
from pertoken.store.integrity.verify import verify
from pertoken.store.schema import telemetry as t
from pertoken.store.write.rollup import replacing
from pertoken.store.write.writer import Writer
from tests.store.filled import filled


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    return filled(tmp_path)


def faults(where: StoreLocation) -> list[str]:
    return [str(fault) for fault in verify(where) if fault is not None]


def test_a_change_by_any_statement_of_the_writing_connection_is_counted(where: StoreLocation) -> None:
    mark = {"rollup": "host_1h", "owner_id": 77, "ts": 0}
    with Writer(where) as writer:
        assert writer._batches is not None
        connection = writer._connection
        with writer._batches.transaction():
            connection.execute(update(t.engine).values(version="9"))
            connection.execute(insert(t.dirty), [mark, {**mark, "ts": 3600}])
            connection.execute(delete(t.dirty).where(t.dirty.c.ts == 3600))
            connection.execute(update(t.device_rollup[60]).values(revision=t.device_rollup[60].c.revision + 1))
            seen = {"owner_id": 77, "metric": "power", "status": "ok", "since_ts": 1}
            for _ in range(2):
                connection.execute(replacing("sqlite", t.capability, ()), [seen])
    assert faults(where) == []


def test_a_change_undone_by_a_savepoint_is_not_counted(where: StoreLocation) -> None:
    with Writer(where) as writer:
        assert writer._batches is not None
        with writer._batches.transaction():
            writer._connection.execute(update(t.engine).values(version="9"))
            with pytest.raises(ZeroDivisionError), savepoint(writer._connection):
                writer._connection.execute(update(t.engine).values(version="10"))
                raise ZeroDivisionError
            with savepoint(writer._connection):
                writer._connection.execute(update(t.deployment).values(model_path="m"))
    assert faults(where) == []


def test_a_change_undone_with_its_transaction_is_not_counted_by_the_next(where: StoreLocation) -> None:
    with Writer(where) as writer:
        assert writer._batches is not None
        with pytest.raises(ZeroDivisionError), writer._batches.transaction():
            writer._connection.execute(update(t.engine).values(version="9"))
            raise ZeroDivisionError
        with writer._batches.transaction():
            writer._connection.execute(update(t.deployment).values(model_path="m"))
    assert faults(where) == []


def test_a_sample_that_was_not_counted_where_samples_are_inserted_is_found(where: StoreLocation) -> None:
    with Writer(where) as writer:
        assert writer._batches is not None
        with writer._batches.transaction():
            writer._connection.execute(insert(t.host_sample).values(host_id=5, ts=3600, duration_ms=1, observed_ms=1))
    assert [fault for fault in faults(where) if fault.startswith("host_sample")]
