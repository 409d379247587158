"""Cost of interruptions of spot devices."""

from dataclasses import replace

import pytest

from pertoken.catalog.instances import interruption_rate
from pertoken.evidence import Series
from pertoken.provenance import Provenance
from pertoken.savings.outcome import interruptions
from pertoken.state.deployment import Placement
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH
from tests.savings.fleets import AWS, chat, fleet_of, host, llama, low_batch, priced

SPOT = Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5", 8, "spot")
START = Series(mean=100.0, p50=90.0, p95=300.0, max=400.0, n=4, provenance=Provenance.BOUND)


def test_device_time_of_starts_after_interruptions_is_paid_without_work() -> None:
    rate = interruption_rate("aws", "p5.48xlarge")
    assert rate is not None
    costs = interruptions(SPOT, START)
    month_s = HOURS_PER_MONTH * 3600
    low, likely, high = (factor - 1 for factor in costs.factor)
    assert low == pytest.approx(rate.low * 100 / month_s) and high == pytest.approx(rate.high * 300 / month_s)
    assert likely == pytest.approx((rate.low + rate.high) / 2 * 100 / month_s) and low < likely < high
    assert costs.assumption is not None and "15% to 20% of p5 spot instances" in costs.assumption
    assert "100 s (p95 300 s, measured)" in costs.assumption and "Advisor" in costs.assumption
    assert "hours without spot capacity are not counted" in costs.against


@pytest.mark.parametrize(
    ("placement", "load_s", "missing"),
    [
        (SPOT, None, "no start of a replica was measured"),
        (replace(SPOT, instance_type="p6-b200.48xlarge"), START, "not published for p6-b200.48xlarge"),
        (replace(SPOT, instance_type=None), START, "not published for H100 SXM5"),
        (Placement(purchase="spot"), START, "not published for these devices"),
    ],
)
def test_without_a_rate_or_a_measured_start_nothing_is_added_and_the_reason_is_named(
    placement: Placement, load_s: Series | None, missing: str
) -> None:
    costs = interruptions(placement, load_s)
    assert costs.factor == (1.0, 1.0, 1.0) and costs.assumption is None
    assert missing in costs.against


def test_a_move_to_spot_banks_less_where_replicas_start_slowly() -> None:
    one = host(1, 8, replace(AWS, instance_type="p5.48xlarge", devices_per_instance=8))
    fleet = fleet_of([Service("chat", (llama(1, one.device_ids, placement=one.placement),))], [one])
    quick, slow = (low_batch(), low_batch(load_s=36_000.0))
    estimates = [priced(fleet, chat(fleet).on(Placement(purchase="spot")), seen=seen) for seen in (quick, slow)]
    saved = [estimate.net for estimate in estimates]
    assert saved[0] is not None and saved[1] is not None
    assert saved[1][1] < saved[0][1]
    assert any("taken back a month" in line for line in estimates[1].assumptions)
    assert any("no start of a replica was measured" in line for line in estimates[0].against)
