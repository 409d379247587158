"""Claims on a fleet: each service's figure, the recommendation that would realise it, and claims as text and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import Any

from pertoken.advisor.planning import Ground
from pertoken.catalog.claims import Claim, references
from pertoken.claims.checking import Case, Checked, forecast_case
from pertoken.evidence import NotMeasured
from pertoken.forecast.served import Abstained
from pertoken.forecast.tiers import tiers
from pertoken.proof.recommendation import Recommendation, full_id, short_id
from pertoken.savings.context import Context
from pertoken.state.deployment import Deployment
from pertoken.state.service import Service
from pertoken.text.advice_table import bankable, capacity
from pertoken.text.amounts import amount


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
    """Return a claim that starts from the present batch of a service instead of a stated one."""
    return replace(claim, before={name: value for name, value in claim.before.items() if name != "running"})


def _busiest(service: Service, running_by_deployment: Mapping[int, float]) -> Deployment:
    return max(service.deployments, key=lambda deployment: running_by_deployment.get(deployment.deployment_id, -1.0))


WIDTH = 100
Row = tuple[Checked, tuple[OnService, ...]]


def claims_text(rows: Iterable[Row]) -> str:
    """Return checked claims for a terminal, one paragraph each, and the error of each tier that they name."""
    shown = list(rows)
    named = {case.tier for row, services in shown for case in (*row.cases, *(on.case for on in services))}
    errors = [line for tier in tiers().values() if tier.name in named for line in wrap(tier.words, WIDTH)]
    return "\n\n".join(["\n".join(_paragraph(*row)) for row in shown] + ["\n".join(errors)] * bool(errors))


def claims_values(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return checked claims as JSON values; an open end of a claimed range is null."""
    return [_values(row, services) for row, services in rows]


def claims_table(rows: Iterable[Checked]) -> str:
    """Return the Markdown table of the documentation."""
    lines = ["| the claim | verdict | our figure | why | check |", "|---|---|---|---|---|"]
    for row in rows:
        figures = "; ".join(case_text(row, case) for case in row.cases)
        source = f"{row.claim.check}; {row.claim.source.split(',')[0]}"
        lines.append(f"| {row.claim.text} | {row.verdict} | {figures} | {row.claim.why} | {source} |")
    return "\n".join(lines) + "\n"


def case_text(row: Checked, case: Case) -> str:
    """Return the figure of one case in the unit of its claim, or why there is none."""
    if case.figure is None:
        return f"{case.words}: {case.missing}"
    low, likely, high = (number(end, row.claim.unit) for end in case.figure)
    interval = "" if low == high else f" ({low} to {high})"
    tier = "" if case.tier is None else f", {case.tier}"
    unit = "" if row.claim.unit == "less" else f" {row.claim.unit}"
    return f"{case.words}: {likely}{unit}{interval}{tier}"


def number(figure: float, unit: str) -> str:
    """Return a figure with two or three digits: `28 % less`, `20 % more`, `1.4`."""
    if unit == "less":
        percent = abs(100 * figure)
        return f"{f'{percent:.0f}' if percent >= 1 else f'{percent:.1g}'} % {'less' if figure >= 0 else 'more'}"
    if abs(figure) >= 1000:
        return f"{float(f'{figure:.3g}'):,.0f}"
    return f"{figure:.3g}"


def _paragraph(row: Checked, services: Sequence[OnService]) -> Iterator[str]:
    claim = row.claim
    yield from wrap(f"{claim.text}", WIDTH)
    for line in (f"{row.verdict}. {claim.why}", *(case_text(row, case) for case in row.cases)):
        yield from wrap(line, WIDTH, initial_indent="  ", subsequent_indent="    ")
    for on in services:
        running = "" if on.running is None else f", because it runs {on.running:.3g} at once"
        yield from wrap(f"on {case_text(row, on.case)}{running}", WIDTH, initial_indent="  ", subsequent_indent="    ")
        for advice in on.advice:
            yield from wrap(_worth(advice), WIDTH, initial_indent="    ", subsequent_indent="      ")
    origin = f"{claim.check}; {claim.source}, {claim.as_of}"
    yield from wrap(origin, WIDTH, initial_indent="  ", subsequent_indent="    ")


def _worth(advice: Recommendation) -> str:
    """Return a recommendation with its likely dollars a month."""
    dollars = [
        f"{amount(money[1])} a month {words}"
        for money, words in ((bankable(advice), "off the bill"), (capacity(advice), "of capacity"))
        if money is not None and money[1]
    ]
    return f"{short_id(advice)} {advice.change}: {', '.join(dollars) or 'no dollars yet'}"


def _values(row: Checked, services: Sequence[OnService]) -> dict[str, Any]:
    claim = row.claim
    return {
        "id": claim.id,
        "topic": claim.topic,
        "claim": claim.text,
        "claimed": claim.claimed and [None if math.isinf(end) else end for end in claim.claimed],
        "unit": claim.unit,
        "check": claim.check,
        "verdict": row.verdict,
        "why": claim.why,
        "cases": [_case_values(case) for case in row.cases],
        "services": [
            {
                "service": on.service,
                **_case_values(on.case),
                "running": on.running,
                "recommendations": [
                    {
                        "id": full_id(advice),
                        "rule": advice.rule_id,
                        "change": advice.change,
                        "net": bankable(advice),
                        "capacity": capacity(advice),
                    }
                    for advice in on.advice
                ],
            }
            for on in services
        ],
        "source": claim.source,
        "as_of": claim.as_of.isoformat(),
    }


def _case_values(case: Case) -> dict[str, Any]:
    forecast = next((asdict(tier) for tier in tiers().values() if tier.name == case.tier), None)
    return {"case": case.words, "figure": case.figure, "tier": case.tier, "forecast": forecast, "missing": case.missing}
