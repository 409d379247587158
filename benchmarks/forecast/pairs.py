"""Pairs that need no serving model: those that are not predicted, and those that only slow a device down."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.fit import running
from benchmarks.forecast.folds import MACRO, Predicted
from benchmarks.forecast.performance.cells import Cells
from benchmarks.forecast.performance.measurements import Measurements, Pairs
from benchmarks.forecast.performance.rows import DISAGGREGATED, drafted_len
from benchmarks.forecast.power import CAPPED, Watts, log_ratios
from pertoken.forecast.candidates import COLUMNS
from pertoken.forecast.capacity import weight_bytes
from pertoken.forecast.efficiency import tag_names

LAYOUT = ("n_gpus", "tp", "pp", "attn_dp", "ep")
"""Columns of the layout of an engine on its devices."""
MAX_BLIND_BATCH = 4
"""Sequences up to which verifying a draft costs next to nothing, however long it is."""


def reasons(measurements: Measurements, pairs: Pairs) -> list[str]:
    """Return why a pair is not predicted; empty where it is.

    A device nobody knows is only a reason where it is what changes, and so is a layout: elsewhere both sides share the
    guess.
    """
    reasons = []
    alike = same_to_the_forecast(measurements, pairs)
    too_large = weight_bytes(measurements.candidates) > measurements.candidates.memory_bytes
    ran, drafts = running(measurements), measurements.candidates.drafted_len > 0
    for before, after, row, silent in zip(pairs.before, pairs.after, pairs.rows, alike, strict=True):
        doubts = {doubt for end in (before, after) for doubt in measurements.doubts[end].split("; ") if doubt}
        moved = measurements.rows[before]["gpu"] != measurements.rows[after]["gpu"]
        swapped = measurements.rows[before]["model"] != measurements.rows[after]["model"]
        split = any(measurements.rows[before][name] != measurements.rows[after][name] for name in LAYOUT)
        matters = (("the device", moved), ("the size", swapped), (DISAGGREGATED, split))
        grounds = [doubt for doubt in doubts if any(name in doubt and changes for name, changes in matters)]
        blind = drafts[after] and not drafted_len(measurements.rows[after])
        if too_large[before] or too_large[after]:
            grounds.append("the weights of a row exceed the memory of its devices: something in the row is wrong")
        if row["kind"] == "speculative" and blind and ran[after] > MAX_BLIND_BATCH:
            grounds.append("the number of tokens drafted per step is not stated, and a batch pays for each")
        if row["kind"] == "prefix_cache" and "decode-side" in measurements.rows[after]["notes"].lower():
            grounds.append(
                "the server only decodes: what it saves is receiving caches, of which the forecast knows nothing"
            )
        elif silent and row["kind"] not in (*MACRO, *CAPPED):
            grounds.append("the forecast reads nothing that differs between the rows")
        reasons.append("; ".join(sorted(grounds)))
    return reasons


def as_changes(measurements: Measurements, pairs: Pairs) -> Pairs:
    """Return the same pairs, with a kind of its own for a cache in FP8 that one of both rows reads by slow kernels."""
    unpacked = measurements.candidates.tags[:, tag_names().index("kv-fp8-unpacked")] > 0
    apart = (pairs.column("kind") == "kv_fp8") & (unpacked[pairs.before] | unpacked[pairs.after])
    rows = tuple(
        Cells({**row, "kind": "kv_fp8_unpacked"}) if distance else row
        for row, distance in zip(pairs.rows, apart, strict=True)
    )
    return replace(pairs, rows=rows)


def same_to_the_forecast(measurements: Measurements, pairs: Pairs) -> NDArray[np.bool_]:
    """Return whether both rows of a pair are one and the same candidate."""
    columns = [getattr(measurements.candidates, name) for name in COLUMNS]
    seen = np.column_stack([*columns, running(measurements), measurements.candidates.tags])
    return np.asarray((seen[pairs.before] == seen[pairs.after]).all(axis=1))


def slow_down(watts: Watts, pairs: Pairs, predicted: Predicted) -> None:
    """Replace "no change" by the power model's prediction for changes that only slow a device down."""
    with np.errstate(all="ignore"):
        tok_s, _ = log_ratios(watts, pairs, predicted.log_ratio)
    slowed = np.isin(pairs.column("kind"), CAPPED) & np.isfinite(tok_s)
    predicted.log_ratio[slowed] = tok_s[slowed]
