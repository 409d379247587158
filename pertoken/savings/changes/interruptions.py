"""Cost of interruptions of spot devices: device time that is paid while a replica starts again."""

from dataclasses import dataclass

from pertoken.catalog.instances import interruption_rate
from pertoken.evidence import Series
from pertoken.forecast.serving import Range
from pertoken.state.deployment import Placement
from pertoken.units import HOURS_PER_MONTH

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
    """Return what interruptions cost on a spot placement.

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
