"""Devices rented elsewhere, in whole instances."""

from dataclasses import replace

import pytest

from pertoken.savings.estimate import estimate
from pertoken.savings.instances import rented_devices
from pertoken.state.placement import Placement
from pertoken.state.service import Service
from tests.deployments import MARKET
from tests.savings.fleets import AWS, context, fleet_of, host, llama, low_batch


@pytest.mark.parametrize(
    ("placement", "replicas", "devices", "paid"),
    [
        (Placement("aws", None, None, "H200 SXM"), 1, 2, 8),
        (Placement("aws", None, None, "H200 SXM"), 4, 2, 8),
        (Placement("aws", None, None, "H200 SXM"), 5, 2, 16),
        (Placement("aws", None, None, "H200 SXM"), 1, 16, 16),
        (Placement("nebius", None, None, "H200 SXM"), 1, 1, 1),
        (Placement("aws", None, "p5.48xlarge", "H100 SXM5"), 1, 1, 8),
        (Placement("aws", None, None, "H100 SXM5", 4), 3, 2, 8),
        (Placement(None, None, None, "H200 SXM"), 3, 2, 6),
        (Placement("nobody", None, None, "H200 SXM"), 3, 2, 6),
    ],
)
def test_replicas_share_instances_and_the_rest_of_the_last_is_paid_too(
    placement: Placement, replicas: int, devices: int, paid: int
) -> None:
    assert rented_devices(placement, replicas, devices, MARKET) == paid


def test_two_devices_of_an_instance_bank_nothing_by_moving_to_a_whole_other_one() -> None:
    p5 = replace(AWS, instance_type="p5.48xlarge", devices_per_instance=8)
    fleet = fleet_of([Service("chat", (llama(1, (10, 11), placement=p5),))], [host(1, 8, p5)])
    moved = fleet.edit(fleet.service("chat").on(Placement(accelerator="H200 SXM")))
    priced = estimate(fleet, moved, context(fleet, low_batch()))
    assert priced.saving is not None and priced.saving.pays_more
    assert any("instances are rented whole" in reason for reason in priced.against)
    assert any("the bill would rise by" in reason for reason in priced.against)
