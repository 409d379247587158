"""Outcome of splitting a service between its deployments and new ones of another model.

Telemetry cannot show the share of requests that the new ones may take. So the outcome is a break-even, and money only
if a person supplied the share.
"""

from collections.abc import Sequence
from dataclasses import replace

from pertoken.evidence import NotMeasured
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Comparison, Forecast, Range, compare_all
from pertoken.provenance import Provenance
from pertoken.savings.changes.replicas import busiest, shared_by
from pertoken.savings.context import Context
from pertoken.savings.hosts import device_price
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.placing import NotPlaced, place
from pertoken.savings.shared import busy_cost
from pertoken.savings.sizing import kept, objectives, redundancy, sizes, total_arrivals
from pertoken.savings.slo import has_objective
from pertoken.savings.speed import MAX_UNASKED_SLOWDOWN, calibrated, doubt
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service, Slo
from pertoken.units import HOURS_PER_MONTH


def outcome(
    before: Fleet,
    now: Service,
    pairs: Sequence[tuple[Deployment, Deployment]],
    added: Sequence[Deployment],
    context: Context,
) -> Outcome:
    """Return the outcome of new deployments beside the present ones: money or a break-even. Raises NoPrice."""
    if any(new.role in ("prefill", "decode") for new in added):
        return Outcome(unpriced="prefill and decode on devices of their own are not forecast: try them for a week")
    changed = next((old for old, new in pairs if old != new), now.deployments[0])
    to = added[0]
    prices = [device_price(before, device_id, context) for device_id in changed.device_ids]
    if not prices:
        return Outcome(unpriced=f"the devices of {changed.name} were not seen")
    share = dict(to.serves).get(now.name) or 0.0
    forecast = _forecast(changed, to, share * len(now.deployments), objectives(now, context), context)
    if isinstance(forecast, Outcome):
        return forecast
    ratio, served_part, doubtful = forecast
    served = share * served_part
    count, ranks = len(added), to.n_devices or 1
    placed = place(before, changed, replace(to.placement, instance_type=None), (count, count, count), ranks, context)
    if isinstance(placed, NotPlaced):
        return Outcome(ratio=ratio, provenance=Provenance.ASSUMED, unpriced=placed.reason)
    extra = placed.nano_usd_per_hour[1]
    bill = sum(prices) * len(now.deployments)
    if extra >= bill:
        return Outcome(
            ratio=ratio,
            infeasible=f"{to.model.name} needs {placed.name} beside the devices that serve "
            f"{changed.model.name}: no share it could take pays for them",
        )
    if served_part < 1 and served <= extra / bill:
        return Outcome(
            ratio=ratio,
            infeasible=f"{to.model.name} on {placed.name} holds {served:.0%} of the load at most, and "
            f"pays from {extra / bill:.0%} on",
        )
    split = Outcome(
        kept=same(now.deployments),
        ratio=ratio,
        provenance=Provenance.ASSUMED,
        assumptions=placed.lines(context),
        placed=(placed,),
        to_confirm=placed.to_confirm,
        break_even=f"{to.model.name} on {placed.name} pays once it takes {extra / bill:.0%} of "
        f"the load and as much of what serves {changed.model.name} is given back"
        + (f"; it holds up to {served:.0%}" if served_part < 1 else ""),
        against=("outputs of a smaller model must be evaluated on your own tasks first",),
        unpriced=f"the share of requests {to.model.name} could answer is not measured: label a sample, then route",
        doubtful=doubtful,
    )
    if to.share_source is None:
        return split
    if served_part < 1:
        return replace(split, unpriced=f"it holds {served:.0%} of the load, not the {share:.0%} supplied: add replicas")
    return _supplied(before, now, share, replace(split, new_nano_usd_per_hour=(extra, extra, extra)), to, context)


def _supplied(before: Fleet, now: Service, share: float, split: Outcome, to: Deployment, context: Context) -> Outcome:
    """Return the outcome of a supplied share: replicas that the other requests do not need, else freed busy time."""
    try:
        arrivals, arrivals_source = total_arrivals(now, context)
        busiest_load = busiest(now, lambda _: None, context)
    except NotMeasured as missing:
        return replace(split, unpriced=missing.sentence)
    if isinstance(busiest_load, str):
        return replace(split, unpriced=busiest_load)
    load, speed = busiest_load
    rest = replace(arrivals, requests_per_s=(1 - share) * arrivals.requests_per_s)
    counted = sizes(now, now.deployments[0], speed, rest, context, load)
    if isinstance(counted, str):
        return replace(split, unpriced=counted)
    present = len(now.deployments)
    slow, likely, fast = (min(count, present) for count in (counted.slow, counted.likely, counted.fast))
    judges = has_objective(objectives(now, context))
    source = f"{to.model.name} answers {share:.0%} of the requests as well, {to.share_source}"
    by_device = before.deployments_by_device
    busy = sum(
        busy_cost(before, by_device, deployment, deployment.device_ids, context).nano_usd_per_hour
        for deployment in now.deployments
    )
    freed = round(busy * share * HOURS_PER_MONTH)
    return replace(
        split,
        kept=(
            kept(before, now.deployments, slow, context),
            kept(before, now.deployments, likely, context),
            kept(before, now.deployments, fast, context),
        ),
        capacity=(freed, freed, freed) if likely == present else None,
        judged=(shared_by(likely, speed, rest),),
        replicas=(present, likely) if likely != present else None,
        assumptions=(*split.assumptions, *arrivals_source, *speed.assumptions, *counted.assumptions, source),
        against=(*split.against, redundancy(now, likely, counted.needed)) if likely < present else split.against,
        slo=("unknown", f"the latency of what {to.model.name} answers is not measured") if judges else split.slo,
        doubtful=split.doubtful or speed.doubtful,
        break_even=None,
        unpriced=None,
    )


def _forecast(
    now: Deployment, to: Deployment, times: float, slo: Slo, context: Context
) -> tuple[Range, float, str | None] | Outcome:
    """Return tokens/s of a new deployment over those of a present one, the part of the load that it serves, and why
    this is doubtful.

    The load is `times` that of the present one; the part is at most 1. An `Outcome` is the reason of a refusal: the
    new deployment would not start, or its tokens would be too slow.
    """
    try:
        load = context.forecasts.load(context.evidence(now.deployment_id))
        calibration = calibrated(now, load, context)
        new_load = replace(
            load.load, generated_tok_s=times * load.load.generated_tok_s, running=max(1.0, times * load.load.running)
        )
        (change,) = compare_all([Comparison(now, to, new_load, calibration)], context.market)
        if isinstance(change, Abstained):
            raise change
    except NotMeasured as missing:
        return Outcome(unpriced=missing.sentence)
    except (Abstained, ValueError) as reason:
        return Outcome(unpriced=str(reason))
    name = to.model.name
    if isinstance(change, Forecast):
        return Outcome(infeasible=f"{name} would not start: {change.refusal}")
    point = change.after.demand or change.after.saturated
    if point is None:
        return Outcome(ratio=change.ratio, unpriced=f"what {name} serves at most is not forecast")
    tpot_ms, limit_ms = point.tpot_ms[1], slo.tpot_p95_ms or slo.tpot_p50_ms
    tpot_ms *= (load.tpot_ms or change.tpot_ms_now) / change.tpot_ms_now  # as measured, times the change
    if limit_ms is None and tpot_ms > MAX_UNASKED_SLOWDOWN * change.tpot_ms_now:
        slower = tpot_ms / change.tpot_ms_now
        text = f"tokens of {name} would come {slower:.1f} times as slowly, and no SLO allows it: set `slo.tpot_ms`"
        return Outcome(ratio=change.ratio, infeasible=text)
    if limit_ms is not None and tpot_ms > limit_ms:
        text = f"TPOT of {name} would be about {tpot_ms:.0f} ms, with an SLO of {limit_ms:.0f} ms"
        return Outcome(ratio=change.ratio, infeasible=text)
    demand = new_load.generated_tok_s
    part = 1.0 if change.after.demand is not None or demand <= 0 else point.tok_s[1] / demand
    return change.ratio, part, doubt(calibration, change.ratio, verified=calibration.has_seen(now, to))
