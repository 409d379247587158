from typing import Any

import pytest

from pertoken.catalog.market import Accelerator
from pertoken.plugins.common import owned_devices
from pertoken.rule import Fleet, Placement, Skip
from pertoken.testing import deployment, fleet, service
from tests.deployments import MARKET

OWN = Placement(accelerator="H100 SXM5", purchase="owned")


def checked(present: Fleet) -> Accelerator | Skip:
    return owned_devices(present.deployments[0], present, MARKET)


def code(**fields: Any) -> str:
    refusal = checked(fleet(service("chat", deployment(**{"placement": OWN, **fields}))))
    assert isinstance(refusal, Skip)
    return refusal.code


def test_whole_owned_devices_of_one_deployment_are_returned() -> None:
    device = checked(fleet(service("chat", deployment(placement=OWN))))
    assert isinstance(device, Accelerator) and device.tdp_w == 700


@pytest.mark.parametrize("purchase", ["on_demand", "spot", "reserved", "per_token"])
def test_the_electricity_of_rented_devices_is_in_their_price(purchase: str) -> None:
    assert code(placement=Placement("aws", accelerator="H100 SXM5", purchase=purchase)) == "rented"


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (Placement(accelerator="H100 SXM5"), "purchase-unknown"),
        (Placement(purchase="owned"), "device-unknown"),
        (Placement(accelerator="Gaudi 3 OAM", purchase="owned"), "vendor-cannot"),
    ],
)
def test_devices_without_settable_clocks_or_an_energy_bill_are_refused(placement: Placement, expected: str) -> None:
    assert code(placement=placement) == expected


def test_a_device_that_others_share_or_that_is_a_part_is_refused() -> None:
    both = (service(name, deployment(placement=OWN, device_ids=(10,))) for name in ("chat", "code"))
    refusal = checked(fleet(*both))
    assert isinstance(refusal, Skip) and (refusal.code, "Llama" in refusal.reason) == ("shared-device", True)
    whole = fleet(service("chat", deployment(placement=OWN)))
    part = owned_devices(deployment(placement=OWN, device_ids=(77,)), whole, MARKET)
    assert isinstance(part, Skip) and part.code == "part-of-device"
