"""Latency of an engine that gets a part of a device's time, and the verdict on all services that depend on it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pertoken.arrivals import Arrivals
from pertoken.evidence import NotMeasured
from pertoken.forecast.latency import LatencyQuery
from pertoken.savings.context import Context
from pertoken.savings.load import MeasuredLoad
from pertoken.savings.present import Present
from pertoken.savings.sizing import objectives
from pertoken.savings.slo import Latencies, Verdict, worst_of
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


def present_latency(known: MeasuredDeployment, context: Context) -> Present:
    """Return the present latency of a deployment. Raises Abstained or ValueError."""
    calibration = calibrated(known.deployment, known.load, context)
    return context.forecasts.present(known.deployment, known.load, known.arrivals, calibration, context.market)


def slowed(present: Present, query: LatencyQuery, factor: float, context: Context) -> Latencies:
    """Return the latency of requests that `query` serves after a change, if its steps take `factor` times as long.

    The forecast is that at `factor` times the arrival rate, multiplied by `factor`: the same system in another unit of
    time. Raises Abstained.
    """
    denser = factor * present.load_share
    if denser != 1:
        rate = float(query.arrivals.requests_per_s) * denser
        query = replace(query, arrivals=replace(query.arrivals, requests_per_s=rate))
    latency = Latencies(
        present,
        query,
        forecast=partial(context.forecasts.latency, market=context.market),
        fewest=partial(context.forecasts.replicas, market=context.market),
        slowdown=(factor, factor, factor),
    )
    _ = latency.after  # so that an unknown deployment raises here
    return latency


def worst_verdict(
    services: Iterable[Service], latency_of: Mapping[int, Latencies], context: Context, against: list[str]
) -> tuple[Verdict, str | None]:
    """Return the worst verdict on the services, and the reason of a refusal. Near misses are added to `against`.

    `latency_of`: by deployment id. Without an objective, the time per token may increase to `MAX_UNASKED_SLOWDOWN`
    times the present one.
    """
    verdicts = []
    for service in services:
        slo = objectives(service, context)
        for deployment in service.deployments:
            if (latency := latency_of.get(deployment.deployment_id)) is None:
                continue
            word, sentence = replace(latency, slo=slo).verdict
            if word == "fail":
                return (word, sentence), f"{service.name}: {sentence}"
            if sentence is not None:
                against.append(f"{service.name}: {sentence}")
            verdicts.append((word, None))
            if slo.tpot_p95_ms is None and (reason := _unasked(service, latency)) is not None:
                return ("fail", reason), reason
    return worst_of(verdicts), None


def _unasked(service: Service, latency: Latencies) -> str | None:
    """Return the reason why tokens would come too slowly without an objective that allows it."""
    before, after = latency.before, latency.after
    if before is None or after is None or before.tpot_p50_ms is None or after.tpot_p50_ms is None:
        return None
    slower = after.tpot_p50_ms[1] / before.tpot_p50_ms[1]
    if slower <= MAX_UNASKED_SLOWDOWN:
        return None
    return f"tokens of {service.name} would come {slower:.1f} times as slowly, and no SLO allows it: set `slo.tpot_ms`"
