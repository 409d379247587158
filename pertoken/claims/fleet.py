"""Claims on a fleet: the figure of each service, and the recommendation that would realise it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pertoken.advisor.planning import Ground
from pertoken.catalog.claims import Claim, references
from pertoken.claims.checking import Case, forecast_case
from pertoken.evidence import NotMeasured
from pertoken.forecast.served import Abstained
from pertoken.proof.recommendation import Recommendation
from pertoken.savings.context import Context
from pertoken.state.deployment import Deployment
from pertoken.state.service import Service


@dataclass(frozen=True, slots=True)
class OnService:
    """A claim on one service of a fleet."""

    service: str
    case: Case
    running: float | None
    """Requests at once while busy; None where they are not measured."""
    advice: tuple[Recommendation, ...]
    """Recommendations of the rules that would realise the claim, for this service."""


def on_fleet(claim: Claim, ground: Ground) -> tuple[OnService, ...]:
    """Return the claim on each service that it is forecast for or that advice would realise it on."""
    return tuple(_on_services(claim, ground))


def _on_services(claim: Claim, ground: Ground) -> Iterator[OnService]:
    for service in ground.gathered.fleet.services:
        ids = {deployment.deployment_id for deployment in service.deployments}
        realising = tuple(
            row
            for row in ground.rows
            if row.rule_id in claim.rules
            and row.best is not None
            and (row.deployment_id in ids or row.target_key == service.name)
        )
        if claim.check == "forecast" and (claim.figure != "tokens/s" or _as_referenced(claim, service)):
            case, running = _case(claim, service, ground.gathered.context)
            yield OnService(service.name, case, running, realising)
        elif realising:
            missing = "this claim is not forecast for a service"
            yield OnService(service.name, Case(service.name, None, missing=missing), None, realising)


def _as_referenced(claim: Claim, service: Service) -> bool:
    """Return whether a service runs a model of the claim's references on their device: a rate is a claim on both."""
    layouts = {(references()[name].model, references()[name].accelerator) for name in claim.references}
    return any((deployment.model.name, deployment.accelerator) in layouts for deployment in service.deployments)


def _case(claim: Claim, service: Service, context: Context) -> tuple[Case, float | None]:
    """Return the figure on the deployment of a service with the most requests at once."""
    missing = "it has no deployment"
    load_by_deployment: dict[int, float] = {}
    for deployment in service.deployments:
        try:
            load = context.forecasts.load(context.evidence(deployment.deployment_id))
            load_by_deployment[deployment.deployment_id] = load.load.running
        except NotMeasured as reason:
            missing = str(reason)
    if not load_by_deployment:
        return Case(service.name, None, missing=missing), None
    deployment = _busiest(service, load_by_deployment)
    load = context.forecasts.load(context.evidence(deployment.deployment_id))
    try:
        calibration = context.forecasts.calibration(deployment, load, context.market)
    except (Abstained, ValueError) as reason:
        return Case(service.name, None, missing=str(reason)), load.load.running
    case = forecast_case(_from_present(claim), service.name, deployment, load.load, context.market, calibration)
    if load.load.running >= claim.after.get("running", math.inf):
        case = Case(service.name, None, missing="it batches as many already")
    return case, load.load.running


def _from_present(claim: Claim) -> Claim:
    """Return a claim whose change starts from the present batch of a service instead of a stated one."""
    return replace(claim, before={name: value for name, value in claim.before.items() if name != "running"})


def _busiest(service: Service, running_by_deployment: Mapping[int, float]) -> Deployment:
    return max(service.deployments, key=lambda deployment: running_by_deployment.get(deployment.deployment_id, -1.0))
