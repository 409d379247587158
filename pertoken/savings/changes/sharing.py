"""Outcome of moves after which several engines share a device, and each gets the time that the others leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pertoken.arrivals import Arrivals, mixed
from pertoken.evidence import NotMeasured
from pertoken.forecast.latency import LatencyQuery
from pertoken.forecast.served import Abstained
from pertoken.provenance import Provenance, worst
from pertoken.savings.context import Context
from pertoken.savings.load import MeasuredLoad
from pertoken.savings.outcome import Outcome, interruptions, not_placed, unpriced
from pertoken.savings.placing import NotPlaced, place
from pertoken.savings.sizing import objectives, redundancy
from pertoken.savings.slo import Latencies, PresentLatency, Verdict, worst_of
from pertoken.savings.speed import MAX_UNASKED_SLOWDOWN, calibrated, doubt
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Diff
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.units import counted


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


def present_latency(measurement: MeasuredDeployment, context: Context) -> PresentLatency:
    """Return the present latency of a deployment. Raises Abstained or ValueError."""
    calibration = calibrated(measurement.deployment, measurement.load, context)
    return context.forecasts.present(
        measurement.deployment, measurement.load, measurement.arrivals, calibration, context.market
    )


def slowed(present: PresentLatency, query: LatencyQuery, factor: float, context: Context) -> Latencies:
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
    present, after = latency.before, latency.after
    if present is None or after is None or present.tpot_p50_ms is None or after.tpot_p50_ms is None:
        return None
    slower = after.tpot_p50_ms[1] / present.tpot_p50_ms[1]
    if slower <= MAX_UNASKED_SLOWDOWN:
        return None
    return f"tokens of {service.name} would come {slower:.1f} times as slowly, and no SLO allows it: set `slo.tpot_ms`"


MAX_MEMORY_SHARE = 0.95
"""Share of a device's memory that its engines may reserve together. The rest is for their CUDA contexts."""
MIN_FREE_TIME = 0.05
"""Share of the time that the other engines must leave. Below it a forecast of the slowed engine has no meaning."""


def newly_shared(
    present_fleet: Fleet, after: Fleet, changed: Iterable[Deployment]
) -> tuple[tuple[Deployment, ...], ...]:
    """Return each group of deployments that newly share a device. `changed`: deployments that the change touches."""
    if all(_stays(deployment, present_fleet) for deployment in changed):
        return ()
    together = {
        frozenset(deployment.deployment_id for deployment in deployments)
        for deployments in present_fleet.deployments_by_device.values()
    }
    groups: dict[frozenset[int], tuple[Deployment, ...]] = {}
    for deployments in after.deployments_by_device.values():
        ids = frozenset(deployment.deployment_id for deployment in deployments)
        if len(ids) > 1 and not any(ids <= present for present in together):
            groups[ids] = tuple(deployments)
    return tuple(groups.values())


def _stays(deployment: Deployment, present: Fleet) -> bool:
    """Return whether a deployment runs on no device that it did not run on before."""
    previous_deployment = present.deployment_of.get(deployment.deployment_id)
    previous = previous_deployment.device_ids if previous_deployment is not None else ()
    return deployment.device_ids is previous or set(deployment.device_ids) <= set(previous)


def sharing_outcome(present: Fleet, deployments: Sequence[Deployment], context: Context) -> Outcome:
    """Return whether engines that newly share a device meet their objectives in the time that the others leave.

    Engines on one device take turns. With MPS they run at once, and slow each other down by at most as much. So an
    engine is forecast on a device that is slower by the busy time of the others, at its p95. Released hosts are counted
    in `hosts`.
    """
    names = " and ".join(dict.fromkeys(deployment.name for deployment in deployments))
    ids = {deployment.deployment_id for deployment in deployments}
    services = [
        service for service in present.services if ids & {member.deployment_id for member in service.deployments}
    ]
    if reason := kept_apart(services):
        return Outcome(infeasible=reason)
    if any(device_id not in present.listed_by for device_id in ids):
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
            old = present.deployment(deployment.deployment_id)
            others = sum(value for another_id, value in busy.items() if another_id != deployment.deployment_id)
            free = 1 - others
            if free < MIN_FREE_TIME:
                return Outcome(
                    infeasible=f"the others would be busy {others:.0%} of the time (p95) beside {deployment.name}"
                )
            measurement = measured(old, context)
            calibration = calibrated(old, measurement.load, context)
            doubts += [why] if (why := doubt(calibration)) else []
            query = LatencyQuery(
                replace(deployment, device_ids=old.device_ids), measurement.load.load, measurement.arrivals, calibration
            )
            latency = slowed(present_latency(measurement, context), query, 1 / free, context)
            if latency.after is not None and latency.after.refusal is not None:
                reason = f"{deployment.name} would not hold its demand in the time left: {latency.after.refusal}"
                return Outcome(infeasible=reason)
            own_services = [
                service
                for service in services
                if deployment.deployment_id in {member.deployment_id for member in service.deployments}
            ]
            verdict, refusal = worst_verdict(own_services, {old.deployment_id: latency}, context, against)
            if refusal is not None:
                return Outcome(infeasible=refusal, slo=verdict)
            verdicts.append(verdict)
            free_time[deployment.name] = min(free, free_time.get(deployment.name, 1.0))
    except (NotMeasured, Abstained, ValueError) as error:
        return unpriced(error)
    shares = ", ".join(f"{name} {free:.0%}" for name, free in free_time.items())
    return Outcome(
        slo=worst_of(verdicts),
        provenance=Provenance.FORECAST,
        assumptions=(f"on the shared device each engine has the time that the others leave at their p95: {shares}",),
        against=(*against, "engines on one device also compete for its caches, and one that fails may take the others"),
        doubtful=next(iter(doubts), None),
    )


@dataclass(frozen=True, slots=True)
class Merge:
    """One new deployment in place of several."""

    added: Deployment
    removed: tuple[Deployment, ...]
    services: tuple[Service, ...]
    """Services of these deployments, before the change."""


def merges(present: Fleet, after: Fleet, difference: Diff) -> tuple[Merge, ...]:
    """Return the merges in a difference. A service with any further change is not part of a merge."""
    merged = []
    for added in difference.added:
        names = [name for name, _ in added.serves]
        removed = tuple(
            deployment for deployment in difference.removed if {name for name, _ in deployment.serves} <= set(names)
        )
        services = tuple(service for service in present.services if service.name in names)
        if len(removed) > 1 and all(
            _only_merged(service, after.service(service.name), added, removed) for service in services
        ):
            merged.append(Merge(added, removed, services))
    return tuple(merged)


def _only_merged(service: Service, to: Service, added: Deployment, removed: Sequence[Deployment]) -> bool:
    staying = tuple(deployment for deployment in service.deployments if deployment not in removed)
    return replace(service, deployments=(*staying, added)) == to


def merge_outcome(present: Fleet, merge: Merge, context: Context) -> Outcome:
    """Return the outcome of serving the requests of several deployments on the devices of one of them.

    The engine may move to other instances with the same devices in the same step. Raises NoPrice.
    """
    base = _moved_part(merge)
    if base is None:
        return _on_present_devices(merge, context)
    unmoved = replace(merge.added, device_ids=base.device_ids, placement=base.placement)
    merged = _on_present_devices(replace(merge, added=unmoved), context)
    if merged.infeasible is not None or merged.unpriced is not None:
        return merged
    placed = place(present, base, merge.added.placement, (1, 1, 1), len(base.device_ids), context)
    if isinstance(placed, NotPlaced):
        return not_placed(placed)
    spot = merge.added.placement.purchase == "spot"
    taken_back = interruptions(merge.added.placement, context.evidence(base.deployment_id).peek("load_s"))
    low, likely, high = (tuple(deployment for deployment in kept if deployment != unmoved) for kept in merged.kept)
    return replace(
        merged,
        kept=(low, likely, high),
        new_nano_usd_per_hour=placed.nano_usd_per_hour,
        placed=(placed,),
        to_confirm=placed.to_confirm,
        provenance=worst([Provenance.LISTED, *filter(None, [merged.provenance])]),
        assumptions=(
            *placed.lines(context),
            *merged.assumptions,
            *([taken_back.assumption] if spot and taken_back.assumption else []),
        ),
        against=(*placed.against, *merged.against, *([taken_back.against] if spot else [])),
    )


def _moved_part(merge: Merge) -> Deployment | None:
    """Return the part that the engine would share devices with, had it not moved; None if it has devices of one."""
    if merge.added.device_ids:
        return None
    alike = (
        part
        for part in merge.removed
        if part.device_ids and part.accelerator == merge.added.accelerator and not part.knob_changes(merge.added)
    )
    return next(alike, None)


def _on_present_devices(merge: Merge, context: Context) -> Outcome:
    added, removed = merge.added, merge.removed
    if reason := kept_apart(merge.services):
        return Outcome(infeasible=reason)
    for service in merge.services:
        replicas = sum(deployment not in removed for deployment in service.deployments) + 1
        if replicas < max(1, service.min_replicas) + service.spare_replicas:
            return Outcome(
                infeasible=f"{service.name} would have {counted(replicas, 'replica')}, fewer than are set for it"
            )
    base = next((deployment for deployment in removed if deployment.device_ids == added.device_ids), None)
    if base is None:
        return Outcome(unpriced=f"a merge is priced on the devices of one of its parts: {added.name} has others")
    if any(deployment.model != added.model for deployment in removed):
        return Outcome(unpriced="its parts serve different models: one engine serves one of them")
    adapters = any(deployment.lora_adapters != added.lora_adapters for deployment in removed)
    without_adapters = replace(added, lora_adapters=base.lora_adapters)
    if changed := base.knob_changes(without_adapters):
        return Outcome(unpriced=f"{next(iter(changed))} changes in the same step: propose one, then the other")
    if adapters and added.expected is None:
        return Outcome(unpriced="what adapters cost in one engine is not forecast: try it for a day of its load")
    try:
        parts = [measured(deployment, context) for deployment in removed]
        base_load = next(part.load for part in parts if part.deployment is base)
        calibration = calibrated(base, base_load, context)
        slow, likely, _ = _slowdowns(added)
        total = mixed([part.arrivals for part in parts])
        load = replace(
            base_load.load,
            generated_tok_s=sum(part.load.load.generated_tok_s for part in parts),
            running=sum(part.load.load.running for part in parts),
            waiting=sum(part.load.load.waiting for part in parts),
            prompt_len=total.prompt.mean,
            generated_len=total.generated.mean,
        )
        query = LatencyQuery(base, load, total, calibration)
        present_of = {part.deployment.deployment_id: present_latency(part, context) for part in parts}
        latency_of = {key: slowed(present, query, likely, context) for key, present in present_of.items()}
        slow_end = slowed(present_of[base.deployment_id], query, slow, context).after
    except (NotMeasured, Abstained, ValueError) as error:
        return unpriced(error)
    merged_latency = latency_of[base.deployment_id].after
    if merged_latency is not None and merged_latency.refusal is not None:
        return Outcome(infeasible=f"one engine would not hold the demand of all: {merged_latency.refusal}")
    overload = slow_end.refusal if slow_end is not None else None
    against = [f"at the slow end of what is expected: {overload}"] if overload is not None else []
    verdict, refusal = worst_verdict(merge.services, latency_of, context, against)
    if refusal is not None:
        return Outcome(infeasible=refusal, slo=verdict)
    others = _others(merge.services, removed)
    against += [
        redundancy(service, 1, 1)
        for service in merge.services
        if len(service.deployments) > 1 and all(deployment in removed for deployment in service.deployments)
    ]
    merged = (*others, added)
    assumptions = [f"{added.expected.likely:g} times the tokens: {added.expected.source}"] if added.expected else []
    return Outcome(
        kept=((*others, *removed) if overload is not None else merged, merged, merged),
        slo=verdict,
        provenance=Provenance.ASSUMED if added.expected else Provenance.FORECAST,
        assumptions=(
            "the p95 demands of all parts are taken to come at once",
            *assumptions,
            *dict.fromkeys(text for part in parts for text in part.assumptions),
        ),
        against=tuple(against),
        doubtful=doubt(calibration),
    )


def _others(services: Iterable[Service], removed: Sequence[Deployment]) -> tuple[Deployment, ...]:
    """Return the deployments of the services that are not merged."""
    staying = (deployment for service in services for deployment in service.deployments if deployment not in removed)
    return tuple({deployment.deployment_id: deployment for deployment in staying}.values())


def _slowdowns(added: Deployment) -> tuple[float, float, float]:
    """Return the factors on the time of work, slowest first; 1 unless a rule expects another speed."""
    if added.expected is None:
        return 1.0, 1.0, 1.0
    return 1 / added.expected.low, 1 / added.expected.likely, 1 / added.expected.high
