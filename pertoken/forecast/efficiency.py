"""What serving engines reach of their hardware, with ranges, and how far this model was off: one table."""

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Efficiency:
    """One set of constants. Shares are of the catalog's peak rates, 0 to 1; times are seconds."""

    memory_bandwidth_share: float
    decode_flops_share: float
    prefill_flops_share: float
    link_share: float
    step_overhead_s: float
    """Fixed per decode step: scheduling, sampling, detokenizing."""
    layer_overhead_s: float
    """Per layer and step: kernel launches and gaps."""
    sequence_overhead_s: float
    """Per running sequence and step."""
    allreduce_latency_s: float
    """Per all-reduce; tensor parallelism has two in each layer."""
    moe_layer_overhead_s: float
    """Per mixture-of-experts layer and step: routing, gathering, scattering."""
    reserved_bytes: float
    """Memory of each device kept for activations, graphs and the engine itself."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a weight format is stored and computed."""

    bytes_per_param: float
    flops_path: str
    """Catalog rate its matrix products run at where the hardware has it: fp16, fp8, int8 or fp4."""
    flops_share: float
    """Of that path's decode and prefill share: what kernels of this format reach beside 16-bit ones."""
    bandwidth_share: float
    """The same for reading weights."""
    weight_only_flops_share: float
    """Of the 16-bit rate where the hardware lacks the path: weights are unpacked before each product."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What is assumed where nobody could see it; every use is named in a forecast's assumptions."""

    gpu_memory_utilization: float
    max_num_seqs: int
    prompt_len: float
    generated_len: float


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("pertoken.forecast").joinpath("efficiency.toml").read_text(encoding="utf-8"))


@cache
def efficiencies() -> tuple[Efficiency, Efficiency, Efficiency]:
    """The pessimistic, likely and optimistic constants."""
    low, likely, high = (
        Efficiency(**{each.name: float(_table()["constants"][each.name]["range"][end]) for each in fields(Efficiency)})
        for end in range(3)
    )
    return low, likely, high


@cache
def weight_format(dtype: str) -> Format | None:
    """How weights of this dtype are stored and computed; None for a dtype the table does not know."""
    row = _table()["weights"].get(dtype)
    return Format(**{each.name: row[each.name] for each in fields(Format)}) if row else None


def kv_bytes_per_value(dtype: str | None) -> float | None:
    """Bytes of one cached value; `None` and `auto` are 16-bit, an unknown dtype is None."""
    found: float | None = _table()["kv_bytes_per_value"].get(dtype or "auto")
    return found


@cache
def defaults() -> Defaults:
    """Assumptions for what was not measured."""
    return Defaults(**{each.name: _table()["assumed"][each.name] for each in fields(Defaults)})


def width(kinds: Iterable[str]) -> float:
    """Half width of the 80 % interval of a log-ratio changed in these ways, their errors taken as independent.

    Source: `[error]` of the table, measured on public before/after pairs. Raises KeyError for an unknown kind.
    """
    error = _table()["error"]
    return math.sqrt(sum(max(error[kind]["p80_abs_log"], error["noise_floor"]) ** 2 for kind in kinds))
