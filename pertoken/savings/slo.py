"""Whether a forecast keeps the objectives for latency."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pertoken.catalog.market import Market
from pertoken.evidence import Evidence, NotMeasured
from pertoken.forecast.queue.latency import Latency, fewest_replicas, latency
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Calibration, Point, Range
from pertoken.provenance import Provenance, worst
from pertoken.savings.load import MeasuredLoad, measured_arrivals
from pertoken.state.deployment import Deployment
from pertoken.state.service import Slo

NEAR_MISS = 1.2
"""Latency over its SLO up to which a forecast is a near miss. Source: llm-d planner's 1.0 to 1.2 band."""
MAX_OVERLOADED = 0.1
"""Probability of overload up to which a verdict may be `pass`: one side of what an 80 % interval leaves out."""
VERDICTS = ("unknown", "pass", "near_miss", "fail")


FIGURES = {"TTFT p50": "ttft_p50_ms", "TTFT p95": "ttft_p95_ms", "TPOT p50": "tpot_p50_ms", "TPOT p95": "tpot_p95_ms"}
"""Name of a figure -> its field of `Latency` and of `Slo`."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latency at the p95 demand before and after a change, or why it is not known."""

    before: Latency | None = None
    after: Latency | None = None
    replicas: tuple[int | None, int | None] | None = None
    """Fewest replicas, before and after, that hold all arrivals of the service within the SLO; None if none does."""
    provenance: Provenance | None = None
    assumptions: tuple[str, ...] = ()
    unknown: str | None = None

    def verdict(self, point: Point, slo: Slo) -> tuple[str, str | None]:
        """Return the worst verdict and, unless it passes, the forecast beside its SLO.

        `point`: means at the p95 demand after the change. Where quantiles are not known they can only fail: a mean
        above an objective leaves no hope for the tail, and one below it says nothing of the tail.
        """
        if self.after is None:
            means = (
                ("mean TTFT", slo.ttft_p95_ms, point.ttft_ms),
                ("mean TPOT", slo.tpot_p95_ms, point.tpot_ms),
            )
            found = _worst(_judged(name, limit, at) for name, limit, at in means if limit is not None)
            return found if found[0] == "fail" else ("unknown", None)
        return _worst(
            _judged(figure, limit, getattr(self.after, field), self.after.overloaded)
            for figure, field in FIGURES.items()
            if (limit := getattr(slo, field)) is not None
        )


def latencies(
    now: Deployment,
    to: Deployment,
    seen: Evidence,
    load: MeasuredLoad,
    market: Market,
    calibration: Calibration,
    slo: Slo,
    replicas: int = 1,
) -> Latencies:
    """Forecast the latency of one replica before and after a change, under the arrivals that `seen` shows of it.

    The fewest replicas are for `replicas` times these arrivals.
    """
    try:
        requests = measured_arrivals(seen)
        before, after = (latency(each, load.load, requests.arrivals, market, calibration) for each in (now, to))
        together = replace(requests.arrivals, requests_per_s=requests.arrivals.requests_per_s * replicas)
        limits = (slo.ttft_p95_ms, slo.tpot_p95_ms)
        fewest = (
            fewest_replicas(now, load.load, together, market, calibration, limits),
            fewest_replicas(to, load.load, together, market, calibration, limits),
        )
    except NotMeasured as missing:
        return Latencies(unknown=f"{missing.series} was not measured: {missing.remedy}")
    except Abstained as reason:
        return Latencies(unknown=str(reason))
    origin = worst([requests.provenance, Provenance.FORECAST])
    alike = (f"each of its {replicas} replicas gets as many requests",) if replicas > 1 else ()
    return Latencies(before, after, fewest, origin, (*requests.assumptions, *after.assumptions, *alike))


def _judged(figure: str, limit: float, at: Range, overloaded: float = 0.0) -> tuple[str, str | None]:
    low, likely, high = at
    held = high <= limit and overloaded <= MAX_OVERLOADED
    verdict = "pass" if held else "near_miss" if likely <= limit * NEAR_MISS else "fail"
    beyond = f"; in {overloaded:.0%} of what is likely it is overloaded" if overloaded > MAX_OVERLOADED else ""
    said = f"{figure} would be about {likely:.0f} ms ({low:.0f} to {high:.0f}{beyond}), with an SLO of {limit:.0f} ms"
    return verdict, None if held else said


def _worst(judged: Iterable[tuple[str, str | None]]) -> tuple[str, str | None]:
    return max(judged, key=lambda each: VERDICTS.index(each[0]), default=("unknown", None))
