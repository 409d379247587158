"""Demand of a service over the window, summed over all deployments and epochs that served it."""

from collections.abc import Mapping

from pertoken.evidence import Series
from pertoken.provenance import Provenance
from pertoken.state.demand import HOURS_OF_WEEK, Demand, Quantity
from pertoken.window.series import points as series


def demand(buckets: series.Buckets, lengths: Mapping[str, Series | None], *, late: bool) -> Demand:
    """Return the demand in the buckets of all epochs that served, and the histograms of `prompt_len` and
    `generated_len`. `late`: tokens are counted when a request ends, so that a bucket's are partly of buckets before."""
    counts = series.rate(buckets, "requests_finished")
    requests = None if counts is None else counts.summary()
    counted = Provenance.REPORTED if late else Provenance.COUNTER
    cached = series.ratio(buckets, "cached_tokens", "prompt_tokens")
    source = f"95th percentile of {requests.n if requests else 0:,} {buckets.lengths}, all deployments together"
    return Demand(
        requests_per_s=None if requests is None else Quantity(requests.p95, counted, source),
        requests_by_hour_of_week=(None,) * HOURS_OF_WEEK if counts is None else counts.hours(),
        prompt_len=_length(lengths.get("prompt_len"), buckets, "prompt_tokens"),
        output_len=_length(lengths.get("generated_len"), buckets, "generated_tokens"),
        cached_share=None
        if cached is None
        else Quantity(min(1.0, cached.summary().mean), counted, "cached tokens over prompt tokens"),
    )


def _length(histogram: Series | None, buckets: series.Buckets, tokens: str) -> Quantity | None:
    """Return the mean length by histogram, else by tokens over requests."""
    if histogram is not None:
        return Quantity(histogram.mean, histogram.provenance, f"histogram of {histogram.n:,} requests")
    mean = series.ratio(buckets, tokens, "requests_finished")
    return (
        None if mean is None else Quantity(mean.summary().mean, Provenance.COUNTER, "tokens over requests that ended")
    )
