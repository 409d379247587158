"""Rule: prefill and decode on replicas of their own."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.unknown import CATALOG
from pertoken.rule import Evidence, Fleet, Market, Proposal, Service, Skip, option, propose, rule, skip

ENGINES = ("vllm", "dynamo-vllm", "sglang", "dynamo-sglang", "trtllm", "dynamo-trtllm")
"""Engines that hand the KV cache of a prompt to another server (Sources, 2)."""


@dataclass(frozen=True)
class Options:
    """What a person may set; the number of devices and the ratio are of the field (Sources, 1), the rest judgement."""

    min_devices: int = option(16, "devices below which a split leaves too few for either part", low=2)
    least_ratio: float = option(0.3, "prefill over decode time below which prefill hardly interferes", low=0)
    most_ratio: float = option(3.0, "prefill over decode time above which decode hardly takes part", low=0)
    prefill_mfu: float = option(
        0.5, "share of the listed FLOPs that prefill reaches (published: 0.4 to 0.6)", low=0.05, high=1
    )


@rule("disaggregate")
def disaggregate(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Compute prompts on some replicas and answers on the others where both objectives cannot be kept together.

    ## Why it saves
    Prompts that are computed between the steps of an answer hold it up, and batches large enough to be cheap make first
    tokens late. Apart, each part is sized and batched for its own objective, so that fewer devices keep both.
    ## When it is wrong
    In a small fleet one part idles while the other is full: 16 devices or more. The KV cache of each prompt crosses the
    network (2.7 GB for 8,000 tokens of a 70B): without RDMA between the hosts it comes late. Chunked prefill keeps both
    objectives of most loads already: try that first. No forecast has it: nothing is promised before a trial.
    ## How to apply
    vLLM: `--kv-transfer-config` with the NixlConnector on both parts, behind a proxy that knows the roles; SGLang:
    `--disaggregation-mode prefill|decode --disaggregation-transfer-backend nixl`; TensorRT-LLM: `trtllm-serve
    disaggregated`; Dynamo and llm-d start both parts. Try it for a week beside replicas that do both, and compare
    goodput per device.
    ## Sources
    1. [A] 16 devices or more, two hosts or more, prefill time 0.3 to 3 times decode time, an objective that is missed.
    2. [C] vLLM 0.32 and SGLang 0.5.23 connectors and flags. Read in the code.
    3. [K] Zhong et al., DistServe, OSDI 2024: up to 7.4 times the requests within both objectives. Recalled; bound to
       its objectives.
    4. [A] Prefill time by 2 FLOPs per active parameter and token at half of the listed rate.
    """
    busy = seen.busy.mean
    replicas = len(service.deployments)
    devices = sum(deployment.n_devices or 1 for deployment in service.deployments)
    hosts = {fleet.device(held).host_id for deployment in service.deployments for held in deployment.device_ids}
    now = service.deployments[0]
    device = market.accelerator(now.accelerator)
    peak = device.peak_flops(now.weight_dtype or "bf16") if device is not None else None
    roles = {deployment.role for deployment in service.deployments} - {None, "both"}
    alike = {
        (deployment.model, deployment.engine, deployment.accelerator, deployment.weight_dtype, deployment.tp)
        for deployment in service.deployments
    }
    if roles:
        yield skip(
            "split-already", f"of its {replicas} replicas some have the role {', '.join(sorted(map(str, roles)))}"
        )
    elif devices < options.min_devices or len(hosts) < 2 or replicas < 2:
        yield skip(
            "small-fleet",
            f"it has {replicas} replica(s) on {devices} device(s) of {len(hosts)} host(s): below {options.min_devices} "
            "devices and two hosts one part idles",
        )
    elif len(alike) > 1:
        yield skip("replicas-differ", f"its {replicas} replicas differ in model, engine, device, weights or ranks")
    elif now.engine not in ENGINES:
        yield skip("engine-cannot", f"{now.engine} hands the KV cache to none of the {replicas} replicas")
    elif busy <= 0:
        yield skip("no-load", "it was busy 0 % of the time")
    elif peak is None or now.model.params_active is None:
        yield skip("device-unknown", f"how fast its {devices} devices compute a prompt is not known: {CATALOG}")
    else:
        flops = 2 * now.model.params_active * seen.computed_tok_s.mean
        prefill = min(0.99, flops / (options.prefill_mfu * peak * devices) / busy)
        yield _split(seen, service, fleet, prefill, options)


def _split(seen: Evidence, service: Service, fleet: Fleet, prefill: float, options: Options) -> Proposal | Skip:
    """Divide the replicas by the time that prompts take, where an objective is missed. `prefill`: of busy time."""
    ratio, slo = prefill / (1 - prefill), service.slo
    ttft_ms, tpot_ms = 1000 * seen.ttft_s.p95, 1000 * seen.tpot_s.p95
    late = slo.ttft_p95_ms is not None and ttft_ms > slo.ttft_p95_ms
    slow = slo.tpot_p95_ms is not None and tpot_ms > slo.tpot_p95_ms
    if slo.ttft_p95_ms is None or slo.tpot_p95_ms is None:
        return skip(
            "no-objectives",
            f"TTFT is {ttft_ms:.0f} ms and TPOT {tpot_ms:.0f} ms (p95), but without an objective for both a split has "
            "nothing to keep: set `slo.ttft_ms` and `slo.tpot_ms`",
        )
    if not (late or slow):
        return skip(
            "slo-kept",
            f"TTFT is {ttft_ms:.0f} of {slo.ttft_p95_ms:.0f} ms and TPOT {tpot_ms:.0f} of {slo.tpot_p95_ms:.0f} ms "
            "(p95): replicas that do both keep them",
        )
    if not options.least_ratio <= ratio <= options.most_ratio:
        return skip(
            "one-sided",
            f"prompts take {ratio:.2f} times as long as answers, outside {options.least_ratio:g} to "
            f"{options.most_ratio:g}: one part would hardly work",
        )
    replicas = service.deployments
    first = min(len(replicas) - 1, max(1, round(prefill * len(replicas))))
    for place, replica in enumerate(replicas):
        fleet = fleet.edit(replica.but(role="prefill" if place < first else "decode"))
    return propose(fleet, risk="latency", effort="high", excludes=("right-size-parallelism", "chunked-prefill"))
