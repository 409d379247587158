"""Rule: route easy requests to a smaller model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pertoken.plugins.common import CATALOG, DOCTOR, smaller_models
from pertoken.rule import (
    Evidence,
    Fleet,
    Market,
    Placement,
    Proposal,
    Service,
    Skip,
    option,
    propose,
    rule,
    skip,
    times,
)

HOURS_OF_DAY = 24


@dataclass(frozen=True)
class Options:
    """Settings of the rule; a supplied share is priced. The defaults are judgement; `planned_share` is below the share
    in Sources, 2."""

    largest: float = option(
        0.5, "maximum active parameters of the smaller model over those of the present one", low=0.001, high=1
    )
    min_busy: float = option(0.05, "busy share below which there are too few requests to split", low=0, high=1)
    deferrable_share: float | None = option(
        None, "share of requests that may wait for hours (evaluations, batches, backfills): their clients state it",
        low=0.01, high=0.99,
    )  # fmt: skip
    easy_share: float | None = option(
        None, "share of requests that the smaller model answers equally well: label a sample", low=0.01, high=0.99
    )
    planned_share: float = option(
        0.4,
        "share of requests for which the break-even is shown while `easy_share` is not supplied",
        low=0.01,
        high=0.99,
    )


@rule("route-requests")
def route_requests(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Route easy requests to a smaller model, and those that can wait to spot or to the night.

    ## Why it saves
    A model of an eighth of the size reads and computes an eighth per token. Where some of the requests are easy, these
    need fewer device-hours. Requests that can wait need no replica that is always there: replicas on spot serve them,
    and an interruption only delays them. Where they wait for the emptiest hours of the day, the busiest hour needs
    fewer replicas.
    ## When it is wrong
    Telemetry does not show which requests are easy, so no saving is stated, only the share at which it pays, until you
    supply `easy_share`. Worse outputs cost more than tokens. The smaller model needs its own device until the larger
    one frees some. Telemetry does not show either which requests can wait; without `deferrable_share` none is moved. A
    client that waits for a person is not one of them, whatever its time of day. Waiting for the night moves work and
    ends none, so that it is shown as a break-even: what it saves is the replicas that the busiest hour no longer needs.
    Where a whole service is small or can wait, `move-accelerator` moves it to CPUs.
    ## How to apply
    Label a sample of your traffic by comparing the outputs of both models. Put a router in front of them. Start with 1
    to 5 % of the requests. By urgency: give each class a queue of its own, such as interactive, within the hour and
    overnight. Drain the last two at night into replicas that stand idle then, on spot, or with a small model on CPUs;
    send the rest of an interrupted class to the replicas that stay.
    ## Sources
    1. Ong et al., RouteLLM, arXiv 2406.18665: routing between two models by predicted quality.
    2. arXiv 2501.08219: 44.5 % of queries answered equally well by models of 1B to 32B parameters.
    3. The thresholds on size and busy time are judgement.
    """
    yield _by_difficulty(seen, service, fleet, market, options)
    share = options.deferrable_share
    if share is None:
        yield skip("urgency-unknown", "which of its requests can wait for hours is not known: set `deferrable_share`")
        return
    yield _on_spot(service, share)
    yield _at_night(service, share)


def _by_difficulty(seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options) -> Proposal | Skip:
    """Return a smaller model beside the present one for a share of the requests, or a refusal."""
    smaller = smaller_models(seen, service, market, max_size=options.largest, min_busy=options.min_busy)
    if isinstance(smaller, Skip):
        return smaller
    present = service.deployments[0]
    device = market.accelerator(present.accelerator)
    ranks = market.fewest_ranks(smaller[0], present.weight_dtype, device) if device else None
    if ranks is None:
        layout_words = (
            f"{present.accelerator or 'an unknown device'} with weights in {present.weight_dtype or 'an unknown dtype'}"
        )
        hint = DOCTOR if device and present.weight_dtype is None else CATALOG
        return skip("layout-unknown", f"the ranks that {smaller[0].name} needs on {layout_words} are not known: {hint}")
    layout = {name: 1 for name in ("pp", "dp") if getattr(present, name) is not None}
    small = present.but(model=smaller[0], tp=ranks, **layout)
    share = options.planned_share if options.easy_share is None else options.easy_share
    source = None if options.easy_share is None else "as [rules.route-requests] states"
    # The other replicas split the rest evenly: each of n replicas serves (1 - share) / n.
    even_share = (1 - share) / len(service.deployments)
    routed = fleet.replace(
        present, present.serving_share(even_share, service.name), small.serving_share(share, service.name, source)
    )
    return propose(routed, risk="quality", effort="high")


def _on_spot(service: Service, share: float) -> Proposal | Skip:
    """Return the replicas on spot whose requests can all wait, or a refusal."""
    replicas = len(service.deployments)
    if any(deployment.placement.purchase != "on_demand" for deployment in service.deployments):
        return skip("not-on-demand", "not all of its replicas are paid on demand")
    movable = int(share * replicas)
    if movable < 1:
        return skip("too-few-can-wait", f"{share:.0%} of its requests are less than one of its {replicas} replicas")
    deferred = service.on(Placement(purchase="spot"), all_but=replicas - movable)
    return propose(deferred, risk="availability", effort="high", excludes=("use-spot",))


def _at_night(service: Service, share: float) -> Proposal | Skip:
    """Return the service with the busiest hour that is left if a share of each day waits for its emptiest hours."""
    rates = service.demand.requests_by_hour_of_week
    days = [rates[hour : hour + HOURS_OF_DAY] for hour in range(0, len(rates), HOURS_OF_DAY)]
    complete = [[rate for rate in day if rate is not None] for day in days if None not in day]
    busiest = max((max(day) for day in complete), default=0.0)
    if service.demand.requests_per_s is None or not busiest:
        return skip("day-unknown", "no whole day of its requests was recorded: how empty its nights are is not known")
    evened = max(_busiest_hour(day, share) for day in complete)
    if evened > 0.99 * busiest:
        return skip("no-empty-hours", "its hours are about equal: requests that wait find none that is emptier")
    return propose(
        service.serving(requests_per_s=times(evened / busiest, f"{share:.0%} of a day waits for its emptiest hours")),
        risk="latency",
        effort="high",
        against=(
            f"its busiest hour falls from {busiest:.3g} to {evened:.3g} requests/s",
            "the same requests come at night: busy time is moved, and only replicas of the busiest hour are freed",
        ),
    )


def _busiest_hour(rates: Sequence[float], share: float) -> float:
    """Return requests/s of the busiest hour of a day after a share of all requests has filled its emptiest hours."""
    staying = sorted((1 - share) * rate for rate in rates)
    waiting = share * sum(rates)
    for hours in range(1, len(staying)):
        level = (waiting + sum(staying[:hours])) / hours
        if level <= staying[hours]:
            return staying[-1]
    return (waiting + sum(staying)) / len(staying)
