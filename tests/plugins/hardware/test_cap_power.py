from typing import Any

import pytest

from pertoken.advisor.changes.commands import Addresses, DeviceAddress, commands
from pertoken.advisor.changes.title import PricingChoices
from pertoken.plugins.hardware.cap_power import cap_power
from pertoken.rule import Placement
from pertoken.testing import deployment, evidence, fleet, regime, run, service

OWN = Placement(accelerator="H100 SXM5", purchase="owned")
PREFILL = {"power_w": 660.0, "tensor_active": 0.6, "waiting": 0.1}


def owned_regime(seen: dict[str, float] | None = None, **fields: Any) -> Any:
    chat = service("chat", deployment(**{"placement": OWN, **fields}))
    return regime(fleet(chat), {"chat": evidence(**{**PREFILL, **(seen or {})})})


def test_owned_devices_that_compute_products_near_their_limit_are_capped() -> None:
    (proposed,) = run(cap_power, owned_regime()).proposals
    assert proposed.diff.knobs(1) == {"power_cap_w": (None, 525)}
    assert (proposed.risk, proposed.effort, proposed.excludes) == ("latency", "low", ("lock-clocks",))


@pytest.mark.parametrize("purchase", ["on_demand", "spot", "reserved"])
def test_whoever_rents_saves_0_dollars_and_no_series_is_read(purchase: str) -> None:
    result = run(cap_power, owned_regime(placement=Placement("aws", accelerator="H100 SXM5", purchase=purchase)))
    assert (result.codes, result.read) == (("rented",), ()) and "$0" in result.refusals[0].reason


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ({"power_w": 300}, "cap-never-binds"),
        ({"tensor_active": 0.05}, "memory-bound"),
        ({"waiting": 4}, "requests-wait"),
    ],
)
def test_it_refuses_where_a_cap_does_not_bind_or_nothing_may_be_slowed(seen: dict[str, float], code: str) -> None:
    assert run(cap_power, owned_regime(seen)).codes == (code,)


def test_it_refuses_devices_that_are_capped_or_shared() -> None:
    assert run(cap_power, owned_regime(power_cap_w=500)).codes == ("capped-already",)
    assert run(cap_power, owned_regime(power_cap_w=700)).proposals, "the default limit is no cap"
    one, other = (service(name, deployment(placement=OWN, device_ids=(10,))) for name in ("chat", "code"))
    shared = regime(fleet(one, other), {"chat": evidence(**PREFILL), "code": evidence(**PREFILL)})
    assert run(cap_power, shared).codes == ("shared-device",)


def test_the_power_budget_of_a_site_is_kept_whatever_the_load() -> None:
    (proposed,) = run(cap_power, owned_regime({"power_w": 450, "waiting": 9}), site_w=400.0).proposals
    assert proposed.diff.knobs(1) == {"power_cap_w": (None, 400)}
    assert run(cap_power, owned_regime({"power_w": 350}), site_w=400.0).codes == ("cap-never-binds",)


def test_without_counters_it_is_blocked() -> None:
    assert run(cap_power, owned_regime().without("tensor_active")).blocked == ("tensor_active",)


def test_the_driver_caps_the_power_and_names_where_the_default_is() -> None:
    (proposed,) = run(cap_power, owned_regime()).proposals
    where = Addresses({1: "gpu-1"}, {10: DeviceAddress("GPU-10", "nvidia")})
    step = commands(proposed.diff, owned_regime().fleet, where, PricingChoices())
    assert step.apply == ("on gpu-1: nvidia-smi -i GPU-10 -pl 525",)
    assert "nvidia-smi -q -d POWER" in step.undo[0]
