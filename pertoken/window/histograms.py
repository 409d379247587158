"""Quantiles of bucket counts, exact to the bucket."""

from collections.abc import Iterable, Mapping, Sequence

from pertoken.store.query.sums import told


def histogram(parts: Iterable[tuple[str, str]]) -> dict[tuple[float, ...], list[int]]:
    """Bucket counts by their upper bounds, added up from the (upper_bounds, counts) of `sums.histograms`."""
    found: dict[tuple[float, ...], list[int]] = {}
    for text, counts in parts:
        bounds = tuple(map(float, filter(None, text.split(","))))
        of = found.setdefault(bounds, [0] * (len(bounds) + 1))
        for bucket, count in told(counts):
            of[bucket] += count
    return found


def quantile(histogram: Mapping[tuple[float, ...], Sequence[int]], q: float) -> float | None:
    """The q-quantile of observations counted in buckets (one more count than upper bounds; the last is +Inf).

    Several bucket sets (an engine changed its bounds) are merged on the union of their bounds. Linear within the
    bucket; an observation above the last bound is told as that bound. None if there were no observations.
    """
    at: dict[float, int] = {}
    beyond = 0
    for bounds, counts in histogram.items():
        for bound, count in zip(bounds, counts, strict=False):
            at[bound] = at.get(bound, 0) + count
        beyond += counts[-1]
    total = sum(at.values()) + beyond
    if total == 0:
        return None
    rank, below, lower = q * total, 0, 0.0
    for bound in sorted(at):
        if at[bound] and below + at[bound] >= rank:
            return lower + (bound - lower) * max(0.0, rank - below) / at[bound]
        below += at[bound]
        lower = bound
    return lower
