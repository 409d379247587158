"""What a change would save: dollars that leave the bill, apart from dollars the same bill could serve more with.

Bankable: the bill falls while demand stays, because devices are given back or cost less. Capacity: the bill stays,
and its busy part serves more. A faster model on a half-idle fleet banks nothing. One part of a fleet gives one or the
other, never both, so a total cannot exceed what is paid.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date

from pertoken.catalog.market import Market
from pertoken.costs.demand import Demand, demand
from pertoken.costs.listed import price_relation
from pertoken.costs.slo import VERDICTS, Latencies, Slo, latencies
from pertoken.deployment import Deployment, Fleet, FleetDevice, FleetPart
from pertoken.evidence import Evidence, NotMeasured
from pertoken.forecast.opinion import Opinion
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Change, Forecast, Range, calibrate, compare
from pertoken.provenance import Provenance, worst
from pertoken.units import HOURS_PER_MONTH, SHARE, format_usd

Price = Callable[[int], int | None]
"""Nano-USD per hour of a device by its id; None if nobody set one."""
Money = tuple[int, int, int]
"""Nano-USD per month of 730 h: low, likely, high."""

NOTHING: Money = (0, 0, 0)
NO_SLO = Slo()
UNASKED_SLOWDOWN = 1.25
"""Times slower that tokens may come where no SLO says how slow is too slow. A judgement: few users notice it."""
ODD_CALIBRATION = math.log(3)
"""Beyond this the host runs so unlike the model that something unknown to it is at work."""
COMMITTED = ("owned", "reserved")


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a candidate would save, why that may be wrong, or why nothing can be said."""

    bankable: Money | None = None
    capacity: Money | None = None
    throughput_ratio: Range | None = None
    """Generated tokens/s of the changed deployment, after over before."""
    slo: str = "unknown"
    """`pass`, `near_miss`, `fail`, or `unknown` where no SLO is set or nothing was forecast."""
    latency: Latencies | None = None
    """What requests see before and after; None where nothing was forecast."""
    provenance: Provenance | None = None
    assumptions: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    unpriced: str | None = None
    """Why there is no money in it, and what would change that."""
    infeasible: str | None = None
    """Why it must not be proposed: it would not start, not hold the demand, or miss the SLO."""


def estimate(
    fleet: Fleet,
    candidate: Fleet,
    *,
    seen: Mapping[int, Evidence],
    price_nano_usd_per_hour: Price,
    market: Market,
    slo: Slo = NO_SLO,
    today: date | None = None,
    opinion: Opinion | None = None,
) -> Estimate:
    """What going from `fleet` to `candidate` saves per month of 730 h.

    `seen` holds the evidence of each deployment by its id. With `today` listed prices past their limit are marked;
    a second `opinion` is blended into the forecast.
    Raises ValueError if the candidate is the present, or has other deployments than the fleet.
    """
    parts = [
        _released(fleet, device, price_nano_usd_per_hour)
        for device in fleet.devices
        if device.device_id in candidate.released and device.device_id not in fleet.released
    ]
    for now, to in zip(fleet.deployments, candidate.deployments, strict=True):
        if now != to:
            evidence = seen.get(now.deployment_id, Evidence({}))
            change = _Changed(fleet, now, to, evidence, price_nano_usd_per_hour, market, today, opinion)
            parts.append(change.estimate(slo))
    if not parts:
        raise ValueError("the candidate is the fleet as it is: nothing to estimate")
    return _join(parts)


def _released(fleet: Fleet, device: FleetDevice, price: Price) -> Estimate:
    ids = {device.device_id, *(part.device_id for part in fleet.parts if part.whole.device_id == device.device_id)}
    holders = [each.served_model for each in fleet.deployments if ids & set(each.device_ids)]
    if holders:
        return Estimate(infeasible=f"{device.name} on {device.host} is held by {', '.join(holders)}")
    hourly = price(device.device_id)
    if hourly is None:
        return Estimate(unpriced=_no_price(device.name))
    month = hourly * HOURS_PER_MONTH
    origin = device.seen.held.provenance if device.seen.has("held") else Provenance.ASSUMED
    return Estimate(
        bankable=(month, month, month),
        provenance=origin,
        assumptions=(f"{device.name} on {device.host} can be given back on its own",),
    )


@dataclass(frozen=True, slots=True)
class _Changed:
    """One deployment before and after, with everything that prices it."""

    fleet: Fleet
    now: Deployment
    to: Deployment
    seen: Evidence
    price: Price
    market: Market
    today: date | None
    opinion: Opinion | None

    def estimate(self, slo: Slo) -> Estimate:
        knobs = set(self.now.changes_to(self.to))
        if parts := [part for part in self.fleet.parts if part.device_id in self.now.device_ids]:
            return Estimate(unpriced=self._on_parts(parts))
        prices = self._prices()
        if knobs <= {"purchase"}:
            return prices if isinstance(prices, Estimate) else self._priced(prices, None, None)
        try:
            asked = demand(self.seen)
            calibration = calibrate(
                self.now,
                asked.load,
                self.market,
                asked.busy_tok_s,
                asked.tpot_ms,
                ttft_ms=asked.ttft_ms,
                kv_use=asked.kv_use,
                memory_active=asked.memory_active,
                products_active=asked.products_active,
            )
            change = compare(self.now, self.to, asked.load, self.market, calibration, self.opinion)
        except NotMeasured as missing:
            return Estimate(unpriced=f"{missing.series} was not measured: {missing.remedy}")
        except (Abstained, ValueError) as reason:
            return Estimate(unpriced=str(reason))
        if isinstance(change, Forecast):
            return Estimate(infeasible=f"it would not start: {change.refusal}")
        if "model" in knobs:
            return self._routed(change, prices)
        if change.after.demand is None:
            most = change.after.saturated.tok_s[1] if change.after.saturated else 0.0
            return Estimate(
                infeasible=f"it would not hold the demand: about {most:.0f} tokens/s at most, and p95 is "
                f"{asked.load.generated_tok_s:.0f}"
            )
        tpot_ms = change.after.demand.tpot_ms[1]
        slower = tpot_ms / change.tpot_ms_now
        if slo.tpot_ms is None and slower > UNASKED_SLOWDOWN:
            return Estimate(
                throughput_ratio=change.ratio,
                infeasible=f"tokens would come {slower:.1f} times as slowly (about {tpot_ms:.0f} ms each), and no SLO "
                "says that this is fine: set `slo.tpot_ms`",
            )
        waits = latencies(self.now, self.to, self.seen, asked, self.market, calibration, slo)
        if waits.after is not None and waits.after.refusal is not None:
            return Estimate(latency=waits, infeasible=f"it would not hold the demand: {waits.after.refusal}")
        verdict, miss = waits.verdict(change.after.demand, slo)
        if verdict == "fail":
            return Estimate(slo=verdict, latency=waits, throughput_ratio=change.ratio, infeasible=miss)
        money = prices if isinstance(prices, Estimate) else self._priced(prices, asked, change)
        odd = abs(calibration.log_time) > ODD_CALIBRATION
        origins = [each for each in (money.provenance, asked.provenance) if each is not None]
        return replace(
            money,
            throughput_ratio=change.ratio,
            slo=verdict,
            latency=waits,
            provenance=worst([*origins, Provenance.FORECAST]),
            assumptions=(
                *asked.assumptions,
                *waits.assumptions,
                *change.after.assumptions,
                *_heard(change),
                *money.assumptions,
            ),
            against=(
                *money.against,
                *([miss] if miss else []),
                *(["this host runs at over 3 times or under a third of the expected speed"] if odd else []),
            ),
        )

    def _on_parts(self, parts: list[FleetPart]) -> str:
        """Why nothing is forecast of a deployment on parts of devices, and what it pays by their shares."""
        named = []
        for part in parts:
            hourly = self.price(part.device_id)
            share = "an unknown part" if part.share_1e6 is None else f"{part.share_1e6 / SHARE:.1%}"
            cost = f", {format_usd(hourly)} of its price per hour" if hourly is not None else ""
            named.append(f"{part.name} ({share} of {part.whole.name}{cost})")
        return (
            f"{self.now.served_model} runs on {', '.join(named)}: only whole devices can be given back, and what is "
            "known of an accelerator does not hold for a part of one"
        )

    def _prices(self) -> list[int] | Estimate:
        """Nano-USD per hour of its devices, cheapest first, or why its bill is not known."""
        devices = {each.device_id: each.name for each in self.fleet.devices}
        if not self.now.device_ids:
            return Estimate(unpriced=f"the devices of {self.now.served_model} were not seen")
        for other in self.fleet.deployments:
            if other is not self.now and set(other.device_ids) & set(self.now.device_ids):
                return Estimate(
                    unpriced=f"its devices also serve {other.served_model}: a device that is shared cannot be "
                    "given back for one of them"
                )
        prices = []
        for device_id in self.now.device_ids:
            hourly = self.price(device_id)
            if hourly is None:
                return Estimate(unpriced=_no_price(devices.get(device_id, f"device {device_id}")))
            prices.append(hourly)
        return sorted(prices)

    def _priced(self, prices: list[int], asked: Demand | None, change: Change | None) -> Estimate:
        """Money of the change: `asked` and `change` are None where only the price changes."""
        bill = sum(prices)
        after = self.to.n_devices or len(prices)
        assumptions, against, origin = [], [], Provenance.REPORTED
        knobs = self.now.changes_to(self.to)
        if knobs.keys() & {"accelerator", "purchase"}:
            relation = price_relation(self.now, self.to, self.market, self.today)
            if isinstance(relation, str):
                return Estimate(infeasible=f"prices cannot be compared: {relation}")
            bills = [bill / len(prices) * after * ratio for ratio in reversed(relation.ratio)]
            assumptions.append(relation.note)
            origin = Provenance.LISTED
            if self.now.purchase is None:
                assumptions.append("what is paid now is an on-demand price")
        else:
            # Of unequal devices the dearest are kept: which ones can be given back is not known.
            kept = sum(sorted(prices, reverse=True)[:after]) + max(0, after - len(prices)) * prices[-1]
            bills = [float(kept)] * 3
            if after < len(prices):
                assumptions.append("devices can be given back one by one")
        if self.to.purchase == "spot":
            against.append("spot devices are taken back at 30 s to 2 min notice; work lost by that is not counted")
        saved = [_month(bill - each) for each in bills]
        if self.now.purchase in COMMITTED and saved[1] != 0:
            against.append(f"its devices are {self.now.purchase}: the bill does not fall before that ends")
            saved = [min(0, each) for each in saved]
        if saved[1] > 0:
            low = max(0, saved[0])
            saturated = change.after.saturated if change else None
            if asked and saturated and saturated.tok_s[0] < asked.load.generated_tok_s:
                low = 0
                against.append("at the low end of its forecast it would not hold the p95 demand")
            return Estimate(
                bankable=(low, saved[1], saved[2]),
                provenance=origin,
                assumptions=tuple(assumptions),
                against=tuple(against),
            )
        if saved[1] < 0:
            against.append(f"the bill would rise by {format_usd(-saved[1])} a month while demand stays as it is")
        capacity = None
        if asked and change:
            busy = _month(bill * asked.busy)
            # The worst of both ends: least faster at the dearest price, most faster at the cheapest.
            shares = [max(0.0, 1 - each / bill / ratio) for each, ratio in zip(bills, change.ratio, strict=True)]
            low, likely, high = (round(busy * share) for share in shares)
            capacity = (low, likely, high)
        return Estimate(
            bankable=NOTHING,
            capacity=capacity,
            provenance=origin,
            assumptions=tuple(assumptions),
            against=tuple(against),
        )

    def _routed(self, change: Change, prices: list[int] | Estimate) -> Estimate:
        """Routing to a smaller model: never money, since the share it could take is not measured."""
        if isinstance(prices, Estimate):
            return prices
        small = self.to.n_devices or 1
        extra, bill = small * sum(prices) / len(prices), sum(prices)
        if extra >= bill:
            return Estimate(
                throughput_ratio=change.ratio,
                infeasible=f"{self.to.model.name} needs {small} devices beside the {len(prices)} that serve "
                f"{self.now.model.name}: no routable share could pay for them",
            )
        return Estimate(
            throughput_ratio=change.ratio,
            provenance=Provenance.ASSUMED,
            assumptions=(
                f"break-even: {self.to.model.name} on {small} more device(s) pays once it takes {extra / bill:.0%} "
                f"of the load and as much of what serves {self.now.model.name} is given back",
            ),
            against=("answers of a smaller model must be evaluated on your own tasks first",),
            unpriced="the share of requests a smaller model could answer is not measured: label a sample, then route",
        )


def _join(parts: list[Estimate]) -> Estimate:
    if len(parts) == 1:
        return parts[0]
    origins = [each.provenance for each in parts if each.provenance is not None]
    waits = [each.latency for each in parts if each.latency is not None]
    ratios = [each.throughput_ratio for each in parts if each.throughput_ratio is not None]
    return Estimate(
        bankable=_sum([each.bankable for each in parts]),
        capacity=_sum([each.capacity for each in parts]),
        throughput_ratio=ratios[0] if len(ratios) == 1 else None,
        latency=waits[0] if len(waits) == 1 else None,
        slo=max((each.slo for each in parts), key=VERDICTS.index),
        provenance=worst(origins) if origins else None,
        assumptions=tuple(dict.fromkeys(said for each in parts for said in each.assumptions)),
        against=tuple(dict.fromkeys(said for each in parts for said in each.against)),
        unpriced="; ".join(dict.fromkeys(each.unpriced for each in parts if each.unpriced)) or None,
        infeasible="; ".join(dict.fromkeys(each.infeasible for each in parts if each.infeasible)) or None,
    )


def _sum(amounts: list[Money | None]) -> Money | None:
    known = [each for each in amounts if each is not None]
    if not known:
        return None
    low, likely, high = (sum(each[end] for each in known) for end in range(3))
    return low, likely, high


def _month(nano_usd_per_hour: float) -> int:
    return round(nano_usd_per_hour * HOURS_PER_MONTH)


def _heard(change: Change) -> tuple[str, ...]:
    if change.heard is None:
        return ()
    if change.heard.log_ratio is None:
        return (f"no second opinion: {change.heard.reason}",)
    ratio = math.exp(change.heard.log_ratio)
    return (f"NVIDIA's kernel tables say {ratio:.2g}×, blended in at the weight learned from measured pairs",)


def _no_price(device: str) -> str:
    return f"no price is set for {device}: set it with `pertoken prices set`"
