"""Marks of what is to be shipped."""

from dataclasses import replace
from pathlib import Path

from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema.rows import HostSample
from pertoken.store.schema.shared import stable_id
from pertoken.store.write.writer import Writer
from tests.fleet.servers import NOW, host, local_rows, login, server_rows, shipper, ts_of
from tests.values import host_row, tick


def test_a_late_row_gets_a_new_sequence_and_its_bucket_arrives_again(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-late", minutes=10)
    one = shipper(where, login(owner_url, let_in))
    one.round()
    row = replace(host_row(), host_id=stable_id("host", "ship-late"), name="ship-late")
    late = tick(NOW - 400)
    samples = tuple(replace(sample, host_id=row.host_id) for sample in late.samples if isinstance(sample, HostSample))
    with Writer(where) as writer:
        writer.commit(replace(late, ts=NOW, host=row, samples=samples))
        writer.roll_up()
    assert local_rows(where) != server_rows(server, where)
    one.round()
    assert local_rows(where) == server_rows(server, where)


def test_a_spool_that_is_full_gives_up_the_oldest_ticks_first_and_never_a_roll_up(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-full", minutes=130, raw=True)
    with Writer(where) as writer:
        raw, rolled_up = writer.bound_spool(800)
        assert raw > 0 and rolled_up == 0
        raw, rolled_up = writer.bound_spool(300)
        assert rolled_up > 0
    shipper(where, login(owner_url, let_in)).round()
    closed = NOW // 3600 * 3600
    ours, theirs = local_rows(where), server_rows(server, where)
    for name, rows in ours.items():
        old = [row for row in rows if ts_of(name, row) < closed]
        assert [row for row in theirs[name] if ts_of(name, row) < closed] == old, name
