from hypothesis import given
from hypothesis import strategies as st

from pertoken.text.billing import CENT
from pertoken.text.words import in_units


@given(st.lists(st.integers(-(10**15), 10**15), max_size=20))
def test_parts_in_cents_add_up_to_their_sum_in_cents_each_within_a_cent(nano_usd: list[int]) -> None:
    total = (sum(nano_usd) + CENT // 2) // CENT
    rounded = in_units(total, nano_usd, CENT)
    assert sum(rounded) == total
    assert all(abs(amount * CENT - nano) <= CENT for amount, nano in zip(rounded, nano_usd, strict=True))
