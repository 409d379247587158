"""Check of a latency after a change against the objectives: the measured one times the ratio of two forecasts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pertoken.arrivals import Arrivals
from pertoken.catalog.market import Market
from pertoken.evidence import NotMeasured
from pertoken.forecast.host import Calibration
from pertoken.forecast.latency import (
    SAME,
    Latency,
    LatencyQuery,
    LikelyLatency,
    Limits,
    SloMs,
    assumptions,
    likely_latencies,
    ratios,
)
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Range
from pertoken.metrics import PER_REQUEST_TPOT
from pertoken.provenance import Provenance, worst
from pertoken.savings.load import MeasuredLoad
from pertoken.state.deployment import Deployment
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
class PresentLatency:
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
    as_measured: PresentLatency | None = None
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
        return self.limits(slo, NEAR_MISS, NOT_WORSE)

    def limits(self, slo: Slo, of_objective: float, of_measured: float = 0.0) -> Limits:
        """Return limits in milliseconds of the forecast: these multiples of objective and measurement, the larger one.

        None for a figure that has no objective or was not measured.
        """
        ttft_p50, ttft_p95, tpot_p50, tpot_p95 = (
            None
            if (limit := getattr(slo, name)) is None or (factor := self.factor(name)) is None
            else max(limit * of_objective, self.measured[name][1] * of_measured) / factor
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


def presents(requested: Sequence[tuple[LatencyQuery, MeasuredMs]], market: Market) -> list[PresentLatency | Abstained]:
    """Return the present latency of deployments at their p95 demand, each with what was measured.

    One that is nearly full by its forecast is compared at the utilization at which its forecast waits as long as was
    measured: it served its demand, so a forecast of less is too low.
    """
    at_demand = likely_latencies([query for query, _ in requested], market)
    thinned = {
        number: [_thinned(requested[number][0], share) for share in _shares(latency.utilization)]
        for number, latency in enumerate(at_demand)
        if not isinstance(latency, Abstained) and latency.utilization > NEARLY_FULL[0]
    }
    compared = iter(likely_latencies([query for queries in thinned.values() for query in queries], market))
    latency_results: list[PresentLatency | Abstained] = []
    for number, ((query, measured), latency) in enumerate(zip(requested, at_demand, strict=True)):
        if isinstance(latency, Abstained):
            latency_results.append(latency)
            continue
        steps = [(query, latency)]
        if number in thinned:
            steps = [
                (step, forecast)
                for step, forecast in zip(thinned[number], compared, strict=False)
                if not isinstance(forecast, Abstained)
            ]
        waited_ms = measured["ttft_p95_ms"][1] if "ttft_p95_ms" in measured else 0.0
        step, forecast = next((point for point in steps if point[1].ttft_p95_ms >= waited_ms), steps[-1])
        share = float(step.arrivals.requests_per_s) / float(query.arrivals.requests_per_s)
        latency_results.append(PresentLatency(step, forecast, measured, share, latency.utilization))
    return latency_results


def presents_under(
    queries: Sequence[tuple[LatencyQuery, MeasuredLoad]], market: Market
) -> list[PresentLatency | Abstained]:
    """Return the present latency of deployments at their load, which may be an assumed one.

    The latency at an assumed load is the measured one times the ratio of the forecasts at both loads. One that an
    assumed load overloads keeps its measured latency: no change may be worse because the present would be.
    """
    measured = presents([(_as_measured(query, load), load.latency_ms) for query, load in queries], market)
    assumed = {
        number: _thinned(queries[number][0], present.load_share)
        for number, present in enumerate(measured)
        if queries[number][1].calibrated_on is not None and isinstance(present, PresentLatency)
    }
    forecasts = likely_latencies(list(assumed.values()), market)
    for (number, query), forecast in zip(assumed.items(), forecasts, strict=True):
        present = measured[number]
        assert isinstance(present, PresentLatency)
        measured[number] = forecast if isinstance(forecast, Abstained) else _under(present, query, forecast)
    return measured


def _under(present: PresentLatency, query: LatencyQuery, forecast: LikelyLatency) -> PresentLatency:
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
    return PresentLatency(query, forecast, latency_ms, present.load_share, utilization, as_measured=present)


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


MAX_OVERLOADED = 0.1
"""Probability of overload up to which a verdict may be `pass`: one tail outside an 80 % interval."""
NO_OBJECTIVE = "no objective"
VERDICTS = (NO_OBJECTIVE, "pass", "near_miss", "unknown", "fail")
"""From the best to the worst; the worst of several counts for all."""
Verdict = tuple[str, str | None]
"""A word of `VERDICTS` and, unless it is the first or a clear pass, a sentence with the figures."""

Forecast = Callable[[LatencyQuery], Latency]
"""Forecasts one end of a change; a part of it may have been forecast before."""
Count = Callable[[LatencyQuery, tuple[float, ...], SloMs], int | None]
"""Counts the replicas that hold a multiple of a query's requests within limits; a count may be known already."""


@dataclass(frozen=True)
class Latencies:
    """Latency of one deployment before and after a change, or the reason why it is unknown.

    Each is forecast when it is first read: most proposals are refused before anybody asks for all of it.
    """

    present: PresentLatency | None
    """None where `unknown`."""
    proposed: LatencyQuery | None
    forecast: Forecast = field(repr=False)
    fewest: Count = field(repr=False)
    counts: tuple[int, int] = (1, 1)
    """Replicas before and after that share the requests of the service."""
    slo: Slo = field(default_factory=Slo)
    slowdown: Range = SAME
    """Factor on the time of every step of `proposed` that its forecast does not know."""
    provenance: Provenance | None = None
    assumptions: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def ends(self) -> tuple[LatencyQuery, LatencyQuery] | None:
        """The forecasts that are compared: before and after."""
        return None if self.present is None or self.proposed is None else (self.present.query, self.proposed)

    @cached_property
    def before(self) -> Latency | None:
        """Latency of the deployment as measured; as forecast where a figure was not measured."""
        if self.present is None:
            return None
        return with_figures(self.forecast(self.present.query), self.present.measured)

    @cached_property
    def after(self) -> Latency | None:
        """Latency after the change: the measured one times the ratio of the forecasts."""
        if self.present is None or self.proposed is None:
            return None
        present, after = self.forecast(self.present.query), self.forecast(self.proposed)
        if after.refusal is not None or (present.refusal is not None and self.present.as_measured is None):
            return after
        # An assumed load that only the change holds, or CPUs, which the deviations of the present do not hold for.
        if present.refusal is not None or self.proposed.calibration != self.present.query.calibration:
            figures = {name: self._scaled(name, getattr(after, name)) for name in FIGURES.values()}
            return with_figures(after, figures, after.overloaded)
        same_load = self.proposed.arrivals is self.present.query.arrivals
        changes = ratios(present, after, self.proposed.calibration, same_load=same_load)
        figures = {
            name: times(self.present.measured[name], change) if name in self.present.measured else getattr(after, name)
            for name, change in zip(FIGURES.values(), changes, strict=True)
        }
        if self.slowdown != SAME:
            figures = {name: times(figure, self.slowdown) for name, figure in figures.items()}
        # What served its demand was not overloaded: only more work than that can be.
        overloaded = after.overloaded if after.utilization > present.utilization * NOT_WORSE else 0.0
        return with_figures(after, figures, overloaded)

    def _scaled(self, name: str, forecast: Range) -> Range:
        """Return a forecast figure times its measured value over its forecast at the measured load."""
        factor = (None if self.present is None else self.present.factor(name)) or 1.0
        return forecast[0] * factor, forecast[1] * factor, forecast[2] * factor

    @property
    def counted(self) -> tuple[tuple[LatencyQuery, tuple[float, ...], SloMs], ...]:
        """The numbers of replicas to count, before and after: a query, the factor on its requests, and the limits."""
        if self.present is None or self.proposed is None:
            return ()
        counts_before, counts_after = ((float(count),) for count in self.counts)
        return (
            (self.present.query, counts_before, self.present.tail_limits(self.slo)),
            (self.proposed, counts_after, self.present.tail_limits(self.slo, 1 / self.slowdown[1])),
        )

    @property
    def failing_limits(self) -> Limits:
        """Likely figures after the change, milliseconds of the forecast, beyond which the verdict is `fail`.

        None for a figure without an objective or a measurement, and for a present that its forecast has overloaded.
        """
        if self.present is None or self.present.forecast.refusal is not None:
            return None, None, None, None
        return self.present.limits(self.slo, NEAR_MISS / self.slowdown[1])

    @cached_property
    def replicas(self) -> tuple[int | None, int | None] | None:
        """Fewest replicas, before and after, that hold all arrivals of the service within the SLO; None: no number."""
        counts = [self.fewest(*question) for question in self.counted]
        return (counts[0], counts[1]) if counts else None

    @cached_property
    def verdict(self) -> Verdict:
        """The worst verdict on the figures that have an objective."""
        if not has_objective(self.slo):
            return NO_OBJECTIVE, None
        if self.present is None or self.after is None:
            return "unknown", self.unknown
        return judged(self.after, self.present.measured, self.slo)

    def shared_by(self, replicas: int, arrivals: Arrivals, share: float) -> Latencies:
        """Return the latency where `replicas` share all `arrivals`; `share` is `PresentLatency.load_share`."""
        if self.proposed is None or replicas == self.counts[1]:
            return self
        rate = float(arrivals.requests_per_s) * share * self.slowdown[1] / replicas
        shared = replace(self.proposed, arrivals=replace(arrivals, requests_per_s=rate))
        return replace(self, proposed=shared, counts=(self.counts[0], replicas))


def latencies(
    present: PresentLatency | NotMeasured,
    to: Deployment,
    slo: Slo,
    replicas: int = 1,
    *,
    forecast: Forecast,
    fewest: Count,
    calibration: Calibration | None = None,
    provenance: Provenance | None = None,
    notes: Iterable[str] = (),
    slowdown: Range = SAME,
) -> Latencies:
    """Return the latency of one replica before and after a change, under the requests that were measured on it.

    `replicas` get as many requests each. `calibration`: of `to`, where it differs from the present one. `notes`:
    assumptions on the requests, with their `provenance`.
    """
    if isinstance(present, NotMeasured):
        return Latencies(None, None, forecast, fewest, slo=slo, unknown=present.sentence)
    present_deployment, arrivals = present.query.deployment, present.query.arrivals
    if slowdown != SAME:
        arrivals = replace(arrivals, requests_per_s=float(arrivals.requests_per_s) * slowdown[1])
    calibration = calibration or present.query.calibration
    proposed = replace(present.query, deployment=to, arrivals=arrivals, calibration=calibration)
    alike = (f"each of its {replicas} replicas gets as many requests",) if replicas > 1 else ()
    return Latencies(
        present,
        proposed if to is not present_deployment or slowdown != SAME else present.query,
        forecast,
        fewest,
        (replicas, replicas),
        slo,
        slowdown,
        worst([Provenance.FORECAST, *([provenance] if provenance is not None else [])]),
        (*notes, *assumptions(to), *_statistic(present_deployment, present.measured), *alike),
    )


def with_figures(latency: Latency, figures: Mapping[str, Range], overloaded: float = 0.0) -> Latency:
    """Return a latency with other figures, by their fields; missing ones stay."""
    ttft_p50, ttft_p95, tpot_p50, tpot_p95 = (figures.get(name, getattr(latency, name)) for name in FIGURES.values())
    return replace(
        latency,
        ttft_p50_ms=ttft_p50,
        ttft_p95_ms=ttft_p95,
        tpot_p50_ms=tpot_p50,
        tpot_p95_ms=tpot_p95,
        overloaded=overloaded,
    )


def has_objective(slo: Slo) -> bool:
    """Return whether an objective is set."""
    return any(getattr(slo, name) is not None for name in FIGURES.values())


def judged(after: Latency, measured: MeasuredMs, slo: Slo) -> Verdict:
    """Return the worst verdict on a latency after a change, compared with the measured one."""
    return worst_of(
        _judged(figure, limit, getattr(after, name), measured.get(name), after)
        for figure, name in FIGURES.items()
        if (limit := getattr(slo, name)) is not None
    )


def unchanged(measured: MeasuredMs, slo: Slo) -> Verdict:
    """Return the verdict on a change that leaves every latency as it is: `pass`, with the objectives missed already."""
    if not has_objective(slo):
        return NO_OBJECTIVE, None
    missed = [
        f"{figure} is {measured[name][1]:.0f} ms now, with an SLO of {limit:.0f} ms: this change leaves it"
        for figure, name in FIGURES.items()
        if (limit := getattr(slo, name)) is not None and name in measured and measured[name][1] > limit
    ]
    return "pass", "; ".join(missed) or None


def likely_miss(likely: LikelyLatency, present: PresentLatency, slo: Slo) -> str | None:
    """Return the first figure that clearly misses its SLO and is worse than now, as a phrase; None if none is."""
    for figure, name in FIGURES.items():
        limit, factor = getattr(slo, name), present.factor(name)
        if limit is None or factor is None:
            continue
        now_ms, after_ms = present.measured[name][1], factor * getattr(likely, name)
        if after_ms > max(limit * NEAR_MISS, now_ms * NOT_WORSE):
            return f"{figure} would be about {after_ms:.0f} ms ({now_ms:.0f} ms now), with an SLO of {limit:.0f} ms"
    return None


def times(value: Range, factor: Range) -> Range:
    """Return the product of two independent ranges, each (low, likely, high)."""
    likely = value[1] * factor[1]
    below, above = (math.hypot(math.log(value[1] / value[end]), math.log(factor[1] / factor[end])) for end in (0, 2))
    return likely * math.exp(-below), likely, likely * math.exp(above)


def worst_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts."""
    return max(verdicts, key=lambda verdict: VERDICTS.index(verdict[0]), default=(NO_OBJECTIVE, None))


def _judged(figure: str, limit: float, forecast_range: Range | None, measured: Range | None, after: Latency) -> Verdict:
    if after.refusal is not None or forecast_range is None:
        return "fail", after.refusal
    if measured is None:
        return "unknown", f"{figure} was not measured: whether its SLO of {limit:.0f} ms is kept is unknown"
    low, likely, high = forecast_range
    held = high <= limit and after.overloaded <= MAX_OVERLOADED
    word = "pass" if held else "near_miss" if likely <= limit * NEAR_MISS else "fail"
    beyond = (
        f"; in {after.overloaded:.0%} of what is likely it is overloaded" if after.overloaded > MAX_OVERLOADED else ""
    )
    text = (
        f"{figure} would be about {likely:.0f} ms ({low:.0f} to {high:.0f}{beyond}), with an SLO of {limit:.0f} ms and "
        f"{measured[1]:.0f} ms measured now"
    )
    return word, None if held else text


def _statistic(deployment: Deployment, measured: MeasuredMs) -> tuple[str, ...]:
    if deployment.engine in PER_REQUEST_TPOT or not any(name.startswith("tpot") for name in measured):
        return ()
    return (f"TPOT is the time between two tokens, as {deployment.engine} measures it, before and after",)
