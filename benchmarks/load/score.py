"""Errors of predicted runs by configuration, and what they mean for the price of a token."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.load.predict import Prediction
from benchmarks.load.runs import OUTPUTS, Run
from pertoken.forecast.candidates import Array
from pertoken.forecast.queue.engine import request_s

NAMES = ("tok_s", "tpot", "ttft", "power")
"""Of the targets, in the order of `OUTPUTS`."""
TOK_S, TTFT = 0, 2
WIDEST_RATIO = 20
"""High over low from which an interval says nothing."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One run, what was predicted of it, and whether it was kept out of the scores."""

    run: Run
    likely: Array
    prediction: Prediction | None = None


def counts(run: Run, output: int) -> bool:
    """Whether an output of a run is scored: tokens/s where the server did not keep up, TTFT where it did.

    Elsewhere tokens/s are those that arrive, and TTFT is a wait that grows until the requests end.
    """
    if not np.isfinite(run.measured[output]):
        return False
    return {TOK_S: not run.kept_up, TTFT: run.kept_up}.get(output, True)


def errors(scored: Sequence[Scored], output: int) -> list[float]:
    """Return relative errors of an output of the runs of one configuration."""
    return [
        abs(float(each.likely[output]) / each.run.measured[output] - 1)
        for each in scored
        if counts(each.run, output) and np.isfinite(each.likely[output])
    ]


def medians(by_config: Mapping[str, Sequence[Scored]], output: int) -> dict[str, float]:
    """Return the median error of an output by configuration; those without one are left out."""
    found = {name: errors(scored, output) for name, scored in by_config.items()}
    return {name: statistics.median(some) for name, some in found.items() if some}


def covered(by_config: Mapping[str, Sequence[Scored]]) -> tuple[list[list[bool]], list[list[float]]]:
    """Return for each output whether each measured figure is in its interval, and half widths (high over likely)."""
    inside: list[list[bool]] = [[] for _ in OUTPUTS]
    widths: list[list[float]] = [[] for _ in OUTPUTS]
    for scored in by_config.values():
        for each in scored:
            if each.prediction is None:
                continue
            for output, measured in enumerate(each.run.measured):
                if np.isfinite(measured):
                    low, high = each.prediction.low[output], each.prediction.high[output]
                    inside[output].append(low <= measured <= high)
                    widths[output].append(high / each.prediction.likely[output])
    return inside, widths


def abstained(by_config: Mapping[str, Sequence[Scored]]) -> float:
    """Return the share of intervals that say nothing: from 0, or more than `WIDEST_RATIO` wide."""
    silent = [
        not 0 < each.prediction.low[output] * WIDEST_RATIO >= each.prediction.high[output]
        for scored in by_config.values()
        for each in scored
        if each.prediction is not None
        for output in range(len(OUTPUTS))
    ]
    return sum(silent) / max(len(silent), 1)


def other_requests_s(by_config: Mapping[str, Sequence[Scored]]) -> dict[str, float]:
    """Return the median TTFT error of each configuration when a request's own time is what the others tell.

    They tell the median over configurations of what their runs that kept up took longer than prefill and steps.
    """
    own = request_s() * 1000
    left = {
        name: statistics.median(some)
        for name, scored in by_config.items()
        if (some := [each.run.measured[TTFT] - each.likely[TTFT] + own for each in scored if counts(each.run, TTFT)])
    }
    found = {}
    for name in left:
        others = [each for other, each in left.items() if other != name]
        if not others:
            continue
        request = max(0.0, statistics.median(others))
        moved = [
            Scored(each.run, each.likely + np.eye(len(OUTPUTS))[TTFT] * (request - own)) for each in by_config[name]
        ]
        found[name] = statistics.median(errors(moved, TTFT))
    return found


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
        return tuple(cells[each] for each in same)

    def bits(name: str) -> str:
        return by_config[name][0].run.cells["weight_dtype"].lower()

    return [
        (before, after)
        for before in by_config
        for after in by_config
        if bits(before) in ("fp16", "bf16") and bits(after) == "fp8" and kind(before) == kind(after)
    ]
