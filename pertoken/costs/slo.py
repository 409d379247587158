"""Whether a forecast keeps the objectives for latency."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pertoken.catalog.market import Market
from pertoken.costs.demand import Demand, arrivals
from pertoken.deployment import Deployment
from pertoken.evidence import Evidence, NotMeasured
from pertoken.forecast.latency import Latency, fewest_replicas, latency
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Calibration, Point, Range
from pertoken.provenance import Provenance, worst

NEAR_MISS = 1.2
"""Latency over its SLO up to which a forecast is a near miss. Source: llm-d planner's 1.0 to 1.2 band."""
MUCH_OVERLOADED = 0.1
"""Share of what is likely that may be overloaded in a pass: what lies outside an 80 % interval on one side."""
VERDICTS = ("unknown", "pass", "near_miss", "fail")


@dataclass(frozen=True, slots=True)
class Slo:
    """Objectives, milliseconds; None where nobody set one."""

    ttft_ms: float | None = None
    """For the 95th percentile, as `tpot_ms`."""
    tpot_ms: float | None = None
    ttft_p50_ms: float | None = None
    tpot_p50_ms: float | None = None


FIGURES: dict[str, tuple[str, str]] = {
    "TTFT p50": ("ttft_p50_ms", "ttft_p50_ms"),
    "TTFT p95": ("ttft_p95_ms", "ttft_ms"),
    "TPOT p50": ("tpot_p50_ms", "tpot_p50_ms"),
    "TPOT p95": ("tpot_p95_ms", "tpot_ms"),
}
"""What is forecast -> its fields of `Latency` and of `Slo`."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """What requests see at the p95 demand before and after a change, or why that is not known."""

    before: Latency | None = None
    after: Latency | None = None
    replicas: tuple[int | None, int | None] | None = None
    """Fewest copies, before and after, that hold all arrivals of the model within the SLO; None if no number does."""
    provenance: Provenance | None = None
    assumptions: tuple[str, ...] = ()
    unknown: str | None = None

    def verdict(self, point: Point, slo: Slo) -> tuple[str, str | None]:
        """The worst verdict and, unless it passes, what is forecast against which SLO.

        `point`: means at the p95 demand after the change. Where quantiles are not known they can only fail: a mean
        above an objective leaves no hope for the tail, and one below it says nothing of the tail.
        """
        if self.after is None:
            means = (("mean TTFT", slo.ttft_ms, point.ttft_ms), ("mean TPOT", slo.tpot_ms, point.tpot_ms))
            found = _worst(_judged(name, limit, at) for name, limit, at in means if limit is not None)
            return found if found[0] == "fail" else ("unknown", None)
        return _worst(
            _judged(figure, limit, getattr(self.after, field), self.after.overloaded)
            for figure, (field, objective) in FIGURES.items()
            if (limit := getattr(slo, objective)) is not None
        )


def latencies(
    now: Deployment, to: Deployment, seen: Evidence, asked: Demand, market: Market, known: Calibration, slo: Slo
) -> Latencies:
    """The forecast of both. The fewest copies are for the load of all `now.replicas` together."""
    try:
        requests = arrivals(seen)
        before, after = (latency(each, asked.load, requests.arrivals, market, known) for each in (now, to))
        whole = replace(requests.arrivals, requests_per_s=requests.arrivals.requests_per_s * now.replicas)
        limits = (slo.ttft_ms, slo.tpot_ms)
        fewest = (
            fewest_replicas(now, asked.load, whole, market, known, limits),
            fewest_replicas(to, asked.load, whole, market, known, limits),
        )
    except NotMeasured as missing:
        return Latencies(unknown=f"{missing.series} was not measured: {missing.remedy}")
    except Abstained as reason:
        return Latencies(unknown=str(reason))
    origin = worst([requests.provenance, Provenance.FORECAST])
    alike = (f"each of its {now.replicas} replicas gets as many requests",) if now.replicas > 1 else ()
    return Latencies(before, after, fewest, origin, (*requests.assumptions, *after.assumptions, *alike))


def _judged(figure: str, limit: float, at: Range, overloaded: float = 0.0) -> tuple[str, str | None]:
    low, likely, high = at
    held = high <= limit and overloaded <= MUCH_OVERLOADED
    verdict = "pass" if held else "near_miss" if likely <= limit * NEAR_MISS else "fail"
    beyond = f"; in {overloaded:.0%} of what is likely it is overloaded" if overloaded > MUCH_OVERLOADED else ""
    said = f"{figure} would be about {likely:.0f} ms ({low:.0f} to {high:.0f}{beyond}), with an SLO of {limit:.0f} ms"
    return verdict, None if held else said


def _worst(judged: Iterable[tuple[str, str | None]]) -> tuple[str, str | None]:
    return max(judged, key=lambda each: VERDICTS.index(each[0]), default=("unknown", None))
