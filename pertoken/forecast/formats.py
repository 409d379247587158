"""How weights and caches are stored and computed, and which priors an engine and a device fall under: one table."""

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Format:
    """How a weight format is stored and computed."""

    bits: float
    """Per parameter, with scales and the parts kept in 16 bits."""
    path: str
    """Catalog rate its matrix products run at where the hardware has it: fp16, fp8, int8 or fp4."""
    tags: tuple[str, ...]
    weight_only: bool = False
    """Whether weights are unpacked to 16 bits before each product."""
    fallback: str | None = None
    """The format whose kernels run on hardware that lacks the path."""
    needs: str = "fp16"
    """A rate the hardware must have beside `path` for these kernels."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What is assumed where nobody could see it; every use is named in a forecast's assumptions."""

    gpu_memory_utilization: float
    max_num_seqs: int
    prompt_len: float
    generated_len: float
    reserved_bytes: float
    """Memory of each device kept for activations, graphs and the engine itself."""


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("pertoken.forecast").joinpath("formats.toml").read_text(encoding="utf-8"))


@cache
def weight_format(dtype: str) -> Format | None:
    """How weights of this dtype are stored and computed; None for a dtype the table does not know."""
    row = _table()["weights"].get(dtype)
    return Format(**{**row, "tags": tuple(row["tags"])}) if row else None


def gguf_format(dtype: str) -> str:
    """The format that engines of the llama.cpp family run under a dtype as discovery names it."""
    found: str = _table()["weights-gguf"].get(dtype, dtype)
    return found


def kv_bytes_per_value(dtype: str | None) -> float | None:
    """Bytes of one cached value; `None` and `auto` are 16-bit, an unknown dtype is None."""
    found: float | None = _table()["kv_bytes_per_value"].get(dtype or "auto")
    return found


def hardware_tag(arch: str) -> str | None:
    """The efficiency tag of a catalog architecture; empty for the base, None without a prior."""
    found: str | None = _table()["architectures"].get(arch)
    return found


def has_fp8_cache(arch: str) -> bool:
    """Whether this catalog architecture reads a cache in FP8 without slow unpacking."""
    return arch in _table()["fp8_cache"]["architectures"]


@cache
def assumed_kv_dtype(engine: str | None, weight_dtype: str | None, arch: str) -> str | None:
    """The cache dtype of an engine that was not told one; None for 16 bits."""
    rule = _table()["kv_of_checkpoint"]
    follows = engine in rule["engines"] and weight_dtype in rule["weights"] and has_fp8_cache(arch)
    return "fp8" if follows else None


@cache
def takes_share_of_free(engine: str | None) -> bool:
    """Whether an engine's share of memory is one of what its weights leave, not of all memory."""
    return engine in _table()["memory_share"]["of_free"]


@cache
def admits_whole_requests(engine: str | None) -> bool:
    """Whether an engine starts a request only once its cache has room for all that it may generate."""
    return engine in _table()["admission"]["whole_requests"]


def engine_class(engine: str) -> str:
    """Return the class of engines that share kernels; the engine itself where the table names no class."""
    found: str = _table()["engine_classes"].get(engine, engine)
    return found


def kernel_family(engine: str, format_name: str) -> str:
    """Return the formats whose kernels an engine shares with this one: itself, but for what the table names."""
    families: dict[str, str] = _table()["kernel_families"].get(engine_class(engine), {})
    return families.get(format_name, format_name)


def engine_tag(engine: str) -> str | None:
    """The efficiency tag of an engine as discovery names it; empty for the base, None without a prior."""
    found: str | None = _table()["engines"].get(engine)
    return found


@cache
def defaults() -> Defaults:
    """Assumptions for what was not measured."""
    return Defaults(**{each.name: _table()["assumed"][each.name] for each in fields(Defaults)})
