"""Present latency of a deployment: as measured, and as forecast at a load at which both can be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pertoken.catalog.market import Market
from pertoken.forecast.latency import LatencyQuery, LikelyLatency, Limits, SloMs, likely_latencies
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Range
from pertoken.savings.load import MeasuredLoad
from pertoken.state.service import Slo

MeasuredMs = Mapping[str, Range]
"""Measured latencies, milliseconds, by the name of their objective; a figure that was not measured is absent."""
FIGURES = {"TTFT p50": "ttft_p50_ms", "TTFT p95": "ttft_p95_ms", "TPOT p50": "tpot_p50_ms", "TPOT p95": "tpot_p95_ms"}
"""Name of a figure -> its field of `Latency` and of `Slo`."""
NEAR_MISS = 1.2
"""Latency over its SLO up to which a forecast is a near miss. Source: llm-d planner's 1.0 to 1.2 band."""
NOT_WORSE = 1.001
"""Latency over the present one up to which it counts as the present one."""
NEARLY_FULL = (0.9, 0.95, 0.98, 0.99, 0.995)
"""Utilizations at which a deployment is compared that is nearly full or overloaded by its forecast."""


@dataclass(frozen=True, slots=True)
class Present:
    """Latency of one deployment before any change."""

    query: LatencyQuery
    """The deployment at the load at which changes are compared with it."""
    forecast: LikelyLatency
    """At that load."""
    measured: MeasuredMs
    load_share: float = 1.0
    """Compared load over the p95 demand: below 1 where the forecast serves less than was served."""
    utilization: float = 0.0
    """Forecast at the p95 demand; 1 or more where the forecast has it overloaded."""
    as_measured: "Present | None" = None
    """The same deployment at its measured load, where this load is an assumed one."""

    def factor(self, name: str) -> float | None:
        """Return the measured value of a figure over its forecast; None where it was not measured."""
        if self.as_measured is not None:
            return self.as_measured.factor(name)
        return self.measured[name][1] / getattr(self.forecast, name) if name in self.measured else None

    def refusal_limits(self, slo: Slo) -> Limits:
        """Return the likely figures beyond which a change is refused, in milliseconds of the forecast.

        It then misses an objective clearly, and is worse than the present. None for a figure that has no objective or
        was not measured.
        """
        ttft_p50, ttft_p95, tpot_p50, tpot_p95 = (
            None
            if (limit := getattr(slo, name)) is None or (factor := self.factor(name)) is None
            else max(limit * NEAR_MISS, self.measured[name][1] * NOT_WORSE) / factor
            for name in FIGURES.values()
        )
        return ttft_p50, ttft_p95, tpot_p50, tpot_p95

    def tail_limits(self, slo: Slo, times: float = 1.0) -> SloMs:
        """Return the objectives by which replicas are counted, in milliseconds of the forecast.

        A figure that was not measured counts as forecast: its verdict is unknown in any case.
        """
        ttft, tpot = (
            None if (limit := getattr(slo, name)) is None else limit * times / (self.factor(name) or 1.0)
            for name in ("ttft_p95_ms", "tpot_p95_ms")
        )
        return ttft, tpot


def presents(asked: Sequence[tuple[LatencyQuery, MeasuredMs]], market: Market) -> list[Present | Abstained]:
    """Return the present latency of deployments at their p95 demand, each with what was measured.

    One that is nearly full by its forecast is compared at the utilization at which its forecast waits as long as was
    measured: it served its demand, so a forecast of less is too low.
    """
    at_demand = likely_latencies([query for query, _ in asked], market)
    thinned = {
        number: [_thinned(asked[number][0], share) for share in _shares(latency.utilization)]
        for number, latency in enumerate(at_demand)
        if not isinstance(latency, Abstained) and latency.utilization > NEARLY_FULL[0]
    }
    compared = iter(likely_latencies([query for queries in thinned.values() for query in queries], market))
    known: list[Present | Abstained] = []
    for number, ((query, measured), latency) in enumerate(zip(asked, at_demand, strict=True)):
        if isinstance(latency, Abstained):
            known.append(latency)
            continue
        steps = [(query, latency)]
        if number in thinned:
            steps = [
                (step, forecast)
                for step, forecast in zip(thinned[number], compared, strict=False)
                if not isinstance(forecast, Abstained)
            ]
        waited_ms = measured["ttft_p95_ms"][1] if "ttft_p95_ms" in measured else 0.0
        step, forecast = next((at for at in steps if at[1].ttft_p95_ms >= waited_ms), steps[-1])
        share = float(step.arrivals.requests_per_s) / float(query.arrivals.requests_per_s)
        known.append(Present(step, forecast, measured, share, latency.utilization))
    return known


def presents_under(asked: Sequence[tuple[LatencyQuery, MeasuredLoad]], market: Market) -> list[Present | Abstained]:
    """Return the present latency of deployments at their load, which may be an assumed one.

    The latency at an assumed load is the measured one times the ratio of the forecasts at both loads. One that an
    assumed load overloads keeps its measured latency: no change may be worse because the present would be.
    """
    measured = presents([(_as_measured(query, load), load.latency_ms) for query, load in asked], market)
    assumed = {
        number: _thinned(asked[number][0], present.load_share)
        for number, present in enumerate(measured)
        if asked[number][1].calibrated_on is not None and isinstance(present, Present)
    }
    forecasts = likely_latencies(list(assumed.values()), market)
    for (number, query), forecast in zip(assumed.items(), forecasts, strict=True):
        present = measured[number]
        assert isinstance(present, Present)
        measured[number] = forecast if isinstance(forecast, Abstained) else _under(present, query, forecast)
    return measured


def _under(present: Present, query: LatencyQuery, forecast: LikelyLatency) -> Present:
    """Return a deployment at an assumed load; `present` is at its measured one."""
    ratios = {
        name: 1.0 if forecast.refusal is not None else getattr(forecast, name) / getattr(present.forecast, name)
        for name in present.measured
    }
    latency_ms = {
        name: (low * ratios[name], likely * ratios[name], high * ratios[name])
        for name, (low, likely, high) in present.measured.items()
    }
    utilization = forecast.utilization / present.load_share
    return Present(query, forecast, latency_ms, present.load_share, utilization, as_measured=present)


def _as_measured(query: LatencyQuery, load: MeasuredLoad) -> LatencyQuery:
    """Return the query of a load at the measured load."""
    measured = load.calibrated_on
    if measured is None:
        return query
    factor = measured.load.generated_tok_s / load.load.generated_tok_s if load.load.generated_tok_s else 1.0
    return replace(_thinned(query, factor), load=measured.load)


def _shares(utilization: float) -> list[float]:
    """Return the shares of a demand at which a deployment of this utilization is compared, rising to all that fits."""
    return sorted({min(1.0, full / utilization) for full in NEARLY_FULL})


def _thinned(query: LatencyQuery, share: float) -> LatencyQuery:
    if share == 1:
        return query
    return replace(query, arrivals=replace(query.arrivals, requests_per_s=query.arrivals.requests_per_s * share))
