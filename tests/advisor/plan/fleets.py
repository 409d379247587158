"""Fleets with priced proposals, for plans: without workers, so that a test may make hundreds."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from pertoken.advisor.plan.choose import Chooser, Chosen
from pertoken.advisor.plan.compose import compose
from pertoken.advisor.plan.levers import conflicts, levers
from pertoken.advisor.plan.plan import Plan, PlanLimits
from pertoken.advisor.plan.states import LeverStates
from pertoken.advisor.present import Present
from pertoken.advisor.pricing import Pricing
from pertoken.advisor.proposals import encoded
from pertoken.proof.recommendation import Recommendation, State, identity
from pertoken.provenance import Provenance
from pertoken.rule import propose
from pertoken.state.deployment import Commitment, Deployment, Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import HOURS_OF_WEEK, Demand, Quantity, Service, off, to
from tests.advisor.gathered import gathered
from tests.deployments import model
from tests.savings.fleets import AWS, AWS_H100, context, fleet_of, host, llama, low_batch

Asked = tuple[str, Deployment | Service | None, Sequence[object]]
"""A rule's id, what it was run for, and what it yields."""
NIGHTS = tuple(hour for hour in range(HOURS_OF_WEEK) if hour % 24 < 6)
QUIET_NIGHTS = Demand(
    Quantity(0.1, Provenance.COUNTER), tuple(0.0 if hour in NIGHTS else 0.1 for hour in range(HOURS_OF_WEEK))
)
P5 = replace(AWS, instance_type="p5.48xlarge", devices_per_instance=2)
SPOT = Placement(purchase="spot")
OHIO = Placement(region="us-east-2", purchase="on_demand")


def advice(state: Present, asked: Iterable[Asked]) -> tuple[Recommendation, ...]:
    """Return what an advice run makes of these proposals."""
    pricing = Pricing(state)
    rows = []
    for rule_id, target, yielded in asked:
        sent = [encoded(record, state.fleet) for record in yielded]
        proposed = pricing.proposed(rule_id, target, sent)
        pricing.prepare([proposed])
        (priced,) = pricing.priced([proposed])
        assert not isinstance(priced, Exception), priced
        for about, candidates in pricing.outcomes(priced).items():
            rows.append(
                Recommendation(
                    recommendation_id=identity(rule_id, about.kind, about.key),
                    rule_id=rule_id,
                    state=State.OPEN if candidates.variants else State.REFUSED,
                    title=candidates.variants[0].title if candidates.variants else rule_id,
                    target=about.label,
                    target_kind=about.kind,
                    target_key=about.key,
                    variants=tuple(candidates.variants),
                    refusals=tuple(candidates.refusals),
                )
            )
    return tuple(rows)


def small(*shapes: tuple[int, int], devices: int = 2, placement: Placement = P5, **fields: Any) -> Fleet:
    """Return services of an 8B by (replicas, first device): replica after replica on the devices of the hosts."""
    fields = {"demand": QUIET_NIGHTS, **fields}
    knobs: dict[str, Any] = {"model": model("Qwen3-8B"), "placement": placement, "max_num_seqs": 64}
    services, last = [], 1
    for number, (count, first) in enumerate(shapes, 1):
        name = f"chat-{number}"
        replicas = []
        for at in range(first, first + count):
            held = 10 * (1 + at // devices) + at % devices
            last = max(last, 1 + at // devices)
            replicas.append(llama(100 * number + at, (held,), name, served_model=name, **knobs))
        services.append(Service(name, tuple(replicas), **fields))
    return fleet_of(services, [host(host_id, devices, placement) for host_id in range(1, last + 1)])


def present(fleet: Fleet, price: int | None = AWS_H100, **measured: float) -> Present:
    """Return what an advice run looks at: every deployment is little used."""
    seen = low_batch(**{"tpot_s": 0.009, "ttft_s": 0.05, "busy_generated_tok_s": 200, **measured})
    known = context(fleet, seen, price)
    return replace(gathered(fleet, known), configured_rules=frozenset({"response-cache"}))


def quantize(service: Service) -> Asked:
    return "quantize-weights", service, [propose(service.but(weight_dtype="fp8").resized(), effort="medium")]


def quantize_kv(service: Service) -> Asked:
    return "quantize-kv", service, [service.but(kv_dtype="fp8")]


def scale(service: Service) -> Asked:
    return "scale-replicas", service, [service.resized()]


def spot(service: Service) -> Asked:
    return "use-spot", service, [propose(service.on(SPOT), effort="high")]


def move(service: Service) -> Asked:
    return "change-provider", service, [propose(service.on(OHIO).resized(), excludes=("commit-capacity",))]


def commit(fleet: Fleet, count: int = 1) -> Asked:
    made = Commitment("aws", "us-east-1", "p5.48xlarge", count, 2 * AWS_H100 * 7 // 10, years=1)
    return "commit-capacity", None, [propose(fleet.commit(made), effort="medium")]


def release(fleet: Fleet, host_id: int) -> Asked:
    return "release-idle", None, [fleet.release(host_id)]


def nights(service: Service) -> Asked:
    return "scale-to-zero", service, [service.scheduled(off(NIGHTS))]


def response_cache(service: Service) -> Asked:
    return "response-cache", service, [service.serving(response_cache_share=to(0.2, "as set", confirmed=True))]


PER_SERVICE = (quantize, quantize_kv, scale, spot, move, nights, response_cache)


@dataclass(frozen=True)
class Exhaustive:
    """Result of trying every combination of all levers, without groups."""

    rank: tuple[int, int]
    levers: int


def exhaustive(state: Present, rows: Iterable[Recommendation]) -> Exhaustive:
    """Price every combination that can be reached, each as one change of the whole fleet."""
    kept, _ = levers(state, rows, PlanLimits())
    states = LeverStates(kept, state.fleet, state.context)
    problem = Chooser(states, conflicts(kept)).problem
    reached = {Chosen()}
    best = (0, 0)
    for size in range(1, len(kept) + 1):
        subsets = [
            Chosen(combination)
            for combination in combinations(range(len(kept)), size)
            if any(
                Chosen(combination) - {at} in reached and problem.follows(Chosen(combination) - {at}, at)
                for at in combination
            )
        ]
        for subset, worth in zip(subsets, problem.worth(subsets), strict=True):
            if worth is not None:
                reached.add(subset)
                best = max(best, worth.rank)
    return Exhaustive(best, len(kept))


def everything(fleet: Fleet) -> Iterator[Asked]:
    """Yield every lever on every service, and those of the fleet."""
    for service in fleet.services:
        for made in PER_SERVICE:
            yield made(service)
    for paid in fleet.hosts:
        if not fleet.deployments_on(paid):
            yield release(fleet, paid.host_id)
    yield commit(fleet)


def planned(state: Present, *asked: Asked, limits: PlanLimits | None = None) -> Plan:
    return compose(state, advice(state, asked), limits)


def rules(plan: Plan) -> list[str]:
    return [step.rule_id for step in plan.steps]


def reasons(plan: Plan) -> dict[str, str]:
    return {entry.rule_id: entry.reason for entry in plan.left_out}


def rank(plan: Plan) -> tuple[int, int]:
    return plan.bankable[1], plan.capacity[1]
