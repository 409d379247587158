"""Requests over time and their lengths, after two production traces of an hour each.

Lengths and burstiness are those of the traces (`traces.toml`). Since the traces are shorter than a day, the daily and
weekly shape of office work is assumed.
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
"""Hour of the day, UTC, with the most requests."""
THURSDAY = 3
"""Day of the week of 1970-01-01, from Monday on."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Distribution of a service's requests over a week."""

    trace: str
    """`code` or `conversation`: the trace of lengths and bursts."""
    peak_to_trough: float
    weekend: float
    """Requests at weekends as a share of a working day."""
    silent: tuple[int, int] | None = None
    """Hours of the day, UTC, from and to, without requests; weekends then have none at all."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Statistics of a trace."""

    dispersion: float
    """Variance over mean of requests per minute."""
    prompt_len: Floats
    """Evenly spaced quantiles, divided by their mean."""
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
    """Return the expected requests at instants, divided by those of the mean hour of a week."""
    mean = _relative(shape, np.arange(WEEK_H) * HOUR_S).mean()
    return np.asarray(_relative(shape, ts) / mean)


def _relative(shape: Shape, ts: Ints) -> Floats:
    hour = (ts / HOUR_S) % 24
    day = (ts // (24 * HOUR_S) + THURSDAY) % 7  # 0 is Monday
    swing = (shape.peak_to_trough - 1) / (shape.peak_to_trough + 1)
    expected = (1 + swing * np.cos(2 * np.pi * (hour - PEAK_H) / 24)) * np.where(day >= 5, shape.weekend, 1.0)
    if shape.silent is not None:
        first, last = shape.silent
        asleep = (hour >= first) | (hour < last) if first > last else (hour >= first) & (hour < last)
        expected = np.where(asleep | (day >= 5), 0.0, expected)
    return np.asarray(expected)


def requests(rng: np.random.Generator, shape: Shape, per_s: float, ts: Ints, step_s: int, drift: Floats) -> Floats:
    """Return the random requests of each step that begins at `ts`, with bursts and drift.

    `per_s`: rate in the mean hour of a week. `drift`: logarithm of demand relative to its shape, at each step.
    """
    expected = per_s * step_s * weekly(shape, ts + step_s // 2) * np.exp(drift)
    # Burstiness: the traces' variance above a Poisson process increases with the number of requests.
    excess = (traces()[shape.trace].dispersion - 1) * 0.05
    spread = np.sqrt(expected + np.minimum(excess * expected, (0.25 * expected) ** 2))
    drawn = np.where(
        expected < 40, rng.poisson(np.maximum(expected, 0)), expected + spread * rng.standard_normal(ts.shape)
    )
    return np.asarray(np.where(expected > 0, np.maximum(np.round(drawn), 0.0), 0.0))


def drift(rng: np.random.Generator, hours: int, sd: float, rho: float = 0.8) -> Floats:
    """Return a random hourly logarithm around 0, with the autocorrelation `rho`."""
    values = rng.standard_normal(hours) * sd
    for at in range(1, hours):
        values[at] = rho * values[at - 1] + np.sqrt(1 - rho**2) * values[at]
    return np.asarray(values)
