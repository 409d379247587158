"""Rows as readers use them: values that cannot be are replaced and named, and a flood of rows is cut per host."""

from collections import namedtuple

from pertoken.store.query.read import MAX_DEPLOYMENTS, RowFault, checked_devices, checked_epochs, checked_hosts

Host = namedtuple("Host", "host_id name region interval_s newest_ts")
Device = namedtuple("Device", "device_id host_id kind uuid name slot links first_ts host_name")
Epoch = namedtuple("Epoch", "epoch_id deployment_id host_id start_ts knobs newest_ts served_model engine_kind")
GOOD = Host(1, "good", "eu", 10, 100)


def epoch(number: int, host_id: int, start_ts: int = 10) -> Epoch:
    return Epoch(number, number, host_id, start_ts, "{}", start_ts, "m", "vllm")


def test_rows_that_hold_nothing_wrong_are_the_same_rows() -> None:
    checked = checked_hosts([GOOD])
    assert checked.rows[0] is GOOD
    assert checked.faults == frozenset()


def test_a_fault_names_the_host_and_the_column_and_touches_no_other_row() -> None:
    checked = checked_hosts([GOOD, Host(2, "bad\x1b", "\x1b[2J", 0, 2**62)])
    assert checked.rows == [GOOD, Host(2, "bad\\x1b", "\\x1b[2J", 1, 2**40)]
    assert {(fault.host_id, fault.field) for fault in checked.faults} == {
        (2, "host.name"),
        (2, "host.region"),
        (2, "host.interval_s"),
    }
    assert str(RowFault(2, "epoch.knobs", "tp is wrong")) == "epoch.knobs: tp is wrong"


def test_the_name_of_a_host_is_replaced_in_each_row_and_named_once() -> None:
    checked = checked_devices([Device(7, 2, "gpu", "u", "H100", 0, '{"nvlink": 5}', 10, "\x1b")])
    assert checked.rows == [Device(7, 2, "gpu", "u", "H100", 0, "{}", 10, "\\x1b")]
    assert [fault.field for fault in checked.faults] == ["device.links"]


def test_of_a_host_with_too_many_deployments_the_newest_are_read_in_their_order() -> None:
    flood = [epoch(number, host_id=2, start_ts=number) for number in range(1, MAX_DEPLOYMENTS + 51)]
    checked = checked_epochs([epoch(5_000, host_id=1), *flood])
    assert [row.epoch_id for row in checked.rows] == [*range(51, MAX_DEPLOYMENTS + 51), 5_000]
    (fault,) = checked.faults
    assert (fault.host_id, fault.field) == (2, "deployment")
    assert fault.reason == f"{MAX_DEPLOYMENTS + 50} in this window: the newest {MAX_DEPLOYMENTS} of a host are read"
