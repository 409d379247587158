"""What clients asked of a service over the window, whichever deployments and epochs answered."""

from collections.abc import Mapping

import numpy as np

from pertoken.evidence import Series
from pertoken.provenance import Provenance
from pertoken.state.demand import HOURS_OF_WEEK, Demand, Quantity
from pertoken.window import series

THURSDAY = 3
"""Day of the week of 1970-01-01, Monday being 0."""


def demand(buckets: series.Buckets, lengths: Mapping[str, Series | None], *, late: bool) -> Demand:
    """Return the demand in the buckets of all epochs that served, and the histograms of `prompt_len` and
    `generated_len`. `late`: tokens are counted when a request ends, so that a bucket's are partly of buckets before."""
    requests = series.rate(buckets, "requests_finished")
    counted = Provenance.REPORTED if late else Provenance.COUNTER
    cached = series.ratio(buckets, "cached_tokens", "prompt_tokens")
    source = f"95th percentile of {requests.n if requests else 0:,} {buckets.lengths}, all deployments together"
    return Demand(
        requests_per_s=None if requests is None else Quantity(requests.p95, counted, source),
        requests_by_hour_of_week=_by_hour_of_week(buckets),
        prompt_len=_length(lengths.get("prompt_len"), buckets, "prompt_tokens"),
        output_len=_length(lengths.get("generated_len"), buckets, "generated_tokens"),
        cached_share=None
        if cached is None
        else Quantity(min(1.0, cached.mean), counted, "cached tokens over prompt tokens"),
    )


def hour_of_week(ts: int) -> int:
    """Return the hour of the week of an instant, 0 for Monday 00:00 UTC."""
    return (ts // 3600 + 24 * THURSDAY) % HOURS_OF_WEEK


def _by_hour_of_week(buckets: series.Buckets) -> tuple[float | None, ...]:
    ts, rates, weights = series.rates(buckets, "requests_finished")
    hours = (ts // 3600 + 24 * THURSDAY) % HOURS_OF_WEEK
    known, total = (np.bincount(hours, each, HOURS_OF_WEEK).tolist() for each in (weights, rates * weights))
    return tuple(of / ms if ms else None for of, ms in zip(total, known, strict=True))


def _length(histogram: Series | None, buckets: series.Buckets, tokens: str) -> Quantity | None:
    """Return the mean length by histogram, else by tokens over requests."""
    if histogram is not None:
        return Quantity(histogram.mean, histogram.provenance, f"histogram of {histogram.n:,} requests")
    mean = series.ratio(buckets, tokens, "requests_finished")
    return None if mean is None else Quantity(mean.mean, Provenance.COUNTER, "tokens over requests that ended")
