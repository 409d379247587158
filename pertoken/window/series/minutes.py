"""Operating points of a deployment: minutes of its own traffic that differ in their load."""

from collections.abc import Mapping

import numpy as np

from pertoken.evidence import OperatingPoint
from pertoken.provenance import Provenance
from pertoken.window.columns import Columns, Floats, Ints, Mask
from pertoken.window.series.grouped import MAX_MINUTE_MS
from pertoken.window.series.points import Points

MAX_POINTS = 64
"""Minutes that are kept. More of them add little: errors of the model itself are the same in all."""
MIN_BUSY_SHARE = 0.5
"""Busy share of a minute below which its mean batch is mostly the coming and going of single requests."""
MIN_TOKENS = 50
"""Generated tokens of a minute below which their number is mostly chance."""
MIN_REQUESTS = 5
"""Requests that ended in a minute from which its own mean length counts; else that of the whole window."""
NEEDED = ("running", "dram_active", "tensor_active")
"""Series whose observations operating points are made of, beside the rows of the epoch."""


def operating_points(
    rows: Columns, observations: Mapping[str, Points | None], generated_len: float | None
) -> tuple[OperatingPoint, ...]:
    """Return up to `MAX_POINTS` minutes of one epoch, oldest first.

    They are spread over running batch, tokens per request and share of prefill, the newest of each first.
    `observations`: of the epoch and its devices, by the names in `NEEDED`. `generated_len`: mean tokens generated per
    request of the window, None where the engine exposes none.
    """
    running_all_time = _values_at(observations.get("running"), rows.ints("ts"))
    steady = _steady(rows, running_all_time)
    steady_rows = rows.where(steady)
    if not len(steady_rows):
        return ()
    generated, prompt = steady_rows.floats("generated_tokens"), np.nan_to_num(steady_rows.floats("prompt_tokens"))
    busy_share = steady_rows.floats("busy_ms") / steady_rows.floats("observed_ms")
    running = np.maximum(1.0, running_all_time[steady] / busy_share)
    token_s = running * steady_rows.floats("busy_ms") / 1000 / generated
    cached = np.minimum(1.0, np.nan_to_num(steady_rows.floats("cached_tokens")) / np.maximum(prompt, 1.0))
    length = _generated_len(steady_rows, generated, generated_len)
    has_length = np.isfinite(length)
    prompt_len = length * prompt / generated  # so that prefilled tokens per generated token are those counted
    computed_share = prompt * (1 - cached) / (prompt * (1 - cached) + generated)
    strata = np.column_stack(
        (
            np.floor(2 * np.log2(running)),
            np.floor(np.log2(np.maximum(prompt_len + np.nan_to_num(length), 1.0))),
            np.floor(4 * computed_share),
        )
    )
    ts = steady_rows.ints("ts")
    kept = np.sort(np.flatnonzero(has_length)[_spread(strata[has_length], ts[has_length])])
    memory_active, gemm_active = (
        np.minimum(1.0, _values_at(observations.get(name), ts) / np.minimum(busy_share, 1.0))
        for name in ("dram_active", "tensor_active")
    )
    return tuple(
        OperatingPoint(
            ts=int(ts[row]),
            running=float(running[row]),
            token_s=float(token_s[row]),
            prompt_len=float(prompt_len[row]),
            generated_len=float(length[row]),
            cached_share=float(cached[row]),
            memory_active=_value(memory_active, row),
            gemm_active=_value(gemm_active, row),
        )
        for row in kept
    )


def _steady(rows: Columns, running: Floats) -> Mask:
    """Return which rows are whole minutes in which the deployment mostly worked, with all that is needed known."""
    observed, busy = rows.floats("observed_ms"), rows.floats("busy_ms")
    works = (rows.floats("generated_tokens") >= MIN_TOKENS) & (running > 0)
    minutes = (observed > 0) & (observed <= MAX_MINUTE_MS)
    # A busy time that is only bounded is right while there was always a request.
    bound = rows.ints("busy_provenance") >= Provenance.BOUND
    return np.asarray(works & minutes & (busy >= MIN_BUSY_SHARE * observed) & ((running >= 1) | ~bound))


def _generated_len(rows: Columns, generated: Floats, window_mean: float | None) -> Floats:
    """Return mean tokens generated per request of each minute; NaN where nobody counted requests."""
    requests = np.nan_to_num(rows.floats("requests_finished"))
    total = requests.sum()
    mean = window_mean if window_mean is not None else generated.sum() / total if total > 0 else np.nan
    return np.maximum(1.0, np.where(requests >= MIN_REQUESTS, generated / np.maximum(requests, 1.0), mean))


def _spread(strata: Floats, ts: Ints) -> Ints:
    """Return the places of up to `MAX_POINTS` rows: first the newest of each stratum, then the next of each."""
    if not len(strata):
        return np.empty(0, np.int64)
    _, stratum = np.unique(strata, axis=0, return_inverse=True)
    order = np.lexsort((-ts, stratum.ravel()))
    begins = np.flatnonzero(np.diff(stratum.ravel()[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
    places: Ints = order[np.lexsort((-ts[order], rank))][:MAX_POINTS]
    return places


def _values_at(points: Points | None, ts: Ints) -> Floats:
    """Return the values in the buckets that begin at `ts`; NaN where nothing was read."""
    if points is None:
        return np.full(len(ts), np.nan)
    position = np.clip(np.searchsorted(points.ts, ts), 0, len(points.ts) - 1)
    return np.where(points.ts[position] == ts, points.values[position], np.nan)


def _value(values: Floats, row: int) -> float | None:
    return float(values[row]) if values[row] > 0 else None
