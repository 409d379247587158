"""Demand of a service over the window, summed over all deployments and epochs that served it."""

from collections.abc import Mapping

from pertoken.evidence import Series
from pertoken.metrics import SERIES
from pertoken.metrics.computations import Ratio
from pertoken.provenance import Provenance
from pertoken.state.demand import HOURS_OF_WEEK, Demand, Quantity
from pertoken.window.series.compute import observe
from pertoken.window.series.grouped import GroupedRows


def demand(rows: GroupedRows, lengths: Mapping[str, Series | None], *, late: bool) -> Demand:
    """Return the demand in the rows of one group, all epochs that served, and the histograms of `prompt_len` and
    `generated_len`. `late`: tokens are counted when a request ends, so that a bucket's are partly of buckets before."""
    counts = observe(SERIES["requests_s"].computation, rows).points(0)
    requests = None if counts is None else counts.summary()
    counted = Provenance.REPORTED if late else Provenance.COUNTER
    cached = observe(SERIES["cached_share"].computation, rows).points(0)
    buckets = "buckets of up to an hour" if rows.by_hour[0] else "minutes"
    source = f"95th percentile of {requests.n if requests else 0:,} {buckets}, all deployments together"
    return Demand(
        requests_per_s=None if requests is None else Quantity(requests.p95, counted, source),
        requests_by_hour_of_week=(None,) * HOURS_OF_WEEK if counts is None else counts.hours(),
        prompt_len=_length(lengths.get("prompt_len"), rows, "prompt_tokens"),
        output_len=_length(lengths.get("generated_len"), rows, "generated_tokens"),
        cached_share=None
        if cached is None
        else Quantity(min(1.0, cached.summary().mean), counted, "cached tokens over prompt tokens"),
    )


def _length(histogram: Series | None, rows: GroupedRows, tokens: str) -> Quantity | None:
    """Return the mean length by histogram, else by tokens over requests."""
    if histogram is not None:
        return Quantity(histogram.mean, histogram.provenance, f"histogram of {histogram.n:,} requests")
    mean = observe(Ratio(tokens, "requests_finished"), rows).points(0)
    return (
        None if mean is None else Quantity(mean.summary().mean, Provenance.COUNTER, "tokens over requests that ended")
    )
