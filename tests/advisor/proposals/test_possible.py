"""Impossible proposals are refused or unpriced, with a reason, whichever way a rule makes them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pertoken.rule import (
    Commitment,
    Device,
    Fleet,
    Model,
    Partition,
    Placement,
    Proposal,
    Schedule,
    Skip,
    off,
    times,
    to,
)
from pertoken.state.service import Slo
from tests.advisor.gathered import advised, own
from tests.advisor.hostile import FLEET, HOSTILE, IDLE, NOW, PRICED, SERVICE
from tests.deployments import model


def changed(value: Any, **changes: Any) -> object:
    """Replace fields by values of types they do not take."""
    return replace(value, **changes)


NONSENSE: dict[str, tuple[Callable[[], object], str]] = {
    "memory share of 7": (lambda: replace(NOW, gpu_memory_utilization=7.0), "a number from 0.01 to 1"),
    "tp of -1": (lambda: replace(NOW, tp=-1), "a whole number from 1"),
    "tp as a list": (lambda: changed(NOW, tp=[1]), "deployment.tp must be int or None, not list"),
    "no model": (lambda: changed(NOW, model=None), "deployment.model must be a Model"),
    "a model of no weights": (lambda: NOW.but(model=Model("m", 0, 0, 1, 1, 1)), "shape of m is not possible"),
    "a purchase that is none": (lambda: Placement(purchase="reserved_1y"), "use one of on_demand, spot"),
    "an unknown knob value": (lambda: replace(NOW, weight_dtype=None), "weights must be one of"),
    "another objective": (lambda: replace(SERVICE, slo=Slo(ttft_p95_ms=1e9)), "are settings"),
    "fewer at least": (lambda: replace(SERVICE, min_replicas=0), "are settings"),
    "no replicas": (lambda: replace(SERVICE, replicas=0), "use scaled_to"),
    "half a replica": (lambda: changed(SERVICE, replicas=1.5), "must be int or str or None"),
    "a service without deployments": (
        lambda: replace(FLEET, services=(replace(SERVICE, deployments=()),)),
        "would have no deployment",
    ),
    "a held host": (
        lambda: replace(
            FLEET,
            hosts=FLEET.hosts[1:],
            devices=tuple(device for device in FLEET.devices if device.host_id != FLEET.hosts[0].host_id),
        ),
        "would run on devices that the proposal does not have",
    ),
    "a host that is no longer paid for": (
        lambda: replace(FLEET, hosts=tuple(replace(host, paid_until=1) for host in FLEET.hosts)),
        "",
    ),
    "a cheaper host": (
        lambda: replace(
            FLEET.release(9),
            hosts=tuple(replace(host, placement=Placement(purchase="spot")) for host in FLEET.release(9).hosts),
        ),
        "a rule cannot change the placement or purchase of a host",
    ),
    "other devices": (
        lambda: replace(FLEET, devices=tuple(replace(device, accelerator="T4") for device in FLEET.devices)),
        "",
    ),
    "a device of its own": (
        lambda: replace(FLEET, devices=(*FLEET.devices, Device(77, "new", IDLE.host_id))),
        "other devices on hosts that stay",
    ),
    "shares above 1": (
        lambda: FLEET.replace(NOW, NOW.serving_share(0.9), NOW.but(tp=1).serving_share(0.9)),
        "add up to more than 1",
    ),
    "a division into nothing": (lambda: _divided(90, ""), "name the profile"),
    "a division of a held device": (lambda: _divided(10, "1g.10gb"), "held by Llama-3.3-70B: move these first"),
    "a profile with a command": (lambda: FLEET.partition(90, "1g.10gb; reboot"), "name the profile"),
    "a hundred divisions": (lambda: FLEET.partition(90, *["1g.10gb"] * 100), "at most 8 partitions"),
    "no devices": (lambda: replace(NOW, device_ids=()), "would run on no device"),
    "too few devices": (lambda: replace(NOW, device_ids=(10,)), "needs 2 devices, and 1 are named"),
    "too few devices of another host": (
        lambda: FLEET.replace(NOW, NOW.on_devices((90,))).release(1),
        "needs 2 devices, and 1 are named",
    ),
    "a service that is not there": (
        lambda: replace(NOW, serves=(("chat", None), ("nobody", None))),
        "serves other services than those that list it",
    ),
    "a service twice": (
        lambda: replace(NOW, serves=(("chat", 0.1), ("chat", 0.2))),
        "serves other services than those that list it",
    ),
    "a demand that nobody serves": (
        lambda: replace(
            SERVICE, deployments=tuple(deployment.serving_share(0.1) for deployment in SERVICE.deployments)
        ),
        "the rest is not served",
    ),
    "a known model without weights": (
        lambda: SERVICE.but(model=replace(NOW.model, params_total=1000, params_active=1000), tp=1).resized(),
        "has another shape than in the fleet or the catalog",
    ),
    "a catalog model without weights": (
        lambda: SERVICE.but(model=replace(model("Qwen3-8B"), params_total=8, params_active=8), tp=1).resized(),
        "has another shape than in the fleet or the catalog",
    ),
    "more active than there are": (lambda: NOW.but(model=Model("m", 10, 11, 1, 1, 1)), "more than params_total"),
    "a model with escape codes": (lambda: NOW.but(model=Model("\x1b[31m")), "name of a model is printable"),
    "an engine with a line break": (lambda: NOW.but(engine="vllm\nreboot"), "engine must be a name"),
    "an endless engine": (lambda: NOW.but(engine="x" * 300), "engine must be a name"),
    "endless adapters": (lambda: NOW.but(lora_adapters=["x"] * 300), "must be a list of names"),
    "an endless provider": (lambda: SERVICE.on(Placement(provider="x" * 300)), "is not a name"),
    "a thousandfold speed": (lambda: NOW.but(engine_version="9").expecting(1, 10, 1000, "a dream"), "up to 100"),
    "an expectation of what does not start": (
        lambda: NOW.but(engine_version="9", tp=1).expecting(2, 3, 4, "a dream"),
        "it would not start",
    ),
    "answers of no tokens": (lambda: SERVICE.serving(output_len=to(0)), "use a number from 1 to"),
    "requests without end": (lambda: SERVICE.serving(requests_per_s=to(1e300)), "use a number from"),
    "more demand": (lambda: SERVICE.serving(requests_per_s=times(2.0)), "frees no busy time: it takes 1"),
    "a thousand replicas at night": (
        lambda: SERVICE.scheduled(Schedule(replicas=((0, 1000),))),
        "schedule a number from 0 to 3",
    ),
    "a faster model beside a schedule": (
        lambda: SERVICE.but(weight_dtype="fp8").scheduled(off([0])),
        "it is not idle then",
    ),
    "two replicas on one free host": (
        lambda: _stacked(),
        "would reserve 180% of one device",
    ),
    "what is required is no rule": (
        lambda: Proposal(SERVICE.on(Placement(purchase="spot")), requires=("NO RULE",)),
        "is not a rule id",
    ),
    "requirements without end": (
        lambda: Proposal(SERVICE.on(Placement(purchase="spot")), requires=("a-rule",) * 1000),
        "at most 100 rules",
    ),
    "a reason without end": (lambda: Skip("too-long", "x" * 9000), "use at most 2,000"),
    "a commitment taken back": (lambda: replace(_committed(), commitments=()), "cannot be removed"),
    "another commitment": (
        lambda: FLEET.commit(Commitment("aws", None, "p5.48xlarge", 1, 1, 1)),
        "is over already, since 1970-01-01",
    ),
}


def _divided(device_id: int, profile: str) -> Fleet:
    """As `Fleet.partition` would, without its checks."""
    part = (Partition(0, profile),)
    devices = (
        replace(device, partitions=part) if device.device_id == device_id else device for device in FLEET.devices
    )
    return replace(FLEET, devices=tuple(devices))


def _stacked() -> Fleet:
    first, second, _ = SERVICE.deployments
    moved = FLEET.replace(first, first.on_devices((90, 91)))
    return moved.replace(second, second.on_devices((90, 91))).release(1).release(2)


def _committed() -> Fleet:
    return FLEET.commit(Commitment("aws", None, "p5.48xlarge", 1, 10**9, 1_900_000_000))


@pytest.mark.parametrize("name", NONSENSE)
def test_nothing_nonsensical_is_priced(name: str) -> None:
    proposal, message = NONSENSE[name]
    state = PRICED if name != "a commitment taken back" else replace(PRICED, fleet=_committed())

    def nonsense(fleet: Fleet) -> Iterator[Any]:
        yield proposal()

    (row,) = advised(state, own(nonsense, HOSTILE))
    reasons = [row.reason or "", *(variant.unpriced or "" for variant in row.variants)]
    assert any(message in reason for reason in reasons), reasons
    assert all(variant.net is None and variant.capacity is None for variant in row.variants)
