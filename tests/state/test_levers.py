"""Each lever of the advisor as an edit of the fleet, and the difference it makes."""

from typing import Any

import pytest

from pertoken.state.diff import diff
from tests.state.fleets import FLEET, SMALL
from tests.state.levers import levers

LEVERS = levers(FLEET, SMALL)
_ALL = (100, 101, 102, 103)
_MOVED = ("placement.instance_type", "placement.devices_per_instance", "device_ids")
CHANGES: dict[str, set[tuple[Any, str]]] = {
    "quantize weights": {*((number, "weight_dtype") for number in _ALL), ("chat", "replicas")},
    "quantize the KV cache": {(100, "kv_dtype")},
    "batch limit": {(100, "max_num_seqs")},
    "chunked prefill": {(100, "enable_chunked_prefill")},
    "speculation": {(100, "speculative_method"), (100, "num_speculative_tokens")},
    "prefix cache": {(100, "enable_prefix_caching")},
    "engine": {(100, "engine")},
    "engine version": {(100, "engine_version")},
    "stuck engine": {(100, "restart")},
    "response cache": {("chat", "demand.response_cache_share")},
    "output budget": {("chat", "demand.output_len")},
    "shorter prompts": {("chat", "demand.prompt_len")},
    "smaller model": {*((number, "model") for number in _ALL), ("chat", "replicas")},
    "route": {(100, "serves"), (1, "added")},
    "accelerator": {("code", "replicas"), (200, "placement.accelerator"), *((200, name) for name in _MOVED)},
    "provider and region": {(200, "placement.provider"), (200, "placement.region"), *((200, name) for name in _MOVED)},
    "parallelism": {(200, "tp"), ("code", "replicas")},
    "replicas": {("chat", "replicas")},
    "consolidate": {(200, "device_ids"), (3, "released")},
    "MIG": {(40, "partitions")},
    "multi-LoRA": {(100, "removed"), (200, "removed"), (1, "added")},
    "sleep mode": {(100, "sleep")},
    "nights off": {("chat", "schedule")},
    "nights asleep": {("chat", "schedule")},
    "replicas by hour": {("chat", "schedule")},
    "idle host": {(4, "released")},
    "spot": {(number, name) for number in _ALL[1:] for name in ("placement.purchase", "device_ids")},
    "commitment": {(0, "commitments")},
    "serverless": {
        *((200, f"placement.{literal}") for literal in ("provider", "region", "accelerator", "purchase")),
        *((200, name) for name in _MOVED),
    },
    "SM clock": {(100, "sm_clock_mhz")},
    "power cap": {(100, "power_cap_w")},
    "disaggregate": {(100, "role"), (1, "added")},
    "KV offload": {(100, "kv_offload_bytes")},
}


@pytest.mark.parametrize("lever", LEVERS)
def test_each_lever_is_a_difference_of_two_fleets(lever: str) -> None:
    difference = diff(FLEET, FLEET.edit(LEVERS[lever]()))
    assert {
        *((change.target, change.field) for change in difference.changes),
        *((deployment.deployment_id, "added") for deployment in difference.added),
        *((deployment.deployment_id, "removed") for deployment in difference.removed),
        *((host.host_id, "released") for host in difference.released),
    } == CHANGES[lever]
    assert difference and difference.key == diff(FLEET, FLEET.edit(LEVERS[lever]())).key


def test_every_lever_has_an_identity_of_its_own() -> None:
    keys = [diff(FLEET, FLEET.edit(propose())).key for propose in LEVERS.values()]
    assert len(set(keys)) == len(keys)
