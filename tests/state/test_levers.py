"""Each lever of the advisor as an edit of the fleet, and the difference it makes."""

from collections.abc import Callable
from typing import Any

import pytest

from pertoken.state.demand import times, to
from pertoken.state.deployment import Deployment
from pertoken.state.diff import diff
from pertoken.state.fleet import Fleet
from pertoken.state.placement import Commitment, Placement
from pertoken.state.schedule import asleep, off
from pertoken.state.service import FEWEST, Service
from tests.state.fleets import SMALL, fleet

FLEET = fleet()
CHAT, CODE = FLEET.service("chat"), FLEET.service("code")
NOW, OTHER = CHAT.deployments[0], CODE.deployments[0]
SPOT, SERVERLESS = Placement(purchase="spot"), Placement(provider="bedrock", purchase="per_token")
H200, CHEAPER = Placement(accelerator="H200 SXM"), Placement(provider="lambda", region="us-west-1")
YEAR = Commitment("aws", "us-east-1", "p5.48xlarge", 2, 30_000_000_000, 1_800_000_000)
NIGHT = range(0, 6)

Proposal = Deployment | Service | Fleet
_ALL = (100, 101, 102, 103)
LEVERS: dict[str, tuple[Callable[[], Proposal], set[tuple[Any, str]]]] = {
    "quantize weights": (
        lambda: CHAT.but(weight_dtype="fp8").resized(),
        {*((each, "weight_dtype") for each in _ALL), ("chat", "replicas")},
    ),
    "quantize the KV cache": (lambda: NOW.but(kv_dtype="fp8"), {(100, "kv_dtype")}),
    "batch limit": (lambda: NOW.but(max_num_seqs=256), {(100, "max_num_seqs")}),
    "chunked prefill": (lambda: NOW.but(enable_chunked_prefill=True), {(100, "enable_chunked_prefill")}),
    "speculation": (
        lambda: NOW.but(speculative_method="eagle3", num_speculative_tokens=3),
        {(100, "speculative_method"), (100, "num_speculative_tokens")},
    ),
    "prefix cache": (lambda: NOW.but(enable_prefix_caching=True), {(100, "enable_prefix_caching")}),
    "engine": (lambda: NOW.but(engine="sglang").expecting(1.0, 1.3, 2.0, "a report"), {(100, "engine")}),
    "engine version": (lambda: NOW.but(engine_version="0.12.0"), {(100, "engine_version")}),
    "stuck engine": (lambda: NOW.restarted(), {(100, "restart")}),
    "response cache": (
        lambda: CHAT.serving(response_cache_share=to(0.2)),
        {("chat", "demand.response_cache_share")},
    ),
    "output budget": (lambda: CHAT.serving(output_len=times(0.7)), {("chat", "demand.output_len")}),
    "shorter prompts": (lambda: CHAT.serving(prompt_len=times(0.5)), {("chat", "demand.prompt_len")}),
    "smaller model": (
        lambda: CODE.but(model=SMALL.__class__("llama-1b")).resized(),
        {(200, "model"), ("code", "replicas")},
    ),
    "route": (
        lambda: FLEET.replace(NOW, NOW.serving_share(0.6), NOW.but(model=SMALL).serving_share(0.4)),
        {(100, "serves"), (1, "added")},
    ),
    "accelerator": (
        lambda: CODE.on(H200).resized(),
        {
            ("code", "replicas"),
            *((200, f"placement.{name}") for name in ("accelerator", "instance_type", "devices_per_instance")),
            (200, "device_ids"),
        },
    ),
    "provider and region": (
        lambda: CODE.on(CHEAPER),
        {
            *((200, f"placement.{name}") for name in ("provider", "region", "instance_type", "devices_per_instance")),
            (200, "device_ids"),
        },
    ),
    "parallelism": (lambda: CODE.but(tp=2).resized(), {(200, "tp"), ("code", "replicas")}),
    "replicas": (lambda: CHAT.scaled_to(2), {("chat", "replicas")}),
    "consolidate": (
        lambda: FLEET.replace(OTHER, OTHER.on_devices((40,))).release(3),
        {(200, "device_ids"), (3, "released")},
    ),
    "MIG": (lambda: FLEET.partition(40, "3g.40gb", "3g.40gb"), {(40, "partitions")}),
    "multi-LoRA": (
        lambda: FLEET.merge((NOW, OTHER), NOW.but(lora_adapters=("a", "b"))),
        {(100, "removed"), (200, "removed"), (1, "added")},
    ),
    "sleep mode": (lambda: NOW.but(sleep=True), {(100, "sleep")}),
    "nights off": (lambda: CHAT.scheduled(off(NIGHT)), {("chat", "schedule")}),
    "nights asleep": (lambda: CHAT.scheduled(asleep(NIGHT)), {("chat", "schedule")}),
    "idle host": (lambda: FLEET.release(4), {(4, "released")}),
    "spot": (
        lambda: CHAT.on(SPOT, all_but=1),
        {(each, name) for each in _ALL[1:] for name in ("placement.purchase", "device_ids")},
    ),
    "commitment": (lambda: FLEET.commit(YEAR), {(0, "commitments")}),
    "serverless": (
        lambda: CODE.on(SERVERLESS),
        {
            *((200, f"placement.{each}") for each in ("provider", "purchase", "instance_type", "devices_per_instance")),
            (200, "device_ids"),
        },
    ),
    "SM clock": (lambda: NOW.but(sm_clock_mhz=1200), {(100, "sm_clock_mhz")}),
    "power cap": (lambda: NOW.but(power_cap_w=450), {(100, "power_cap_w")}),
    "disaggregate": (
        lambda: FLEET.replace(NOW, NOW.but(role="prefill"), NOW.but(role="decode")),
        {(100, "role"), (1, "added")},
    ),
    "KV offload": (lambda: NOW.but(kv_offload_bytes=2**36), {(100, "kv_offload_bytes")}),
}


@pytest.mark.parametrize("lever", LEVERS)
def test_each_lever_is_a_difference_of_two_fleets(lever: str) -> None:
    propose, expected = LEVERS[lever]
    found = diff(FLEET, FLEET.edit(propose()))
    assert {
        *((each.target, each.field) for each in found.changes),
        *((each.deployment_id, "added") for each in found.added),
        *((each.deployment_id, "removed") for each in found.removed),
        *((each.host_id, "released") for each in found.released),
    } == expected
    assert found and found.key == diff(FLEET, FLEET.edit(propose())).key


def test_every_lever_has_an_identity_of_its_own() -> None:
    keys = [diff(FLEET, FLEET.edit(propose())).key for propose, _ in LEVERS.values()]
    assert len(set(keys)) == len(keys)


def test_a_resized_service_leaves_the_number_to_pricing() -> None:
    assert CHAT.resized().replicas == FEWEST
    assert CHAT.resized().deployments == CHAT.deployments


def test_what_a_change_costs_or_promises_is_no_part_of_its_identity() -> None:
    plain = diff(FLEET, FLEET.edit(NOW.but(tp=2)))
    promised = diff(FLEET, FLEET.edit(NOW.but(tp=2).expecting(1, 2, 3, "a paper")))
    assert plain.key == promised.key
    offers = [Placement(accelerator="H200 SXM", offer=offer) for offer in ("a", "b")]
    first, second = (diff(FLEET, FLEET.edit(CODE.on(each))).key for each in offers)
    assert first == second


def test_a_proposal_that_equals_the_present_has_an_empty_difference() -> None:
    assert not diff(FLEET, FLEET.edit(NOW.but(tp=1)))
    assert not diff(FLEET, FLEET.edit(CHAT.on(Placement(region="us-east-1"))))
    assert not diff(FLEET, FLEET)
