"""Share of requests inside the latency objectives, as far as histograms show it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pertoken.metrics import PER_REQUEST_TPOT
from pertoken.state.service import Slo

Histogram = Mapping[tuple[float, ...], Sequence[int]]
"""Bucket counts by their upper bounds, one more count than bounds: the last bucket has no end."""


@dataclass(frozen=True, slots=True)
class GoodShare:
    """Share of the requests inside the SLO, 0 to 1, or the reason why it is not known.

    Low and high differ where an objective lies inside a bucket, and where two objectives may be missed by the same
    requests or by different ones.
    """

    low: float | None
    high: float | None
    reason: str | None = None


def good_share(slo: Slo, ttft: Histogram, tpot: Histogram, engine: str) -> GoodShare:
    """Return the share of requests whose TTFT and TPOT are within the p95 objectives."""
    limits = [
        (limit / 1000, histogram, name)
        for limit, histogram, name in ((slo.ttft_p95_ms, ttft, "TTFT"), (slo.tpot_p95_ms, tpot, "TPOT"))
        if limit is not None
    ]
    if not limits:
        return GoodShare(None, None, "no SLO is set: slo.ttft_ms, slo.tpot_ms, or those of [services.NAME]")
    if slo.tpot_p95_ms is not None and engine not in PER_REQUEST_TPOT:
        return GoodShare(
            None,
            None,
            f"{engine} counts the time between tokens, not of requests: which requests miss the TPOT is lost",
        )
    shares = []
    for limit, histogram, name in limits:
        within = share_within(histogram, limit)
        if within is None:
            return GoodShare(None, None, f"its engine has no histogram of {name}")
        shares.append(within)
    missed = sum(1 - low for low, _ in shares)
    return GoodShare(max(0.0, 1 - missed), min(high for _, high in shares))


def share_within(histogram: Histogram, limit: float) -> tuple[float, float] | None:
    """Return the least and largest share of observations up to a limit; None if nothing was observed.

    They are equal where the limit is a bound of a bucket.
    """
    total = surely = possibly = 0
    for bounds, counts in histogram.items():
        total += sum(counts)
        below = 0.0
        for bound, count in zip((*bounds, float("inf")), counts, strict=True):
            surely += count if bound <= limit else 0
            possibly += count if below < limit else 0
            below = bound
    return (surely / total, possibly / total) if total else None
