"""Sentences about advice."""

from pertoken.tui.text.advice_columns import open_advice
from pertoken.tui.text.notes import totals
from tests.tui.reports import ADVICE


def test_bankable_and_capacity_stay_apart_in_the_totals() -> None:
    bankable, capacity, *_ = totals(open_advice(ADVICE)).splitlines()
    assert bankable.startswith("Bankable $3,018 to $3,636 a month")
    assert capacity.startswith("Capacity $0 to $400 a month")
