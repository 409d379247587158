"""Deployments resolved against the catalog: every number the serving model needs, or the reason it is not known."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pertoken.by_identity import by_identity
from pertoken.catalog.market import CPU_ARCH, ROWS_OF_TILE, Accelerator, Market, MeasuredRates
from pertoken.catalog.model_facts import image_encoder, typical_flops
from pertoken.forecast.candidates import Candidates, stack
from pertoken.forecast.efficiency import efficiency, kernel_path, path_sources, tag_names, tag_row
from pertoken.forecast.formats import (
    BLOCK_FP8,
    WeightFormat,
    admits_whole_requests,
    assumed_kv_dtype,
    constants,
    cpu_kernels,
    defaults,
    engine_tag,
    hardware_tag,
    has_block_kernels,
    has_fp8_cache,
    kv_bytes_per_value,
    stored_format,
    takes_share_of_free,
    weight_format,
)
from pertoken.forecast.terms import TERMS
from pertoken.state.deployment import Deployment, Model, knobs

Q = TypeVar("Q")
T = TypeVar("T")

PCIE_BYTES_PER_S = 32e9
"""Both directions of a fourth-generation x8 slot: a device without a listed interconnect talks through its host."""
VLLM_BEFORE_0_8 = r"v?0\.[0-7](\.|$)"
"""Versions with scheduler and API server in one process; 0.8 made the rewritten engine the default."""
VLLM_ASYNC = r"v?(0\.(1[4-9]|[2-9]\d)|[1-9]\d*\.)"
"""Versions that schedule the next step while the device computes: 0.14 made `--async-scheduling` the default."""
CPU_ATTENTION_SHARE = 0.05
"""Rate of one query's products with the cache over that of GEMMs on CPUs, where it was not measured. llama.cpp computes
them row by row, each query head alone, so that heads that share a cache save nothing; those of a prompt it computes
in tiles, but not with a cache in 8 bits (ggml-cpu `flash_attn_ext`; llama.cpp pull request 26948). Measured: 0.04 to
0.12 on one core of an EPYC, 2026-11-23."""
CPU_ROW_COST, CPU_TILE_COST = 2.5, 7.0
"""Costs of rows and tiles where no batch was measured, in tokens of a prompt: about those that llama.cpp has with Q8_0
and Q4_0 on one core of an EPYC, 2026-11-23."""
BISECTIONS = 40


class Abstained(Exception):
    """The serving model does not know enough to give a number; the message names the missing value."""


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a deployment: token rates over all time, lengths per request, concurrency while busy."""

    generated_tok_s: float
    prompt_len: float
    generated_len: float
    running: float
    waiting: float = 0.0
    cached_share: float = 0.0
    """Prompt tokens found in the prefix cache, 0 to 1."""
    images: float = 0.0
    """Images per request that are decoded and encoded, those found in a cache of the engine not counted. Their tokens
    are part of `prompt_len`."""
    image_size: tuple[int, int] | None = None
    """Mean width and height of an image in pixels; None where not known."""
    acceptance: float | None = None
    """Chance that a drafted token is accepted where those before it were, 0 to 1; None where nothing was drafted."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Kernels and rates of one device for one weight format."""

    format_name: str
    """Of the kernels that run: the format itself, or the one it falls back to."""
    flops: float
    weight_only: bool
    tags: tuple[str, ...]
    bits: float


def resolve(deployments: Sequence[Deployment], loads: Sequence[Load], market: Market) -> Candidates:
    """Deployments under their loads as candidates, in order.

    Raises Abstained naming the first thing that is not known.
    """
    return stack_rows([_row(deployment, load, market) for deployment, load in zip(deployments, loads, strict=True)])


Row = tuple[dict[str, float], tuple[float, ...]]
"""Columns and tags of one candidate."""


def resolve_each(queries: Sequence[tuple[Deployment, Load]], market: Market) -> list[Row | Abstained]:
    """Resolve each deployment under its load; `Abstained` in place of a row where something is unknown."""
    rows: list[Row | Abstained] = []
    for deployment, load in queries:
        try:
            rows.append(_row(deployment, load, market))
        except Abstained as reason:
            rows.append(reason)
    return rows


def stack_rows(rows: Sequence[Row]) -> Candidates:
    """Return candidates of resolved rows, in order."""
    return stack(*zip(*rows, strict=True))


def for_each(
    queries: Sequence[Q],
    end: Callable[[Q], tuple[Deployment, Load]],
    market: Market,
    compute: Callable[[Sequence[Q], Candidates], Iterable[T]],
    at_once: int = sys.maxsize,
) -> list[T | Abstained]:
    """Return the results of `compute` for groups of at most `at_once` queries; `Abstained` where something is unknown.

    `end`: the deployment and the load of a query.
    """
    rows = resolve_each([end(query) for query in queries], market)
    resolved = [(query, row) for query, row in zip(queries, rows, strict=True) if not isinstance(row, Abstained)]
    computed: list[T] = []
    for first in range(0, len(resolved), at_once):
        group = resolved[first : first + at_once]
        computed += compute([query for query, _ in group], stack_rows([row for _, row in group]))
    results = iter(computed)
    return [row if isinstance(row, Abstained) else next(results) for row in rows]


def kernels(format_name: str, accelerator: Accelerator) -> Hardware:
    """Return the rates of weights of a format on a device: native products where it has them, else unpacked ones.

    Raises Abstained for a format the serving model does not know.
    """
    form: WeightFormat | None = weight_format(format_name)
    if form is None:
        raise Abstained(f"the serving model does not know the dtype {format_name}")
    rates = {
        "fp16": accelerator.fp16_flops,
        "fp8": accelerator.fp8_flops,
        "int8": accelerator.int8_flops,
        "fp4": accelerator.fp4_flops,
    }
    if form.fallback is not None and (rates[form.path] is None or rates[form.needs] is None):
        return kernels(form.fallback, accelerator)
    return Hardware(format_name, rates[form.path] or accelerator.fp16_flops, form.weight_only, form.tags, form.bits)


def shape(model: Model, name: str) -> dict[str, float]:
    """Return the model's columns of a candidate.

    Experts that nobody states are taken to be as large as what one token passes, of which one is active. Hidden size
    comes from parameters = 12 x layers x width^2 of a standard transformer block. Raises Abstained.
    """
    total, active, layers = model.params_total, model.params_active, model.n_layers
    heads, values, kinds = model.n_kv_heads, model.kv_values_per_token, model.layer_kinds
    if total is None or active is None or layers is None or heads is None or values is None or kinds is None:
        raise Abstained(f"the shape of {name} is not known: neither its engine nor the catalog states it")
    experts = (0.0, 0.0)
    if active < total:
        experts = (model.n_experts or 0.0, model.n_experts_active or 0.0)
        experts = experts if all(experts) else (total / active, 1.0)
    return {
        "params_total": total,
        "params_active": active,
        "n_layers": layers,
        "attending_layers": kinds["attention"] + kinds["sliding"],
        "kv_values": values,
        "state_bytes": model.state_bytes or 0,
        "n_kv_heads": heads,
        "hidden_size": math.sqrt(active / (12 * layers)),
        "n_experts": experts[0],
        "n_experts_active": experts[1],
        "windowed_share": model.windowed_share,
        "window": model.sliding_window or math.inf,
    }


def device_columns(accelerator: Accelerator) -> dict[str, float]:
    """Return the device's columns of a candidate that do not depend on a weight format."""
    link = accelerator.interconnect_bytes_per_s or PCIE_BYTES_PER_S
    return {
        "memory_bytes": accelerator.memory_bytes,
        "memory_bytes_per_s": accelerator.memory_bytes_per_s,
        "fp16_flops": accelerator.fp16_flops,
        "link_bytes_per_s": link / 2,
        "devices_per_host": 72.0 if "72" in accelerator.interconnect else 8.0,
    }


def device_tags(accelerator: Accelerator, kv_dtype: str | None, old_vllm: bool | None) -> list[str]:
    """Tags of a device with a cache dtype.

    `old_vllm`: whether the engine is a vLLM from before 0.8; None for an unknown version and for other engines.
    """
    arch = hardware_tag(accelerator.arch)
    held = [arch] if arch else []
    if old_vllm and kv_bytes_per_value(kv_dtype) == 1:
        held.append("kv-8-bit-unpacked")
    if _unpacks_cache(accelerator, kv_dtype, old_vllm):
        held.append("kv-fp8-unpacked")
    if old_vllm:
        held.append("vllm-before-0.8")
    return held


def _unpacks_cache(accelerator: Accelerator, kv_dtype: str | None, old_vllm: bool | None) -> bool:
    """Return whether slow kernels read a cache in FP8, as on hardware that does not convert it."""
    return kv_dtype == "fp8" and old_vllm is not False and not has_fp8_cache(accelerator.arch)


def _is_old_vllm(deployment: Deployment) -> bool | None:
    """Return whether a vLLM is one from before 0.8; None for another engine and where the version is not known."""
    if engine_tag(deployment.engine) != "vllm" or not deployment.engine_version:
        return None
    return re.match(VLLM_BEFORE_0_8, deployment.engine_version) is not None


@by_identity
def _row(deployment: Deployment, load: Load, market: Market) -> Row:
    name = deployment.served_model or deployment.model.name
    columns = shape(deployment.model, name)
    accelerator = market.accelerator(deployment.accelerator)
    if accelerator is None:
        raise Abstained(
            f"{name} runs on a device the catalog does not know, such as CPUs: measure it with `pertoken probe`, or "
            "try it for some hours and compare"
        )
    if deployment.weight_dtype is None:
        raise Abstained(f"the weight dtype of {name} is not known")
    engine = engine_tag(deployment.engine)
    hardware = kernels(stored_format(deployment.engine, deployment.weight_dtype), accelerator)
    in_blocks = has_block_kernels(deployment.engine, hardware.format_name, columns["n_experts"] > 0)
    rates = accelerator.measured.get((cpu_kernels(deployment.engine), deployment.weight_dtype))
    if accelerator.arch == CPU_ARCH:
        if rates is None:
            raise Abstained(
                f"nothing is measured of {deployment.weight_dtype} under {deployment.engine} on {accelerator.name}: "
                "run a probe"
            )
        # The table's adjustments of formats were fitted on accelerators.
        hardware = replace(hardware, flops=rates.flops, weight_only=False, tags=())
    tp, pp, dp = layout(deployment)
    # Drafts without counted acceptance are left to the calibration, as if there were none.
    drafted = 0 if load.acceptance is None else deployment.num_speculative_tokens or 0
    held, graded = ["mixture"] if columns["n_experts"] else [], {}
    kv_dtype = deployment.kv_dtype or assumed_kv_dtype(deployment.engine, deployment.weight_dtype, accelerator.arch)
    kv_bytes = kv_bytes_per_value(kv_dtype)
    if load.images > 0:
        graded["images"] = images_tag(load.images)
    if kv_bytes is None:
        raise Abstained(f"the serving model does not know the dtype {kv_dtype}")
    if engine == "vllm" and re.match(VLLM_ASYNC, deployment.engine_version or ""):
        held.append("vllm-async")
    held += [*hardware.tags, *device_tags(accelerator, kv_dtype, _is_old_vllm(deployment))]
    if engine:
        held.append(engine)
    if deployment.enforce_eager and engine != "eager":
        held.append("without-graphs")
    if in_blocks:
        held.append(BLOCK_FP8)
    columns |= device_columns(accelerator)
    columns |= {
        "memory_bytes_per_s": rates.memory_bytes_per_s if rates else accelerator.memory_bytes_per_s,
        "weight_bits": hardware.bits,
        "weight_only": float(hardware.weight_only),
        "kv_bytes": kv_bytes,
        "flops": hardware.flops,
        "attention_flops": math.inf,
        "row_cost": 1.0,
        "tile_cost": ROWS_OF_TILE,
        "expert_cost": 1.0,
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "shared_experts": 0.0,
        "concurrency": max(1.0, load.running + load.waiting),
        "prompt_len": load.prompt_len,
        "generated_len": load.generated_len,
        "cached_share": 0.0 if deployment.enable_prefix_caching is False else load.cached_share,
        "image_flops": image_flops(_names(deployment), load),
        "max_num_seqs": deployment.max_num_seqs or defaults().max_num_seqs,
        "memory_share": deployment.gpu_memory_utilization or defaults().gpu_memory_utilization,
        "whole_prompts": float(deployment.enable_chunked_prefill is False),
        "accepted_len": accepted_len(load.acceptance, drafted),
        "drafted_len": float(drafted),
        "clock_share": 1.0,
        "share_of_free": float(takes_share_of_free(deployment.engine)),
        "whole_requests": float(admits_whole_requests(deployment.engine)),
    }
    if rates is not None and accelerator.arch == CPU_ARCH:
        # The tags of the table were fitted on accelerators.
        return columns | _cpu_columns(rates, kv_bytes), tag_row([])
    return columns, tag_row(held, graded)


def uncovered_kernels(deployment: Deployment, market: Market) -> str | None:
    """Return the reason why a forecast of a deployment rests on physics alone; None where public sources ran its like.

    Raises Abstained for a format the serving model does not know.
    """
    accelerator, dtype, model = market.accelerator(deployment.accelerator), deployment.weight_dtype, deployment.model
    if accelerator is None or accelerator.arch == CPU_ARCH or dtype is None:
        return None
    rests = "its forecast rests on listed rates alone"
    if engine_tag(deployment.engine) is None:
        return f"no public measurement covers the engine {deployment.engine}: {rests}"
    if hardware_tag(accelerator.arch) is None:
        return f"no public measurement covers the architecture {accelerator.arch} of {accelerator.name}: {rests}"
    if model.params_active != model.params_total and not (model.n_experts and model.n_experts_active):
        return f"the number of experts of {model.name} is not known: {rests}"
    if kv_bytes_per_value(deployment.kv_dtype) not in (1, 2):
        return f"no public measurement covers a KV cache in {deployment.kv_dtype}: {rests}"
    if _unpacks_cache(accelerator, deployment.kv_dtype, _is_old_vllm(deployment)):
        slower = math.exp(efficiency().by_tag[tag_names().index("kv-fp8-unpacked"), TERMS.index("kv_cache")])
        return (
            f"{accelerator.name} does not convert FP8: reading its cache is taken to last {slower:.0f} times as long, "
            "as fitted to the few kernels measured"
        )
    format_name = kernels(stored_format(deployment.engine, dtype), accelerator).format_name
    if has_block_kernels(deployment.engine, format_name, model.params_active != model.params_total):
        format_name = BLOCK_FP8
    if path_sources(kernel_path(deployment.engine, format_name, accelerator.arch)):
        return None
    return (
        f"no public measurement covers how {deployment.engine} multiplies weights in {format_name} ({dtype} on "
        f"{accelerator.name}): {rests}"
    )


def _cpu_columns(rates: MeasuredRates, kv_bytes: float) -> dict[str, float]:
    """Return the columns that rates of CPUs decide.

    The table makes the rates that are reached of listed ones. Rates of CPUs are measured, so reached already: they are
    divided by the factors of the table.
    """

    def listed(rate: float, term: str) -> float:
        return rate * math.exp(float(efficiency().base[TERMS.index(term)]))

    attention = rates.attention_flops or CPU_ATTENTION_SHARE * rates.flops
    in_steps = listed(1.0, "prefill_flops") / listed(1.0, "decode_flops")
    columns = {
        "memory_bytes_per_s": listed(rates.memory_bytes_per_s, "weights"),
        "flops": listed(rates.flops, "prefill_flops"),
        "attention_flops": listed(attention, "kv_cache"),
        "row_cost": in_steps * rates.flops / rates.row_flops if rates.row_flops else CPU_ROW_COST,
        "tile_cost": in_steps * ROWS_OF_TILE * rates.flops / rates.tile_flops if rates.tile_flops else CPU_TILE_COST,
        "expert_cost": rates.flops / rates.expert_flops if rates.expert_flops else 1.0,
    }
    if kv_bytes == 1:
        columns["fp16_flops"] = listed(attention, "prefill_attention")
    return columns


def image_flops(model: str, load: Load) -> float:
    """Return the FLOPs per request of encoding its images, by a typical encoder where the model's is not known."""
    if load.images <= 0:
        return 0.0
    encoder, size = image_encoder(model), load.image_size or (defaults().image_side,) * 2
    return load.images * (encoder.flops(*size) if encoder is not None else typical_flops(*size))


def encoder_assumptions(deployment: Deployment, load: Load) -> tuple[str, ...]:
    """Return the assumption on the images of requests, as a phrase, where the catalog does not have their encoder."""
    if load.images <= 0 or image_encoder(_names(deployment)) is not None:
        return ()
    return (
        f"encoding the images of a request takes {image_flops(_names(deployment), load) / 1e12:.2g} TFLOP, the median "
        f"of known encoders: the catalog has none of {deployment.served_model or deployment.model.name}",
    )


def _names(deployment: Deployment) -> str:
    return f"{deployment.served_model} {deployment.model.name}"


def images_tag(images: float) -> float:
    """Return the value of the tag `images` for a number of images per request, not always whole.

    The table has the time that one image adds to a request as a factor; each image adds as much.
    """
    log_time = efficiency().by_tag[tag_names().index("images"), TERMS.index("requests")]
    return math.log1p(images * math.expm1(log_time)) / log_time if log_time > 0 else min(1.0, images)


def accepted_len(acceptance: float | None, drafted: int) -> float:
    """Tokens that one step gives: the accepted ones of its draft and one more.

    Each is accepted independently: 1 + a + a² + ... + a^drafted (Leviathan et al., 2023, arXiv 2211.17192, equation 1).
    """
    return float(sum((acceptance or 0.0) ** drafts for drafts in range(drafted + 1)))


def acceptance(length: float, drafted: float) -> float:
    """Return the chance per token, 0 to 1, of this mean length with `drafted` tokens: `accepted_len` inverted."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        short = accepted_len(middle, round(drafted)) < length
        low, high = (middle, high) if short else (low, middle)
    return low


def layout(deployment: Deployment) -> tuple[int, int, int]:
    """Tensor-, pipeline- and data-parallel ranks; devices without a seen layout are tensor-parallel ranks."""
    parallel = (deployment.tp, deployment.pp, deployment.dp)
    if parallel == (None, None, None):
        return len(deployment.device_ids) or 1, 1, 1
    return deployment.tp or 1, deployment.pp or 1, deployment.dp or 1


UNCOVERED_KERNELS = "uncovered kernels"
"""Kind of a change from or to kernels that no public source ran: none measured it."""


@by_identity
def kinds_of(deployment: Deployment, to: Deployment) -> frozenset[str]:
    """Kinds of change between two deployments, in the words of the efficiency table; empty for none."""
    changes, table = _changes(deployment, to), constants("kinds")
    kinds = {table["knobs"][knob] for knob in changes if knob in table["knobs"]}
    if "weight_dtype" in changes:
        narrow = to.weight_dtype if to.weight_dtype in table["narrow"] else deployment.weight_dtype
        kinds.add(f"quantize_{table['narrow'].get(narrow or '', narrow)}")
    return frozenset(kinds)


@by_identity
def measured_kinds(deployment: Deployment, to: Deployment, market: Market) -> frozenset[str]:
    """Return the kinds of a change, with `UNCOVERED_KERNELS` where no public source ran the kernels before or after."""
    kinds = kinds_of(deployment, to)
    covered = not kinds or not any(uncovered_kernels(end, market) for end in (deployment, to))
    return kinds if covered else kinds | {UNCOVERED_KERNELS}


@by_identity
def _changes(deployment: Deployment, to: Deployment) -> frozenset[str]:
    """Name the knobs that differ, and the accelerator; no other part of a placement changes the speed."""
    moved = deployment.accelerator != to.accelerator
    return frozenset(deployment.knob_changes(to)) | ({"placement.accelerator"} if moved else frozenset())


def onto_cpus(present_deployment: Deployment, to: Deployment, market: Market) -> bool:
    """Return whether a change is a move from accelerators to CPUs, with rates that a probe measured by engine."""
    on_cpus = [
        device is not None and device.arch == CPU_ARCH
        for device in (market.accelerator(deployment.accelerator) for deployment in (present_deployment, to))
    ]
    return on_cpus == [False, True]


def check_kinds(deployment: Deployment, to: Deployment, load: Load, market: Market) -> None:
    """Raise Abstained for a change of a knob that the serving model does not know."""
    changes = _changes(deployment, to)
    if "enable_prefix_caching" in changes and not deployment.enable_prefix_caching:
        raise Abstained(
            "which share of prompts repeats is not measured while the prefix cache is off: switch it on for some hours"
        )
    if "num_speculative_tokens" in changes and (load.acceptance is None or not deployment.num_speculative_tokens):
        raise Abstained(
            "which share of drafted tokens is accepted is not measured: let the engine draft for some hours, with "
            "metrics that count drafts"
        )
    in_rates = {"weight_dtype", "engine"} if onto_cpus(deployment, to, market) else {"weight_dtype"}
    unknown = [knob for knob in changes - in_rates if knob not in constants("kinds")["knobs"]]
    if unknown:
        trial = knobs()[unknown[0]].trial
        raise Abstained(f"the serving model does not know what {unknown[0]} does: try it for {trial}")


def check_hardware(present_deployment: Deployment, to: Deployment, market: Market) -> None:
    """Raise Abstained for a move from CPUs to accelerators, or to a format that the engine does not run there.

    Measurements on CPUs do not predict accelerators.
    """
    if onto_cpus(to, present_deployment, market):
        raise Abstained("what a move from CPUs to accelerators gains is not measured: try it for some hours")
    combinations = [
        (deployment.engine, deployment.weight_dtype, deployment.accelerator) for deployment in (present_deployment, to)
    ]
    if combinations[0] != combinations[1] and (reason := market.not_run(*combinations[1])) is not None:
        raise Abstained(reason)
