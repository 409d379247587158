"""Several deployments that become one engine: whether it serves the requests of all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pertoken.evidence import NotMeasured
from pertoken.forecast.queue.latency import LatencyQuery
from pertoken.forecast.queue.load import mixed
from pertoken.forecast.served import Abstained
from pertoken.provenance import Provenance
from pertoken.savings.changes.slowed import alone_on, kept_apart, latency_alone, slowed, worst_verdict
from pertoken.savings.context import Context
from pertoken.savings.outcome import Outcome
from pertoken.savings.speed import calibrated
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Diff
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service


@dataclass(frozen=True, slots=True)
class Merge:
    """One new deployment in place of several."""

    made: Deployment
    gone: tuple[Deployment, ...]
    services: tuple[Service, ...]
    """Those they serve, as they are before."""


def merges(before: Fleet, after: Fleet, difference: Diff) -> tuple[Merge, ...]:
    """Return the merges of a difference; what else its services change makes a service's change of its own of it."""
    merged = []
    for made in difference.added:
        names = [name for name, _ in made.serves]
        gone = tuple(
            deployment for deployment in difference.removed if {name for name, _ in deployment.serves} <= set(names)
        )
        services = tuple(service for service in before.services if service.name in names)
        if len(gone) > 1 and all(
            _only_merged(service, after.service(service.name), made, gone) for service in services
        ):
            merged.append(Merge(made, gone, services))
    return tuple(merged)


def _only_merged(now: Service, to: Service, made: Deployment, gone: Sequence[Deployment]) -> bool:
    stays = tuple(deployment for deployment in now.deployments if deployment not in gone)
    return replace(now, deployments=(*stays, made)) == to


def outcome(merge: Merge, context: Context) -> Outcome:
    """Return what serving several deployments' requests from one engine does, on the devices of one of them."""
    made, gone = merge.made, merge.gone
    if reason := kept_apart(merge.services):
        return Outcome(infeasible=reason)
    for service in merge.services:
        left = sum(one not in gone for one in service.deployments) + 1
        if left < max(1, service.min_replicas) + service.spare_replicas:
            return Outcome(infeasible=f"{service.name} would have {left} replica(s), fewer than are set for it")
    base = next((deployment for deployment in gone if deployment.device_ids == made.device_ids), None)
    if base is None:
        return Outcome(unpriced=f"a merge is priced on the devices of one of its parts: {made.name} has others")
    if any(deployment.model != made.model for deployment in gone):
        return Outcome(unpriced="its parts serve different models: one engine serves one of them")
    adapters = any(deployment.lora_adapters != made.lora_adapters for deployment in gone)
    part = replace(made, lora_adapters=base.lora_adapters)
    if changed := base.knob_changes(part):
        return Outcome(unpriced=f"{next(iter(changed))} changes in the same step: propose one, then the other")
    if adapters and made.expected is None:
        return Outcome(unpriced="what adapters cost in one engine is not forecast: try it for a day of its load")
    try:
        known = [alone_on(deployment, context) for deployment in gone]
        mine = next(one for one in known if one.of is base)
        calibration = calibrated(base, mine.load, context)
        slow, likely, _ = _slowdowns(made)
        total = mixed([one.arrivals for one in known])
        load = replace(
            mine.load.load,
            generated_tok_s=sum(one.load.load.generated_tok_s for one in known),
            running=sum(one.load.load.running for one in known),
            waiting=sum(one.load.load.waiting for one in known),
            prompt_len=total.prompt.mean,
            generated_len=total.generated.mean,
        )
        latency = slowed(LatencyQuery(base, load, total, calibration), likely, context)
        worst = latency if slow == likely else slowed(LatencyQuery(base, load, total, calibration), slow, context)
        alone = {one.of.deployment_id: latency_alone(one, context) for one in known}
    except NotMeasured as missing:
        return Outcome(unpriced=f"{missing.series} was not measured: {missing.remedy}")
    except (Abstained, ValueError) as reason:
        return Outcome(unpriced=str(reason))
    if latency.refusal is not None:
        return Outcome(infeasible=f"one engine would not hold the demand of all: {latency.refusal}")
    against = [f"at the slow end of what is expected: {worst.refusal}"] if worst.refusal is not None else []
    verdict, refusal = worst_verdict(merge.services, gone, latency, alone, context, against)
    if refusal is not None:
        return Outcome(infeasible=refusal, slo="fail")
    staying = (*_others(merge.services, gone), made)
    assumptions = [f"{made.expected.likely:g} times the tokens: {made.expected.source}"] if made.expected else []
    return Outcome(
        kept=((*_others(merge.services, gone), *gone) if worst.refusal is not None else staying, staying, staying),
        slo=verdict,
        provenance=Provenance.ASSUMED if made.expected else Provenance.FORECAST,
        assumptions=(
            "the p95 demands of all parts are taken to come at once",
            *assumptions,
            *dict.fromkeys(text for one in known for text in one.assumptions),
        ),
        against=tuple(against),
    )


def _others(services: Iterable[Service], gone: Sequence[Deployment]) -> tuple[Deployment, ...]:
    """Return the deployments that keep serving."""
    staying = (one for service in services for one in service.deployments if one not in gone)
    return tuple({deployment.deployment_id: deployment for deployment in staying}.values())


def _slowdowns(made: Deployment) -> tuple[float, float, float]:
    """Return how many times as long work takes, most first, where a rule expects another speed."""
    if made.expected is None:
        return 1.0, 1.0, 1.0
    return 1 / made.expected.low, 1 / made.expected.likely, 1 / made.expected.high
