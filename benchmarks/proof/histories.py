"""Histories of hours whose true effect is known. The verification shares their type alone, and assumes another cost."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pertoken.window.like_for_like import HourlyOutcomes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ROOM = Path(__file__).parent
SHAPE: dict[str, Any] = tomllib.loads((ROOM / "shape.toml").read_text())
TRACES: dict[str, Any] = tomllib.loads((ROOM / "traces.toml").read_text())
HOUR_S = 3600
WEEK_H = 168
MONDAY = 1_789_948_800
"""2026-09-21 00:00 UTC."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of history: a table of `[[kind]]` in `shape.toml`, which explains the values."""

    name: str = "usual"
    plain_restarts: int | None = None
    """None: at random, once a week in the mean."""
    creep_per_day: tuple[float, float] = (0.0, 0.0)
    settles: tuple[float, float] = (0.0, 0.0)
    process_sd: float = 0.0
    length_ratios: tuple[float, ...] = (1.0,)
    sibling_jump: float = 0.0
    jumping: str = "each"
    drift_sd: float | None = None
    jump_sd: float = 0.0


def _kind(table: dict[str, Any]) -> Kind:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    return Kind(**values)


USUAL = Kind()
KINDS: tuple[Kind, ...] = tuple(map(_kind, SHAPE["kind"]))


@dataclass(frozen=True, slots=True)
class Condition:
    """Histories that are generated and counted together."""

    sd: float
    """Of the residual of an hour."""
    siblings: int
    effect: float
    """Change of the device-seconds per token, as a fraction."""
    kind: Kind = USUAL

    @property
    def key(self) -> list[int]:
        """Seed of the condition; kinds differ by their names."""
        return [round(self.sd * 1000), self.siblings, round(-self.effect * 1000), crc32(self.kind.name.encode())]


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """A deployment, its siblings, and a change at a known hour."""

    deployment: HourlyOutcomes
    siblings: tuple[HourlyOutcomes, ...]
    changed_at: int
    until: int


def histories(rng: np.random.Generator, runs: int, condition: Condition) -> Iterator[History]:
    """Yield histories in which the device-seconds per token change by the effect of the condition."""
    shape, kind = SHAPE, condition.kind
    before, after = shape["history"]["weeks_before"] * WEEK_H, shape["history"]["hours_after"]
    hours, members = before + after, 1 + condition.siblings
    size = (runs, members, hours)
    first = rng.integers(0, WEEK_H, runs)
    hour = first[:, None] + np.arange(hours)
    changed = np.arange(hours) >= before

    started, process = _starts(rng, size, before, kind.plain_restarts)
    uptime = np.arange(hours) - started
    lengths = np.exp(_ar1(rng, size, shape["lengths"]["wobble_sd"], shape["lengths"]["wobble_ar1"]))
    lengths *= np.where(changed, rng.choice(kind.length_ratios, (runs, 1, 1)), 1.0)
    requests = _requests(rng, size, hour, changed) / lengths
    code = _code_share(rng, size, changed)
    prompt, generated = (tokens * lengths for tokens in _tokens(rng, requests, code))
    cold = np.exp(-uptime / shape["cold"]["hours"])
    cost = shape["cost"]
    cached = cost["cached_share"] + _ar1(rng, size, cost["cached_sd"], cost["cached_ar1"])
    cached *= 1 - cold
    load = (prompt + generated) / HOUR_S
    relative = load / load.mean(axis=2, keepdims=True)
    context = 1 + cost["context_share"] * ((prompt + generated) / requests / cost["context_tokens"] - 1)
    decode_s = cost["decode_s"] * (1 + cost["step_overhead"] * relative ** -cost["step_exponent"]) * context
    device_s = prompt * (1 - cached) * cost["prefill_s"] + generated * decode_s
    device_s *= np.exp(_residual(rng, size, condition.sd, kind.drift_sd)) * (1 + shape["cold"]["excess"] * cold)
    device_s *= np.exp(_since_start(rng, size, uptime, process, kind))
    if kind.jump_sd:
        device_s *= np.exp(_level(rng, size, kind.jump_sd))
    device_s[:, 0] *= 1 + condition.effect * changed
    device_s[:, 1:] *= np.exp(_sibling_jumps(rng, runs, condition.siblings, kind)[..., None] * changed)
    measured = rng.random(size) >= shape["history"]["missing_hours"]
    spreads = _spreads(code)

    for run in range(runs):
        ts = MONDAY + HOUR_S * hour[run]
        tokens = prompt[run] + generated[run]
        members_of_run = [
            HourlyOutcomes(
                ts,
                device_s[run, member] / tokens[member],
                load[run, member],
                generated[run, member] / tokens[member],
                cached[run, member],
                tokens[member] / requests[run, member],
                spreads[0][run, member],
                spreads[1][run, member],
                # What began before the history is known to be at least as old as it.
                ts[0] + HOUR_S * np.maximum(started[run, member], 0),
            ).where(measured[run, member])
            for member in range(members)
        ]
        yield History(members_of_run[0], tuple(members_of_run[1:]), int(ts[before]), int(ts[-1]) + HOUR_S)


def _starts(rng: np.random.Generator, size: tuple[int, int, int], changed: int, plain: int | None) -> tuple[Ints, Ints]:
    """Return the hour in which the process of each hour began, and its number. The change restarts the deployment."""
    shape = SHAPE["restarts"]
    starts = np.zeros(size, bool)
    if plain is None:
        starts = rng.random(size) < 1 / shape["every_hours"]
    else:
        starts[:, 0, changed - plain * shape["planned_hours"] : changed : shape["planned_hours"]] = True
    starts[:, 0, changed] = True
    if plain is None:
        older = rng.exponential(shape["every_hours"], size[:2])
    else:
        older = rng.uniform(0, shape["old_hours"], size[:2])
    hour = np.where(starts, np.arange(size[2]), -np.ceil(older).astype(np.int64)[..., None])
    return np.maximum.accumulate(hour, axis=2), np.cumsum(starts, axis=2)


def _since_start(
    rng: np.random.Generator, size: tuple[int, int, int], uptime: Ints, process: Ints, kind: Kind
) -> Floats:
    """Return the log cost that depends on the process of an hour, and on the time since its start."""
    creep, settled = (rng.uniform(*limits, (size[0], 1, 1)) for limits in (kind.creep_per_day, kind.settles))
    levels = rng.standard_normal((*size[:2], int(process.max()) + 1)) * kind.process_sd
    since_start: Floats = creep * uptime / 24 + settled * (1 - np.exp(-uptime / SHAPE["restarts"]["settle_hours"]))
    return since_start + np.take_along_axis(levels, process, axis=2)


def _sibling_jumps(rng: np.random.Generator, runs: int, siblings: int, kind: Kind) -> Floats:
    """Return the jump of the log cost of each sibling at the change."""
    signs = rng.choice([-1.0, 1.0], (runs, siblings))
    if kind.jumping == "together":
        signs = signs[:, :1] * np.ones(siblings)
    elif kind.jumping == "one":
        signs[:, 1:] = 0.0
    return kind.sibling_jump * signs


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


def _spreads(code: Floats) -> list[Floats]:
    """Return the standard deviations of the logarithms of prompt and generated lengths at some shares of code."""
    spreads = []
    for name in ("prompt_tokens", "generated_tokens"):
        logs = [np.log(np.array(TRACES[trace][name], np.float64)) for trace in ("code", "conversation")]
        means, variances = [log.mean() for log in logs], [log.var() for log in logs]
        within = code * variances[0] + (1 - code) * variances[1]
        spreads.append(np.sqrt(within + code * (1 - code) * (means[0] - means[1]) ** 2))
    return spreads


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
    """Return a level of its own for each interval between two jumps."""
    interval = np.cumsum(rng.random(size) < 1 / SHAPE["jumps"]["every_hours"], axis=2)
    levels = rng.standard_normal((*size[:2], int(interval.max()) + 1)) * sd
    return np.take_along_axis(levels, interval, axis=2)


def _ar1(rng: np.random.Generator, size: tuple[int, int, int], sd: float, rho: float) -> Floats:
    values = rng.standard_normal(size) * sd
    for at in range(1, size[2]):
        values[:, :, at] = rho * values[:, :, at - 1] + np.sqrt(1 - rho**2) * values[:, :, at]
    return values
