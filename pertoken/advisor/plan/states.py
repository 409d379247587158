"""Combinations of levers, priced together: `LeverStates`, a `Correction` by track records, and the `PowerBudget`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pertoken.advisor.checks import held
from pertoken.advisor.plan.levers import Lever, reapplied
from pertoken.catalog.market import Market
from pertoken.proof.recommendation import RecordLine
from pertoken.proof.track_record import corrected_saving
from pertoken.savings.context import Context
from pertoken.savings.estimate import LIKELY, Estimate, Outcomes, estimate, prepare
from pertoken.savings.saving import Money, Saving
from pertoken.savings.sensitivity import At, Sensitivity
from pertoken.savings.slo import has_objective
from pertoken.state.deployment import Deployment, InvalidEdit
from pertoken.state.diff import Diff, diff
from pertoken.state.fleet import Fleet, deployments_unlike, services_unlike
from pertoken.state.service import Service
from pertoken.units import format_usd

Chosen = frozenset[int]
"""Combination: positions of its levers in `LeverStates.levers`."""


class LeverStates:
    """Combinations of levers, each composed and priced once."""

    def __init__(self, levers: Sequence[Lever], base: Fleet, context: Context) -> None:
        self.levers = levers
        self.base = base
        self._context = context
        self._fleets: dict[Chosen, Fleet | str] = {frozenset(): base}
        """Fleet after each combination, or the reason why it does not apply."""
        self._prices: dict[Chosen, Estimate | str] = {}
        """Estimate of each combination, or the reason why it has none."""
        self._outcomes = Outcomes()
        self._prepared: set[int] = set()
        """`id()` of each service that was forecast; `_services` keeps the objects alive."""
        self._services: dict[Service, Service] = {}
        self._deployments: dict[Deployment, Deployment] = {}

    def extend(self, chosen: Chosen, index: int) -> bool:
        """Apply one more lever to a composed combination; return whether it applies."""
        extended = chosen | {index}
        fleet = self._fleets.get(extended)
        if fleet is None or isinstance(fleet, str):
            self._fleets[extended] = fleet = self._extended(self._fleets[chosen], index)
        return isinstance(fleet, Fleet)

    def composed(self, chosen: Chosen) -> Fleet:
        """Return the fleet after a combination that applies."""
        fleet = self._composed(chosen)
        assert isinstance(fleet, Fleet)
        return fleet

    def worth(self, combinations: Sequence[Chosen]) -> list[Saving | None]:
        """Return the savings of combinations, forecast in one batch; None for one that cannot be in a plan."""
        unpriced = [chosen for chosen in dict.fromkeys(combinations) if chosen and chosen not in self._prices]
        fleets = [self._composed(chosen) for chosen in unpriced]
        self._prepare([fleet for fleet in fleets if isinstance(fleet, Fleet)])
        prices = [
            fleet if isinstance(fleet, str) else self._price(chosen, fleet)
            for chosen, fleet in zip(unpriced, fleets, strict=True)
        ]
        latencies = [speed.latency for price in prices if isinstance(price, Estimate) for speed in price.judged]
        judged = [latency for latency in latencies if latency is not None and has_objective(latency.slo)]
        self._context.forecasts.judge(judged, self._context.market)
        for chosen, price in zip(unpriced, prices, strict=True):
            self._prices[chosen] = price if isinstance(price, str) else held(price)
        return [self._worth(chosen) for chosen in combinations]

    def price(self, chosen: Chosen) -> Estimate:
        """Return the estimate of a combination that can be in a plan."""
        price = self._prices[chosen]
        assert isinstance(price, Estimate)
        return price

    def correction(self, chosen: Chosen) -> Correction | None:
        """Return the correction of a combination by track records; None without records."""
        return correction([self.levers[index] for index in sorted(chosen)])

    def refusal(self, chosen: Chosen) -> str | None:
        """Return the reason why a combination cannot be a plan; None if it can, or was not tried."""
        fleet = self._fleets.get(chosen)
        if isinstance(fleet, str):
            return fleet
        price = self._prices.get(chosen)
        if isinstance(price, Estimate) and price.saving is not None and price.saving.pays_more:
            return f"the bill would rise by {format_usd(-price.saving.net[LIKELY])} a month"
        return price if isinstance(price, str) else None

    def _composed(self, chosen: Chosen) -> Fleet | str:
        """Return the fleet after a combination, in the first order that applies; else the reason why none does."""
        applied = Chosen()
        while chosen not in self._fleets:
            remaining = sorted(chosen - applied)
            next_index = next((index for index in remaining if self.extend(applied, index)), None)
            if next_index is None:
                self._fleets[chosen] = next(str(self._fleets[applied | {index}]) for index in chosen - applied)
            else:
                applied |= {next_index}
        return self._fleets[chosen]

    def _extended(self, fleet: Fleet | str, index: int) -> Fleet | str:
        lever = self.levers[index]
        if isinstance(fleet, str):
            return fleet
        try:
            return self._interned(reapplied(self.base, lever.change.after, fleet, lever.name))
        except InvalidEdit as error:
            return str(error)

    def _interned(self, fleet: Fleet) -> Fleet:
        """Return an equal fleet that reuses known services and deployments: forecasts are cached by identity."""
        services: dict[str, Service] = {}
        for service in services_unlike(fleet, self.base):
            deployments = tuple(
                self._deployments.setdefault(deployment, deployment) for deployment in service.deployments
            )
            services[service.name] = self._services.setdefault(service, replace(service, deployments=deployments))
        if not services:
            return fleet
        return replace(fleet, services=tuple(services.get(service.name, service) for service in fleet.services))

    def _prepare(self, fleets: Sequence[Fleet]) -> None:
        """Forecast several fleets in one batch; a fleet that cannot be forecast fails again when it is priced."""
        changed = {id(fleet): {id(service) for service in services_unlike(fleet, self.base)} for fleet in fleets}
        unprepared = [fleet for fleet in fleets if changed[id(fleet)] - self._prepared]
        self._prepared.update(*(changed[id(fleet)] for fleet in unprepared))
        try:
            prepare(self.base, unprepared, self._context)
        except Exception:
            for fleet in unprepared if len(unprepared) > 1 else ():
                self._prepared -= changed[id(fleet)]
                self._prepare([fleet])

    def _price(self, chosen: Chosen, after: Fleet) -> Estimate | str:
        try:
            price = estimate(self.base, after, self._context, self._diff(chosen, after), self._outcomes)
        except Exception as error:  # only this combination fails: the others are still priced
            return f"it cannot be priced: {error}"
        return price if price.uncounted is None else price.uncounted

    def _diff(self, chosen: Chosen, after: Fleet) -> Diff:
        """Return the difference of a combination: that of its levers, if none adds or removes deployments."""
        diffs = [self.levers[index].change.diff for index in sorted(chosen)]
        if any(lever.added or lever.removed for lever in diffs):
            return diff(self.base, after)
        changes = tuple(change for lever in diffs for change in lever.changes)
        return Diff(changes, released=tuple(host for lever in diffs for host in lever.released))

    def _worth(self, chosen: Chosen) -> Saving | None:
        if not chosen:
            return Saving()
        price = self._prices[chosen]
        if isinstance(price, str):
            return None
        saving, correction = price.saving or Saving(), self.correction(chosen)
        return saving if correction is None else correction.saving(saving)


def joined(combinations: Iterable[Saving]) -> Saving:
    """Return the sum of the savings of independent combinations."""
    savings = list(combinations)
    return Saving(_sum([saving.net for saving in savings]), _sum([saving.capacity for saving in savings]))


def _sum(monies: Sequence[Money]) -> Money:
    low, likely, high = (sum(money[end] for money in monies) for end in range(3))
    return low, likely, high


@dataclass(frozen=True, slots=True)
class Correction:
    """Correction of a combination: mean track record of its levers, weighted by the saving of each lever alone."""

    ratio: float
    """Factor on the likely figure."""
    widening: float
    """Additional factor on the width of the interval."""

    def saving(self, saving: Saving) -> Saving:
        """Return a saving with this correction."""
        return corrected_saving(saving, self.ratio, self.widening)

    def sensitivity(self, uncorrected: Sensitivity) -> Sensitivity:
        """Return the sensitivity to an assumption in corrected dollars."""
        first, second = uncorrected.swing
        swing = round(first * self.ratio), round(second * self.ratio)
        return replace(uncorrected, low=self._at(uncorrected.low), high=self._at(uncorrected.high), swing=swing)

    def _at(self, end: At) -> At:
        return replace(end, bankable=round(end.bankable * self.ratio), capacity=round(end.capacity * self.ratio))


def correction(levers: Sequence[Lever]) -> Correction | None:
    """Return the correction of levers that are applied together; None if none of their rules has receipts."""
    records = [lever.variant.record for lever in levers]
    if not any(records):
        return None
    savings = [_saving_alone(lever) for lever in levers]
    weights = savings if sum(savings) else [1.0] * len(levers)
    ratios = [1.0 if record is None else record.ratio for record in records]
    widenings = [1.0 if record is None else record.widening for record in records]
    return Correction(_weighted_mean(ratios, weights), _weighted_mean(widenings, weights))


def _weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


def record_line(rule_id: str, record: RecordLine) -> str:
    """Return the track record that corrects a step, as text."""
    receipts = "1 receipt" if record.receipts == 1 else f"{record.receipts} receipts"
    share = f"{record.ratio:.0%} ± {record.ratio_sd:.0%}"
    return f"{share} of what {rule_id} promised was realised ({receipts}): the step is corrected by it"


def _saving_alone(lever: Lever) -> float:
    """Return the uncorrected saving of a lever alone: its likely bankable and capacity dollars, if above 0."""
    dollars = sum(max(0, likely) for likely in (lever.variant.saving or Saving()).rank)
    record = lever.variant.record
    return float(dollars) if record is None or record.ratio <= 0 else dollars / record.ratio


class UnknownPower(ValueError):
    """The power limit of a device is not known."""


@dataclass(frozen=True)
class PowerBudget:
    """Limit on the total maximum power of all devices in use, from the present fleet on."""

    max_w: float
    base: Fleet
    market: Market

    @cached_property
    def used_w(self) -> float | None:
        """Present maximum power of the devices in use, watts; None if one is not known."""
        try:
            return sum(self._by_device(self.base.deployments).values())
        except UnknownPower:
            return None

    @property
    def headroom_w(self) -> float:
        """Remaining budget, watts; 0 if it is exceeded or the present power is not known."""
        return 0.0 if self.used_w is None else max(0.0, self.max_w - self.used_w)

    def added_w(self, after: Fleet, price: Estimate) -> float:
        """Return the additional maximum power after a change, watts; below 0 for a decrease. Raises UnknownPower."""
        deployment_after = after.deployment_of
        arriving = [
            deployment
            for deployment in deployments_unlike(after, self.base)
            if deployment.deployment_id not in price.stopped
        ]
        leaving = [
            deployment
            for deployment in self.base.deployments
            if deployment.deployment_id in price.stopped or deployment_after.get(deployment.deployment_id) != deployment
        ]
        leaving_ids = {deployment.deployment_id for deployment in leaving}
        used_by_others = {
            device
            for deployment in self.base.deployments
            if deployment.deployment_id not in leaving_ids
            for device in deployment.device_ids
        }
        watts_before = self._by_device(leaving)
        watts_after = self._by_device(arriving)
        replica_watts = sum(
            count * sum(self._by_device(after.service(name).deployments[:1]).values()) for name, count in price.added
        )
        return (
            sum(watts for device, watts in watts_after.items() if device not in used_by_others)
            - sum(watts for device, watts in watts_before.items() if device not in used_by_others)
            + replica_watts
        )

    def refusal(self, added_w: float | None, left_w: float) -> str:
        """Return why a step that adds `added_w` (None: not known) is refused with `left_w` of the budget left."""
        if added_w is None:
            return f"its maximum power is not known, and the power budget is {self.max_w:,.0f} W"
        headroom = "is not known now" if self.used_w is None else f"leaves {left_w:,.0f} W"
        return f"its devices may draw {added_w:,.0f} W more, and the power budget of {self.max_w:,.0f} W {headroom}"

    def _by_device(self, deployments: Iterable[Deployment]) -> dict[object, float]:
        """Return the maximum watts by device id; a device without an id has its deployment and position as key."""
        watts_by_device: dict[object, float] = {}
        for deployment in deployments:
            base = self.base.deployment_of.get(deployment.deployment_id)
            if base is not None and base.placement.provider != deployment.placement.provider:
                continue
            stays = base is not None and base.accelerator == deployment.accelerator
            watts = self._limit_w(deployment, capped=stays)
            count = deployment.n_devices or len(deployment.device_ids)
            ids = deployment.device_ids if stays else ()
            devices = [ids[index] if index < len(ids) else (deployment.deployment_id, index) for index in range(count)]
            watts_by_device |= {device: max(watts, watts_by_device.get(device, 0.0)) for device in devices}
        return watts_by_device

    def _limit_w(self, deployment: Deployment, *, capped: bool) -> float:
        """Return the maximum watts of one device of a deployment, by its power cap if `capped`."""
        if deployment.power_cap_w is not None and capped:
            return float(deployment.power_cap_w)
        accelerator = self.market.accelerator(deployment.accelerator)
        if accelerator is None or accelerator.tdp_w is None:
            raise UnknownPower(f"the power limit of {deployment.accelerator} is not in the catalog")
        return accelerator.tdp_w
