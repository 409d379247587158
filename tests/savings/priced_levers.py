"""A fleet, every lever on it, and what the pricing makes of each."""

from dataclasses import replace
from typing import Any

from pertoken.provenance import Provenance
from pertoken.state.fleet import Fleet
from pertoken.state.service import Demand, Quantity, Service
from tests.deployments import model
from tests.savings.fleets import AWS, context, fleet_of, host, llama, low_batch
from tests.state.levers import levers

P5 = replace(AWS, instance_type="p5.48xlarge", devices_per_instance=2)
SMALL = model("Qwen3-1.7B")


def fleet() -> Fleet:
    """Four replicas of an 8B on two instances, one more model on a third, the fourth idle."""
    hosts = [host(literal, placement=P5) for literal in (1, 2, 3, 4)]
    knobs: dict[str, Any] = {"model": model("Qwen3-8B"), "served_model": "8b", "placement": P5, "max_num_seqs": 64}
    chat = tuple(llama(100 + at, (10 * (1 + at // 2) + at % 2,), **knobs) for at in range(4))
    code = llama(200, (30,), "code", **knobs)
    measured: dict[str, Any] = {
        "requests_per_s": Quantity(0.4, Provenance.COUNTER),
        "prompt_len": Quantity(1600, Provenance.COUNTER),
        "output_len": Quantity(400, Provenance.COUNTER),
    }
    quiet = tuple(0.0 if hour < 6 else 0.2 for hour in range(168))
    demand = Demand(requests_by_hour_of_week=quiet, **measured)
    return fleet_of([Service("chat", chat, demand), Service("code", (code,), demand)], hosts)


FLEET = fleet()
CONTEXT = context(FLEET, low_batch(tpot_s=0.009, busy_generated_tok_s=200))
LEVERS = levers(FLEET, SMALL)
BANKABLE, CAPACITY = "bankable", "capacity"
EXPECTED: dict[str, str] = {
    "quantize weights": BANKABLE,
    "quantize the KV cache": CAPACITY,
    "batch limit": "it saves nothing",
    "chunked prefill": "it saves nothing",
    "speculation": "which share of drafted tokens is accepted is not measured",
    "prefix cache": "which share of prompts repeats is not measured",
    "engine": CAPACITY,
    "engine version": "does not know what engine_version does",
    "stuck engine": "a restart changes no bill",
    "response cache": "frees 20% of its busy time",
    "output budget": "is a proposal, not a measurement",
    "shorter prompts": "is a proposal, not a measurement",
    "smaller model": "whether the outputs of Qwen/Qwen3-1.7B are as good is not measured",
    "route": "the share of requests Qwen/Qwen3-1.7B could answer is not measured",
    "accelerator": "the bill would rise by",
    "provider and region": "confirm that lambda sells it to you",
    "parallelism": "the bill would rise by",
    "replicas": BANKABLE,
    "consolidate": BANKABLE,
    "MIG": "dividing a device alone changes no bill",
    "multi-LoRA": "what adapters cost in one engine is not forecast",
    "sleep mode": "does not know what sleep does",
    "nights off": BANKABLE,
    "nights asleep": CAPACITY,
    "replicas by hour": BANKABLE,
    "idle host": BANKABLE,
    "spot": BANKABLE,
    "commitment": BANKABLE,
    "serverless": "no token price of this model is in the catalog",
    "SM clock": "does not know what sm_clock_mhz does",
    "power cap": "whoever pays for the electricity",
    "disaggregate": "prefill and decode on devices of their own are not forecast",
    "KV offload": "does not know what kv_offload_bytes does",
}
