"""Requests over time, and their lengths: shaped by two production traces, which are an hour long each.

Lengths and burstiness are those of the traces (`traces.toml`). A day and a week have the shape of office work: the
traces have no whole day, so its peak and trough are assumed.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
HOUR_S, WEEK_H = 3600, 168
PEAK_H = 14.5
"""Hour of the day, UTC, of the most requests."""
THURSDAY = 3
"""Day of the week of 1970-01-01, from Monday on."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the requests of a service spread over a week and around it."""

    trace: str
    """`code` or `conversation`: whose lengths and bursts."""
    peak_to_trough: float
    weekend: float
    """Of a working day."""
    silent: tuple[int, int] | None = None
    """Hours of the day, UTC, from which to which nobody calls; at weekends nobody at all then."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What is kept of a trace."""

    dispersion: float
    """Variance over mean of requests per minute."""
    prompt_len: Floats
    """Quantiles, evenly spaced, over their mean."""
    generated_len: Floats


@cache
def traces() -> dict[str, Trace]:
    """Return the traces by name."""
    known = tomllib.loads(files("pertoken.demo").joinpath("traces.toml").read_text(encoding="utf-8"))
    return {name: Trace(row["dispersion"], _shape(row["prompt_tokens"]), _shape(row["generated_tokens"]))
            for name, row in known.items()}  # fmt: skip


def _shape(quantiles: list[int]) -> Floats:
    values = np.interp(np.linspace(0.005, 0.995, 100), np.linspace(0, 1, len(quantiles)), quantiles)
    return np.asarray(values / values.mean())


def weekly(shape: Shape, ts: Ints) -> Floats:
    """Return the expected requests at instants over those of the mean hour of a week."""
    mean = _relative(shape, np.arange(WEEK_H) * HOUR_S).mean()
    return np.asarray(_relative(shape, ts) / mean)


def _relative(shape: Shape, ts: Ints) -> Floats:
    hour = (ts / HOUR_S) % 24
    day = (ts // (24 * HOUR_S) + THURSDAY) % 7  # 0 is Monday
    swing = (shape.peak_to_trough - 1) / (shape.peak_to_trough + 1)
    found = (1 + swing * np.cos(2 * np.pi * (hour - PEAK_H) / 24)) * np.where(day >= 5, shape.weekend, 1.0)
    if shape.silent is not None:
        first, last = shape.silent
        asleep = (hour >= first) | (hour < last) if first > last else (hour >= first) & (hour < last)
        found = np.where(asleep | (day >= 5), 0.0, found)
    return np.asarray(found)


def requests(rng: np.random.Generator, shape: Shape, per_s: float, ts: Ints, step_s: int, wander: Floats) -> Floats:
    """Return the requests of each step from `ts` on: at random, in bursts, and as demand wanders.

    `per_s`: of the mean hour of a week. `wander`: logarithm of demand over its shape at each step.
    """
    expected = per_s * step_s * weekly(shape, ts + step_s // 2) * np.exp(wander)
    # Bursts of a service of this size: the traces' excess over chance grows with the number of requests.
    excess = (traces()[shape.trace].dispersion - 1) * 0.05
    spread = np.sqrt(expected + np.minimum(excess * expected, (0.25 * expected) ** 2))
    drawn = np.where(
        expected < 40, rng.poisson(np.maximum(expected, 0)), expected + spread * rng.standard_normal(ts.shape)
    )
    return np.asarray(np.where(expected > 0, np.maximum(np.round(drawn), 0.0), 0.0))


def wandering(rng: np.random.Generator, hours: int, sd: float, rho: float = 0.8) -> Floats:
    """Return an hourly logarithm that wanders about 0."""
    values = rng.standard_normal(hours) * sd
    for at in range(1, hours):
        values[at] = rho * values[at - 1] + np.sqrt(1 - rho**2) * values[at]
    return np.asarray(values)
