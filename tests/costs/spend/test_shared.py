import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.costs.spend import Spend, SpendLine, with_shared
from pertoken.settings.owners import SharedLine

LINES = (
    *(SpendLine("chat", 600, 10), SpendLine("search", 300, 40), SpendLine("gateway", 90, 1)),
    *(SpendLine("no owner", 50, 5), SpendLine("unallocated", 12)),
)
BILL = Spend("namespace", 0, 3600, 1052, LINES)


def shared_of(*shared: SharedLine, bill: Spend = BILL) -> list[int | None]:
    return [line.shared_nano_usd for line in with_shared(bill, shared).lines]


@pytest.mark.parametrize(
    ("by", "dollars"),
    [("dollars", [660, 330, 0, 50, 12]), ("tokens", [618, 372, 0, 50, 12]), ("equal", [645, 345, 0, 50, 12])],
)
def test_a_shared_line_is_divided_among_the_owners(by: str, dollars: list[int]) -> None:
    assert shared_of(SharedLine("namespace=gateway", by)) == dollars


def test_an_idle_reserve_is_shared_beside_a_gateway_by_their_own_shares() -> None:
    assert shared_of(SharedLine("namespace=gateway"), SharedLine("unallocated", "equal")) == [666, 336, 0, 50, 0]


def test_a_line_is_not_divided_by_tokens_that_are_not_known() -> None:
    bill = Spend("namespace", 0, 3600, 1052, (LINES[0], SpendLine("search", 300), *LINES[2:]))
    divided = with_shared(bill, (SharedLine("namespace=gateway", "tokens"),))
    assert [line.shared_nano_usd for line in divided.lines] == [600, 300, 90, 50, 12]
    assert divided.notes == ["gateway is not divided: the tokens of search are not known."]


def test_a_bill_without_such_a_line_has_one_basis() -> None:
    assert shared_of(SharedLine("model=gateway")) == [None] * 5 == shared_of()


def test_a_line_that_nobody_can_pay_for_stays() -> None:
    alone = Spend("namespace", 0, 3600, 12, (SpendLine("unallocated", 12),))
    assert shared_of(SharedLine("unallocated"), bill=alone) == [12]


lines = st.lists(
    st.builds(
        SpendLine,
        st.sampled_from(["chat", "gateway", "no owner", "unallocated", "other work"]),
        st.integers(0, 10**18),
        st.one_of(st.none(), st.integers(0, 10**15)),
    ),
    max_size=8,
)
shares = st.lists(
    st.builds(
        SharedLine,
        st.sampled_from(["namespace=gateway", "unallocated", "no owner", "other work"]),
        st.sampled_from(["dollars", "tokens", "equal"]),
    ),
    min_size=1,
)


@given(lines, shares)
def test_both_bases_sum_to_the_bill(lines: list[SpendLine], shares: list[SharedLine]) -> None:
    shared = shared_of(*shares, bill=Spend("namespace", 0, 3600, None, lines))
    if None not in shared:
        assert sum(part or 0 for part in shared) == sum(line.nano_usd for line in lines)
        assert all((part or 0) >= 0 for part in shared)
