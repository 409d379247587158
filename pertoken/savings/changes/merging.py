"""Several deployments that become one engine: whether it serves the requests of all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pertoken.evidence import NotMeasured
from pertoken.forecast.queue.latency import Asked
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
    found = []
    for made in difference.added:
        names = [name for name, _ in made.serves]
        gone = tuple(each for each in difference.removed if {name for name, _ in each.serves} <= set(names))
        services = tuple(each for each in before.services if each.name in names)
        if len(gone) > 1 and all(_only_merged(each, after.service(each.name), made, gone) for each in services):
            found.append(Merge(made, gone, services))
    return tuple(found)


def _only_merged(now: Service, to: Service, made: Deployment, gone: Sequence[Deployment]) -> bool:
    stays = tuple(each for each in now.deployments if each not in gone)
    return replace(now, deployments=(*stays, made)) == to


def outcome(merge: Merge, context: Context) -> Outcome:
    """Return what serving several deployments' requests from one engine does, on the devices of one of them."""
    made, gone = merge.made, merge.gone
    if reason := kept_apart(merge.services):
        return Outcome(infeasible=reason)
    for each in merge.services:
        left = sum(one not in gone for one in each.deployments) + 1
        if left < max(1, each.min_replicas) + each.spare_replicas:
            return Outcome(infeasible=f"{each.name} would have {left} replica(s), fewer than are set for it")
    base = next((each for each in gone if each.device_ids == made.device_ids), None)
    if base is None:
        return Outcome(unpriced=f"a merge is priced on the devices of one of its parts: {made.name} has others")
    if any(each.model != made.model for each in gone):
        return Outcome(unpriced="its parts serve different models: one engine serves one of them")
    adapters = any(each.lora_adapters != made.lora_adapters for each in gone)
    part = replace(made, lora_adapters=base.lora_adapters)
    if changed := base.knob_changes(part):
        return Outcome(unpriced=f"{next(iter(changed))} changes in the same step: propose one, then the other")
    if adapters and made.expected is None:
        return Outcome(unpriced="what adapters cost in one engine is not forecast: try it for a day of its load")
    try:
        known = [alone_on(each, context) for each in gone]
        mine = next(each for each in known if each.of is base)
        calibration = calibrated(base, mine.load, context)
        slow, likely, _ = _slowdowns(made)
        total = mixed([each.arrivals for each in known])
        load = replace(
            mine.load.load,
            generated_tok_s=sum(each.load.load.generated_tok_s for each in known),
            running=sum(each.load.load.running for each in known),
            waiting=sum(each.load.load.waiting for each in known),
            prompt_len=total.prompt.mean,
            generated_len=total.generated.mean,
        )
        found = slowed(Asked(base, load, total, calibration), likely, context)
        worst = found if slow == likely else slowed(Asked(base, load, total, calibration), slow, context)
        alone = {each.of.deployment_id: latency_alone(each, context) for each in known}
    except NotMeasured as missing:
        return Outcome(unpriced=f"{missing.series} was not measured: {missing.remedy}")
    except (Abstained, ValueError) as reason:
        return Outcome(unpriced=str(reason))
    if found.refusal is not None:
        return Outcome(infeasible=f"one engine would not hold the demand of all: {found.refusal}")
    against = [f"at the slow end of what is expected: {worst.refusal}"] if worst.refusal is not None else []
    verdict, refusal = worst_verdict(merge.services, gone, found, alone, context, against)
    if refusal is not None:
        return Outcome(infeasible=refusal, slo="fail")
    staying = (*_others(merge.services, gone), made)
    said = [f"{made.expected.likely:g} times the tokens: {made.expected.source}"] if made.expected else []
    return Outcome(
        kept=((*_others(merge.services, gone), *gone) if worst.refusal is not None else staying, staying, staying),
        slo=verdict,
        provenance=Provenance.ASSUMED if made.expected else Provenance.FORECAST,
        assumptions=(
            "the p95 demands of all parts are taken to come at once",
            *said,
            *dict.fromkeys(text for each in known for text in each.assumptions),
        ),
        against=tuple(against),
    )


def _others(services: Iterable[Service], gone: Sequence[Deployment]) -> tuple[Deployment, ...]:
    """Return the deployments that keep serving."""
    staying = (one for each in services for one in each.deployments if one not in gone)
    return tuple({each.deployment_id: each for each in staying}.values())


def _slowdowns(made: Deployment) -> tuple[float, float, float]:
    """Return how many times as long work takes, most first, where a rule expects another speed."""
    if made.expected is None:
        return 1.0, 1.0, 1.0
    return 1 / made.expected.low, 1 / made.expected.likely, 1 / made.expected.high
