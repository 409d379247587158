"""Baselines that a forecast must beat: no change, a textbook roofline, and that roofline plus the measured excess; and
what nothing can beat: how far repeats of one measurement differ."""

import re
from collections import defaultdict

import numpy as np

from benchmarks.forecast.capacity import running_sequences
from benchmarks.forecast.performance.measurements import Measurements, Pairs
from pertoken.forecast.candidates import Array
from pertoken.forecast.terms import TERMS, seconds

BANDWIDTH_SHARE, FLOPS_SHARE = 0.8, 0.5
"""What textbooks reckon that kernels reach of the listed rates."""
CONFIGURATION = (
    "source", "model", "weight_dtype", "kv_dtype", "gpu", "n_gpus", "mode", "batch_or_concurrency", "input_tokens",
    "output_tokens", "tp", "pp", "attn_dp", "ep", "spec", "power_limit_w", "sm_clock_mhz",
)  # fmt: skip
MIN_TIME_FRACTION = 0.05
"""Of the roofline: below this a subtracted excess leaves no time at all."""


def roofline_s(measurements: Measurements) -> tuple[Array, Array]:
    """(running sequences, seconds per token) of a textbook roofline: the longer of memory and products, and prefill."""
    running = running_sequences(measurements.candidates)
    at = {name: column for column, name in enumerate(TERMS)}
    term_s = seconds(measurements.candidates, running)
    memory = term_s[:, [at["weights"], at["experts"], at["kv_cache"]]].sum(axis=1) / BANDWIDTH_SHARE
    decode = term_s[:, at["decode_flops"]] / FLOPS_SHARE
    prefill = term_s[:, [at["prefill_flops"], at["prefill_attention"]]].sum(axis=1) / FLOPS_SHARE
    return running, np.maximum(memory, decode) + prefill


def baselines(measurements: Measurements, pairs: Pairs) -> dict[str, Array]:
    """Log-ratios of output tokens/s by each baseline."""
    running, time_s = roofline_s(measurements)
    before, after = pairs.before, pairs.after
    seen_s = running / measurements.tok_s
    excess = np.where(np.isfinite(seen_s), seen_s - time_s, 0.0)
    with_excess = np.maximum(time_s[after] + excess[before], MIN_TIME_FRACTION * time_s[after])
    known = np.where(np.isfinite(seen_s), seen_s, time_s)[before]
    more = np.log(running[after] / running[before])
    return {
        "no change": np.zeros(len(before)),
        "naive": more - np.log(time_s[after] / time_s[before]),
        "additive": more - np.log(with_excess / known),
    }


def noise_floor(measurements: Measurements) -> dict[str, tuple[int, float, float]]:
    """(configurations, median, p90) of max/min of output tokens/s of one configuration measured more than once, on
    one engine version (where it is named) and across versions."""
    same: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    across: defaultdict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for row, tok_s in zip(measurements.rows, measurements.tok_s, strict=True):
        if not np.isfinite(tok_s) or row.get("trust") == "low":
            continue
        engine = row.get("engine") or ""
        task = re.sub(r"measured=[\d-]*", "", row.get("notes") or "")
        key = (*(row.get(name) or "" for name in CONFIGURATION), task, engine.split(" ")[0].lower())
        if any(letter.isdigit() for letter in engine):
            same[*key, engine].append(tok_s)
        across[key][engine] = tok_s
    spreads = {}
    for name, groups in (
        ("same engine version", list(same.values())),
        ("across engine versions", [list(spread.values()) for spread in across.values()]),
    ):
        ratios = [max(group) / min(group) for group in groups if len(group) > 1]
        if ratios:
            spreads[name] = (len(ratios), float(np.median(ratios)), float(np.quantile(ratios, 0.9)))
    return spreads
