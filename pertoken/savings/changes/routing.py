"""A service split over its deployment and new ones: never money by itself, since the share is not measured."""

from collections.abc import Sequence

from pertoken.provenance import Provenance
from pertoken.savings.context import Context
from pertoken.savings.hosts import device_price
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.speed import speed
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service, Slo


def outcome(
    before: Fleet,
    now: Service,
    pairs: Sequence[tuple[Deployment, Deployment]],
    added: Sequence[Deployment],
    context: Context,
) -> Outcome:
    """Return the break-even of new deployments beside one that stays. Raises NoPrice."""
    if any(new.role in ("prefill", "decode") for new in added):
        return Outcome(unpriced="prefill and decode on devices of their own are not forecast: try them for a week")
    changed = next((old for old, new in pairs if old != new), now.deployments[0])
    to = added[0]
    prices = [device_price(before, each, context) for each in changed.device_ids]
    if not prices:
        return Outcome(unpriced=f"the devices of {changed.name} were not seen")
    found = speed(changed, to, context.evidence(changed.deployment_id), Slo(), context)
    if not found.known:
        return Outcome(ratio=found.ratio, unpriced=found.unpriced, infeasible=found.infeasible)
    extra = sum(each.n_devices or 1 for each in added) * sum(prices) / len(prices)
    bill = sum(prices) * len(now.deployments)
    if extra >= bill:
        return Outcome(
            ratio=found.ratio,
            infeasible=f"{to.model.name} needs {to.n_devices or 1} devices beside those that serve "
            f"{changed.model.name}: no share it could take pays for them",
        )
    return Outcome(
        kept=same(now.deployments),
        ratio=found.ratio,
        provenance=Provenance.ASSUMED,
        break_even=f"{to.model.name} on {to.n_devices or 1} more device(s) pays once it takes {extra / bill:.0%} of "
        f"the load and as much of what serves {changed.model.name} is given back",
        against=("outputs of a smaller model must be evaluated on your own tasks first",),
        unpriced=f"the share of requests {to.model.name} could answer is not measured: label a sample, then route",
    )
