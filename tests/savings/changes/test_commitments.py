from dataclasses import replace

from pertoken.state.placement import Commitment
from tests.savings.fleets import (
    AWS,
    AWS_H100,
    DAY_S,
    NOW_TS,
    fleet_of,
    host,
    priced,
    usd_month,
)


def test_committing_pays_the_difference_on_the_hosts_it_covers() -> None:
    placement = replace(AWS, instance_type="p5.48xlarge")
    fleet = fleet_of([], [host(1, placement=placement)])
    cheap = Commitment("aws", "us-east-1", "p5.48xlarge", 1, AWS_H100, NOW_TS + DAY_S)
    found = priced(fleet, fleet.commit(cheap))
    assert found.bankable is not None and found.bankable[1] == usd_month(6.88)
    dear = replace(cheap, nano_usd_per_instance_hour=3 * AWS_H100)
    assert priced(fleet, fleet.commit(dear)).infeasible is not None
    other = replace(cheap, instance_type="p4d.24xlarge")
    assert "no on-demand host is a p4d.24xlarge" in (priced(fleet, fleet.commit(other)).infeasible or "")
