"""Tests of `savings.saving`."""

import pytest

from pertoken.savings.saving import Saving


@pytest.mark.parametrize(
    ("net", "capacity", "pays_more", "worthless"),
    [
        (5, 0, False, False),
        (0, 3, False, False),
        (0, 0, False, True),
        (-5, 5, True, True),
        (-5, 6, True, False),
    ],
)
def test_a_bill_that_rises_is_worth_it_only_below_the_additional_work(
    net: int, capacity: int, pays_more: bool, worthless: bool
) -> None:
    saving = Saving((net,) * 3, (capacity,) * 3)
    assert (saving.pays_more, saving.worthless, saving.counted) == (pays_more, worthless, not pays_more)


def test_a_saving_of_the_bill_is_before_capacity_and_a_rising_bill_is_last() -> None:
    falls, frees, rises = Saving((1, 2, 3)), Saving((0, 0, 0), (7, 8, 9)), Saving((-3, -2, 9), (90, 95, 99))
    assert sorted((rises, frees, falls), key=lambda saving: saving.rank, reverse=True) == [falls, frees, rises]


def test_rows_are_in_the_order_of_what_is_sure_and_a_possible_loss_follows() -> None:
    sure, less_sure, from_nothing = Saving((900, 1_000, 1_100)), Saving((500, 2_000, 3_000)), Saving((0, 800, 900))
    may_rise, frees, rises = Saving((-1, 9_000, 9_900)), Saving((0, 0, 0), (1, 2, 3)), Saving((-3, -2, 9), (90, 95, 99))
    in_order = [sure, less_sure, from_nothing, may_rise, frees, rises]
    assert sorted(reversed(in_order), key=Saving.sure_first, reverse=True) == in_order
    assert [saving.may_rise for saving in in_order] == [False, False, False, True, False, False]


def test_capacity_alone_is_in_the_order_of_its_low_end() -> None:
    some, sure = Saving((0, 0, 0), (0, 1_562, 1_562)), Saving((0, 0, 0), (1_445, 1_445, 1_445))
    assert sure.sure_first() > some.sure_first()


def test_a_low_end_that_rests_on_a_forecast_counts_half() -> None:
    forecast, sure = Saving((1_900, 2_000, 2_100)), Saving((1_000, 1_000, 1_000))
    assert sure.sure_first() > forecast.sure_first(forecast=True)
    assert forecast.sure_first() > sure.sure_first()
