"""Dollars of devices by hand."""

from pertoken.costs.ledger import DeviceTime, Share, allocate
from pertoken.costs.lines import Money
from pertoken.units import HOUR_MS

HOUR_NS = HOUR_MS * 1_000_000


def test_devices_that_did_the_same_cost_the_same_and_parts_add_up() -> None:
    money = Money()
    part = allocate(DeviceTime(HOUR_MS, (Share(7, HOUR_NS // 2, HOUR_NS // 4),)), 1_000)
    for _ in range(3):
        money.add(part, bounds=())
    money.priced_devices.add(1)
    bill = money.bill()
    assert bill is not None
    assert (bill.paid, bill.busy, bill.idle, bill.other, bill.unallocated) == (3000, 750, 750, 0, 1500)
    assert dict(money.by_epoch) == {7: 1500}
    assert not bill.busy_is_bound


def test_busy_dollars_of_an_epoch_with_bounded_busy_time_are_a_bound() -> None:
    money = Money()
    idle = allocate(DeviceTime(HOUR_MS, (Share(7, HOUR_NS, 0),)), 1_000)
    money.add(idle, bounds=(7,))
    assert not money.busy_is_bound  # no dollars are of its busy time
    money.add(allocate(DeviceTime(HOUR_MS, (Share(7, HOUR_NS, HOUR_NS),)), 1_000), bounds=(7,))
    assert money.busy_is_bound


def test_without_a_price_there_is_no_bill() -> None:
    assert Money().bill() is None
