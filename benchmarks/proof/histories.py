"""Histories of hours whose true effect is known. It shares no code with the verification, and assumes another cost."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ROOM = Path(__file__).parent
SHAPE: dict[str, Any] = tomllib.loads((ROOM / "shape.toml").read_text())
TRACES: dict[str, Any] = tomllib.loads((ROOM / "traces.toml").read_text())
HOUR_S = 3600
WEEK_H = 168
MONDAY = 1_789_948_800
"""2026-09-21 00:00 UTC."""


@dataclass(frozen=True, slots=True, eq=False)
class Hours:
    """Measured hours of one deployment."""

    ts: NDArray[np.int64]
    device_s_per_token: Floats
    tokens_per_s: Floats
    generated_share: Floats
    cached_share: Floats


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """A deployment, its siblings, and a change at a known hour."""

    deployment: Hours
    siblings: tuple[Hours, ...]
    changed_at: int
    until: int


def histories(
    rng: np.random.Generator,
    runs: int,
    effect: float,
    sd: float,
    siblings: int,
    drift_sd: float | None = None,
    jump_sd: float = 0.0,
) -> Iterator[History]:
    """Yield histories in which device-seconds per token change by the fraction `effect`; residuals of `sd`.

    `drift_sd`: per week, instead of that of the shape. `jump_sd`: of jumps of the level that nothing explains.
    """
    shape = SHAPE
    before, after = shape["history"]["weeks_before"] * WEEK_H, shape["history"]["hours_after"]
    hours, members = before + after, 1 + siblings
    size = (runs, members, hours)
    first = rng.integers(0, WEEK_H, runs)
    hour = first[:, None] + np.arange(hours)
    since = np.arange(hours) - before
    changed = since >= 0

    requests = _requests(rng, size, hour, changed)
    code = _code_share(rng, size, changed)
    prompt, generated = _tokens(rng, requests, code)
    cold = np.where(changed, np.exp(-since.clip(0) / shape["cold"]["hours"]), 0.0)
    cost = shape["cost"]
    cached = cost["cached_share"] + _ar1(rng, size, cost["cached_sd"], cost["cached_ar1"])
    cached[:, 0] *= 1 - cold  # siblings are not restarted
    load = (prompt + generated) / HOUR_S
    relative = load / load.mean(axis=2, keepdims=True)
    decode_s = cost["decode_s"] * (1 + cost["step_overhead"] * relative ** -cost["step_exponent"])
    device_s = prompt * (1 - cached) * cost["prefill_s"] + generated * decode_s
    device_s *= np.exp(_residual(rng, size, sd, drift_sd))
    if jump_sd:
        device_s *= np.exp(_level(rng, size, jump_sd))
    device_s[:, 0] *= (1 + effect * changed) * (1 + shape["cold"]["excess"] * cold)
    measured = rng.random(size) >= shape["history"]["missing_hours"]

    for run in range(runs):
        ts = MONDAY + HOUR_S * hour[run]
        hours_of_members = [
            Hours(
                ts[mask],
                (device_s[run, member] / (prompt + generated)[run, member])[mask],
                load[run, member][mask],
                (generated / (prompt + generated))[run, member][mask],
                cached[run, member][mask],
            )
            for member in range(members)
            for mask in [measured[run, member]]
        ]
        yield History(hours_of_members[0], tuple(hours_of_members[1:]), int(ts[before]), int(ts[-1]) + HOUR_S)


def _requests(rng: np.random.Generator, size: tuple[int, int, int], hour: Any, changed: Any) -> Floats:
    """Requests of each hour: shape of day and week, demand that wanders, bursts, and the traffic change."""
    load = SHAPE["load"]
    swing = (load["peak_to_trough"] - 1) / (load["peak_to_trough"] + 1)
    day = 1 + swing * np.sin(2 * np.pi * (hour % 24 - 9) / 24)
    week = np.where(hour % WEEK_H >= 5 * 24, load["weekend"], 1.0)
    low, high = np.log(load["requests_per_hour"])
    level = np.exp(rng.uniform(low, high, (size[0], 1, 1)))
    traffic = rng.uniform(-1, 1, (size[0], 1, 1)) * load["traffic_change"]
    demand = np.exp(_ar1(rng, size, load["demand_sd"], load["demand_ar1"]))
    expected = level * (day * week)[:, None, :] * demand * (1 + traffic * changed)
    dispersion = float(np.mean([TRACES[name]["dispersion"] for name in ("code", "conversation")]))
    bursts: Floats = expected + np.sqrt(expected * dispersion) * rng.standard_normal(size)
    return np.maximum(bursts, 100)


def _code_share(rng: np.random.Generator, size: tuple[int, int, int], changed: Any) -> Floats:
    mix = SHAPE["mix"]
    low, high = mix["code_share"]
    share = rng.uniform(low, high, (size[0], 1, 1)) + _ar1(rng, size, mix["wobble_sd"], mix["wobble_ar1"])
    share = share + rng.uniform(-1, 1, (size[0], 1, 1)) * mix["shift"] * changed
    clipped: Floats = np.clip(share, 0.02, 0.98)
    return clipped


def _tokens(rng: np.random.Generator, requests: Floats, code: Floats) -> tuple[Floats, Floats]:
    """Prompt and generated tokens of some requests: sums of lengths drawn from the traces, by their two moments."""
    totals = []
    for name in ("prompt_tokens", "generated_tokens"):
        total = np.zeros_like(requests)
        for trace, share in (("code", code), ("conversation", 1 - code)):
            quantiles = np.array(TRACES[trace][name], np.float64)
            lengths = np.interp(np.linspace(0.005, 0.995, 100), np.linspace(0, 1, len(quantiles)), quantiles)
            count = requests * share
            total += count * lengths.mean() + np.sqrt(count) * lengths.std() * rng.standard_normal(requests.shape)
        totals.append(np.maximum(total, requests))
    return totals[0], totals[1]


def _residual(rng: np.random.Generator, size: tuple[int, int, int], sd: float, drift_sd: float | None) -> Floats:
    """Log cost that nothing measured explains: AR(1) noise and a drift, both partly shared by siblings."""
    residual = SHAPE["residual"]
    runs, _, hours = size
    weeks = (np.arange(hours) - hours / 2) / WEEK_H
    own, common = np.sqrt(1 - residual["shared"]), np.sqrt(residual["shared"])
    noise = own * _ar1(rng, size, sd, residual["ar1"]) + common * _ar1(rng, (runs, 1, hours), sd, residual["ar1"])
    drift_sd = residual["drift_per_week_sd"] if drift_sd is None else drift_sd
    own, common = np.sqrt(1 - residual["drift_shared"]), np.sqrt(residual["drift_shared"])
    slope = own * rng.standard_normal((*size[:2], 1)) + common * rng.standard_normal((runs, 1, 1))
    noisy: Floats = noise + drift_sd * slope * weeks
    return noisy


def _level(rng: np.random.Generator, size: tuple[int, int, int], sd: float) -> Floats:
    """Return a level of its own for each stretch between two jumps."""
    stretch = np.cumsum(rng.random(size) < 1 / SHAPE["jumps"]["every_hours"], axis=2)
    levels = rng.standard_normal((*size[:2], int(stretch.max()) + 1)) * sd
    return np.take_along_axis(levels, stretch, axis=2)


def _ar1(rng: np.random.Generator, size: tuple[int, int, int], sd: float, rho: float) -> Floats:
    values = rng.standard_normal(size) * sd
    for at in range(1, size[2]):
        values[:, :, at] = rho * values[:, :, at - 1] + np.sqrt(1 - rho**2) * values[:, :, at]
    return values
