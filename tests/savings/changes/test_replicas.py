from pertoken.savings.context import NOTHING
from pertoken.state.placement import Placement
from tests.savings.fleets import (
    FOUR,
    ONE,
    chat,
    priced,
    usd_month,
)


def test_spot_leaves_one_replica_and_releases_the_hosts_of_the_others() -> None:
    found = priced(FOUR, chat(FOUR).on(Placement(purchase="spot"), all_but=1))
    assert found.bankable is not None and 0 < found.bankable[1] < usd_month(3 * 2 * 6.88)
    assert found.bankable[0] < found.bankable[1] <= found.bankable[2]
    assert len(found.released) == 3 and found.capacity is not None
    assert any("taken back at 30 s" in said for said in found.against)


def test_a_dearer_accelerator_banks_nothing_and_says_what_it_costs() -> None:
    found = priced(ONE, chat(ONE).on(Placement(accelerator="B200 SXM")))
    if found.infeasible is None:
        assert found.bankable == NOTHING and any("the bill would rise by" in said for said in found.against)
