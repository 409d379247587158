"""Storage and compute formats of weights and caches, and the priors of engines and devices: one table."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

BLOCK_FP8 = "fp8-block"
"""Tag and kernel path of FP8 weights with a scale per block."""


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """Storage and compute type of a weight format."""

    bits: float
    """Per parameter, with scales and the parts kept in 16 bits."""
    path: str
    """Catalog rate its matrix products run at where the hardware has it: fp16, fp8, int8 or fp4."""
    tags: tuple[str, ...]
    weight_only: bool = False
    """Whether weights are unpacked to 16 bits before each product."""
    fallback: str | None = None
    """The format with kernels for hardware that lacks the path."""
    needs: str = "fp16"
    """A rate the hardware must have beside `path` for these kernels."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values assumed where none was seen; every use is named in a forecast's assumptions."""

    gpu_memory_utilization: float
    max_num_seqs: int
    prompt_len: float
    generated_len: float
    image_side: int
    """Pixels of a side of an image of uncounted size."""
    reserved_bytes: float
    """Memory of each device kept for activations, graphs and the engine itself."""


@cache
def constants(file: str) -> Mapping[str, Any]:
    """Return a table of constants by the name of its file, such as `power`."""
    return tomllib.loads(files("pertoken.forecast").joinpath(f"{file}.toml").read_text(encoding="utf-8"))


@cache
def weight_format(dtype: str) -> WeightFormat | None:
    """Return how weights of this dtype are stored and computed; None for a dtype the table does not know."""
    row = constants("formats")["weights"].get(dtype)
    return WeightFormat(**{**row, "tags": tuple(row["tags"])}) if row else None


@cache
def has_block_kernels(engine: str | None, format_name: str, mixture: bool) -> bool:
    """Return whether an engine multiplies weights of this format by kernels for FP8 with a scale per block.

    False for dense models: with a path of their own, unseen pairs of them were forecast no better.
    """
    return mixture and format_name == "fp8_block" and engine in constants("formats")["block_fp8"]["engines"]


def stored_format(engine: str, dtype: str) -> str:
    """Return the format that an engine runs under a dtype as discovery names it."""
    name: str = constants("formats")["weights-gguf"].get(dtype, dtype) if engine_tag(engine) == "llama.cpp" else dtype
    return name


def kv_bytes_per_value(dtype: str | None) -> float | None:
    """Bytes of one cached value; `None` and `auto` are 16-bit, an unknown dtype is None."""
    value_bytes: float | None = constants("formats")["kv_bytes_per_value"].get(dtype or "auto")
    return value_bytes


def hardware_tag(arch: str) -> str | None:
    """Return the efficiency tag of a catalog architecture; empty for the base, None without a prior."""
    tag: str | None = constants("formats")["architectures"].get(arch)
    return tag


def has_fp8_cache(arch: str) -> bool:
    """Return whether this catalog architecture reads a cache in FP8 without slow unpacking."""
    return arch in constants("formats")["fp8_cache"]["architectures"]


@cache
def assumed_kv_dtype(engine: str | None, weight_dtype: str | None, arch: str) -> str | None:
    """Return the cache dtype of an engine started without one; None for 16 bits."""
    rule = constants("formats")["kv_of_checkpoint"]
    follows = engine in rule["engines"] and weight_dtype in rule["weights"] and has_fp8_cache(arch)
    return "fp8" if follows else None


@cache
def takes_share_of_free(engine: str | None) -> bool:
    """Return whether an engine's share of memory is of the rest beside its weights, not of all memory."""
    return engine in constants("formats")["memory_share"]["of_free"]


@cache
def admits_whole_requests(engine: str | None) -> bool:
    """Return whether an engine starts a request only once its cache has room for all that it may generate."""
    return engine in constants("formats")["admission"]["whole_requests"]


def engine_class(engine: str) -> str:
    """Return the class of engines that share kernels; the engine itself where the table names no class."""
    name: str = constants("formats")["engine_classes"].get(engine, engine)
    return name


def cpu_kernels(engine: str) -> str:
    """Return the engine that provides the kernels on CPUs: llama.cpp for engines built on it, else the engine."""
    return engine_tag(engine) or engine


def kernel_family(engine: str, format_name: str) -> str:
    """Return the formats that share the kernels of an engine with this one: itself, unless the table names others."""
    families: dict[str, str] = constants("formats")["kernel_families"].get(engine_class(engine), {})
    return families.get(format_name, format_name)


def kernel_maker(arch: str) -> str:
    """Return the maker of the kernels on a catalog architecture; the architecture where the table names nobody."""
    makers: dict[str, list[str]] = constants("formats")["kernel_makers"]
    return next((maker for maker, architectures in makers.items() if arch in architectures), arch)


def engine_tag(engine: str) -> str | None:
    """Return the efficiency tag of an engine as discovery names it; empty for the base, None without a prior."""
    tag: str | None = constants("formats")["engines"].get(engine)
    return tag


@cache
def defaults() -> Defaults:
    """Assumptions for values that were not measured."""
    return Defaults(**{field.name: constants("formats")["assumed"][field.name] for field in fields(Defaults)})
