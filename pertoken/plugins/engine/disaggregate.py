"""Rule: run prefill and decode on separate replicas."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import CATALOG, replicas_differ
from pertoken.rule import Evidence, Fleet, Market, Proposal, Service, Skip, counted, option, propose, rule, skip

ENGINES = ("vllm", "dynamo-vllm", "sglang", "dynamo-sglang", "trtllm", "dynamo-trtllm")
"""Engines that transfer the KV cache of a prompt to another server (Sources, 2)."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; `min_devices` and the ratios are common practice (Sources, 1), the rest is judgement."""

    min_devices: int = option(16, "minimum number of devices: with fewer, one role has too few", low=2)
    min_ratio: float = option(0.3, "minimum prefill over decode time: below it prefill hardly interferes", low=0)
    max_ratio: float = option(3.0, "maximum prefill over decode time: above it decode replicas are hardly used", low=0)
    prefill_mfu: float = option(
        0.5, "share of the listed FLOPs that prefill reaches (published: 0.4 to 0.6)", low=0.05, high=1
    )


@rule("disaggregate")
def disaggregate(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Separate prefill and decode replicas where the TTFT and TPOT objectives cannot both be kept.

    ## Why it saves
    Prefill that runs between decode steps delays the next tokens of running requests, and batches large enough to be
    cheap delay first tokens. Separate replicas are sized and batched for one objective each, so that fewer devices keep
    both.
    ## When it is wrong
    In a small fleet one role idles while the other is full: use 16 devices or more. The KV cache of each prompt crosses
    the network (2.7 GB for 8,000 tokens of a 70B model): without RDMA between the hosts it arrives late. Chunked
    prefill already keeps both objectives for most loads: try that first. The forecast does not model this change, so no
    saving is stated before a trial.
    ## How to apply
    vLLM: `--kv-transfer-config` with the NixlConnector on both roles, behind a proxy that knows the roles. SGLang:
    `--disaggregation-mode prefill|decode --disaggregation-transfer-backend nixl`. TensorRT-LLM: `trtllm-serve
    disaggregated`. Dynamo and llm-d start both roles. Run it for a week beside replicas that do both, and compare
    goodput per device.
    ## Sources
    1. (calculated) 16 devices or more, two hosts or more, prefill time 0.3 to 3 times decode time, an objective that is
       missed.
    2. (code) vLLM 0.32 and SGLang 0.5.23 connectors and flags.
    3. (unverified) Zhong et al., DistServe, OSDI 2024: up to 7.4 times the requests within both objectives; the factor
       depends on the objectives.
    4. (calculated) prefill time is computed as 2 FLOPs per active parameter and token at half of the listed rate.
    """
    busy = seen.busy.mean
    replicas = len(service.deployments)
    devices = sum(deployment.n_devices or 1 for deployment in service.deployments)
    hosts = {fleet.device(held).host_id for deployment in service.deployments for held in deployment.device_ids}
    present = service.deployments[0]
    device = market.accelerator(present.accelerator)
    peak = device.peak_flops(present.weight_dtype or "bf16") if device is not None else None
    roles = {deployment.role for deployment in service.deployments} - {None, "both"}
    words = "model, engine, device, weights or ranks"
    differing = replicas_differ(service, words, "model", "engine", "accelerator", "weight_dtype", "tp")
    if roles:
        yield skip(
            "split-already",
            f"some of its {replicas} replicas already have the role {', '.join(sorted(map(str, roles)))}",
        )
    elif devices < options.min_devices or len(hosts) < 2 or replicas < 2:
        yield skip(
            "small-fleet",
            f"it has {counted(replicas, 'replica')} on {counted(devices, 'device')} of {counted(len(hosts), 'host')}: "
            f"below {options.min_devices} devices and two hosts, one role idles",
        )
    elif differing:
        yield differing
    elif present.engine not in ENGINES:
        yield skip("engine-cannot", f"{present.engine} cannot transfer the KV cache between its {replicas} replicas")
    elif busy <= 0:
        yield skip("no-load", "it was busy 0 % of the time")
    elif peak is None or present.model.params_active is None:
        yield skip("device-unknown", f"the prefill speed of its {devices} devices is not known: {CATALOG}")
    else:
        flops = 2 * present.model.params_active * seen.computed_tok_s.mean
        prefill = min(0.99, flops / (options.prefill_mfu * peak * devices) / busy)
        yield _split(seen, service, fleet, prefill, options)


def _split(seen: Evidence, service: Service, fleet: Fleet, prefill: float, options: Options) -> Proposal | Skip:
    """Assign roles to replicas in proportion to prefill time, if an objective is missed.

    `prefill` is the share of busy time spent in prefill.
    """
    ratio, slo = prefill / (1 - prefill), service.slo
    ttft_ms, tpot_ms = 1000 * seen.ttft_s.p95, 1000 * seen.tpot_s.p95
    late = slo.ttft_p95_ms is not None and ttft_ms > slo.ttft_p95_ms
    slow = slo.tpot_p95_ms is not None and tpot_ms > slo.tpot_p95_ms
    if slo.ttft_p95_ms is None or slo.tpot_p95_ms is None:
        return skip(
            "no-objectives",
            f"TTFT is {ttft_ms:.0f} ms and TPOT {tpot_ms:.0f} ms (p95), but a split needs an objective for both: set "
            "`slo.ttft_ms` and `slo.tpot_ms`",
        )
    if not (late or slow):
        return skip(
            "slo-kept",
            f"TTFT is {ttft_ms:.0f} of {slo.ttft_p95_ms:.0f} ms and TPOT {tpot_ms:.0f} of {slo.tpot_p95_ms:.0f} ms "
            "(p95): the objectives are kept without a split",
        )
    if not options.min_ratio <= ratio <= options.max_ratio:
        return skip(
            "one-sided",
            f"prefill takes {ratio:.2f} times as long as decode, outside {options.min_ratio:g} to "
            f"{options.max_ratio:g}: one role would hardly be used",
        )
    replicas = service.deployments
    n_prefill = min(len(replicas) - 1, max(1, round(prefill * len(replicas))))
    for position, replica in enumerate(replicas):
        fleet = fleet.edit(replica.but(role="prefill" if position < n_prefill else "decode"))
    return propose(fleet, risk="latency", effort="high", excludes=("right-size-parallelism", "chunked-prefill"))
