"""Watts and joules: of a device under work, under a power cap, and at a locked clock.

Power rises from idle with the products that the work asks for, towards what the chip draws where nothing limits it, and
at most to the limit of the device; a device that decodes draws much of it long before its FLOP/s are used up. Products
count as if in 16 bits: a device that computes the same tokens in a narrower format was measured to draw no less, and
and its memory traffic adds no information. A cap lowers the clock until the power fits, and the clock stretches
the parts of a step that wait for it. Constants: `power.toml`, fitted by `python -m benchmarks.power`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import Steady
from pertoken.forecast.formats import constants
from pertoken.forecast.terms import TERMS, seconds

MEMORY = ("weights", "experts", "kv_cache")
WEIGHT_PRODUCTS, ATTENTION = ("decode_flops", "prefill_flops"), ("prefill_attention",)
COMPUTE = WEIGHT_PRODUCTS + ATTENTION
LINKS = ("all_reduce_latency", "all_reduce_bytes")
BISECTIONS = 50
Busy = Mapping[str, float]
"""Constants by their names in a section of `power.toml`."""


@dataclass(frozen=True, slots=True)
class CandidateWatts:
    """Of each candidate's devices, shape (n,): watts each."""

    idle_w: Array
    limit_w: Array
    """Default power limit (TDP)."""
    full_w: Array = field(default_factory=lambda: np.array(0.0))
    """Power limit of the product of the same chip that is limited least; below `limit_w` it is that."""


@dataclass(frozen=True, slots=True)
class Slowed:
    """Effect of a power cap or a locked clock, shape (n,)."""

    power_w: Array
    """Watts of one device."""
    clock_share: Array
    """Of the highest clock."""
    slowdown: Array
    """Step time over that at the highest clock, 1 or more."""


def idle_w(accelerator: str, limit_w: float) -> float:
    """Watts of an idle device of this catalog name; a share of its limit where none was measured."""
    table = constants("power")["idle"]
    return float(table["watts"].get(accelerator, table["assumed"] * limit_w))


def full_w(accelerator: str, limit_w: float) -> float:
    """Watts of the least limited product of an accelerator's chip, by its catalog name; its own limit if it is that."""
    return max(limit_w, float(constants("power")["full"]["watts"].get(accelerator, 0.0)))


def products_share(c: Candidates, running: Array, token_s: Array) -> Array:
    """Share of the listed FLOP/s in 16 bits that is used, shape (n,), when a token takes `token_s`."""
    listed_s = seconds(c, running)
    in_16_bits = listed_s[:, _places(WEIGHT_PRODUCTS)].sum(axis=1) * c.flops / c.fp16_flops
    attention = listed_s[:, _places(ATTENTION)].sum(axis=1)
    return np.asarray(np.clip((in_16_bits + attention) / token_s, 1e-5, 1.0))


def busy_w(device: CandidateWatts, share: Array, busy: Busy | None = None) -> Array:
    """Watts of one device that uses this share of its products, shape (n,): never below idle, never above its limit."""
    x = busy or constants("power")["busy"]
    full = np.maximum(device.full_w, device.limit_w)
    drawn = device.idle_w - (full - device.idle_w) * np.expm1(-x["products"] * share ** x["exponent"])
    return np.asarray(np.minimum(drawn, device.limit_w))


def clock_bound(c: Candidates, state: Steady, clock: Busy | None = None) -> Array:
    """Share of a step that slows as the clock falls, 0 to 1, shape (n,)."""
    x = clock or clock_constants()
    memory = np.where(c.weight_only > 0, x["weight_only_memory_bound"], x["memory_bound"])[:, None]
    bound = np.full((len(c), len(TERMS)), float(x["memory_bound"]))
    bound[:, _places(MEMORY)] = memory
    bound[:, _places(COMPUTE)] = x["compute_bound"]
    bound[:, _places(LINKS)] = x["link_bound"]
    share: Array = (bound * state.shares).sum(axis=1)
    return share


def at_clock(
    device: CandidateWatts, power_w: Array, bound: Array, clock_share: Array, clock: Busy | None = None
) -> Slowed:
    """Return the effect of a clock locked at a share of the highest; `power_w` is drawn unlocked. Shares: 0.1 to 1."""
    x = clock or clock_constants()
    share = np.clip(clock_share, x["least"], 1.0)
    fixed = fixed_w(x, device, power_w)
    return Slowed(fixed + (power_w - fixed) * dynamic_share(x, share), share, 1 - bound + bound / share)


def under_cap(device: CandidateWatts, power_w: Array, bound: Array, cap_w: Array, clock: Busy | None = None) -> Slowed:
    """Return a power limit set to `cap_w`, where the work draws `power_w` without one.

    A cap below what the lowest clock draws holds it at that clock: it cannot be kept.
    """
    x = clock or clock_constants()
    fixed = fixed_w(x, device, power_w)
    low, high = np.full(len(power_w), x["least"]), np.ones(len(power_w))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        fits = fixed + (power_w - fixed) * dynamic_share(x, middle) <= cap_w
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return at_clock(device, power_w, bound, np.where(power_w <= cap_w, 1.0, low), x)


def clock_constants() -> Busy:
    """Return the numbers of `[clock]`."""
    return {name: float(value) for name, value in constants("power")["clock"].items() if not isinstance(value, str)}


def log_sd(slowed: bool) -> float:
    """Standard deviation of the log error of watts: of work at the highest clock, or under a cap."""
    return float(constants("power")["clock" if slowed else "busy"]["log_sd"])


def fixed_w(x: Busy, device: CandidateWatts, power_w: Array) -> Array:
    """Return the watts that the clock does not change, of a device that draws `power_w` at the highest clock."""
    watts: Array = np.minimum(np.maximum(x["fixed"] * device.limit_w, device.idle_w), power_w)
    return watts


def dynamic_share(x: Busy, share: Array) -> Array:
    """Return the other watts at a share of the highest clock, over those at the highest."""
    dynamic: Array = (1 - x["knee"]) * share + x["knee"] * share ** x["knee_exponent"]
    return dynamic


def _places(names: tuple[str, ...]) -> list[int]:
    return [TERMS.index(name) for name in names]
