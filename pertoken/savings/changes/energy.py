"""Energy that a change saves, and its dollars where the hardware is owned: power caps, and less busy time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pertoken.evidence import NotMeasured
from pertoken.forecast.latency import Latency
from pertoken.forecast.power import idle_w, log_sd
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Z_80
from pertoken.forecast.watts import DeviceWatts, capped, modelled_busy_w
from pertoken.provenance import Provenance
from pertoken.savings.context import NOTHING, Context, Money
from pertoken.savings.load import MeasuredLoad, measured_latency
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.present import NOT_WORSE
from pertoken.savings.sizing import objectives
from pertoken.savings.slo import Verdict, judged, times, unchanged, worst_of
from pertoken.savings.speed import Speed, calibrated, doubt
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH

NOT_OWNED = "rented devices cost the same at any power: a cap saves whoever pays for the electricity"


def outcome(before: Fleet, now: Service, pairs: Sequence[tuple[Deployment, Deployment]], context: Context) -> Outcome:
    """Return the outcome of power caps: energy dollars on owned hardware, $0 on rented."""
    kept = same(now.deployments)
    if not _owned(before, pairs):
        return Outcome(kept=kept, bankable=NOTHING, provenance=Provenance.REPORTED, against=(NOT_OWNED,))
    if context.energy is None:
        return Outcome(kept=kept, unpriced="what a kilowatt-hour costs is not set: set `energy.usd_per_kwh`")
    total, max_stretch, doubtful = [0.0, 0.0, 0.0], 1.0, None
    assumptions: list[str] = []
    for old, new in pairs:
        try:
            saved_w, stretch, notes, doubtful_here = _saved_w(old, new, context)
        except NotMeasured as missing:
            return Outcome(kept=kept, unpriced=missing.sentence)
        except (Abstained, ValueError) as reason:
            return Outcome(kept=kept, unpriced=str(reason))
        max_stretch = max(max_stretch, stretch)
        assumptions += notes
        doubtful = doubtful or doubtful_here
        half_width = math.exp(Z_80 * log_sd(True))
        for end, watts in enumerate((saved_w / half_width, saved_w, saved_w * half_width)):
            total[end] += watts
    busiest = max((context.evidence(old.deployment_id).busy.mean for old, _ in pairs), default=0.0)
    if busiest * max_stretch > 1:
        return Outcome(
            kept=kept, infeasible=f"steps would take {max_stretch:.2f} times as long: it is too busy for that"
        )
    verdict = _verdict(now, pairs, max_stretch, context)
    if verdict[0] == "fail" and max_stretch > NOT_WORSE:
        return Outcome(kept=kept, slo=verdict, infeasible=verdict[1])
    low, likely, high = (_dollars(watts, context) for watts in total)
    money: Money = (low, likely, high)
    return Outcome(
        kept=kept,
        bankable=money,
        ratio=(1 / max_stretch, 1 / max_stretch, 1 / max_stretch),
        slo=verdict,
        provenance=Provenance.FORECAST,
        assumptions=tuple(dict.fromkeys(assumptions)),
        against=(f"steps take up to {max_stretch:.2f} times as long",) if max_stretch > 1.005 else (),
        doubtful=doubtful,
    )


def of_speeds(
    before: Fleet, pairs: Sequence[tuple[Deployment, Deployment]], speeds: Mapping[int, Speed | None], context: Context
) -> tuple[Money, tuple[str, ...]] | None:
    """Return the energy dollars that changes of speed save on owned hardware, and the assumptions.

    None for rented hardware, without a price of energy, and where power was not measured or cannot be forecast. The
    change of speed is then priced without energy.
    """
    changed = [(old, new) for old, new in pairs if speeds.get(old.deployment_id) is not None]
    if context.energy is None or not changed or not _owned(before, changed):
        return None
    total, notes = [0.0, 0.0, 0.0], []
    for old, new in changed:
        speed = speeds[old.deployment_id]
        if speed is None or speed.ratio is None or new.placement != old.placement:
            return None
        try:
            saved, note = _saved_by_speed(old, new, speed.ratio, context)
        except (NotMeasured, Abstained, ValueError):
            return None
        notes.append(note)
        for end, watts in enumerate(saved):
            total[end] += watts
    low, likely, high = (max(0, _dollars(watts, context)) for watts in total)
    return (low, likely, high), tuple(dict.fromkeys(notes))


def _owned(before: Fleet, pairs: Sequence[tuple[Deployment, Deployment]]) -> bool:
    owned = {device_id for host in before.hosts if host.placement.purchase == "owned" for device_id in host.device_ids}
    return all(set(old.device_ids) <= owned for old, _ in pairs)


def _verdict(now: Service, pairs: Sequence[tuple[Deployment, Deployment]], stretch: float, context: Context) -> Verdict:
    """Return the verdict on latencies that take `stretch` times as long as measured."""
    slo = objectives(now, context)
    verdicts = []
    for old, _ in pairs:
        measured = measured_latency(context.evidence(old.deployment_id))
        if stretch <= NOT_WORSE:
            verdicts.append(unchanged(measured, slo))
        else:
            longer: dict[str, Any] = {name: times(at, (stretch,) * 3) for name, at in measured.items()}
            verdicts.append(judged(Latency(**longer), measured, slo))
    return worst_of(verdicts)


@dataclass(frozen=True, slots=True)
class _MeasuredPower:
    """Measured power of each device of a deployment."""

    load: MeasuredLoad
    busy: float
    """Share of the time."""
    idle_w: float
    busy_w: float
    limit_w: float
    note: str

    @property
    def device(self) -> DeviceWatts:
        return DeviceWatts(self.idle_w, self.busy_w, self.limit_w)

    def mean_w(self, busy: float, busy_w: float) -> float:
        return self.idle_w * (1 - busy) + busy_w * busy


def _measured_power(old: Deployment, context: Context) -> _MeasuredPower:
    """Return the watts of one device while busy and idle. Raises NotMeasured or Abstained."""
    seen, devices = context.evidence(old.deployment_id), len(old.device_ids)
    accelerator = context.market.accelerator(old.accelerator)
    if accelerator is None or accelerator.tdp_w is None:
        raise Abstained("the power limit of its device is not in the catalog")
    if not devices:
        raise Abstained("its devices were not seen")
    load = context.forecasts.load(seen)
    idle, mean = idle_w(accelerator.name, accelerator.tdp_w), seen.power_w.mean / devices
    busy = max(load.busy, 1e-3)
    busy_w = min(accelerator.tdp_w, max(idle, (mean - idle * (1 - busy)) / busy))
    note = f"{busy_w:.0f} W per device while busy, from {mean:.0f} W on average and {idle:.0f} W idle"
    return _MeasuredPower(load, busy, idle, busy_w, accelerator.tdp_w, note)


def _saved_w(old: Deployment, new: Deployment, context: Context) -> tuple[float, float, list[str], str | None]:
    """Return the mean watts saved over all devices of a deployment, the factor on step time, notes, and why the
    forecast is doubtful.

    Raises NotMeasured, Abstained or ValueError for what is not known.
    """
    power = _measured_power(old, context)
    calibration, cap_w = calibrated(old, power.load, context), float(new.power_cap_w or power.limit_w)
    capped_w, stretch = capped(old, power.load.load, context.market, calibration, power.device, cap_w)
    longer = min(1.0, power.busy * stretch)
    saved_w = power.mean_w(power.busy, power.busy_w) - power.mean_w(longer, capped_w)
    return max(0.0, saved_w) * len(old.device_ids), stretch, [power.note], doubt(calibration)


def _saved_by_speed(
    old: Deployment, new: Deployment, ratio: Sequence[float], context: Context
) -> tuple[list[float], str]:
    """Return the watts saved at the slow, likely and fast end of a change of speed, and a note.

    Devices that are no longer needed stay on and idle. The model of power scales the measured busy watts.
    Raises NotMeasured, Abstained or ValueError for unknown values.
    """
    power = _measured_power(old, context)
    calibration = calibrated(old, power.load, context)
    modelled = [
        modelled_busy_w(deployment, power.load.load, context.market, calibration, power.device)
        for deployment in (old, new)
    ]
    likely_w = min(power.limit_w, max(power.idle_w, power.busy_w * modelled[1] / modelled[0]))
    devices, spread = len(old.device_ids), math.exp(Z_80 * log_sd(False))
    used = new.n_devices or devices
    saved = []
    for end, watts in zip(ratio, (likely_w * spread, likely_w, likely_w / spread), strict=True):
        busy = min(1.0, power.busy / end)
        after = used * power.mean_w(busy, min(power.limit_w, max(power.idle_w, watts)))
        after += max(0, devices - used) * power.idle_w
        saved.append(devices * power.mean_w(power.busy, power.busy_w) - after)
    return saved, f"{power.note}; about {likely_w:.0f} W while busy after the change, for less of the time"


def _dollars(watts: float, context: Context) -> int:
    assert context.energy is not None
    return round(watts / 1000 * HOURS_PER_MONTH * context.energy.pue * context.energy.nano_usd_per_kwh)
