"""Rule: spread a model over as many devices as it needs, in the way their links suit."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.unknown import CATALOG
from pertoken.rule import (
    Accelerator,
    Deployment,
    Evidence,
    Fleet,
    Market,
    Proposal,
    Service,
    Skip,
    option,
    propose,
    rule,
    skip,
)

DATA_PARALLEL = ("vllm", "dynamo-vllm", "sglang", "dynamo-sglang")
"""Engines that run copies of the model behind one endpoint (Sources, 2)."""
PIPELINES = ("vllm", "dynamo-vllm", "sglang", "dynamo-sglang", "trtllm")
EXPERTS = ("vllm", "dynamo-vllm", "sglang", "dynamo-sglang", "trtllm")
"""Engines that can split experts over their ranks instead of cutting each."""
NO_RANKS = ("ollama",)
"""Engines that choose their layout by themselves."""


@dataclass(frozen=True)
class Options:
    """What a person may set; the defaults are judgement, the link's from Sources, 1."""

    kv_room: float = option(0.4, "KV cache in use (p95) from which fewer devices may not hold it", low=0, high=1)
    min_busy: float = option(
        0.02, "busy share below which its number of replicas matters, not its layout", low=0, high=1
    )
    slow_link_gb_s: float = option(
        150.0,
        "GB/s between devices, both directions, up to which they talk over PCIe where no driver reports their links",
        low=0,
    )
    pcie_ranks: int = option(2, "tensor-parallel ranks that such a link carries", low=1, high=8)


@rule("right-size-parallelism")
def right_size_parallelism(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Use fewer tensor-parallel ranks, or stages and copies in their place, where a model is spread too widely.

    ## Why it saves
    Tensor-parallel ranks exchange their results twice a layer: the time for that grows with the ranks, and none of it
    computes. A model that fits fewer devices serves more tokens per device there; the devices it leaves serve copies,
    or are given back with their host. Without NVLink the exchange crosses PCIe: pipeline stages exchange far less.
    ## When it is wrong
    Each token comes later, since fewer devices read the weights: mind the objective for the time between tokens. Fewer
    devices leave less room for the KV cache. Copies need a load that divides; a single request gains nothing by them.
    ## How to apply
    vLLM: `--tensor-parallel-size`, `--pipeline-parallel-size`, `--data-parallel-size`, `--enable-expert-parallel`.
    SGLang: `--tp-size`, `--pp-size`, `--dp-size`, `--ep-size`. TensorRT-LLM: `--tp_size`, `--pp_size`, `--ep_size`.
    TGI: `--num-shard`. LMDeploy: `--tp`. llama.cpp: `--split-mode layer` gives stages, `row` tensor-parallel ranks.
    ## Sources
    1. [A] Fewest ranks that hold the weights; tensor-parallel over more than two devices on PCIe; an all-reduce share
       above 15 % of a step. The forecast has the terms; the limits are judgement.
    2. [C] vLLM 0.32 `engine/arg_utils.py`, SGLang 0.5.23 `srt/server_args`: the flags. Read in the code.
    3. [V] fp4.dev: exchange of two ranks is 5 to 10 % of a step at one request (70B, H100).
    4. [C] vLLM 0.32 `config/parallel.py`: experts are split over all ranks with `--enable-expert-parallel`.
    """
    busy = seen.busy.mean
    now, *others = service.deployments
    if any(_layout(deployment) != _layout(now) for deployment in others):
        yield skip("replicas-differ", f"its {len(others) + 1} replicas differ in model, engine, device or ranks")
        return
    device = market.accelerator(now.accelerator)
    if device is None:
        yield skip("device-unknown", f"{now.accelerator or 'its device'} is not in the catalog: what fits is not known")
        return
    ranks = now.tp or 0
    if ranks * (now.pp or 1) * (now.dp or 1) <= 1:
        yield skip("one-device", f"it runs on {ranks * (now.pp or 1) * (now.dp or 1) or len(now.device_ids)} device(s)")
        return
    if busy < options.min_busy:
        yield skip("hardly-busy", f"it is busy {busy:.1%} of the time, below {options.min_busy:.0%}")
        return
    if now.engine in NO_RANKS:
        yield skip("engine-decides", f"{now.engine} spreads a model over its {len(now.device_ids)} devices by itself")
        return
    if refusal := _missed(seen, service):
        yield refusal
        return
    fewest = market.fewest_ranks(now.model, now.weight_dtype, device, now.pp or 1)
    if fewest is None:
        yield skip("weights-unknown", f"how many of its {ranks} ranks its weights need is not known: {CATALOG}")
        return
    yielded = False
    for changed in _layouts(seen, service, now, _slow_link(fleet, now, device, options), fewest, options):
        yielded = True
        yield propose(changed, risk="latency", effort="medium", excludes=("mixture-of-experts", "disaggregate"))
    if not yielded:
        used = seen.kv_use.p95 if seen.has("kv_use") else None
        if ranks > fewest and used is not None and used >= options.kv_room:
            yield skip(
                "kv-cache-full",
                f"its weights need {fewest} of {ranks} ranks, but its KV cache is {used:.0%} full (p95), at or above "
                f"{options.kv_room:.0%}",
            )
        else:
            yield skip("fewest-ranks", f"its weights need {fewest} tensor-parallel rank(s), and it has {ranks}")


def _layout(deployment: Deployment) -> tuple[object, ...]:
    return (
        deployment.model,
        deployment.engine,
        deployment.accelerator,
        deployment.weight_dtype,
        deployment.tp,
        deployment.pp,
        deployment.dp,
        deployment.ep,
        deployment.role,
    )


def _layouts(
    seen: Evidence, service: Service, now: Deployment, slow: bool, fewest: int, options: Options
) -> Iterator[Service]:
    """Yield the service with fewer ranks, with copies or stages on the same devices, and with split experts."""
    ranks = now.tp or 1
    room = seen.kv_use.p95 < options.kv_room if seen.has("kv_use") else True
    fewer = ranks // 2
    while room and fewer >= fewest:
        yield service.but(tp=fewer).resized()
        if now.engine in DATA_PARALLEL:
            yield service.but(tp=fewer, dp=(now.dp or 1) * ranks // fewer)
        fewer //= 2
    stages = ranks // options.pcie_ranks
    if slow and stages > 1 and fewest > options.pcie_ranks and now.engine in PIPELINES:
        yield service.but(tp=options.pcie_ranks, pp=(now.pp or 1) * stages)
    if now.model.n_experts and now.ep == 1 and now.engine in EXPERTS:
        yield service.but(ep=ranks * (now.dp or 1))


def _slow_link(fleet: Fleet, now: Deployment, device: Accelerator, options: Options) -> bool:
    """Return whether its devices reach each other over PCIe or a network: as their drivers report, else as listed."""
    link = fleet.slowest_link(now.device_ids)
    return link != "nvlink" if link else (device.interconnect_bytes_per_s or 0) <= 1e9 * options.slow_link_gb_s


def _missed(seen: Evidence, service: Service) -> Skip | None:
    limit_ms = service.slo.tpot_p95_ms
    if limit_ms is not None and seen.has("tpot_s") and 1000 * seen.tpot_s.p95 > limit_ms:
        reason = f"its TPOT is {1000 * seen.tpot_s.p95:.0f} ms (p95) already, above its objective of {limit_ms:.0f} ms"
        return skip("slo-missed", reason)
    return None
