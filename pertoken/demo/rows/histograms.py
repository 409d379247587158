"""Histograms of an engine for each step, with the bounds that engines use."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pertoken.demo.simulator.arrivals import Floats, Ints, traces
from pertoken.demo.simulator.course import Course

Bounds = tuple[float, ...]
_TTFT: Bounds = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TPOT: Bounds = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_LONG: Bounds = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)
_TOKENS: Bounds = (*(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0),)
"""Bounds of vLLM 0.32, from a captured page of a model with a context of 32k tokens."""
OF_ENGINE: Mapping[str, tuple[str, ...]] = {
    "vllm": ("ttft_s", "tpot_s", "e2e_s", "queue_s", "prompt_len", "generated_len", "max_tokens"),
    "sglang": ("ttft_s", "tpot_s", "e2e_s", "queue_s", "prompt_len", "generated_len"),
    "trtllm": ("ttft_s", "tpot_s", "e2e_s", "queue_s"),
}
"""Histograms that each engine exposes."""
STEEP, FLAT = 5.0, 3.0
"""Exponents of the log-logistic distributions of times: per token, and per request."""
ALLOWED = 1.25
"""Output limit that clients set, as a multiple of the p99 of a trace's outputs."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of one metric, shape (steps, buckets); the last bucket is above all bounds."""

    metric: str
    bounds: Bounds
    counts: Ints


def histograms(engine: str, course: Course, trace: str, prompt_len: Floats, generated_len: Floats) -> list[Histogram]:
    """Return the histograms that an engine exposes, for each step."""
    n, tokens = course.requests, course.generated_tokens
    known = traces()[trace]
    makers = {
        "ttft_s": lambda: _times("ttft_s", _TTFT, course.ttft_s, n, FLAT),
        "tpot_s": lambda: _times("tpot_s", _TPOT, course.tpot_s, tokens, STEEP),
        "e2e_s": lambda: _times("e2e_s", _LONG, course.e2e_s, n, FLAT),
        "queue_s": lambda: _times("queue_s", _LONG, np.maximum(course.queue_s, 1e-3), n, FLAT),
        "prompt_len": lambda: _lengths("prompt_len", known.prompt_len, prompt_len, n),
        "generated_len": lambda: _lengths("generated_len", known.generated_len, generated_len, n),
        "max_tokens": lambda: _lengths(
            "max_tokens", np.full(2, ALLOWED * float(np.quantile(known.generated_len, 0.99))), generated_len, n
        ),
    }
    return [makers[name]() for name in OF_ENGINE.get(engine, ())]


def _times(metric: str, bounds: Bounds, mean: Floats, n: Floats, steep: float) -> Histogram:
    """Return log-logistically distributed observations with a given mean."""
    median = mean * np.sin(np.pi / steep) / (np.pi / steep)
    below = 1 / (1 + (np.array(bounds)[None, :] / median[:, None]) ** -steep)
    return Histogram(metric, bounds, _counts(below, n))


def _lengths(metric: str, quantiles: Floats, mean: Floats, n: Floats) -> Histogram:
    """Return lengths distributed as in a trace, scaled to a mean."""
    ends = np.linspace(0, 1, len(quantiles))
    below = np.interp(np.array(_TOKENS)[None, :] / mean[:, None], np.sort(quantiles), ends, left=0.0, right=1.0)
    return Histogram(metric, _TOKENS, _counts(below, n))


def _counts(below: Floats, n: Floats) -> Ints:
    """Return counts by bucket with the sum `n`, from the share below each bound."""
    whole = np.round(below * n[:, None]).astype(np.int64)
    edges = np.column_stack((np.zeros(len(n), np.int64), whole, n.astype(np.int64)))
    return np.diff(edges, axis=1)
