"""Public measurements as candidates: reads `measurements.csv` and `pairs.csv`, whatever they leave blank.

A cell that is blank is filled with an assumption that is written down (`performance_names.toml`), and a row on a
device or in a dtype nobody knows keeps that as its reason, so that whoever predicts may abstain.
"""

import csv
import itertools
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pertoken.catalog.market import MIB, Accelerator, load_market
from pertoken.forecast.candidates import Array, Candidates, stack
from pertoken.forecast.efficiency import tag_row
from pertoken.forecast.formats import defaults, engine_tag, gguf_format, hardware_tag
from pertoken.forecast.served import device_columns, device_tags, kernels, model_tags

HERE = Path(__file__).parent
Strings = NDArray[np.str_]
MEASURED_BATCH = ("fixed batch", "static-batch", "single-stream")
"""Modes whose batch ran as given, whatever the arithmetic of memory says."""
CARRIED = HERE / "data/performance"
"""Rows whose licence allows copying, with their pairs."""
FILES = ("measurements.csv", "pairs.csv")
UNKNOWN_DEVICE, UNKNOWN_CPU = "Unknown device", "Unknown CPU"


class BadFile(Exception):
    """A file of measurements cannot be read; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """Rows as candidates, with what was measured on them; NaN where it was not."""

    rows: tuple[dict[str, str], ...]
    candidates: Candidates
    measured_batch: NDArray[np.bool_]
    """Whether the batch is known to have run as given."""
    tok_s: Array
    itl_s: Array
    ttft_s: Array
    joule_per_token: Array
    doubts: tuple[str, ...]
    """What had to be guessed of each row's device, dtype or model; empty where nothing was."""

    def column(self, name: str) -> Strings:
        """A column as text; empty where the file has none."""
        return np.array([row.get(name) or "" for row in self.rows])


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two measured configurations each, as rows of `Measurements`."""

    rows: tuple[dict[str, str], ...]
    before: NDArray[np.intp]
    after: NDArray[np.intp]
    log_ratio: Array
    """Of output tokens/s, after over before; NaN where not measured."""
    log_energy_ratio: Array

    def column(self, name: str) -> Strings:
        """A column as text; empty where the file has none."""
        return np.array([row.get(name) or "" for row in self.rows])


def read(measurements: Path, pairs: Path) -> tuple[Measurements, Pairs]:
    """Both files. Raises BadFile naming the file and what is wrong."""
    rows = _csv(measurements, ("key", "model", "gpu"))
    keys = {row["key"] for row in rows}
    changes = _csv(pairs, ("before", "after", "kind"))
    for row in changes:
        for end in ("before", "after"):
            if row[end] not in keys:
                raise BadFile(f"{pairs}: {end} {row[end]!r} is not a key of {measurements}")
    return measured(rows), paired(rows, changes)


def with_carried(measurements: Measurements, pairs: Pairs) -> tuple[Measurements, Pairs]:
    """These rows and pairs first, then those the repository carries that are not among them: what a refit sees."""
    known = {row["key"] for row in measurements.rows}
    said = {(row["kind"], row["before"], row["after"]) for row in pairs.rows}
    more, changes = (_csv(CARRIED / file, ("key",) if file == "measurements.csv" else ("kind",)) for file in FILES)
    rows = [*measurements.rows, *(row for row in more if row["key"] not in known)]
    added = [row for row in changes if (row["kind"], row["before"], row["after"]) not in said]
    return measured(rows), paired(rows, [*pairs.rows, *added])


def paired(rows: Sequence[dict[str, str]], changes: Sequence[dict[str, str]]) -> Pairs:
    """Pairs of these rows by their keys, which must be among them."""
    places = {row["key"]: place for place, row in enumerate(rows)}
    return Pairs(
        rows=tuple(changes),
        before=np.array([places[row["before"]] for row in changes], dtype=np.intp),
        after=np.array([places[row["after"]] for row in changes], dtype=np.intp),
        log_ratio=np.log(_floats(changes, "ratio_output_tok_s", 1.0)),
        log_energy_ratio=np.log(_floats(changes, "ratio_energy_per_token", 1.0)),
    )


def measured(rows: Sequence[dict[str, str]]) -> Measurements:
    """Rows of a measurements file as candidates."""
    columns, tags, doubts = zip(*map(_candidate, rows), strict=True)
    return Measurements(
        rows=tuple(rows),
        candidates=stack(columns, tags),
        measured_batch=np.array([_has_measured_batch(row) for row in rows]),
        tok_s=_floats(rows, "output_tok_s_total", 1.0),
        itl_s=_floats(rows, "itl_ms", 1e-3),
        ttft_s=_floats(rows, "ttft_ms", 1e-3),
        joule_per_token=_floats(rows, "energy_j_per_output_token", 1.0),
        doubts=doubts,
    )


def number(text: str | None) -> float | None:
    """A finite number in a cell, or None."""
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _csv(path: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadFile(f"{path}: {error}") from error
    if not rows:
        raise BadFile(f"{path}: no rows")
    if missing := [name for name in needed if name not in rows[0]]:
        raise BadFile(f"{path}: no column {', '.join(missing)}")
    return rows


def _floats(rows: Sequence[Mapping[str, str]], column: str, unit: float) -> Array:
    values = [number(row.get(column)) for row in rows]
    return np.array([value * unit if value is not None and value > 0 else math.nan for value in values])


def _has_measured_batch(row: Mapping[str, str]) -> bool:
    return row.get("mode", "") in MEASURED_BATCH or "batch=measured" in (row.get("notes") or "")


@cache
def _names() -> dict[str, Any]:
    return tomllib.loads((HERE / "performance_names.toml").read_text(encoding="utf-8"))


@cache
def _extra_devices() -> dict[str, Accelerator]:
    with (HERE / "data/devices.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    found = {}
    for row in rows:
        rate = {key: number(row[key]) for key in row if key.endswith(("_tflops", "_tops", "_gb_s"))}
        found[row["name"]] = Accelerator(
            name=row["name"],
            reported_names=(),
            vendor="",
            arch=row["arch"],
            compute_capability=None,
            memory_bytes=int(row["memory_reported_mib"]) * MIB,
            memory_bytes_per_s=(rate["memory_bw_gb_s"] or 0) * 1e9,
            fp16_flops=(rate["fp16_tflops"] or 0) * 1e12,
            fp8_flops=rate["fp8_tflops"] * 1e12 if rate["fp8_tflops"] else None,
            int8_flops=rate["int8_tops"] * 1e12 if rate["int8_tops"] else None,
            fp4_flops=rate["fp4_tflops"] * 1e12 if rate["fp4_tflops"] else None,
            tdp_w=None,
            interconnect=row["interconnect"],
            interconnect_bytes_per_s=rate["interconnect_gb_s"] * 1e9 if rate["interconnect_gb_s"] else None,
            source=row["source"],
            as_of=date(2026, 11, 21),
            confidence="medium",
        )
    return found


@cache
def device(name: str) -> Accelerator | None:
    """The accelerator a public measurement means by this name: the catalog's with the most words in common."""
    wanted = name.replace("?", "").strip()
    market = load_market()
    exact = market.accelerator(wanted) or market.accelerator(_names()["devices"].get(wanted))
    if exact is not None:
        return exact
    words = _words(wanted)
    best: tuple[float, Accelerator] | None = None
    for each in (*_extra_devices().values(), *market.accelerators):
        theirs = _words(each.name)
        # What sets a device apart is its model number; a name without one in common is another device.
        if each.name in (UNKNOWN_DEVICE, UNKNOWN_CPU) or not _distinctive(each.name) & (words | _joined(words)):
            continue
        likeness = len(theirs & (words | _joined(words))) - 0.4 * len(theirs - words - _joined(words))
        likeness += 0.05 * (("sxm" in each.name.lower()) - ("nvl" in each.name.lower() and "72" not in each.name))
        if best is None or likeness > best[0]:
            best = (likeness, each)
    return best[1] if best else None


def _ordered(name: str) -> list[str]:
    words = re.split(r"[\s_\-/()+]+", name.lower())
    return [re.sub(r"^(\d+)g$", r"\1gb", re.sub(r"^sxm\d*$", "sxm", word)) for word in words if word]


def _words(name: str) -> set[str]:
    words = _ordered(name)
    # "Gaudi2" and "Gaudi 2", "RTX3090" and "RTX 3090" are one device.
    pairs = {first + second for first, second in itertools.pairwise(words)}
    return set(words) | pairs


def _distinctive(name: str) -> set[str]:
    """Spellings of the word that tells a device from others: its first with a digit, alone or with the one before."""
    words = _ordered(name)
    place = next((place for place, word in enumerate(words) if re.search(r"\d", word)), len(words) - 1)
    joined = {words[place - 1] + words[place]} if place else set()
    return joined if words[place].isdigit() and len(words[place]) < 2 else {words[place], *joined}


def _joined(words: set[str]) -> set[str]:
    return {word.removeprefix(prefix) for word in words for prefix in ("rtx", "nvidia", "amd") if word != prefix}


def _first(table: Mapping[str, Any], text: str, pattern: bool = False) -> Any | None:
    for key, value in table.items():
        if re.search(key, text) if pattern else key in text:
            return value
    return None


def _candidate(row: Mapping[str, str]) -> tuple[dict[str, float], tuple[float, ...], str]:
    doubts = []
    engine_text, notes = row.get("engine", "").lower(), (row.get("notes") or "").lower()
    engine = _first(_names()["engines"], engine_text)
    if engine is None:
        doubts.append(f"no measured prior for the engine {row.get('engine')!r}")
    accelerator = device(row["gpu"])
    if accelerator is None:
        doubts.append(f"the device {row['gpu']!r} is not known")
        cpu = re.search(r"xeon|epyc|core|cpu|neoverse|graviton|ryzen", row["gpu"].lower())
        accelerator = _extra_devices()[UNKNOWN_CPU if cpu else UNKNOWN_DEVICE]
    columns, known = _shape(row)
    if not known:
        doubts.append(f"the size of {row['model']!r} is not known")
    n = max(1.0, number(row.get("n_gpus")) or 1.0)
    dtype = _dtype(row, accelerator, columns, n, engine, doubts)
    kernel = kernels(dtype, accelerator)
    kv_dtype = (row.get("kv_dtype") or "").lower()
    kv_name = "fp8" if "fp8" in kv_dtype else "int8" if "int8" in kv_dtype else None
    held, graded = model_tags(columns)
    held += [*kernel.tags, *device_tags(_with_prior(accelerator), kernel.weight_only, kv_name)]
    held += [engine_tag(engine) or ""] if engine else ["other-engine"]
    tp, pp, dp, shared = _layout(row, accelerator, columns, kernel.bits, n, engine)
    columns |= device_columns(accelerator) | _load(row, engine, accelerator, notes)
    columns |= {
        "weight_bits": kernel.bits,
        "weight_only": float(kernel.weight_only),
        "kv_bytes": 1.0 if kv_name else 2.0,
        "flops": kernel.flops,
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "shared_experts": shared,
        "memory_share": defaults().gpu_memory_utilization,
        "clock_share": 1.0,
    }
    held += ["images"] if "image-chat" in notes or "video-chat" in notes else []
    held += ["attention-dp"] if dp > 1 and shared else []
    held += ["expert-parallel"] if (number(row.get("ep")) or 1) > 1 else []
    held += ["queued"] if row.get("mode", "").startswith("offline") else []
    held += ["burst"] if row.get("mode") == "burst" else []
    return columns, tag_row([each for each in held if each], graded), "; ".join(doubts)


def _with_prior(accelerator: Accelerator) -> Accelerator:
    return accelerator if hardware_tag(accelerator.arch) is not None else replace(accelerator, arch="x86")


def _dtype(
    row: Mapping[str, str],
    accelerator: Accelerator,
    columns: Mapping[str, float],
    n: float,
    engine: str | None,
    doubts: list[str],
) -> str:
    text = (row.get("weight_dtype") or "").lower()
    found: str | None = _first(_names()["dtypes"], text, pattern=True) if text else None
    if found is None:
        # Audited submissions run FP8 wherever the hardware has it; others run 16 bits if they fit.
        fits = columns["params_total"] * 2 < accelerator.memory_bytes * n * 0.9
        found = "bf16" if fits and not ("mlperf" in row.get("source", "") and accelerator.fp8_flops) else "fp8"
        doubts.append(f"the weight dtype {text!r} is not known" if text else "the weight dtype is not known")
    return gguf_format(found) if engine in ("llama.cpp", "ollama") else found


def _shape(row: Mapping[str, str]) -> tuple[dict[str, float], bool]:
    name = row["model"].lower()
    total, active = number(row.get("params_total_b")), number(row.get("params_active_b"))
    if total is None and (found := re.search(r"(?<![a-z\d])(\d+(?:\.\d+)?)b(?![a-z])", name)):
        total = float(found.group(1))
        found = re.search(r"a(\d+(?:\.\d+)?)b", name)
        active = float(found.group(1)) if found else active
    known = total is not None and total > 0
    total = total if total and total > 0 else 8.0
    active = min(active, total) if active and active > 0 else total
    mixture = active < 0.95 * total
    layers = number(row.get("n_layers")) or float(
        np.clip(round(32 * (active / 7) ** 0.32 * (1.3 if mixture else 1)), 12, 128)
    )
    heads, dim = number(row.get("n_kv_heads")) or 8.0, number(row.get("head_dim")) or 128.0
    experts = (0.0, 0.0)
    if mixture:
        listed = load_market().model(row["model"])
        if listed is not None and listed.n_experts and listed.n_experts_active:
            experts = (listed.n_experts, listed.n_experts_active)
        else:
            # Of an unknown mixture, about a third of what a token passes is attention and shared layers.
            share = 0.65 * active / (total - 0.35 * active)
            experts = _first(_names()["experts"], name) or (128.0, float(np.clip(round(128 * share), 1, 127)))
    window = _first(_names()["windows"], name) or (0.0, math.inf)
    return {
        "params_total": total * 1e9,
        "params_active": active * 1e9,
        "n_layers": layers,
        "kv_values": 2 * layers * heads * dim,
        "n_kv_heads": heads,
        "hidden_size": math.sqrt(active * 1e9 / (12 * layers)),
        "n_experts": float(experts[0]),
        "n_experts_active": float(experts[1]),
        "windowed_share": window[0],
        "window": window[1],
    }, known


def _layout(
    row: Mapping[str, str],
    accelerator: Accelerator,
    columns: Mapping[str, float],
    bits: float,
    n: float,
    engine: str | None,
) -> tuple[float, float, float, float]:
    """(tp, pp, dp, whether dp ranks share the experts) of `n` devices."""
    tp, pp = number(row.get("tp")), max(1.0, number(row.get("pp")) or 1.0)
    attention_dp = max(1.0, number(row.get("attn_dp")) or 1.0)
    if engine in ("llama.cpp", "eager", "ollama") and n > 1:
        return 1.0, n, 1.0, 0.0
    if tp is None:
        # Nobody said: as few ranks as hold the weights, and the rest of the devices serve copies.
        tp = 1.0
        while tp * pp < n and columns["params_total"] * bits / 8 > 0.8 * accelerator.memory_bytes * tp * pp:
            tp *= 2
    pp = min(pp, n)
    if attention_dp > 1:
        return max(1.0, n / pp / attention_dp), pp, attention_dp, float(columns["n_experts"] > 0)
    tp = max(1.0, min(tp, n / pp))
    return tp, pp, max(1.0, n / (tp * pp)), 0.0


def _load(row: Mapping[str, str], engine: str | None, accelerator: Accelerator, notes: str) -> dict[str, float]:
    assumed = _names()["assumed"]
    prompt = number(row.get("input_tokens")) or _first(_names()["prompt_tokens"], notes)
    if prompt is None:
        single = row.get("mode") == "single-stream"
        prompt = assumed["single_stream_prompt_tokens" if single else "prompt_tokens"]
    accepted = max(1.0, number(row.get("accept_len")) or 1.0)
    drafted, method = 0.0, (row.get("spec") or "").lower()
    if method:
        if accepted <= 1:
            accepted = assumed["accepted_len"].get(method, assumed["other_accepted_len"])
        drafted = max(1.0, 1.6 * (accepted - 1))
    batch = number(row.get("batch_or_concurrency"))
    limit = assumed["batch_limit"].get(engine, assumed["other_batch_limit"])
    if engine == "vllm" and not re.search(assumed["old_vllm"], row.get("engine", "").lower()):
        # Its newer versions choose by the device, A100 excepted.
        large = accelerator.memory_bytes >= assumed["large_device_bytes"] and accelerator.arch != "Ampere"
        limit = assumed["large_device_batch_limit" if large else "other_batch_limit"]
    return {
        "concurrency": batch if batch and batch > 0 else math.inf,
        "prompt_len": max(1.0, prompt),
        "generated_len": max(1.0, number(row.get("output_tokens")) or assumed["generated_tokens"]),
        "cached_share": 0.0,
        "max_num_seqs": limit,
        "accepted_len": accepted,
        "drafted_len": drafted,
    }
