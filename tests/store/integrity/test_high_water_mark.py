"""The last batch acknowledged, beside the database."""

from contextlib import closing
from pathlib import Path

from click.testing import CliRunner

from pertoken.cli import main
from pertoken.store.connect.location import StoreLocation
from pertoken.store.integrity.checksums import MISSING, Acknowledged, HighWaterMark, acknowledged, high_water_mark_file
from pertoken.store.write.writer import Writer
from tests.store.integrity.faults import faults


def test_a_high_water_mark_that_is_missing_or_unreadable_is_a_finding(where: StoreLocation) -> None:
    file = where.file("telemetry")
    mark = acknowledged(file)
    assert mark is not None
    text = bytearray(high_water_mark_file(file).read_bytes())
    text[0] ^= 1
    high_water_mark_file(file).write_bytes(text)
    assert acknowledged(file) is None
    for _ in ("unreadable", "missing"):
        assert [(fault.table, fault.text, fault.damaged) for fault in faults(where)] == [
            ("telemetry.witness", MISSING, False)
        ]
        high_water_mark_file(file).unlink(missing_ok=True)
    done = CliRunner().invoke(main, ["db", "check", "--db", str(where)])
    assert done.exit_code == 1 and "high-water mark is missing" in done.output
    with Writer(where) as writer:
        assert writer.high_water_mark_missing
    assert faults(where) == []
    with Writer(where) as writer:
        assert not writer.high_water_mark_missing


def test_a_mark_is_read_back_and_one_with_a_changed_byte_is_none(tmp_path: Path) -> None:
    database = tmp_path / "telemetry.db"
    assert acknowledged(database) is None
    with closing(HighWaterMark(database)) as mark:
        for seq in (9, 10):
            mark.write(Acknowledged(seq, 1_790_000_000))
        assert acknowledged(database) == Acknowledged(10, 1_790_000_000)
    file = high_water_mark_file(database)
    body = file.read_bytes()
    assert len(body) == 64
    file.write_bytes(body.replace(b"10 ", b"11 "))
    assert acknowledged(database) is None


def test_a_mark_that_was_deleted_or_replaced_under_its_writer_is_made_again(tmp_path: Path) -> None:
    database, last = tmp_path / "telemetry.db", Acknowledged(3, 5)
    with closing(HighWaterMark(database)) as mark:
        mark.write(last)
        assert not mark.restore(last)
        high_water_mark_file(database).unlink()
        assert mark.restore(last)
        assert acknowledged(database) == last
