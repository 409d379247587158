"""The bill as a sentence, and as a bar."""

from hypothesis import given
from hypothesis import strategies as st

from pertoken.costs.ledger import BillTotal
from pertoken.text.costs import bar_cells
from pertoken.text.words import (
    usd_parts,
)

MONEY = st.integers(0, 10**15)


@given(MONEY, MONEY, MONEY, MONEY)
def test_the_written_parts_of_a_bill_add_up(busy: int, idle: int, other: int, unallocated: int) -> None:
    amounts = (busy, idle, other, unallocated)
    paid, parts = usd_parts(sum(amounts), amounts)

    def cents(text: str) -> int:
        return round(float(text.removeprefix("$").replace(",", "")) * 10**9)

    assert cents(paid) == sum(cents(part) for part in parts)


@given(MONEY, MONEY, MONEY, MONEY, st.integers(1, 300))
def test_a_bar_has_exactly_its_width(busy: int, idle: int, other: int, unallocated: int, width: int) -> None:
    cells = bar_cells(BillTotal(busy + idle + other + unallocated, busy, idle, other, unallocated), width)
    assert sum(cells) == (width if busy + idle + other + unallocated else 0)
