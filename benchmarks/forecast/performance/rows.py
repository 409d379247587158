"""A row of public measurements as a candidate of the serving model, whatever it leaves blank.

A blank cell is filled with an assumption that is written down (`names.toml`); what had to be guessed is
kept as the doubts of the row, so that whoever predicts may abstain.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmarks.forecast.performance.cells import Cells, first, names
from benchmarks.forecast.performance.devices import device, stand_in
from pertoken.catalog.market import ROWS_OF_TILE, Accelerator, load_market
from pertoken.catalog.model_facts import image_encoder
from pertoken.forecast.efficiency import kernel_path, tag_row
from pertoken.forecast.formats import (
    BLOCK_FP8,
    admits_whole_requests,
    assumed_kv_dtype,
    defaults,
    engine_tag,
    hardware_tag,
    has_block_kernels,
    stored_format,
    takes_share_of_free,
)
from pertoken.forecast.served import VLLM_ASYNC, accepted_len, device_columns, device_tags, kernels

DISAGGREGATED = (
    "prefill and decode run on devices of their own (disaggregated), which the serving model does not forecast"
)
"""Doubt about a row whose devices are those of several engines."""
WIDEST_ATTENTION = 8
"""Ranks over which heads of attention are split: a mixture on more copies attention and spreads its experts."""


def candidate(row: Cells) -> tuple[dict[str, float], tuple[float, ...], str, str]:
    """Return columns of `Candidates`, tags, doubts (what had to be guessed of device, dtype, engine or model) and the
    path of its kernels."""
    doubts = []
    engine_text, notes = row["engine"].lower(), row["notes"].lower()
    engine = first(names()["engines"], engine_text)
    if engine is None:
        doubts.append(f"no measured prior for the engine {row['engine']!r}")
    accelerator = device(row["gpu"])
    if accelerator is None:
        doubts.append(f"the device {row['gpu']!r} is not known")
        accelerator = stand_in(row["gpu"])
    columns, known = _shape(row)
    if not known:
        doubts.append(f"the size of {row['model']!r} is not known")
    if first(names()["disaggregated"], f"{row['source']}|{row['gpu']}|{notes}".lower(), pattern=True):
        doubts.append(DISAGGREGATED)
    n, row = _devices(row)
    dtype = _dtype(row, accelerator, columns, n, engine, doubts)
    kernel = kernels(dtype, accelerator)
    in_blocks = has_block_kernels(engine, kernel.format_name, columns["n_experts"] > 0)
    path = kernel_path(engine or "unknown engine", BLOCK_FP8 if in_blocks else kernel.format_name, accelerator.arch)
    kv_name = _kv_dtype(row, engine, dtype, accelerator)
    old_vllm = None
    if engine == "vllm":
        old_vllm = re.search(names()["assumed"]["old_vllm"], f"{engine_text} {row['source'].lower()}") is not None
    held = ["mixture"] if columns["n_experts"] else []
    held += [*kernel.tags, *device_tags(_with_prior(accelerator), kv_name, old_vllm)]
    held += [engine_tag(engine) or ""] if engine else []
    tp, pp, dp, shared = _layout(row, accelerator, columns, kernel.bits, n, engine)
    columns |= device_columns(accelerator) | _load(row, engine, accelerator, notes)
    if engine in names()["assumed"]["static_cache"]:
        # The rest of the cache is read as if it were a prompt that was computed already.
        rest = columns["generated_len"] / 2
        columns |= {
            "prompt_len": columns["prompt_len"] + rest,
            "cached_share": rest / (columns["prompt_len"] + rest),
        }
    columns |= {
        "weight_bits": kernel.bits,
        "weight_only": float(kernel.weight_only),
        "kv_bytes": 1.0 if kv_name else 2.0,
        "flops": kernel.flops,
        "attention_flops": math.inf,
        "row_cost": 1.0,
        "tile_cost": ROWS_OF_TILE,
        "expert_cost": 1.0,
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "shared_experts": shared,
        "memory_share": _memory_share(notes, accelerator, columns["params_total"] * kernel.bits / 8 / tp / pp),
        "clock_share": 1.0,
        "share_of_free": float(takes_share_of_free(engine)),
        "whole_requests": float(admits_whole_requests(engine)),
    }
    held += [BLOCK_FP8] if in_blocks else []
    version = re.match(r"vllm \D*(\d[\d.]*)", engine_text)
    if engine == "vllm" and version and re.match(VLLM_ASYNC, version[1]):
        held.append("vllm-async")
    held += ["without-graphs"] if re.search(names()["assumed"]["without_graphs"], f"{engine_text} {notes}") else []
    held += ["images"] if "image-chat" in notes or "video-chat" in notes else []
    if "int8-bnb" in kernel.format_name and re.search(names()["assumed"]["old_bitsandbytes"], engine_text):
        held.append("bitsandbytes-before-0.45")
    return columns, tag_row([name for name in held if name]), "; ".join(doubts), path


def _day(notes: str) -> str:
    """Return the date of measurement stated in a row's notes; empty if none is."""
    match = re.search(r"measured=(20\d\d-\d\d-\d\d)", notes)
    return match.group(1) if match else ""


def _with_prior(accelerator: Accelerator) -> Accelerator:
    return accelerator if hardware_tag(accelerator.arch) is not None else replace(accelerator, arch="x86")


def _dtype(
    row: Cells,
    accelerator: Accelerator,
    columns: Mapping[str, float],
    n: float,
    engine: str | None,
    doubts: list[str],
) -> str:
    text = row["weight_dtype"].lower()
    dtype: str | None = first(names()["dtypes_of_engines"], f"{text}|{row['engine'].lower()}", pattern=True)
    dtype = dtype or (first(names()["dtypes"], text, pattern=True) if text else None)
    if dtype is None:
        # Audited submissions run the narrowest format the hardware multiplies; others run 16 bits if they fit.
        fits = columns["params_total"] * 2 < accelerator.memory_bytes * n * 0.9
        narrowest = "fp4" if accelerator.fp4_flops else "fp8" if accelerator.fp8_flops else None
        audited = narrowest if "mlperf" in row["source"] else None
        dtype = audited or ("bf16" if fits else "fp8")
        doubts.append(f"the weight dtype {text!r} is not known" if text else "the weight dtype is not known")
    checkpoint = f"{row['source']}|{row['model']}|{text}".lower()
    if dtype == "fp8" and first(names()["block_fp8"], checkpoint, pattern=True):
        dtype = "fp8_block"
    return stored_format(engine or "", dtype)


def _devices(row: Cells) -> tuple[float, Cells]:
    """Return how many there are, and the row with that: one sample counts the ranks of experts as devices once more."""
    n, ep = max(1.0, row.number("n_gpus") or 1.0), row.number("ep") or 1.0
    if ep > 1 and n == row.number("tp") == ep * ep:
        return ep, Cells({**row, "tp": str(ep)})
    return n, row


def _kv_dtype(row: Cells, engine: str | None, weight_dtype: str, accelerator: Accelerator) -> str | None:
    text = row["kv_dtype"].lower()
    if not text or text == "auto":
        scripted = first(names()["kv_dtypes"], f"{row['source']}|{row['model']}|{row['gpu']}".lower(), pattern=True)
        return scripted or assumed_kv_dtype(engine, weight_dtype, accelerator.arch)
    if "fp8" in text:
        return "fp8_e5m2" if "e5m2" in f"{text} {row['notes'].lower()}" else "fp8"
    return "int8" if "int8" in text else None


def _shape(row: Cells) -> tuple[dict[str, float], bool]:
    name = row["model"].lower()
    total, active = row.number("params_total_b"), row.number("params_active_b")
    if total is None and (match := re.search(r"(?<![a-z\d])(\d+(?:\.\d+)?)b(?![a-z])", name)):
        total = float(match.group(1))
        match = re.search(r"a(\d+(?:\.\d+)?)b", name)
        active = float(match.group(1)) if match else active
    known = total is not None and total > 0
    total = total if total and total > 0 else 8.0
    active = min(active, total) if active and active > 0 else total
    mixture = active < 0.95 * total
    layers = row.number("n_layers") or float(
        np.clip(round(32 * (active / 7) ** 0.32 * (1.3 if mixture else 1)), 12, 128)
    )
    heads, dim = row.number("n_kv_heads") or 8.0, row.number("head_dim") or 128.0
    experts = (0.0, 0.0)
    if mixture:
        listed = load_market().model(row["model"])
        if listed is not None and listed.n_experts and listed.n_experts_active:
            experts = (listed.n_experts, listed.n_experts_active)
        else:
            # Of an unknown mixture, about a third of what a token passes is attention and shared layers.
            share = 0.65 * active / (total - 0.35 * active)
            experts = first(names()["experts"], name) or (128.0, float(np.clip(round(128 * share), 1, 127)))
    window = first(names()["windows"], name) or (0.0, math.inf)
    hybrid = _hybrid_columns(row["model"])
    return {
        "params_total": total * 1e9,
        "params_active": active * 1e9,
        "n_layers": layers,
        "attending_layers": layers,
        "kv_values": 2 * layers * heads * dim,
        "state_bytes": 0.0,
        "n_kv_heads": heads,
        "hidden_size": math.sqrt(active * 1e9 / (12 * layers)),
        "n_experts": float(experts[0]),
        "n_experts_active": float(experts[1]),
        "windowed_share": window[0],
        "window": window[1],
        **hybrid,
    }, known


def _hybrid_columns(model: str) -> dict[str, float]:
    """Return the cache and the recurrent state of a model with layers that do not attend; empty for others."""
    listed = load_market().model(model)
    kinds = listed.layer_kinds if listed is not None else None
    if listed is None or kinds is None or not kinds["linear"]:
        return {}
    return {
        "attending_layers": kinds["attention"] + kinds["sliding"],
        "kv_values": float(listed.kv_values_per_token or 0),
        "state_bytes": float(listed.state_bytes or 0),
    }


def _layout(
    row: Cells,
    accelerator: Accelerator,
    columns: Mapping[str, float],
    bits: float,
    n: float,
    engine: str | None,
) -> tuple[float, float, float, float]:
    """(tp, pp, dp, whether dp ranks share the experts) of `n` devices."""
    tp, pp = row.number("tp"), max(1.0, row.number("pp") or 1.0)
    attention_dp = max(1.0, row.number("attn_dp") or 1.0)
    if engine in ("llama.cpp", "eager", "ollama") and n > 1:
        return 1.0, n, 1.0, 0.0
    if tp is None:
        # Not stated: a server splits its model over all devices; audited submissions and replicas serve copies, each
        # on as few as hold the weights.
        copies = "mlperf" in row["source"] or "replicas" in row["notes"].lower()
        tp = 1.0 if copies else n / pp
        while tp * pp < n and columns["params_total"] * bits / 8 > 0.8 * accelerator.memory_bytes * tp * pp:
            tp *= 2
    pp = min(pp, n)
    if tp > WIDEST_ATTENTION and columns["n_experts"]:
        return 1.0, 1.0, n, 1.0
    if attention_dp > 1:
        return max(1.0, n / pp / attention_dp), pp, attention_dp, float(columns["n_experts"] > 0)
    if tp == 1 and row.number("attn_dp") == 1 and row.number("ep") == n:
        # Experts are spread over all devices and attention is not copied, so its heads are split: vLLM's
        # `--enable-expert-parallel` beside `--tensor-parallel-size`.
        tp = n
    tp = max(1.0, min(tp, n / pp))
    dp = max(1.0, n / (tp * pp))
    shared = dp > 1 and columns["n_experts"] > 0 and (row.number("ep") or 1.0) > 1
    return tp, pp, dp, float(shared)


def _memory_share(notes: str, accelerator: Accelerator, weight_bytes: float) -> float:
    """Return the share of memory that an engine uses: of a cache of the size that its notes state, with the rest."""
    stated = re.search(r"kv cache (\d+(?:\.\d+)?) ?gib/gpu", notes)
    if stated is None:
        return defaults().gpu_memory_utilization
    taken = weight_bytes + defaults().reserved_bytes + float(stated.group(1)) * 2**30
    return min(1.0, taken / accelerator.memory_bytes)


def _image_flops(model: str, notes: str) -> float:
    """Return the FLOPs of encoding the image, or the frames, of a request whose task is about one."""
    task = next((task for task in ("image-chat", "video-chat") if task in notes), None)
    encoder = image_encoder(names()["image_models"].get(model, model)) if task else None
    if encoder is None or task is None:
        return 0.0
    side, prompt = int(names()["assumed"]["image_side"]), float(names()["prompt_tokens"][task])
    # As many images as their tokens make up the assumed prompt.
    return encoder.flops(side, side) * prompt / encoder.tokens(side, side)


def drafted_len(row: Cells) -> float | None:
    """Return the tokens drafted per step, where the notes of a row state them."""
    match = re.search(r"\bk=(\d{1,3})\b", row["notes"].lower())
    return float(match.group(1)) if match else None


def _scripted_drafts(row: Cells) -> int | None:
    """Return the tokens drafted per step by the launch scripts of a row's source, where the row does not state them."""
    copies = round(row.number("attn_dp") or 1)
    keys = (row["source"], row["model"], row["engine"], _day(row["notes"]), str(copies))
    drafted: int | None = first(names()["drafted"], "|".join(keys).lower(), pattern=True)
    return drafted


def _cached_share(notes: str) -> float:
    """Return the share of prompt tokens in the prefix cache, where notes state it: those of a pair name both rows."""
    off = notes.startswith("before:") and "off -> on" in notes
    match = re.search(r"hit rate (\d{1,2}(?:\.\d+)?) ?%", notes)
    return float(match.group(1)) / 100 if match and not off else 0.0


def _load(row: Cells, engine: str | None, accelerator: Accelerator, notes: str) -> dict[str, float]:
    assumed = names()["assumed"]
    prompt = row.number("input_tokens") or first(names()["prompt_tokens"], notes)
    if prompt is None:
        single = row["mode"] == "single-stream"
        prompt = assumed["single_stream_prompt_tokens" if single else "prompt_tokens"]
    accepted = max(1.0, row.number("accept_len") or 1.0)
    drafted, method = 0.0, row["spec"].lower()
    if method:
        if accepted <= 1:
            accepted = assumed["accepted_len"].get(method, assumed["other_accepted_len"])
        drafted = drafted_len(row) or max(1.0, 1.6 * (accepted - 1))
    elif scripted := _scripted_drafts(row):
        drafted, accepted = float(scripted), accepted_len(assumed["accepted_len"]["mtp"] - 1, scripted)
    batch = row.number("batch_or_concurrency")
    limit = assumed["batch_limit"].get(engine, assumed["other_batch_limit"])
    if engine == "vllm" and not re.search(assumed["old_vllm"], row["engine"].lower()):
        # Its newer versions choose by the device, A100 excepted.
        large = accelerator.memory_bytes >= assumed["large_device_bytes"] and accelerator.arch != "Ampere"
        limit = assumed["large_device_batch_limit" if large else "other_batch_limit"]
    return {
        "concurrency": batch if batch and batch > 0 else math.inf,
        "prompt_len": max(1.0, prompt),
        "generated_len": max(1.0, row.number("output_tokens") or assumed["generated_tokens"]),
        "cached_share": _cached_share(notes),
        "whole_prompts": float("chunked prefill off" in notes),
        "max_num_seqs": limit,
        "accepted_len": accepted,
        "drafted_len": drafted,
        "image_flops": _image_flops(row["model"], notes),
    }
