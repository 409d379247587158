"""What clients asked of a service over the window, whichever deployments and epochs answered."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pertoken.advisor import series
from pertoken.evidence import Series
from pertoken.provenance import Provenance
from pertoken.state.demand import HOURS_OF_WEEK, Demand, Quantity

THURSDAY = 3
"""Day of the week of 1970-01-01, Monday being 0."""


def demand(members: Sequence[Sequence[Any]], lengths: Mapping[str, Series | None], late: bool) -> Demand:
    """Return the demand in the minute rows of each epoch that served, and the histograms of `prompt_len` and
    `generated_len`. `late`: tokens are counted when a request ends, so that a minute's are partly of minutes before."""
    minutes = series.together(members)
    requests = series.rate(minutes, "requests_finished")
    counted = Provenance.REPORTED if late else Provenance.COUNTER
    cached = series.ratio(minutes, "cached_tokens", "prompt_tokens")
    return Demand(
        requests_per_s=None
        if requests is None
        else Quantity(requests.p95, counted, f"95th percentile of {requests.n:,} minutes, all deployments together"),
        requests_by_hour_of_week=_by_hour_of_week(minutes),
        prompt_len=_length(lengths.get("prompt_len"), minutes, "prompt_tokens"),
        output_len=_length(lengths.get("generated_len"), minutes, "generated_tokens"),
        cached_share=None
        if cached is None
        else Quantity(min(1.0, cached.mean), counted, "cached tokens over prompt tokens"),
    )


def hour_of_week(ts: int) -> int:
    """Return the hour of the week of an instant, 0 for Monday 00:00 UTC."""
    return (ts // 3600 + 24 * THURSDAY) % HOURS_OF_WEEK


def _by_hour_of_week(minutes: series.Minutes) -> tuple[float | None, ...]:
    hours: dict[int, list[float]] = defaultdict(list)
    for ts, value, _ in series.rates(minutes, "requests_finished"):
        hours[hour_of_week(ts)].append(value)
    return tuple(sum(hours[hour]) / len(hours[hour]) if hour in hours else None for hour in range(HOURS_OF_WEEK))


def _length(histogram: Series | None, minutes: series.Minutes, tokens: str) -> Quantity | None:
    """Return the mean length by histogram, else by tokens over requests."""
    if histogram is not None:
        return Quantity(histogram.mean, histogram.provenance, f"histogram of {histogram.n:,} requests")
    mean = series.ratio(minutes, tokens, "requests_finished")
    return None if mean is None else Quantity(mean.mean, Provenance.COUNTER, "tokens over requests that ended")
