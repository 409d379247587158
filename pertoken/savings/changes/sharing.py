"""Outcome of moves after which several engines share a device, and each gets the time that the others leave."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pertoken.evidence import NotMeasured
from pertoken.forecast.latency import LatencyQuery
from pertoken.forecast.served import Abstained
from pertoken.provenance import Provenance
from pertoken.savings.changes.slowed import kept_apart, measured, present_latency, slowed, worst_verdict
from pertoken.savings.context import Context
from pertoken.savings.outcome import Outcome
from pertoken.savings.slo import Verdict, worst_of
from pertoken.savings.speed import calibrated, doubt
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet

MAX_MEMORY_SHARE = 0.95
"""Share of a device's memory that its engines may reserve together. The rest is for their CUDA contexts."""
MIN_FREE_TIME = 0.05
"""Share of the time that the other engines must leave. Below it a forecast of the slowed engine has no meaning."""


def newly_shared(before: Fleet, after: Fleet, changed: Iterable[Deployment]) -> tuple[tuple[Deployment, ...], ...]:
    """Return each group of deployments that newly share a device. `changed`: deployments that the change touches."""
    if all(_stays(deployment, before) for deployment in changed):
        return ()
    together = {
        frozenset(deployment.deployment_id for deployment in deployments)
        for deployments in before.deployments_by_device.values()
    }
    groups: dict[frozenset[int], tuple[Deployment, ...]] = {}
    for deployments in after.deployments_by_device.values():
        ids = frozenset(deployment.deployment_id for deployment in deployments)
        if len(ids) > 1 and not any(ids <= present for present in together):
            groups[ids] = tuple(deployments)
    return tuple(groups.values())


def _stays(deployment: Deployment, before: Fleet) -> bool:
    """Return whether a deployment runs on no device that it did not run on before."""
    known = before.deployment_of.get(deployment.deployment_id)
    previous = known.device_ids if known is not None else ()
    return deployment.device_ids is previous or set(deployment.device_ids) <= set(previous)


def outcome(before: Fleet, deployments: Sequence[Deployment], context: Context) -> Outcome:
    """Return whether engines that newly share a device meet their objectives in the time that the others leave.

    Engines on one device take turns. With MPS they run at once, and slow each other down by at most as much. So an
    engine is forecast on a device that is slower by the busy time of the others, at its p95. Released hosts are counted
    in `hosts`.
    """
    names = " and ".join(dict.fromkeys(deployment.name for deployment in deployments))
    ids = {deployment.deployment_id for deployment in deployments}
    services = [
        service for service in before.services if ids & {member.deployment_id for member in service.deployments}
    ]
    if reason := kept_apart(services):
        return Outcome(infeasible=reason)
    if any(device_id not in before.listed_by for device_id in ids):
        return Outcome(unpriced=f"a new engine beside another one is not forecast: try {names} on one device for a day")
    if any(deployment.sleep for deployment in deployments):
        return Outcome(unpriced=f"engines that sleep by turns are not forecast: try {names} on one device for a day")
    reserved = [deployment.gpu_memory_utilization for deployment in deployments]
    if None in reserved:
        return Outcome(unpriced=f"how much memory each of {names} reserves is not known: set its share of the device")
    memory = sum(share for share in reserved if share is not None)
    if memory > MAX_MEMORY_SHARE:
        return Outcome(
            infeasible=f"{names} would reserve {memory:.0%} of one device's memory, and at most {MAX_MEMORY_SHARE:.0%} "
            "can be: lower gpu_memory_utilization of each"
        )
    against: list[str] = []
    verdicts: list[Verdict] = []
    free_time: dict[str, float] = {}
    doubts: list[str] = []
    try:
        busy = {
            deployment.deployment_id: context.evidence(deployment.deployment_id).busy.p95 for deployment in deployments
        }
        for deployment in deployments:
            now = before.deployment(deployment.deployment_id)
            others = sum(value for other, value in busy.items() if other != deployment.deployment_id)
            free = 1 - others
            if free < MIN_FREE_TIME:
                return Outcome(
                    infeasible=f"the others would be busy {others:.0%} of the time (p95) beside {deployment.name}"
                )
            known = measured(now, context)
            calibration = calibrated(now, known.load, context)
            doubts += [why] if (why := doubt(calibration)) else []
            query = LatencyQuery(
                replace(deployment, device_ids=now.device_ids), known.load.load, known.arrivals, calibration
            )
            latency = slowed(present_latency(known, context), query, 1 / free, context)
            if latency.after is not None and latency.after.refusal is not None:
                reason = f"{deployment.name} would not hold its demand in the time left: {latency.after.refusal}"
                return Outcome(infeasible=reason)
            own_services = [
                service
                for service in services
                if deployment.deployment_id in {member.deployment_id for member in service.deployments}
            ]
            verdict, refusal = worst_verdict(own_services, {now.deployment_id: latency}, context, against)
            if refusal is not None:
                return Outcome(infeasible=refusal, slo=verdict)
            verdicts.append(verdict)
            free_time[deployment.name] = min(free, free_time.get(deployment.name, 1.0))
    except NotMeasured as missing:
        return Outcome(unpriced=missing.sentence)
    except (Abstained, ValueError) as reason:
        return Outcome(unpriced=str(reason))
    shares = ", ".join(f"{name} {free:.0%}" for name, free in free_time.items())
    return Outcome(
        slo=worst_of(verdicts),
        provenance=Provenance.FORECAST,
        assumptions=(f"on the shared device each engine has the time that the others leave at their p95: {shares}",),
        against=(*against, "engines on one device also compete for its caches, and one that fails may take the others"),
        doubtful=next(iter(doubts), None),
    )
