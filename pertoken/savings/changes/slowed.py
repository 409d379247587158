"""Latency of an engine that gets a part of a device's time, and the verdict on all services that depend on it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pertoken.evidence import NotMeasured
from pertoken.forecast.queue.latency import Latency, LatencyQuery, latencies
from pertoken.forecast.queue.load import Arrivals
from pertoken.forecast.served import Abstained
from pertoken.savings.context import Context
from pertoken.savings.load import MeasuredLoad
from pertoken.savings.sizing import objectives
from pertoken.savings.slo import FIGURES, VERDICTS, judged
from pertoken.savings.speed import MAX_UNASKED_SLOWDOWN, calibrated
from pertoken.state.deployment import Deployment
from pertoken.state.service import Service


@dataclass(frozen=True, slots=True)
class MeasuredDeployment:
    """Measured load and arrivals of one deployment."""

    deployment: Deployment
    load: MeasuredLoad
    arrivals: Arrivals
    assumptions: tuple[str, ...]


def kept_apart(services: Iterable[Service]) -> str | None:
    """Return the reason why services must not share an engine or a device, None if they may."""
    isolated = [service.name for service in services if service.isolation == "tenant"]
    return f'{", ".join(isolated)} shares no engine and no device: isolation = "tenant"' if isolated else None


def measured(deployment: Deployment, context: Context) -> MeasuredDeployment:
    """Return the measured load and arrivals of a deployment. Raises NotMeasured."""
    seen = context.evidence(deployment.deployment_id)
    arrivals = context.forecasts.arrivals(seen)
    if isinstance(arrivals, NotMeasured):
        raise arrivals
    load = context.forecasts.load(seen)
    return MeasuredDeployment(deployment, load, arrivals.arrivals, (*load.assumptions, *arrivals.assumptions))


def present_latency(known: MeasuredDeployment, context: Context) -> Latency:
    """Return the forecast latency of a deployment without a change. Raises Abstained or ValueError."""
    calibration = calibrated(known.deployment, known.load, context)
    return context.forecasts.latency(
        LatencyQuery(known.deployment, known.load.load, known.arrivals, calibration), context.market
    )


def slowed(query: LatencyQuery, factor: float, context: Context) -> Latency:
    """Return the latency if every step takes `factor` times as long. Raises Abstained.

    It is the latency at `factor` times the arrival rate, multiplied by `factor`: the same system in another unit of
    time.
    """
    denser = replace(query.arrivals, requests_per_s=query.arrivals.requests_per_s * factor)
    (latency,) = latencies([replace(query, arrivals=denser)], context.market)
    if isinstance(latency, Abstained):
        raise latency
    figures = {name: getattr(latency, name) for name in FIGURES.values()}
    longer: dict[str, Any] = {
        name: value and (value[0] * factor, value[1] * factor, value[2] * factor) for name, value in figures.items()
    }
    return replace(latency, **longer)


def worst_verdict(
    services: Iterable[Service],
    deployments: Sequence[Deployment],
    latency: Latency,
    present: dict[int, Latency],
    context: Context,
    against: list[str],
) -> tuple[str, str | None]:
    """Return the worst verdict on the services, and the reason of a refusal. Near misses are added to `against`.

    `present`: latencies before the change by deployment id. Without an objective, the time per token may increase to
    `MAX_UNASKED_SLOWDOWN` times the present one.
    """
    verdicts = ["unknown"]
    for service in services:
        slo = objectives(service, context)
        verdict, miss = judged(latency, slo)
        if verdict == "fail":
            return verdict, f"{service.name}: {miss}"
        if miss is not None:
            against.append(f"{service.name}: {miss}")
        verdicts.append(verdict)
        ids = {deployment.deployment_id for deployment in service.deployments}
        for deployment in deployments:
            before = present[deployment.deployment_id].tpot_p50_ms
            if (
                slo.tpot_p95_ms is not None
                or deployment.deployment_id not in ids
                or not (before and latency.tpot_p50_ms)
            ):
                continue
            slower = latency.tpot_p50_ms[1] / before[1]
            if slower > MAX_UNASKED_SLOWDOWN:
                return "fail", (
                    f"tokens of {service.name} would come {slower:.1f} times as slowly, and no SLO allows it: set "
                    "`slo.tpot_ms`"
                )
    return max(verdicts, key=VERDICTS.index), None
