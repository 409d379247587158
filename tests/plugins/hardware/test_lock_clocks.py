from typing import Any

import pytest

from pertoken.advisor.changes.commands import Addresses, DeviceAddress, commands
from pertoken.advisor.changes.title import PricingChoices
from pertoken.plugins.hardware.lock_clocks import lock_clocks
from pertoken.rule import Placement
from pertoken.testing import deployment, evidence, fleet, regime, run, service

OWN = Placement(accelerator="H200 SXM", purchase="owned")
DECODE = {"power_w": 280.0, "dram_active": 0.7, "tensor_active": 0.05, "sm_clock_mhz": 1980.0}


def owned_regime(seen: dict[str, float] | None = None, **fields: Any) -> Any:
    chat = service("chat", deployment(**{"placement": OWN, **fields}))
    return regime(fleet(chat), {"chat": evidence(**{**DECODE, **(seen or {})})})


def test_owned_devices_with_memory_bound_decode_are_locked_below_their_highest_clock() -> None:
    (proposed,) = run(lock_clocks, owned_regime()).proposals
    assert proposed.diff.knobs(1) == {"sm_clock_mhz": (None, 1380)}
    assert (proposed.risk, proposed.effort, proposed.excludes) == ("latency", "low", ("cap-power",))


@pytest.mark.parametrize("purchase", ["on_demand", "spot", "reserved"])
def test_whoever_rents_saves_0_dollars_and_no_series_is_read(purchase: str) -> None:
    result = run(lock_clocks, owned_regime(placement=Placement("aws", accelerator="H200 SXM", purchase=purchase)))
    assert (result.codes, result.read) == (("rented",), ()) and "$0" in result.refusals[0].reason


@pytest.mark.parametrize(
    ("placement", "code"),
    [
        (Placement(accelerator="H200 SXM"), "purchase-unknown"),
        (Placement(purchase="owned"), "device-unknown"),
        (Placement(accelerator="Gaudi 3 OAM", purchase="owned"), "vendor-cannot"),
    ],
)
def test_it_refuses_devices_without_settable_clocks(placement: Placement, code: str) -> None:
    assert run(lock_clocks, owned_regime(placement=placement)).codes == (code,)


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ({"power_w": 450}, "power-near-limit"),
        ({"dram_active": 0.3}, "not-memory-bound"),
        ({"tensor_active": 0.4}, "not-memory-bound"),
        ({"sm_clock_mhz": 120}, "clock-low"),
    ],
)
def test_it_refuses_where_decode_does_not_wait_on_memory(seen: dict[str, float], code: str) -> None:
    assert run(lock_clocks, owned_regime(seen)).codes == (code,)


def test_it_refuses_locked_clocks_and_devices_that_others_share() -> None:
    assert run(lock_clocks, owned_regime(sm_clock_mhz=1200)).codes == ("clock-locked",)
    one, other = (service(name, deployment(placement=OWN, device_ids=(10,))) for name in ("chat", "code"))
    shared = regime(fleet(one, other), {"chat": evidence(**DECODE), "code": evidence(**DECODE)})
    assert run(lock_clocks, shared).codes == ("shared-device",)


def test_without_counters_it_is_blocked() -> None:
    assert run(lock_clocks, owned_regime().without("dram_active")).blocked == ("dram_active",)
    assert run(lock_clocks, owned_regime().without("sm_clock_mhz")).blocked == ("sm_clock_mhz",)


def test_the_driver_locks_the_clocks_and_resets_them() -> None:
    (proposed,) = run(lock_clocks, owned_regime()).proposals
    where = Addresses({1: "gpu-1"}, {10: DeviceAddress("GPU-10", "nvidia")})
    step = commands(proposed.diff, owned_regime().fleet, where, PricingChoices())
    assert step.apply == ("on gpu-1: nvidia-smi -i GPU-10 -lgc 1380,1380",)
    assert step.undo == ("on gpu-1: nvidia-smi -i GPU-10 -rgc",)
