"""The table of levers: each as a proposal about a fleet like `tests.state.fleets.fleet`."""

from collections.abc import Callable

from pertoken.state.deployment import Commitment, Deployment, Model, Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Schedule, Service, asleep, off, times, to

Proposal = Deployment | Service | Fleet
SPOT, SERVERLESS = Placement(purchase="spot"), Placement(provider="bedrock", purchase="per_token")
H200, ELSEWHERE = Placement(accelerator="H200 SXM"), Placement(provider="lambda", region="us-west-1")
YEAR = Commitment("aws", "us-east-1", "p5.48xlarge", 2, 1_000_000_000, 1_800_000_000)
NIGHT = range(0, 6)


def levers(fleet: Fleet, small: Model) -> dict[str, Callable[[], Proposal]]:
    """Proposals by lever: `chat` has deployments 100 to 103, `code` has 200; host 4 is idle, device 40 is its first."""
    chat, code = fleet.service("chat"), fleet.service("code")
    now, other = chat.deployments[0], code.deployments[0]
    return {
        "quantize weights": lambda: chat.but(weight_dtype="fp8").resized(),
        "quantize the KV cache": lambda: now.but(kv_dtype="fp8"),
        "batch limit": lambda: now.but(max_num_seqs=256),
        "chunked prefill": lambda: now.but(enable_chunked_prefill=True),
        "speculation": lambda: now.but(speculative_method="eagle3", num_speculative_tokens=3),
        "prefix cache": lambda: now.but(enable_prefix_caching=True),
        "engine": lambda: now.but(engine="sglang").expecting(1.0, 1.3, 2.0, "a report"),
        "engine version": lambda: now.but(engine_version="0.12.0"),
        "stuck engine": lambda: now.restarted(),
        "response cache": lambda: chat.serving(response_cache_share=to(0.2)),
        "output budget": lambda: chat.serving(output_len=times(0.7)),
        "shorter prompts": lambda: chat.serving(prompt_len=times(0.5)),
        "smaller model": lambda: chat.but(model=small).resized(),
        "route": lambda: fleet.replace(now, now.serving_share(0.6), now.but(model=small).serving_share(0.4)),
        "accelerator": lambda: code.on(H200).resized(),
        "provider and region": lambda: code.on(ELSEWHERE),
        "parallelism": lambda: code.but(tp=2).resized(),
        "replicas": lambda: chat.scaled_to(2),
        "consolidate": lambda: fleet.replace(other, other.on_devices((40,))).release(3),
        "MIG": lambda: fleet.partition(40, "3g.40gb", "3g.40gb"),
        "multi-LoRA": lambda: fleet.merge((now, other), now.but(lora_adapters=("a", "b"))),
        "sleep mode": lambda: now.but(sleep=True),
        "nights off": lambda: chat.scheduled(off(NIGHT)),
        "nights asleep": lambda: chat.scheduled(asleep(NIGHT)),
        "replicas by hour": lambda: chat.scheduled(Schedule(replicas=tuple((hour, 1) for hour in NIGHT))),
        "idle host": lambda: fleet.release(4),
        "spot": lambda: chat.on(SPOT, all_but=1),
        "commitment": lambda: fleet.commit(YEAR),
        "serverless": lambda: code.on(SERVERLESS),
        "SM clock": lambda: now.but(sm_clock_mhz=1200),
        "power cap": lambda: now.but(power_cap_w=450),
        "disaggregate": lambda: fleet.replace(now, now.but(role="prefill"), now.but(role="decode")),
        "KV offload": lambda: now.but(kv_offload_bytes=2**36),
    }
