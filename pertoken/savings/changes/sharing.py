"""Engines that come to share a device: whether each holds its objectives in the time that the others leave."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pertoken.evidence import NotMeasured
from pertoken.forecast.queue.latency import LatencyQuery
from pertoken.forecast.served import Abstained
from pertoken.provenance import Provenance
from pertoken.savings.changes.slowed import alone_on, kept_apart, latency_alone, slowed, worst_verdict
from pertoken.savings.context import Context
from pertoken.savings.outcome import Outcome
from pertoken.savings.slo import VERDICTS
from pertoken.savings.speed import calibrated
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet

MAX_MEMORY_SHARE = 0.95
"""Of a device's memory that several engines may reserve together: each needs some beside it for its CUDA context."""
MIN_LEFT = 0.05
"""Share of the time that others must leave, so that a forecast of the slowed engine means anything."""


def newly_shared(before: Fleet, after: Fleet, changed: Iterable[Deployment]) -> tuple[tuple[Deployment, ...], ...]:
    """Return the deployments that come to share a device, each company once. `changed`: those unlike before."""
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
    known = deployment.deployment_id in before.listed_by
    had = before.deployment(deployment.deployment_id).device_ids if known else ()
    return set(deployment.device_ids) <= set(had)


def outcome(before: Fleet, deployments: Sequence[Deployment], context: Context) -> Outcome:
    """Return whether engines that come to share a device hold their objectives, each in the time the others leave.

    Engines on one device take turns (or, with MPS, run at once and slow each other by as much at most). So an engine is
    forecast on a device slowed to the part that the busy time of the others, at its p95, leaves. What the moves
    release is counted where hosts are.
    """
    names = " and ".join(dict.fromkeys(deployment.name for deployment in deployments))
    ids = {deployment.deployment_id for deployment in deployments}
    services = [service for service in before.services if ids & {one.deployment_id for one in service.deployments}]
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
    verdicts = ["unknown"]
    left_by: dict[str, float] = {}
    try:
        busy = {
            deployment.deployment_id: context.evidence(deployment.deployment_id).busy.p95 for deployment in deployments
        }
        for deployment in deployments:
            now = before.deployment(deployment.deployment_id)
            left = 1 - sum(value for other, value in busy.items() if other != deployment.deployment_id)
            if left < MIN_LEFT:
                others = sum(value for other, value in busy.items() if other != deployment.deployment_id)
                return Outcome(
                    infeasible=f"the others would be busy {others:.0%} of the time (p95) beside {deployment.name}"
                )
            known = alone_on(now, context)
            calibration = calibrated(now, known.load, context)
            asked = LatencyQuery(
                replace(deployment, device_ids=now.device_ids), known.load.load, known.arrivals, calibration
            )
            latency = slowed(asked, 1 / left, context)
            if latency.refusal is not None:
                return Outcome(
                    infeasible=f"{deployment.name} would not hold its demand in the time left: {latency.refusal}"
                )
            own = [one for one in services if deployment.deployment_id in {e.deployment_id for e in one.deployments}]
            alone = {now.deployment_id: latency_alone(known, context)}
            verdict, refusal = worst_verdict(own, (now,), latency, alone, context, against)
            if refusal is not None:
                return Outcome(infeasible=refusal, slo="fail")
            verdicts.append(verdict)
            left_by[deployment.name] = min(left, left_by.get(deployment.name, 1.0))
    except NotMeasured as missing:
        return Outcome(unpriced=f"{missing.series} was not measured: {missing.remedy}")
    except (Abstained, ValueError) as reason:
        return Outcome(unpriced=str(reason))
    shares = ", ".join(f"{name} {left:.0%}" for name, left in left_by.items())
    return Outcome(
        slo=max(verdicts, key=VERDICTS.index),
        provenance=Provenance.FORECAST,
        assumptions=(f"on the shared device each engine has the time that the others leave at their p95: {shares}",),
        against=(*against, "engines on one device also compete for its caches, and one that fails may take the others"),
    )
