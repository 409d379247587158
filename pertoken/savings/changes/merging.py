"""Outcome of a merge of several deployments into one engine that serves the requests of all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pertoken.arrivals import mixed
from pertoken.evidence import NotMeasured
from pertoken.forecast.latency import LatencyQuery
from pertoken.forecast.served import Abstained
from pertoken.provenance import Provenance, worst
from pertoken.savings.changes.interruptions import interruptions
from pertoken.savings.changes.slowed import kept_apart, measured, present_latency, slowed, worst_verdict
from pertoken.savings.context import Context
from pertoken.savings.outcome import Outcome, not_placed
from pertoken.savings.placing import NotPlaced, place
from pertoken.savings.sizing import redundancy
from pertoken.savings.speed import calibrated, doubt
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Diff
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.units import counted


@dataclass(frozen=True, slots=True)
class Merge:
    """One new deployment in place of several."""

    added: Deployment
    removed: tuple[Deployment, ...]
    services: tuple[Service, ...]
    """Services of these deployments, before the change."""


def merges(before: Fleet, after: Fleet, difference: Diff) -> tuple[Merge, ...]:
    """Return the merges in a difference. A service with any further change is not part of a merge."""
    merged = []
    for added in difference.added:
        names = [name for name, _ in added.serves]
        removed = tuple(
            deployment for deployment in difference.removed if {name for name, _ in deployment.serves} <= set(names)
        )
        services = tuple(service for service in before.services if service.name in names)
        if len(removed) > 1 and all(
            _only_merged(service, after.service(service.name), added, removed) for service in services
        ):
            merged.append(Merge(added, removed, services))
    return tuple(merged)


def _only_merged(now: Service, to: Service, added: Deployment, removed: Sequence[Deployment]) -> bool:
    staying = tuple(deployment for deployment in now.deployments if deployment not in removed)
    return replace(now, deployments=(*staying, added)) == to


def outcome(before: Fleet, merge: Merge, context: Context) -> Outcome:
    """Return the outcome of serving the requests of several deployments on the devices of one of them.

    The engine may move to other instances with the same devices in the same step. Raises NoPrice.
    """
    base = _moved_part(merge)
    if base is None:
        return _on_present_devices(merge, context)
    unmoved = replace(merge.added, device_ids=base.device_ids, placement=base.placement)
    known = _on_present_devices(replace(merge, added=unmoved), context)
    if known.infeasible is not None or known.unpriced is not None:
        return known
    placed = place(before, base, merge.added.placement, (1, 1, 1), len(base.device_ids), context)
    if isinstance(placed, NotPlaced):
        return not_placed(placed)
    spot = merge.added.placement.purchase == "spot"
    taken_back = interruptions(merge.added.placement, context.evidence(base.deployment_id).peek("load_s"))
    low, likely, high = (tuple(deployment for deployment in kept if deployment != unmoved) for kept in known.kept)
    return replace(
        known,
        kept=(low, likely, high),
        new_nano_usd_per_hour=placed.nano_usd_per_hour,
        placed=(placed,),
        to_confirm=placed.to_confirm,
        provenance=worst([Provenance.LISTED, *filter(None, [known.provenance])]),
        assumptions=(
            *placed.lines(context),
            *known.assumptions,
            *([taken_back.assumption] if spot and taken_back.assumption else []),
        ),
        against=(*placed.against, *known.against, *([taken_back.against] if spot else [])),
    )


def _moved_part(merge: Merge) -> Deployment | None:
    """Return the part whose devices the engine would have, had it not moved; None if it has those of one."""
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
    except NotMeasured as missing:
        return Outcome(unpriced=missing.sentence)
    except (Abstained, ValueError) as reason:
        return Outcome(unpriced=str(reason))
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
