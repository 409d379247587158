"""Speed and latency of one deployment after a change, against its measured load and objectives."""

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from pertoken.evidence import NotMeasured
from pertoken.forecast.host import Calibration, carried, tier_of
from pertoken.forecast.latency import SAME, SloMs
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import BeforeAfter, Forecast, Range
from pertoken.provenance import Provenance, worst
from pertoken.savings.context import Context, full_batch
from pertoken.savings.load import MeasuredLoad
from pertoken.savings.slo import (
    NO_OBJECTIVE,
    NOT_WORSE,
    Latencies,
    PresentLatency,
    Verdict,
    has_objective,
    latencies,
    likely_miss,
)
from pertoken.state.deployment import Deployment, Expectation, knobs
from pertoken.state.service import Slo

MAX_UNASKED_SLOWDOWN = 1.25
"""Times slower that tokens may come where no SLO limits them. A judgement: few users notice it."""
MAX_HIGH_OVER_LOW = 4.0
"""Of an 80 % interval of tokens/s: a wider one holds half of the likely figure and twice of it. A judgement."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Effect of a change on one deployment; else why it cannot be stated (`unpriced`) or must not be (`infeasible`)."""

    ratio: Range | None = None
    """Generated tokens/s after over before."""
    load: MeasuredLoad | None = None
    calibration: Calibration | None = None
    at_most: Range | None = None
    """Generated tokens/s of a full batch after the change; None where it was not forecast."""
    expected_of: Deployment | None = None
    """The deployment as it is, where `ratio` is a rule's own expectation: its forecast is scaled by that ratio."""
    latency: Latencies | None = None
    missed: str | None = None
    """Why it misses the SLO, by its likely figures."""
    objectives: Slo = field(default_factory=Slo)
    provenance: Provenance | None = None
    assumptions: tuple[str, ...] = ()
    doubtful: str | None = None
    """Why its money enters no total until it was tried."""
    unpriced: str | None = None
    infeasible: str | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict on the latency and, unless it passes, the forecast beside its SLO; forecast when it is read."""
        if self.missed is not None:
            return "fail", self.missed
        if self.latency is None:
            return ("unknown" if has_objective(self.objectives) else NO_OBJECTIVE), None
        return self.latency.verdict

    @property
    def overload(self) -> str | None:
        """How far more arrives than is served after the change too, as a sentence; None where all is served."""
        present = self.latency.present if self.latency is not None else None
        if self.latency is None or present is None or present.load_share == 1 or self.latency.after is None:
            return None
        after = self.latency.after.utilization / present.load_share
        if after < 1:
            return None
        return (
            f"at its p95 demand it stays overloaded by its forecast: {after:.0%} of what a full batch finishes, and "
            f"{present.utilization:.0%} now"
        )

    def tail_limits(self, slo: Slo) -> SloMs:
        """Return the objectives by which replicas are counted, in milliseconds of the forecast."""
        if self.latency is None or self.latency.present is None:
            return slo.ttft_p95_ms, slo.tpot_p95_ms
        return self.latency.present.tail_limits(slo, 1 / self.latency.slowdown[1])

    @property
    def known(self) -> bool:
        """Whether there is a ratio to price."""
        return self.ratio is not None and self.unpriced is None and self.infeasible is None


def speed(deployment: Deployment, to: Deployment, slo: Slo, context: Context, replicas: int = 1) -> Speed:
    """Forecast a change of knobs or accelerator of one deployment; `replicas` as alike serve the same service."""
    forecastable = all(knobs()[name].priced_by == "forecast" for name in deployment.knob_changes(to))
    if to.expected is not None and not forecastable:
        return _expected(deployment, to, to.expected, slo, context, replicas)
    try:
        load = context.forecasts.load(context.evidence(deployment.deployment_id))
        calibration = calibrated(deployment, load, context).for_change(to)
        change = context.forecasts.change(deployment, to, load, calibration, context.market)
    except NotMeasured as missing:
        return Speed(unpriced=missing.sentence)
    except (Abstained, ValueError) as reason:
        return Speed(unpriced=str(reason))
    if isinstance(change, Forecast):
        return Speed(infeasible=f"it would not start: {change.refusal}")
    result = Speed(
        ratio=change.ratio,
        load=load,
        calibration=carried(calibration, to, context.market),
        at_most=full_batch(change),
        objectives=slo,
    )
    return _judged(result, change, deployment, to, slo, context, replicas)


def _expected(
    deployment: Deployment, to: Deployment, expected: Expectation, slo: Slo, context: Context, replicas: int
) -> Speed:
    """Return the speed a rule expects. The part of the change that can be forecast must start and hold the demand."""
    forecastable = {
        name: getattr(to, name) for name in deployment.knob_changes(to) if knobs()[name].priced_by == "forecast"
    }
    part = replace(deployment, **forecastable, placement=to.placement)
    if part != deployment:
        forecast = speed(deployment, part, slo, context, replicas)
        if forecast.infeasible is not None:
            return forecast
    load: MeasuredLoad | None = None
    calibration: Calibration | None = None
    with suppress(NotMeasured, Abstained, ValueError):
        load = context.forecasts.load(context.evidence(deployment.deployment_id))
        calibration = calibrated(deployment, load, context)
    devices = (to.n_devices or 1) / (deployment.n_devices or 1)
    low, likely, high = (end * devices for end in (expected.low, expected.likely, expected.high))
    latency: Latencies | None = None
    if load is not None and calibration is not None:
        slowdown = 1 / high, 1 / likely, 1 / low
        latency = _latency(deployment, deployment, load, calibration, slo, context, replicas, slowdown)
    return Speed(
        ratio=(low, likely, high),
        load=load,
        calibration=calibration,
        expected_of=deployment,
        latency=latency,
        objectives=slo,
        doubtful=doubt(calibration) if calibration is not None else None,
        provenance=Provenance.ASSUMED,
        assumptions=(
            f"{expected.likely:g} times the tokens per device-second ({expected.low:g} to {expected.high:g}), as the "
            f"rule expects: {expected.source}",
        ),
    )


def doubt(calibration: Calibration, ratio: Range | None = None, *, verified: bool = False) -> str | None:
    """Return why a forecast under this calibration is doubtful, None if it is not.

    `ratio`: tokens/s after over before. `verified`: changes of this kind were measured on the host, so that the
    forecast rests on them and not on the model.
    """
    if verified:
        return None
    if calibration.surprising:
        return (
            f"the forecast is doubtful: this host runs at {math.exp(-calibration.log_time):.2g} times the speed it "
            "expects, so something unknown is at work; try the change for some hours and compare"
        )
    if ratio is not None and ratio[2] > MAX_HIGH_OVER_LOW * ratio[0]:
        return (
            f"the forecast is doubtful: its 80 % interval is {ratio[0]:.2g} to {ratio[2]:.2g} times the tokens/s; try "
            "the change for some hours and compare"
        )
    return None


def calibrated(deployment: Deployment, load: MeasuredLoad, context: Context) -> Calibration:
    """Return the calibration by the deployment's own measurements. Raises Abstained or ValueError as that does."""
    return context.forecasts.calibration(deployment, load, context.market)


def _judged(
    speed: Speed,
    change: BeforeAfter,
    deployment: Deployment,
    to: Deployment,
    slo: Slo,
    context: Context,
    replicas: int,
) -> Speed:
    assert speed.load is not None and speed.calibration is not None
    load, demand = speed.load, change.after.demand
    calibration = calibrated(deployment, load, context).for_change(to)
    if demand is None and (lost := _lost_capacity(speed, calibration, deployment, context)) is not None:
        return _refused(speed, lost)
    slower = 1.0 if demand is None else demand.tpot_ms[1] / change.tpot_ms_now
    if slo.tpot_p95_ms is None and demand is not None and slower > MAX_UNASKED_SLOWDOWN:
        return _refused(
            speed,
            f"tokens would come {slower:.1f} times as slowly (about {demand.tpot_ms[1]:.0f} ms each), and no SLO "
            "allows it: set `slo.tpot_ms`",
        )
    latency = _latency(deployment, to, load, calibration, slo, context, replicas)
    judged = replace(speed, latency=latency)
    if latency.present is None or latency.proposed is None:
        mean_ms, limit_ms = (load.tpot_ms or 0.0) * slower, slo.tpot_p95_ms
        if limit_ms is not None and slower > NOT_WORSE and mean_ms > limit_ms:
            missed = f"mean TPOT would be about {mean_ms:.0f} ms ({load.tpot_ms:.0f} ms now), with an SLO of "
            return _missed(speed, f"{missed}{limit_ms:.0f} ms", latency)
    elif context.forecasts.overruns(latency.proposed, latency.present.refusal_limits(slo), context.market):
        forecast = context.forecasts.likely(latency.proposed, context.market)
        if forecast.refusal is not None:
            return _refused(speed, f"it would not hold the demand: {forecast.refusal}", latency=latency)
        if (missed_now := likely_miss(forecast, latency.present, slo)) is not None:
            return _missed(speed, missed_now, latency)
    stated = to.model != deployment.model and context.market.model(to.model.name) is None
    return replace(
        judged,
        provenance=worst([load.provenance, Provenance.ASSUMED if stated else Provenance.FORECAST]),
        assumptions=(
            *([f"the shape of {to.model.name} is as its rule states it: the catalog has none"] if stated else []),
            *load.assumptions,
            *latency.assumptions,
            *change.after.assumptions,
            tier_of(to, speed.calibration, context.market).assumption,
            *([speed.calibration.track_record] if speed.calibration.track_record else []),
            *speed.calibration.receipts,
        ),
        doubtful=doubt(speed.calibration, speed.ratio, verified=speed.calibration.has_seen(deployment, to)),
    )


def _latency(
    deployment: Deployment,
    to: Deployment,
    load: MeasuredLoad,
    calibration: Calibration,
    slo: Slo,
    context: Context,
    replicas: int,
    slowdown: Range = SAME,
) -> Latencies:
    """Return the latency of one of some replicas before and after a change."""
    requests = context.forecasts.arrivals(context.evidence(deployment.deployment_id))
    present: PresentLatency | NotMeasured
    if isinstance(requests, NotMeasured):
        present = requests
    else:
        present = context.forecasts.present(deployment, load, requests.arrivals, calibration, context.market)
    return latencies(
        present,
        to,
        slo,
        replicas,
        forecast=partial(context.forecasts.latency, market=context.market),
        fewest=partial(context.forecasts.replicas, market=context.market),
        calibration=carried(present.query.calibration, to, context.market)
        if isinstance(present, PresentLatency)
        else None,
        provenance=None if isinstance(requests, NotMeasured) else requests.provenance,
        notes=() if isinstance(requests, NotMeasured) else requests.assumptions,
        slowdown=slowdown,
    )


def _lost_capacity(speed: Speed, calibration: Calibration, deployment: Deployment, context: Context) -> str | None:
    """Return the reason why a change does not hold the demand that the deployment holds now; None if it may.

    The present deployment did hold its demand: where its forecast has it overloaded, both forecasts are too low.
    """
    assert speed.load is not None
    change = context.forecasts.change(deployment, deployment, speed.load, calibration, context.market)
    present = full_batch(change) if isinstance(change, BeforeAfter) else None
    demand, at_most = speed.load.load.generated_tok_s, speed.at_most[1] if speed.at_most else 0.0
    if present is not None and present[1] < demand:
        at_most *= demand / present[1]
    if at_most * NOT_WORSE >= demand:
        return None
    return f"it would not hold the demand: about {at_most:.0f} tokens/s at most, and p95 is {demand:.0f}"


def _refused(speed: Speed, reason: str, *, latency: Latencies | None = None) -> Speed:
    return replace(speed, latency=latency, infeasible=reason)


def _missed(speed: Speed, missed: str, latency: Latencies) -> Speed:
    return replace(_refused(speed, missed, latency=latency), missed=missed)
