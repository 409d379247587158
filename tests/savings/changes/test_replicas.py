from pertoken.savings.context import NOTHING
from pertoken.state.placement import Placement
from pertoken.state.service import Slo
from tests.savings.fleets import (
    FOUR,
    ONE,
    chat,
    priced,
    replicas,
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


def test_replicas_that_need_fewer_devices_each_leave_whole_hosts() -> None:
    fleet = replicas(4, min_replicas=4, slo=Slo(tpot_p95_ms=200.0))
    narrow = priced(fleet, chat(fleet).but(weight_dtype="fp8", tp=1, max_model_len=1024).resized())
    assert narrow.infeasible is None and len(narrow.released) == 2
    assert narrow.bankable is not None and narrow.bankable[1] == 2 * usd_month(2 * 6.88)


def test_more_replicas_of_fewer_devices_are_paid_for_only_where_the_fleet_has_no_room() -> None:
    fleet = replicas(2, min_replicas=3, slo=Slo(tpot_p95_ms=200.0))
    found = priced(fleet, chat(fleet).but(weight_dtype="fp8", tp=1, max_model_len=1024).resized())
    assert found.replicas == (2, 3) and found.infeasible is None
    assert found.capacity is not None and found.capacity[1] == usd_month(6.88)
