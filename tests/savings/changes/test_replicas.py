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
    estimate = priced(FOUR, chat(FOUR).on(Placement(purchase="spot"), all_but=1))
    assert estimate.net is not None and 0 < estimate.net[1] < usd_month(3 * 2 * 6.88)
    assert estimate.net[0] < estimate.net[1] <= estimate.net[2]
    assert len(estimate.released) == 3 and estimate.capacity is not None
    assert any("taken back at 30 s" in reason for reason in estimate.against)


def test_a_dearer_accelerator_banks_nothing_and_its_extra_cost_is_stated() -> None:
    estimate = priced(ONE, chat(ONE).on(Placement(accelerator="B200 SXM")))
    if estimate.infeasible is None:
        assert estimate.saving is not None and estimate.saving.pays_more
        assert any("the bill would rise by" in reason for reason in estimate.against)


def test_replicas_that_need_fewer_devices_each_leave_whole_hosts() -> None:
    fleet = replicas(4, min_replicas=4, slo=Slo(tpot_p95_ms=200.0))
    narrow = priced(fleet, chat(fleet).but(weight_dtype="fp8", tp=1, max_model_len=1024).resized())
    assert narrow.infeasible is None and len(narrow.released) == 2
    assert narrow.net is not None and narrow.net[1] == 2 * usd_month(2 * 6.88)


def test_more_replicas_of_fewer_devices_are_paid_for_only_where_the_fleet_has_no_room() -> None:
    fleet = replicas(2, min_replicas=3, slo=Slo(tpot_p95_ms=200.0))
    estimate = priced(fleet, chat(fleet).but(weight_dtype="fp8", tp=1, max_model_len=1024).resized())
    assert estimate.replicas == (2, 3) and estimate.infeasible is None
    assert estimate.capacity is not None and estimate.capacity[1] == usd_month(6.88)
