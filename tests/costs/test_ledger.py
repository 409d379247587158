"""The identity of the bill: every nano-dollar paid has exactly one payer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.costs.ledger import DeviceTime, Share, allocate, divide
from pertoken.store.schema.shared import OTHER
from pertoken.units import apportion


def test_an_hour_of_a_device_held_half_idle_is_split_in_halves() -> None:
    hour = 3_600_000
    time = DeviceTime(hour, (Share(7, hour * 10**6, hour * 10**6 // 2),))
    part = allocate(time, 2_000_000_000)
    assert (part.paid, part.busy, part.idle, part.other, part.unallocated) == (
        2_000_000_000,
        {7: 1_000_000_000},
        {7: 1_000_000_000},
        0,
        0,
    )


def test_a_device_without_an_owner_is_unallocated_and_foreign_work_is_other() -> None:
    assert allocate(DeviceTime(60_000), 3_600_000).unallocated == 60_000
    part = allocate(DeviceTime(60_000, (Share(OTHER, 30_000 * 10**6, 0),)), 3_600_000)
    assert (part.other, part.unallocated) == (30_000, 30_000)


bucket = st.integers(0, 3_600_000).flatmap(
    lambda ms: st.tuples(
        st.just(ms),
        st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 1_000_000), st.floats(0, 1.2)), max_size=5),
    )
)


@given(bucket, st.integers(0, 10**14))
def test_paid_is_exactly_the_sum_of_its_parts_in_every_bucket(
    bucket: tuple[int, dict[int, tuple[int, float]]], price: int
) -> None:
    ms, allocations = bucket
    whole = sum(share for share, _ in allocations.values()) or 1
    held = {epoch: ms * 1_000_000 * share // max(whole, 1_000_000) for epoch, (share, _) in allocations.items()}
    shares = tuple(Share(epoch, ns, int(ns * allocations[epoch][1])) for epoch, ns in held.items())
    part = allocate(DeviceTime(ms, shares), price)
    assert part.paid == sum(part.busy.values()) + sum(part.idle.values()) + part.other + part.unallocated
    assert part.paid == divide(ms * price, 3_600_000)
    assert min([*part.busy.values(), *part.idle.values(), part.other, part.unallocated]) >= 0


@given(st.integers(0, 10**18), st.lists(st.integers(0, 10**15), min_size=1, max_size=20))
def test_apportioned_parts_sum_to_the_total_and_follow_their_weights(total: int, weights: list[int]) -> None:
    parts = apportion(total, weights)
    assert sum(parts) == total
    if any(weights):
        whole = sum(weights)
        assert all(abs(part * whole - total * weight) < whole for part, weight in zip(parts, weights, strict=True))


def test_a_device_is_paid_to_the_nearest_nano_dollar() -> None:
    assert [allocate(DeviceTime(ms), 3_600).paid for ms in (499, 500, 1499, 1500)] == [0, 1, 1, 2]


def test_apportioning_without_weights_or_by_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="weights"):
        apportion(1, [])
    with pytest.raises(ValueError, match="weights"):
        apportion(1, [1, -1])


@pytest.mark.parametrize(
    ("numerator", "denominator", "quotient"),
    [
        *((0, 7, 0), (1, 3, 0), (2, 3, 1), (7, 7, 1)),
        *((1, 2, 1), (3, 2, 2), (5, 2, 3), (4, 10, 0), (5, 10, 1), (6, 10, 1), (15, 10, 2)),
        *((10**30 + 1, 2, 5 * 10**29 + 1), (10**30 - 1, 2, 5 * 10**29)),
    ],
)
def test_a_quotient_is_rounded_to_the_nearest_and_halves_go_up(numerator: int, denominator: int, quotient: int) -> None:
    assert divide(numerator, denominator) == quotient


@given(st.integers(0, 10**30), st.integers(1, 10**15))
def test_a_quotient_is_never_further_off_than_a_half(numerator: int, denominator: int) -> None:
    twice = 2 * (divide(numerator, denominator) * denominator - numerator)
    assert -denominator < twice <= denominator


def test_a_device_with_two_owners_is_paid_by_both_by_their_shares() -> None:
    ms = 10**6
    part = allocate(
        DeviceTime(60_000, (Share(7, 40_000 * ms, 10_000 * ms), Share(8, 20_000 * ms, 30_000 * ms))), 3_600_000
    )
    # The second cannot have been busy for longer than it held the device.
    assert (part.busy, part.idle) == ({7: 10_000, 8: 20_000}, {7: 30_000, 8: 0})
    assert (part.other, part.unallocated) == (0, 0)
