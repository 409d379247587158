"""Batches: their sequence, and those that are gone."""

from pertoken.store.connect.location import StoreLocation
from pertoken.store.integrity.checksums import acknowledged
from pertoken.store.write.writer import Writer
from tests.store.filled import fill
from tests.store.integrity.faults import change, faults


def test_a_missing_batch_is_a_gap_in_the_sequence(where: StoreLocation) -> None:
    change(where, "DELETE FROM batch WHERE seq = 100")
    assert "batches 100 to 100 are missing" in [fault.text for fault in faults(where)]
    change(where, "UPDATE batch SET row_count = row_count + 1 WHERE seq = 200")
    assert "batch 200 is not as it was stored" in [fault.text for fault in faults(where)]


def test_batches_that_were_acknowledged_and_are_gone_are_missed_by_check_and_by_the_next_writer(
    where: StoreLocation,
) -> None:
    acknowledged_batch = acknowledged(where.file("telemetry"))
    assert acknowledged_batch is not None
    change(where, f"DELETE FROM batch WHERE seq > {acknowledged_batch.seq - 3}")
    missing = f"batches {acknowledged_batch.seq - 2} to {acknowledged_batch.seq} were acknowledged and are missing"
    assert missing in [fault.text for fault in faults(where)]
    with Writer(where) as writer:
        assert writer.lost is not None
        assert [batch.seq for batch in writer.lost] == [acknowledged_batch.seq - 3, acknowledged_batch.seq]
        fill(writer, range(401, 403))
        assert writer.last.seq == acknowledged_batch.seq + 2
    assert f"batches {acknowledged_batch.seq - 2} to {acknowledged_batch.seq} are missing" in [
        fault.text for fault in faults(where)
    ]
