"""Operating points of a deployment: minutes of its own traffic that differ in their load."""

from collections.abc import Mapping

import numpy as np

from pertoken.evidence import OperatingPoint
from pertoken.provenance import Provenance
from pertoken.window.columns import Columns, Floats, Ints, Mask
from pertoken.window.series.points import MAX_MINUTE_MS, Points

MAX_POINTS = 64
"""Minutes that are kept. More of them add little: errors of the model itself are the same in all."""
MIN_BUSY_SHARE = 0.5
"""Busy share of a minute below which its mean batch is mostly the coming and going of single requests."""
MIN_TOKENS = 50
"""Generated tokens of a minute below which their number is mostly chance."""
MIN_REQUESTS = 5
"""Requests that ended in a minute from which its own mean length counts; else that of the whole window."""
ACTIVITY = ("dram_active", "tensor_active")
"""Series of the devices that are kept beside a minute."""


def operating_points(
    rows: Columns, activity: Mapping[str, Points | None], generated_len: float | None
) -> tuple[OperatingPoint, ...]:
    """Return up to `MAX_POINTS` minutes of one epoch, oldest first.

    They are spread over running batch, tokens per request and share of prefill, the newest of each first.
    `activity`: of the epoch's devices, by the names in `ACTIVITY`. `generated_len`: mean tokens generated per request
    of the window, None where the engine exposes none.
    """
    some = rows.where(_steady(rows))
    if not len(some):
        return ()
    generated, prompt = some.floats("generated_tokens"), np.nan_to_num(some.floats("prompt_tokens"))
    busy_share = some.floats("busy_ms") / some.floats("observed_ms")
    running = np.maximum(1.0, some.floats("running_1e2_sum") / some.floats("running_1e2_n") / 100 / busy_share)
    token_s = running * some.floats("busy_ms") / 1000 / generated
    cached = np.minimum(1.0, np.nan_to_num(some.floats("cached_tokens")) / np.maximum(prompt, 1.0))
    length = _generated_len(some, generated, generated_len)
    known = np.isfinite(length)
    prompt_len = length * prompt / generated  # so that prefilled tokens per generated token are those counted
    computed_share = prompt * (1 - cached) / (prompt * (1 - cached) + generated)
    strata = np.column_stack(
        (
            np.floor(2 * np.log2(running)),
            np.floor(np.log2(np.maximum(prompt_len + np.nan_to_num(length), 1.0))),
            np.floor(4 * computed_share),
        )
    )
    ts = some.ints("ts")
    kept = np.sort(np.flatnonzero(known)[_spread(strata[known], ts[known])])
    active = {name: _at(points, ts, busy_share) for name, points in activity.items()}
    return tuple(
        OperatingPoint(
            ts=int(ts[row]),
            running=float(running[row]),
            token_s=float(token_s[row]),
            prompt_len=float(prompt_len[row]),
            generated_len=float(length[row]),
            cached_share=float(cached[row]),
            memory_active=_value(active.get("dram_active"), row),
            gemm_active=_value(active.get("tensor_active"), row),
        )
        for row in kept
    )


def _steady(rows: Columns) -> Mask:
    """Return which rows are whole minutes in which the deployment mostly worked, with all that is needed known."""
    observed, busy = rows.floats("observed_ms"), rows.floats("busy_ms")
    known = (rows.floats("generated_tokens") >= MIN_TOKENS) & (rows.floats("running_1e2_sum") > 0)
    minutes = (observed > 0) & (observed <= MAX_MINUTE_MS) & (rows.floats("running_1e2_n") > 0)
    # A busy time that is only bounded is right while there was always a request.
    bound = rows.ints("busy_provenance") >= Provenance.BOUND
    always = rows.floats("running_1e2_sum") >= 100 * np.maximum(rows.floats("running_1e2_n"), 1.0)
    return np.asarray(known & minutes & (busy >= MIN_BUSY_SHARE * observed) & (always | ~bound))


def _generated_len(rows: Columns, generated: Floats, of_window: float | None) -> Floats:
    """Return mean tokens generated per request of each minute; NaN where nobody counted requests."""
    requests = np.nan_to_num(rows.floats("requests_finished"))
    total = requests.sum()
    mean = of_window if of_window is not None else generated.sum() / total if total > 0 else np.nan
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


def _at(points: Points | None, ts: Ints, busy_share: Floats) -> Floats | None:
    """Return a device's activity over each minute as its activity while busy; NaN where it was not read."""
    if points is None:
        return None
    place = np.clip(np.searchsorted(points.ts, ts), 0, len(points.ts) - 1)
    values = np.where(points.ts[place] == ts, points.values[place], np.nan)
    return np.minimum(1.0, values / np.minimum(busy_share, 1.0))


def _value(values: Floats | None, row: int) -> float | None:
    return float(values[row]) if values is not None and values[row] > 0 else None
