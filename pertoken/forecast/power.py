"""Watts and joules: of a device under work, under a power cap, and at a locked clock.

Power rises from idle to the limit with the share of the memory bandwidth and of the FLOP/s that the work takes; a
device that decodes draws much of it before either is used up. A cap lowers the clock until the power fits, and the
clock stretches the parts of a step that wait for it. Constants: `power.toml`, fitted by `python -m benchmarks.power`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.steady import Steady
from pertoken.forecast.terms import TERMS, seconds

MEMORY = ("weights", "experts", "kv_cache")
COMPUTE = ("decode_flops", "prefill_flops", "prefill_attention")
LINKS = ("all_reduce_latency", "all_reduce_bytes")
BISECTIONS = 50
Busy = Mapping[str, float]
"""Constants by their names in a section of `power.toml`."""


@dataclass(frozen=True, slots=True)
class Device:
    """Of each candidate's devices, shape (n,): watts each."""

    idle_w: Array
    limit_w: Array
    """Default power limit (TDP)."""


@dataclass(frozen=True, slots=True)
class Slowed:
    """What a cap or a locked clock does, shape (n,)."""

    power_w: Array
    """Watts of one device."""
    clock_share: Array
    """Of the highest clock."""
    stretch: Array
    """Step time over that at the highest clock, 1 or more."""


def idle_w(accelerator: str, limit_w: float) -> float:
    """Watts of an idle device of this catalog name; a share of its limit where none was measured."""
    table = _table()["idle"]
    return float(table["watts"].get(accelerator, table["assumed"] * limit_w))


def shares(c: Candidates, running: Array, token_s: Array) -> tuple[Array, Array]:
    """Shares of the listed bandwidth and FLOP/s that are used, shape (n,), when a token takes `token_s`."""
    listed = seconds(c, running)
    memory, compute = (listed[:, _places(names)].sum(axis=1) / token_s for names in (MEMORY, COMPUTE))
    return np.clip(memory, 1e-4, 1.2), np.clip(compute, 1e-5, 1.0)


def busy_w(device: Device, memory_share: Array, compute_share: Array, busy: Busy | None = None) -> Array:
    """Watts of one device at work, shape (n,): never below idle, never above its limit."""
    x = busy or _table()["busy"]
    work = x["active"] + x["memory"] * memory_share ** x["memory_exponent"]
    work = work + x["compute"] * compute_share ** x["compute_exponent"]
    return device.idle_w - (device.limit_w - device.idle_w) * np.expm1(-work)


def joule_per_token(c: Candidates, power_w: Array, running: Array, token_s: Array) -> Array:
    """Joules of all devices per generated token, shape (n,), when each draws `power_w`."""
    return power_w * c.tp * c.pp * c.dp * token_s / running


def clock_bound(c: Candidates, state: Steady, clock: Busy | None = None) -> Array:
    """Share of a step that stretches as the clock falls, 0 to 1, shape (n,); `clock` replaces shares of `[clock]`."""
    x = {**_table()["clock"], **(clock or {})}
    memory = np.where(c.weight_only > 0, x["weight_only_memory_bound"], x["memory_bound"])[:, None]
    bound = np.full((len(c), len(TERMS)), float(x["overhead_bound"]))
    bound[:, _places(MEMORY)] = memory
    bound[:, _places(COMPUTE)] = x["compute_bound"]
    bound[:, _places(LINKS)] = x["link_bound"]
    found: Array = (bound * state.shares).sum(axis=1)
    return found


def at_clock(device: Device, power_w: Array, bound: Array, clock_share: Array) -> Slowed:
    """A clock locked at a share of the highest, where it draws `power_w` unlocked. Shares are clipped to 0.1 to 1."""
    x = _table()["clock"]
    clock = np.clip(clock_share, x["least"], 1.0)
    fixed = _fixed(device, power_w)
    return Slowed(fixed + (power_w - fixed) * _dynamic(clock), clock, 1 - bound + bound / clock)


def under_cap(device: Device, power_w: Array, bound: Array, cap_w: Array) -> Slowed:
    """A power limit set to `cap_w`, where the work draws `power_w` without one.

    A cap below what the lowest clock draws holds it at that clock: it cannot be kept.
    """
    fixed = _fixed(device, power_w)
    low, high = np.full(len(power_w), float(_table()["clock"]["least"])), np.ones(len(power_w))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        fits = fixed + (power_w - fixed) * _dynamic(middle) <= cap_w
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    clock = np.where(power_w <= cap_w, 1.0, low)
    return at_clock(device, power_w, bound, clock)


def log_sd(slowed: bool) -> float:
    """Standard deviation of the log error of watts: of work at the highest clock, or under a cap."""
    return float(_table()["clock" if slowed else "busy"]["log_sd"])


def uncapped_w(device: Device, power_w: Array, clock_share: Array) -> Array:
    """What a device would draw at its highest clock that draws `power_w` at a share of it, shape (n,)."""
    fixed = _fixed(device, power_w)
    found: Array = fixed + (power_w - fixed) / _dynamic(np.clip(clock_share, _table()["clock"]["least"], 1.0))
    return found


def _fixed(device: Device, power_w: Array) -> Array:
    found: Array = np.minimum(np.maximum(_table()["clock"]["fixed"] * device.limit_w, device.idle_w), power_w)
    return found


def _dynamic(clock: Array) -> Array:
    x = _table()["clock"]
    found: Array = (1 - x["knee"]) * clock + x["knee"] * clock ** x["knee_exponent"]
    return found


def _places(names: tuple[str, ...]) -> list[int]:
    return [TERMS.index(name) for name in names]


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("pertoken.forecast").joinpath("power.toml").read_text(encoding="utf-8"))
