"""Latency of an engine that gets a part of a device's time, and the verdict on all services that depend on it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pertoken.evidence import NotMeasured
from pertoken.forecast.queue.latency import Latency, LatencyQuery
from pertoken.forecast.queue.load import Arrivals
from pertoken.savings.context import Context
from pertoken.savings.load import MeasuredLoad
from pertoken.savings.sizing import objectives
from pertoken.savings.slo import FIGURES, VERDICTS, judged
from pertoken.savings.speed import MAX_UNASKED_SLOWDOWN, calibrated
from pertoken.state.deployment import Deployment
from pertoken.state.service import Service


@dataclass(frozen=True, slots=True)
class Alone:
    """Measurements of one deployment."""

    of: Deployment
    load: MeasuredLoad
    arrivals: Arrivals
    assumptions: tuple[str, ...]


def kept_apart(services: Iterable[Service]) -> str | None:
    """Return why services must not share anything."""
    apart = [service.name for service in services if service.isolation == "tenant"]
    return f'{", ".join(apart)} shares no engine and no device: isolation = "tenant"' if apart else None


def alone_on(of: Deployment, context: Context) -> Alone:
    """Raises NotMeasured."""
    seen = context.evidence(of.deployment_id)
    arrivals = context.forecasts.arrivals(seen)
    if isinstance(arrivals, NotMeasured):
        raise arrivals
    load = context.forecasts.load(seen)
    return Alone(of, load, arrivals.arrivals, (*load.assumptions, *arrivals.assumptions))


def latency_alone(known: Alone, context: Context) -> Latency:
    """Return the latency of a deployment as it is. Raises Abstained or ValueError."""
    calibration = calibrated(known.of, known.load, context)
    return context.forecasts.latency(
        LatencyQuery(known.of, known.load.load, known.arrivals, calibration), context.market
    )


def slowed(asked: LatencyQuery, factor: float, context: Context) -> Latency:
    """Return the latency where everything takes `factor` times as long. Raises Abstained.

    On a clock that runs as much slower, requests come as much faster and each takes its usual time.
    """
    denser = replace(asked.arrivals, requests_per_s=asked.arrivals.requests_per_s * factor)
    latency = context.forecasts.latency(replace(asked, arrivals=denser), context.market)
    figures = {name: getattr(latency, name) for name in FIGURES.values()}
    longer: dict[str, Any] = {
        name: at and (at[0] * factor, at[1] * factor, at[2] * factor) for name, at in figures.items()
    }
    return replace(latency, **longer)


def worst_verdict(
    services: Iterable[Service],
    parts: Sequence[Deployment],
    latency: Latency,
    alone: dict[int, Latency],
    context: Context,
    against: list[str],
) -> tuple[str, str | None]:
    """Return the worst verdict on the services, and why it must not be; near misses are added to `against`.

    Where no objective limits it, the token time may grow by `MAX_UNASKED_SLOWDOWN` at most.
    """
    verdicts = ["unknown"]
    for service in services:
        slo = objectives(service, context)
        verdict, service_verdict = judged(latency, slo)
        if verdict == "fail":
            return verdict, f"{service.name}: {service_verdict}"
        if service_verdict is not None:
            against.append(f"{service.name}: {service_verdict}")
        verdicts.append(verdict)
        ids = {one.deployment_id for one in service.deployments}
        for part in parts:
            before = alone[part.deployment_id].tpot_p50_ms
            if slo.tpot_p95_ms is not None or part.deployment_id not in ids or not (before and latency.tpot_p50_ms):
                continue
            slower = latency.tpot_p50_ms[1] / before[1]
            if slower > MAX_UNASKED_SLOWDOWN:
                return "fail", (
                    f"tokens of {service.name} would come {slower:.1f} times as slowly, and no SLO allows it: set "
                    "`slo.tpot_ms`"
                )
    return max(verdicts, key=VERDICTS.index), None
