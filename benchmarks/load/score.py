"""Errors of predicted runs by configuration, and what they mean for the price of a token."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.load.engine import request_s
from benchmarks.load.predict import Prediction
from benchmarks.load.runs import OUTPUTS, Run
from pertoken.forecast.candidates import Array

NAMES = ("tok_s", "tpot", "ttft", "power")
"""Of the targets, in the order of `OUTPUTS`."""
TOK_S, TTFT = 0, 2
WIDEST_RATIO = 20
"""High over low from which an interval is of no use."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One run, what was predicted of it, and whether it was kept out of the scores."""

    run: Run
    likely: Array
    prediction: Prediction | None = None


def counts(run: Run, output: int) -> bool:
    """Return whether an output of a run is scored: tokens/s where the server did not keep up, TTFT where it did.

    Elsewhere tokens/s are those that arrive, and TTFT is a wait that grows until the requests end.
    """
    if not np.isfinite(run.measured[output]):
        return False
    return {TOK_S: not run.kept_up, TTFT: run.kept_up}.get(output, True)


def errors(scored: Sequence[Scored], output: int) -> list[float]:
    """Return relative errors of an output of the runs of one configuration."""
    return [
        abs(float(scored_run.likely[output]) / scored_run.run.measured[output] - 1)
        for scored_run in scored
        if counts(scored_run.run, output) and np.isfinite(scored_run.likely[output])
    ]


def medians(by_config: Mapping[str, Sequence[Scored]], output: int) -> dict[str, float]:
    """Return the median error of an output by configuration; those without one are left out."""
    errors_by_config = {name: errors(scored, output) for name, scored in by_config.items()}
    return {name: statistics.median(some) for name, some in errors_by_config.items() if some}


def covered(by_config: Mapping[str, Sequence[Scored]]) -> tuple[list[list[bool]], list[list[float]]]:
    """Return for each output whether each measured figure is in its interval, and half widths (high over likely)."""
    inside: list[list[bool]] = [[] for _ in OUTPUTS]
    widths: list[list[float]] = [[] for _ in OUTPUTS]
    for scored in by_config.values():
        for scored_run in scored:
            if scored_run.prediction is None:
                continue
            for output, measured in enumerate(scored_run.run.measured):
                if np.isfinite(measured):
                    low, high = scored_run.prediction.low[output], scored_run.prediction.high[output]
                    inside[output].append(low <= measured <= high)
                    widths[output].append(high / scored_run.prediction.likely[output])
    return inside, widths


def abstained(by_config: Mapping[str, Sequence[Scored]]) -> float:
    """Return the share of intervals of no use: from 0, or more than `WIDEST_RATIO` wide."""
    silent = [
        not 0 < scored_run.prediction.low[output] * WIDEST_RATIO >= scored_run.prediction.high[output]
        for scored in by_config.values()
        for scored_run in scored
        if scored_run.prediction is not None
        for output in range(len(OUTPUTS))
    ]
    return sum(silent) / max(len(silent), 1)


def other_requests_s(by_config: Mapping[str, Sequence[Scored]]) -> dict[str, float]:
    """Return the median TTFT error of each configuration with a request's own time estimated from the others.

    The estimate is the median over configurations of the time beyond prefill and steps in runs that kept up.
    """
    own = request_s() * 1000
    left = {
        name: statistics.median(some)
        for name, scored in by_config.items()
        if (
            some := [
                scored_run.run.measured[TTFT] - scored_run.likely[TTFT] + own
                for scored_run in scored
                if counts(scored_run.run, TTFT)
            ]
        )
    }
    rates = {}
    for name in left:
        others = [ratio for other, ratio in left.items() if other != name]
        if not others:
            continue
        request = max(0.0, statistics.median(others))
        moved = [
            Scored(scored.run, scored.likely + np.eye(len(OUTPUTS))[TTFT] * (request - own))
            for scored in by_config[name]
        ]
        rates[name] = statistics.median(errors(moved, TTFT))
    return rates


def usd_per_mtok(usd_per_hour: float, tok_s: float) -> float:
    """Return dollars of a million generated tokens."""
    return usd_per_hour / 3600 / tok_s * 1e6


def quantized(by_config: Mapping[str, Sequence[Scored]]) -> list[tuple[str, str]]:
    """Return pairs of configurations that differ in 16-bit and FP8 weights only: names before and after."""

    def kind(name: str) -> tuple[str, ...]:
        cells = by_config[name][0].run.cells
        same = (
            "engine",
            "model",
            "gpu",
            "n_gpus",
            "tp",
            "input_tokens",
            "output_tokens",
            "prefix_caching",
            "burstiness",
            "source_ref",
        )
        return tuple(cells[name] for name in same)

    def bits(name: str) -> str:
        return by_config[name][0].run.cells["weight_dtype"].lower()

    return [
        (before, after)
        for before in by_config
        for after in by_config
        if bits(before) in ("fp16", "bf16") and bits(after) == "fp8" and kind(before) == kind(after)
    ]
