"""Rule: use as many devices for a model as it needs, with the parallelism that their links suit."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import CATALOG, alike, missed_objective, not_in_catalog
from pertoken.rule import (
    Accelerator,
    Deployment,
    Evidence,
    Fleet,
    Market,
    Proposal,
    Service,
    Skip,
    counted,
    option,
    propose,
    rule,
    skip,
)

DATA_PARALLEL = ("vllm", "dynamo-vllm", "sglang", "dynamo-sglang")
"""Engines that run copies of the model behind one endpoint (Sources, 2)."""
PIPELINES = ("vllm", "dynamo-vllm", "sglang", "dynamo-sglang", "trtllm")
EXPERTS = ("vllm", "dynamo-vllm", "sglang", "dynamo-sglang", "trtllm")
"""Engines that can place whole experts on ranks instead of sharding each expert."""
NO_RANKS = ("ollama",)
"""Engines that choose their layout automatically."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement, that of the link is from Sources, 1."""

    kv_room: float = option(0.4, "KV cache in use (p95) at or above which fewer devices may not hold it", low=0, high=1)
    min_busy: float = option(
        0.02, "busy share below which the number of replicas matters more than the layout", low=0, high=1
    )
    slow_link_gb_s: float = option(
        150.0,
        "maximum GB/s between devices, both directions, that counts as PCIe where no driver reports the link",
        low=0,
    )
    pcie_ranks: int = option(2, "maximum tensor-parallel ranks over such a link", low=1, high=8)


@rule("right-size-parallelism")
def right_size_parallelism(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Use fewer tensor-parallel ranks, or pipeline stages and copies, where a model spans too many devices.

    ## Why it saves
    Tensor-parallel ranks exchange their results twice per layer: that time grows with the number of ranks and computes
    nothing. A model on fewer devices serves more tokens per device. The freed devices run copies, or are given back
    with their host. Without NVLink the exchange crosses PCIe, where pipeline stages exchange far less.
    ## When it is wrong
    Each token comes later, because fewer devices read the weights: mind the objective for the time between tokens.
    Fewer devices leave less room for the KV cache. Copies need several concurrent requests; a single request gains
    nothing.
    ## How to apply
    vLLM: `--tensor-parallel-size`, `--pipeline-parallel-size`, `--data-parallel-size`, `--enable-expert-parallel`.
    SGLang: `--tp-size`, `--pp-size`, `--dp-size`, `--ep-size`. TensorRT-LLM: `--tp_size`, `--pp_size`, `--ep_size`.
    TGI: `--num-shard`. LMDeploy: `--tp`. llama.cpp: `--split-mode layer` gives pipeline stages, `row` tensor-parallel
    ranks.
    ## Sources
    1. (calculated) fewest ranks that hold the weights; tensor parallelism over more than two devices on PCIe; an
       all-reduce share above 15 % of a step. The forecast models these terms; the thresholds are judgement.
    2. (code) vLLM 0.32 `engine/arg_utils.py`, SGLang 0.5.23 `srt/server_args`: the flags.
    3. (vendor) fp4.dev: the exchange of two ranks is 5 to 10 % of a step at one request (70B, H100).
    4. (code) vLLM 0.32 `config/parallel.py`: experts are split over all ranks with `--enable-expert-parallel`.
    """
    busy = seen.busy.mean
    present, *others = service.deployments
    if not alike(service, "ep"):
        yield skip("replicas-differ", f"its {len(others) + 1} replicas differ in model, engine, device or ranks")
        return
    device = market.accelerator(present.accelerator)
    if device is None:
        yield not_in_catalog(present, "which layouts fit is not known")
        return
    ranks = present.tp or 0
    if ranks * (present.pp or 1) * (present.dp or 1) <= 1:
        devices = ranks * (present.pp or 1) * (present.dp or 1) or len(present.device_ids)
        yield skip("one-device", f"it runs on {counted(devices, 'device')}")
        return
    if busy < options.min_busy:
        yield skip("hardly-busy", f"it is busy {busy:.1%} of the time, below {options.min_busy:.0%}")
        return
    if present.engine in NO_RANKS:
        yield skip(
            "engine-decides",
            f"{present.engine} spreads a model over its {len(present.device_ids)} devices automatically",
        )
        return
    if missed := missed_objective(seen, service, figures=("TPOT",)):
        yield skip("slo-missed", missed)
        return
    fewest = market.fewest_ranks(present.model, present.weight_dtype, device, present.pp or 1)
    if fewest is None:
        yield skip("weights-unknown", f"the number of ranks that its weights need, of {ranks}, is not known: {CATALOG}")
        return
    yielded = False
    for changed in _layouts(seen, service, present, _slow_link(fleet, present, device, options), fewest, options):
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
            yield skip(
                "fewest-ranks", f"its weights need {counted(fewest, 'tensor-parallel rank')}, and it has {ranks}"
            )


def _layouts(
    seen: Evidence, service: Service, present: Deployment, slow: bool, fewest: int, options: Options
) -> Iterator[Service]:
    """Yield the service with fewer ranks, with copies or stages on the same devices, and with expert parallelism."""
    ranks = present.tp or 1
    room = seen.kv_use.p95 < options.kv_room if seen.has("kv_use") else True
    fewer = ranks // 2
    while room and fewer >= fewest:
        yield service.but(tp=fewer).resized()
        if present.engine in DATA_PARALLEL:
            yield service.but(tp=fewer, dp=(present.dp or 1) * ranks // fewer)
        fewer //= 2
    stages = ranks // options.pcie_ranks
    if slow and stages > 1 and fewest > options.pcie_ranks and present.engine in PIPELINES:
        yield service.but(tp=options.pcie_ranks, pp=(present.pp or 1) * stages)
    if present.model.n_experts and present.ep == 1 and present.engine in EXPERTS:
        yield service.but(ep=ranks * (present.dp or 1))


def _slow_link(fleet: Fleet, deployment: Deployment, device: Accelerator, options: Options) -> bool:
    """Return whether its devices communicate over PCIe or a network, as drivers report or else as listed."""
    link = fleet.slowest_link(deployment.device_ids)
    return link != "nvlink" if link else (device.interconnect_bytes_per_s or 0) <= 1e9 * options.slow_link_gb_s
