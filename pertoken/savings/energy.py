"""Energy that a power cap saves, and its dollars where the hardware is owned."""

import math
from collections.abc import Sequence

import numpy as np

from pertoken.evidence import NotMeasured
from pertoken.forecast.efficiency import efficiency
from pertoken.forecast.power import Device, clock_bound, idle_w, log_sd, under_cap
from pertoken.forecast.served import Abstained, resolve
from pertoken.forecast.serving import Z_80
from pertoken.forecast.steady import steady
from pertoken.provenance import Provenance
from pertoken.savings.context import NOTHING, Context, Money
from pertoken.savings.load import measured_load
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.speed import calibrated
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH

NOT_OWNED = "rented devices cost the same at any power: a cap saves whoever pays for the electricity"


def outcome(before: Fleet, now: Service, pairs: Sequence[tuple[Deployment, Deployment]], context: Context) -> Outcome:
    """Return what power caps save: energy dollars of owned hardware, $0 of rented."""
    kept = same(now.deployments)
    owned = {each for host in before.hosts if host.placement.purchase == "owned" for each in host.device_ids}
    if not all(set(old.device_ids) <= owned for old, _ in pairs):
        return Outcome(kept=kept, bankable=NOTHING, provenance=Provenance.REPORTED, against=(NOT_OWNED,))
    if context.energy is None:
        return Outcome(kept=kept, unpriced="what a kilowatt-hour costs is not set: set `energy.usd_per_kwh`")
    total, stretched = [0.0, 0.0, 0.0], 1.0
    assumptions: list[str] = []
    for old, new in pairs:
        try:
            saved_w, stretch, said = _saved_w(old, new, context)
        except NotMeasured as missing:
            return Outcome(kept=kept, unpriced=f"{missing.series} was not measured: {missing.remedy}")
        except (Abstained, ValueError) as reason:
            return Outcome(kept=kept, unpriced=str(reason))
        stretched = max(stretched, stretch)
        assumptions += said
        half_width = math.exp(Z_80 * log_sd(True))
        for end, watts in enumerate((saved_w / half_width, saved_w, saved_w * half_width)):
            total[end] += watts
    slowest = max((context.evidence(old.deployment_id).busy.mean for old, _ in pairs), default=0.0)
    if slowest * stretched > 1:
        return Outcome(kept=kept, infeasible=f"steps would take {stretched:.2f} times as long: it is too busy for that")
    low, likely, high = (_dollars(watts, context) for watts in total)
    money: Money = (low, likely, high)
    return Outcome(
        kept=kept,
        bankable=money,
        ratio=(1 / stretched, 1 / stretched, 1 / stretched),
        provenance=Provenance.FORECAST,
        assumptions=tuple(dict.fromkeys(assumptions)),
        against=(f"steps take up to {stretched:.2f} times as long",) if stretched > 1.005 else (),
    )


def _saved_w(old: Deployment, new: Deployment, context: Context) -> tuple[float, float, list[str]]:
    """Watts saved on average over all devices of a deployment, and how much longer its steps take.

    Raises NotMeasured, Abstained or ValueError for what is not known.
    """
    seen, devices = context.evidence(old.deployment_id), len(old.device_ids)
    accelerator = context.market.accelerator(old.accelerator)
    if accelerator is None or accelerator.tdp_w is None:
        raise Abstained("the power limit of its device is not in the catalog")
    if new.power_cap_w is None or not devices:
        raise Abstained("its devices were not seen")
    load = measured_load(seen)
    candidate = resolve([old], [load.load], context.market)
    shift = calibrated(old, load, context).shift_for(old)
    state = steady(candidate, efficiency(), np.array([max(1.0, load.load.running)]), shift)
    idle = idle_w(accelerator.name, accelerator.tdp_w)
    mean_w = seen.power_w.mean / devices
    busy = max(load.busy, 1e-3)
    busy_w = min(accelerator.tdp_w, max(idle, (mean_w - idle * (1 - busy)) / busy))
    device = Device(np.array([idle]), np.array([accelerator.tdp_w]))
    slowed = under_cap(device, np.array([busy_w]), clock_bound(candidate, state), np.array([float(new.power_cap_w)]))
    stretch, capped_w = float(slowed.stretch[0]), float(slowed.power_w[0])
    longer = min(1.0, busy * stretch)
    saved_w = (idle * (1 - busy) + busy_w * busy) - (idle * (1 - longer) + capped_w * longer)
    assumption = f"{busy_w:.0f} W per device while busy, from {mean_w:.0f} W on average and {idle:.0f} W idle"
    return max(0.0, saved_w) * devices, stretch, [assumption]


def _dollars(watts: float, context: Context) -> int:
    assert context.energy is not None
    return round(watts / 1000 * HOURS_PER_MONTH * context.energy.pue * context.energy.nano_usd_per_kwh)
