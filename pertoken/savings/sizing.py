"""Number of replicas that hold a service's demand within its objectives, and the choice of the released ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pertoken.arrivals import Arrivals
from pertoken.evidence import NotMeasured
from pertoken.forecast.host import Calibration
from pertoken.forecast.latency import MAX_REPLICAS, LatencyQuery, overruns
from pertoken.forecast.served import Abstained
from pertoken.savings.context import Context, arrival_factors
from pertoken.savings.hosts import host_price
from pertoken.savings.load import MeasuredLoad
from pertoken.savings.slo import has_objective
from pertoken.savings.speed import Speed
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import FEWEST, Demand, Service, Slo


@dataclass(frozen=True, slots=True)
class Sizes:
    """Replicas that hold the demand: at the slow end of the forecast, likely, and at its fast end."""

    slow: int
    likely: int
    fast: int
    needed: int
    """Likely, without the minimum and the spare replicas of the service."""
    assumptions: tuple[str, ...] = ()


def objectives(service: Service, context: Context) -> Slo:
    """Return the objectives of a service: its own, completed by the global ones."""
    service_slo, common = service.slo, context.slo
    return Slo(
        ttft_p50_ms=service_slo.ttft_p50_ms or common.ttft_p50_ms,
        ttft_p95_ms=service_slo.ttft_p95_ms or common.ttft_p95_ms,
        tpot_p50_ms=service_slo.tpot_p50_ms or common.tpot_p50_ms,
        tpot_p95_ms=service_slo.tpot_p95_ms or common.tpot_p95_ms,
    )


def total_arrivals(service: Service, context: Context) -> tuple[Arrivals, tuple[str, ...]]:
    """Return the arrivals of a whole service at its p95, with the assumptions made. Raises NotMeasured."""
    seen = context.services.get(service.name)
    if seen is None:
        raise NotMeasured("requests_s", f"nothing was measured of the service {service.name}")
    arrivals = context.forecasts.arrivals(seen)
    if isinstance(arrivals, NotMeasured):
        raise arrivals
    return arrivals.arrivals, arrivals.assumptions


def changed_arrivals(arrivals: Arrivals, present_demand: Demand, after: Demand) -> Arrivals:
    """Return arrivals under a changed demand: requests that a response cache answers never arrive."""
    rate, prompt, output = (
        _ratio(present_demand, after, name) for name in ("requests_per_s", "prompt_len", "output_len")
    )
    return Arrivals(
        arrivals.requests_per_s * rate * arriving_share(present_demand, after),
        arrivals.prompt.scaled_to(max(1e-9, arrivals.prompt.mean * prompt)),
        arrivals.generated.scaled_to(max(1e-9, arrivals.generated.mean * output)),
    )


def arriving_share(present_demand: Demand, after: Demand) -> float:
    """Return the requests that a changed response cache lets through, over the present ones."""
    return (1 - _share(after, "response_cache_share")) / (1 - _share(present_demand, "response_cache_share"))


def changed_load(load: MeasuredLoad, present_demand: Demand, after: Demand) -> MeasuredLoad:
    """Return the load of one deployment under a changed demand."""
    present_load = load.load
    cached = (
        after.cached_share.value if after.cached_share and after.cached_share != present_demand.cached_share else None
    )
    prompt, output = _ratio(present_demand, after, "prompt_len"), _ratio(present_demand, after, "output_len")
    if prompt == output == 1 and cached is None and present_load.generated_len >= 1:
        return load  # the same object: its forecasts are made once
    changed = replace(
        present_load,
        prompt_len=present_load.prompt_len * prompt,
        generated_len=max(1.0, present_load.generated_len * output),
        cached_share=present_load.cached_share if cached is None else cached,
    )
    return replace(load, load=changed)


def sizes(
    service: Service, to: Deployment, speed: Speed, arrivals: Arrivals, context: Context, load: MeasuredLoad
) -> Sizes | str:
    """Return the replicas of `to` that hold `arrivals` within the objectives; a reason where no number does.

    The minimum and the spare replicas of the service are added.
    """
    if speed.infeasible is not None:
        return speed.infeasible
    slo = objectives(service, context)
    query = LatencyQuery(speed.expected_of or to, load.load, arrivals, speed.calibration or Calibration())
    try:
        fewest = context.forecasts.fewest(query, _factors(speed), speed.tail_limits(slo), context.market)
    except Abstained as reason:
        return str(reason)
    if fewest[1] is None:
        within = " within the SLO" if has_objective(slo) else ""
        return f"no number of replicas up to {MAX_REPLICAS} holds the p95 demand{within}"
    counts = [MAX_REPLICAS if count is None else count for count in fewest]
    held = [max(service.min_replicas, count) + service.spare_replicas for count in counts]
    reasons = []
    if counts[1] < service.min_replicas:
        reasons.append(f"{service.min_replicas} replicas are the minimum set for {service.name}")
    elif not has_objective(slo):
        reasons.append("no SLO is set: replicas are counted by the demand alone")
    if service.spare_replicas:
        reasons.append(f"{service.spare_replicas} of the replicas are spare")
    return Sizes(held[0], held[1], held[2], counts[1], tuple(reasons))


def redundancy(service: Service, count: int, needed: int) -> str:
    """Return whether one of `count` replicas may fail, and the setting that changes it; `needed` hold the demand."""
    setting = f'in [services."{service.name}"]'
    if count == 1:
        return (
            "1 replica remains, and a failure or an update of it is an outage (`min_replicas` counts as 1 where it is "
            f"not set): set `min_replicas = 2` {setting} to keep another one"
        )
    if count > needed:
        return f"N+1: {needed} of {count} replicas hold the p95 demand, so one may fail"
    return (
        f"not N+1: all {count} replicas are needed at the p95 demand, and a failure of one delays requests: set "
        f"`spare_replicas = 1` {setting} to keep another one"
    )


def one_fewer_serves(
    service: Service,
    to: Deployment,
    speed: Speed,
    loads: Sequence[tuple[Arrivals, MeasuredLoad]],
    context: Context,
) -> list[bool]:
    """Return for each of several arrivals with their loads whether `Sizes.likely` of `sizes` is below the present.

    The service has more replicas than its minimum and the spare ones.
    """
    replica, calibration = speed.expected_of or to, speed.calibration or Calibration()
    share = _factors(speed)[1] / (len(service.deployments) - 1 - service.spare_replicas)
    ttft_ms, tpot_ms = speed.tail_limits(objectives(service, context))
    limits = None, ttft_ms, None, tpot_ms
    queries = [
        (
            LatencyQuery(
                replica, load.load, replace(arrivals, requests_per_s=arrivals.requests_per_s * share), calibration
            ),
            limits,
        )
        for arrivals, load in loads
    ]
    exceeding = overruns(queries, context.market)
    return [result is False for result in exceeding]


def wanted(service: Service, sizes: Sizes) -> tuple[int, int, int] | str:
    """Return the replicas to keep (slow, likely, fast); a reason where a proposed number does not hold the demand."""
    if service.replicas == FEWEST:
        return sizes.slow, sizes.likely, sizes.fast
    assert isinstance(service.replicas, int)
    if service.replicas < sizes.likely:
        return f"{service.replicas} replicas do not hold the p95 demand: {sizes.likely} are needed"
    return max(service.replicas, sizes.slow), service.replicas, service.replicas


def all_stay(service: Service, to: Service, fewest: int | None) -> bool:
    """Return whether all replicas stay although another number is proposed, because the demand takes `fewest` of them.

    None: no number serves it.
    """
    if fewest is None:
        return True
    needed = max(service.min_replicas, fewest) + service.spare_replicas
    if to.replicas == FEWEST:
        return needed == len(service.deployments)
    return isinstance(to.replicas, int) and to.replicas < needed


def kept(fleet: Fleet, replicas: Sequence[Deployment], count: int, context: Context) -> tuple[Deployment, ...]:
    """Return the `count` replicas to keep so that whole hosts go first, then the dearest devices. Raises NoPrice."""
    leaving = len(replicas) - count
    going: set[int] = set()
    by_host: dict[int, list[Deployment]] = {}
    for replica in replicas:
        devices = [fleet.device(device_id) for device_id in replica.device_ids if device_id in fleet.device_ids]
        for host_id in {device.host_id for device in devices}:
            by_host.setdefault(host_id, []).append(replica)
    alone = []
    for host_id, deployments_on_host in by_host.items():
        host = fleet.host(host_id)
        if set(fleet.deployments_on(host)) <= set(deployments_on_host):
            alone.append((host_price(fleet, host, context) / len(deployments_on_host), host_id, deployments_on_host))
    for _, _, deployments_on_host in sorted(alone, key=lambda row: (-row[0], row[1])):
        new = [deployment for deployment in deployments_on_host if deployment.deployment_id not in going]
        if len(new) <= leaving - len(going):
            going.update(deployment.deployment_id for deployment in new)

    def price(deployment: Deployment) -> int:
        return sum(context.nano_usd_per_hour.get(device) or 0 for device in deployment.device_ids)

    rest = sorted(
        (replica for replica in replicas if replica.deployment_id not in going),
        key=lambda x: (-price(x), x.deployment_id),
    )
    going.update(deployment.deployment_id for deployment in rest[: leaving - len(going)])
    return tuple(replica for replica in replicas if replica.deployment_id not in going)


def _factors(speed: Speed) -> tuple[float, float, float]:
    """Factors on arrivals that stand for the slow end of the forecast, its likely value and its fast end."""
    present = speed.latency.present if speed.latency is not None else None
    if speed.expected_of is not None and speed.ratio is not None:
        low, likely, high = speed.ratio
        share = arrival_factors(None, present)[1]
        return share / low, share / likely, share / high
    return arrival_factors(speed.at_most, present)


def _ratio(present_demand: Demand, after: Demand, name: str) -> float:
    old, new = getattr(present_demand, name), getattr(after, name)
    return 1.0 if old is None or new is None or old.value <= 0 else float(new.value / old.value)


def _share(demand: Demand, name: str) -> float:
    share = getattr(demand, name)
    return 0.0 if share is None else min(float(share.value), 0.999)
