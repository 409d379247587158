"""Check of a forecast against the latency objectives."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from pertoken.evidence import NotMeasured
from pertoken.forecast.queue.latency import Latency, LatencyQuery, LikelyLatency, Limits, assumptions
from pertoken.forecast.queue.replicas import SloMs
from pertoken.forecast.serving import Calibration, Point, Range
from pertoken.provenance import Provenance, worst
from pertoken.savings.load import MeasuredArrivals, MeasuredLoad
from pertoken.state.deployment import Deployment
from pertoken.state.service import Slo

NEAR_MISS = 1.2
"""Latency over its SLO up to which a forecast is a near miss. Source: llm-d planner's 1.0 to 1.2 band."""
MAX_OVERLOADED = 0.1
"""Probability of overload up to which a verdict may be `pass`: one side of what an 80 % interval leaves out."""
VERDICTS = ("unknown", "pass", "near_miss", "fail")


FIGURES = {"TTFT p50": "ttft_p50_ms", "TTFT p95": "ttft_p95_ms", "TPOT p50": "tpot_p50_ms", "TPOT p95": "tpot_p95_ms"}
"""Name of a figure -> its field of `Latency` and of `Slo`."""


Forecast = Callable[[LatencyQuery], Latency]
"""Forecasts one end of a change; a part of it may have been forecast before."""
Count = Callable[[LatencyQuery, Slo, int], int | None]
"""Function that counts the replicas that hold a multiple of a query's requests; a count may be known already."""


@dataclass(frozen=True)
class Latencies:
    """Latency at the p95 demand before and after a change, or why it is not known.

    Each is forecast when it is first read: most proposals are refused before anybody asks for all of it.
    """

    ends: tuple[LatencyQuery, LatencyQuery] | None
    """Before and after; None where `unknown`."""
    forecast: Forecast = field(repr=False)
    fewest: Count = field(repr=False)
    count: int = 1
    """Replicas that serve as many requests each."""
    slo: Slo = field(default_factory=Slo)
    provenance: Provenance | None = None
    assumptions: tuple[str, ...] = ()
    unknown: str | None = None

    @cached_property
    def before(self) -> Latency | None:
        """Latency of the deployment as it is."""
        return None if self.ends is None else self.forecast(self.ends[0])

    @cached_property
    def after(self) -> Latency | None:
        """Latency of the deployment after the change."""
        return None if self.ends is None else self.forecast(self.ends[1])

    @cached_property
    def replicas(self) -> tuple[int | None, int | None] | None:
        """Fewest replicas, before and after, that hold all arrivals of the service within the SLO; None: no number."""
        if self.ends is None:
            return None
        before, after = (self.fewest(end, self.slo, self.count) for end in self.ends)
        return before, after

    def verdict(self, point: Point, slo: Slo) -> tuple[str, str | None]:
        """Return `verdict` of the latency after the change."""
        return verdict(self.after, point, slo)


def tail_limits(slo: Slo) -> SloMs:
    """Return the objectives by which replicas are counted."""
    return slo.ttft_p95_ms, slo.tpot_p95_ms


def verdict(after: Latency | None, point: Point, slo: Slo) -> tuple[str, str | None]:
    """Return the worst verdict and, unless it passes, the forecast beside its SLO.

    `point`: means at the p95 demand after the change. Where quantiles are not known they can only fail: a mean above an
    objective leaves no hope for the tail, and one below it does not bound the tail.
    """
    if after is None:
        means = (
            ("mean TTFT", slo.ttft_p95_ms, point.ttft_ms),
            ("mean TPOT", slo.tpot_p95_ms, point.tpot_ms),
        )
        worst = _worst(_judged(name, limit, at) for name, limit, at in means if limit is not None)
        return worst if worst[0] == "fail" else ("unknown", None)
    return judged(after, slo)


def judged(after: Latency, slo: Slo) -> tuple[str, str | None]:
    """Return the worst verdict on forecast quantiles and, unless it passes, the forecast beside its SLO."""
    return _worst(
        _judged(figure, limit, getattr(after, field), after.overloaded)
        for figure, field in FIGURES.items()
        if (limit := getattr(slo, field)) is not None
    )


def likely_miss(likely: LikelyLatency, slo: Slo) -> str | None:
    """Return the first likely figure that misses its SLO clearly, as a phrase; None if none does."""
    for figure, name in FIGURES.items():
        limit, at = getattr(slo, name), getattr(likely, name)
        if limit is not None and at > limit * NEAR_MISS:
            return f"{figure} would be about {at:.0f} ms, with an SLO of {limit:.0f} ms"
    return None


def near_miss_limits(slo: Slo) -> Limits:
    """Return the likely figures beyond which a forecast fails, milliseconds."""
    ttft_p50, ttft_p95, tpot_p50, tpot_p95 = (
        None if (limit := getattr(slo, name)) is None else limit * NEAR_MISS for name in FIGURES.values()
    )
    return ttft_p50, ttft_p95, tpot_p50, tpot_p95


def latencies(
    now: Deployment,
    to: Deployment,
    load: MeasuredLoad,
    requests: MeasuredArrivals | NotMeasured,
    calibration: Calibration,
    slo: Slo,
    replicas: int = 1,
    *,
    forecast: Forecast,
    fewest: Count,
) -> Latencies:
    """Forecast the latency of one replica before and after a change, under the arrivals that were measured on it.

    The fewest replicas are for `replicas` times these arrivals.
    """
    if isinstance(requests, NotMeasured):
        return Latencies(None, forecast, fewest, unknown=requests.sentence)
    before, after = (LatencyQuery(deployment, load.load, requests.arrivals, calibration) for deployment in (now, to))
    alike = (f"each of its {replicas} replicas gets as many requests",) if replicas > 1 else ()
    return Latencies(
        (before, after),
        forecast,
        fewest,
        replicas,
        slo,
        worst([requests.provenance, Provenance.FORECAST]),
        (*requests.assumptions, *assumptions(to), *alike),
    )


def _judged(figure: str, limit: float, at: Range, overloaded: float = 0.0) -> tuple[str, str | None]:
    low, likely, high = at
    held = high <= limit and overloaded <= MAX_OVERLOADED
    verdict = "pass" if held else "near_miss" if likely <= limit * NEAR_MISS else "fail"
    beyond = f"; in {overloaded:.0%} of what is likely it is overloaded" if overloaded > MAX_OVERLOADED else ""
    text = f"{figure} would be about {likely:.0f} ms ({low:.0f} to {high:.0f}{beyond}), with an SLO of {limit:.0f} ms"
    return verdict, None if held else text


def _worst(judged: Iterable[tuple[str, str | None]]) -> tuple[str, str | None]:
    return max(judged, key=lambda row: VERDICTS.index(row[0]), default=("unknown", None))
