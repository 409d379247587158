"""One service after a change: its deployments on the fleet's devices, its new instances, or the refusal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pertoken.catalog.instances import interruption_rate
from pertoken.evidence import NotMeasured, Series
from pertoken.forecast.serving import Range
from pertoken.provenance import Provenance
from pertoken.savings.context import Context, Money
from pertoken.savings.hosts import device_price
from pertoken.savings.placing import NotPlaced, Placed
from pertoken.savings.slo import NO_OBJECTIVE, Latencies, Verdict
from pertoken.savings.speed import Speed
from pertoken.state.deployment import Deployment, Placement
from pertoken.state.fleet import Fleet
from pertoken.units import HOURS_PER_MONTH

Kept = tuple[tuple[Deployment, ...], tuple[Deployment, ...], tuple[Deployment, ...]]
"""Deployments that still use devices of the fleet: at the low, likely and high end of the saving."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A service after a change, before whole hosts are counted."""

    kept: Kept = ((), (), ())
    new_nano_usd_per_hour: Range = (0.0, 0.0, 0.0)
    """Price of devices elsewhere, lowest first."""
    placed: tuple[Placed, ...] = ()
    """The instances behind `new_nano_usd_per_hour` that are offers of the catalog, set prices or bills."""
    capacity: Money | None = None
    """Busy time of the devices it keeps that becomes free, nano-USD per month."""
    timed: Money | None = None
    """Devices that are free in the hours of a schedule, nano-USD per month: added to whatever else is free."""
    ratio: Range | None = None
    slo: Verdict = (NO_OBJECTIVE, None)
    """Verdict beside the verdicts of `judged`."""
    judged: tuple[Speed, ...] = ()
    """Forecasts to judge once the change is shown."""
    latency: Latencies | None = None
    replicas: tuple[int, int] | None = None
    provenance: Provenance | None = None
    assumptions: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    break_even: str | None = None
    unpriced: str | None = None
    unconfirmed: str | None = None
    """Confirmation by a person that it needs before its money enters a total."""
    doubtful: str | None = None
    """Why its forecast is doubtful: its money enters no total until the change was tried."""
    to_confirm: str | None = None
    """Confirmation of an offer by a person, needed before its money enters a total."""
    infeasible: str | None = None
    refusal_code: str = "infeasible"
    """Code of a refusal for `infeasible`."""
    bankable: Money | None = field(default=None)
    """Dollars that are not of whole months of hosts: energy of owned hardware, hours of a schedule; per month."""


def not_placed(refused: NotPlaced) -> Outcome:
    """Return the outcome of a move that no offer holds."""
    return Outcome(infeasible=refused.reason, refusal_code=refused.code)


def unpriced(reason: Exception) -> Outcome:
    """Return the outcome of a change that is not measured or forecast, for this reason."""
    return Outcome(unpriced=reason.sentence if isinstance(reason, NotMeasured) else str(reason))


def to_confirm(placed: Iterable[Placed]) -> str | None:
    """Return the confirmations that several offers need; None where all may be ordered."""
    texts = dict.fromkeys(instances.to_confirm for instances in placed if instances.to_confirm)
    return "; ".join(texts) or None


def same(deployments: tuple[Deployment, ...]) -> Kept:
    """Return the same deployments at all three ends."""
    return deployments, deployments, deployments


NOTICE = "30 s to 2 min"
"""Warning that clouds give before they take devices back."""


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Effect of interruptions on the price of a useful device-hour."""

    factor: Range
    """Paid over useful device time: (lowest, likely, highest)."""
    assumption: str | None
    against: str


def interruptions(placement: Placement, load_s: Series | None) -> Interruptions:
    """Return the cost of interruptions on a spot placement.

    `load_s` is how long its replica took to start, as measured. After each interruption that time is paid without work.
    Without a published rate or a measured start nothing is added, and `against` names what is missing.
    """
    none = (1.0, 1.0, 1.0)
    rate = interruption_rate(placement.provider, placement.instance_type)
    if rate is None:
        what = placement.instance_type or placement.accelerator or "these devices"
        return Interruptions(
            none,
            None,
            f"spot devices are taken back at {NOTICE} notice; how often is not published for {what}, so that starts "
            "after it, and hours without spot capacity, are not counted",
        )
    band = f"{rate.low:.0%} to {rate.high:.0%} of {rate.family} spot instances are taken back a month"
    cited = f"({rate.source}, {rate.as_of})"
    if load_s is None:
        return Interruptions(
            none,
            None,
            f"{band} {cited}, at {NOTICE} notice; no start of a replica was measured, so that the time it takes is not "
            "counted, nor are hours without spot capacity",
        )
    month_s = HOURS_PER_MONTH * 3600
    low, high = rate.low * load_s.mean / month_s, rate.high * load_s.p95 / month_s
    likely = (rate.low + rate.high) / 2 * load_s.mean / month_s
    return Interruptions(
        (1 + low, 1 + likely, 1 + high),
        f"{band} {cited}: each time a start of {load_s.mean:.0f} s (p95 {load_s.p95:.0f} s, measured) is paid without "
        f"work, {likely:.4%} of device-hours",
        f"spot devices are taken back at {NOTICE} notice; hours without spot capacity are not counted",
    )


@dataclass(frozen=True, slots=True)
class BusyCost:
    """Cost of the busy time of one deployment on some of its devices."""

    nano_usd_per_hour: float
    provenance: Provenance
    assumptions: tuple[str, ...] = ()


def busy_cost(present: Fleet, deployment: Deployment, device_ids: Sequence[int], context: Context) -> BusyCost:
    """Return the cost of a deployment's busy time on some of its devices, nano-USD per hour.

    Alone on a device, that is its busy share of the time. Where several deployments are busy for more than all the
    time together, they overlap: each then has its part of the whole, so that all of them never exceed the price.
    Raises NotMeasured without the busy time of one of them, NoPrice.
    """
    busy_share = _busy(deployment, context)
    total, origins, notes = 0.0, [context.evidence(deployment.deployment_id).busy.provenance], []
    for device_id in device_ids:
        together = present.deployments_by_device.get(device_id, (deployment,))
        busy = sum(
            busy_share if neighbour.deployment_id == deployment.deployment_id else _busy(neighbour, context)
            for neighbour in together
        )
        total += device_price(present, device_id, context) * busy_share / max(1.0, busy)
        if len(together) > 1:
            origins += [context.evidence(neighbour.deployment_id).busy.provenance for neighbour in together]
            others = ", ".join(dict.fromkeys(neighbour.name for neighbour in together if neighbour is not deployment))
            notes.append(
                f"{busy_share / max(1.0, busy):.0%} of the time of {present.device(device_id).name} is its share "
                f"beside {others}, by busy time; what the others ask for stays as it is"
            )
    return BusyCost(total, max(origins), tuple(dict.fromkeys(notes)))


def _busy(deployment: Deployment, context: Context) -> float:
    try:
        return min(1.0, max(0.0, context.evidence(deployment.deployment_id).busy.mean))
    except NotMeasured as missing:
        raise NotMeasured("busy", f"of {deployment.name}, which shares its devices: {missing.remedy}") from None
