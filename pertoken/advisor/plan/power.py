"""What the devices of a plan may draw at most, against a power budget.

A device may draw its power cap, else the power limit that the catalog has of its accelerator. Devices count while an
engine holds them; what moves to another provider draws nothing here any more.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from pertoken.catalog.market import Market
from pertoken.savings.estimate import Estimate
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet, deployments_unlike


class UnknownPower(ValueError):
    """The power limit of a device is not known."""


@dataclass(frozen=True)
class PowerBudget:
    """The most that all devices in use may draw together, and the fleet as it is."""

    max_w: float
    base: Fleet
    market: Market

    @cached_property
    def used_w(self) -> float | None:
        """What the devices in use may draw now, watts; None where that of one is not known."""
        try:
            return sum(self._by_device(self.base.deployments).values())
        except UnknownPower:
            return None

    @property
    def headroom_w(self) -> float:
        """What is left of the budget; 0 where it is exceeded already, or where present power is not known."""
        return 0.0 if self.used_w is None else max(0.0, self.max_w - self.used_w)

    def added_w(self, after: Fleet, price: Estimate) -> float:
        """Return what devices may draw more after a change than now, watts; below 0: less. Raises UnknownPower."""
        present = after.deployment_of
        changed = [
            deployment
            for deployment in deployments_unlike(after, self.base)
            if deployment.deployment_id not in price.stopped
        ]
        leaving = [
            deployment
            for deployment in self.base.deployments
            if deployment.deployment_id in price.stopped or present.get(deployment.deployment_id) != deployment
        ]
        gone = {deployment.deployment_id for deployment in leaving}
        held = {
            device
            for deployment in self.base.deployments
            if deployment.deployment_id not in gone
            for device in deployment.device_ids
        }
        before = self._by_device(leaving)
        now = self._by_device(changed)
        replicas = sum(
            count * sum(self._by_device(after.service(name).deployments[:1]).values()) for name, count in price.added
        )
        return (
            sum(watts for device, watts in now.items() if device not in held)
            - sum(watts for device, watts in before.items() if device not in held)
            + replicas
        )

    def refusal(self, added_w: float | None, left_w: float) -> str:
        """Return why a step that adds this much is refused where this much of the budget is left; None: not known."""
        if added_w is None:
            return f"what it may draw is not known, and the power budget is {self.max_w:,.0f} W"
        now = "is not known now" if self.used_w is None else f"leaves {left_w:,.0f} W"
        return f"its devices may draw {added_w:,.0f} W more, and the power budget of {self.max_w:,.0f} W {now}"

    def _by_device(self, deployments: Iterable[Deployment]) -> dict[object, float]:
        """Return the watts of each device that deployments hold, by its id, or by deployment where it is a new one."""
        watts_by_device: dict[object, float] = {}
        for deployment in deployments:
            base = self.base.deployment_of.get(deployment.deployment_id)
            if base is not None and base.placement.provider != deployment.placement.provider:
                continue
            stays = base is not None and base.accelerator == deployment.accelerator
            watts = self._limit_w(deployment, capped=stays)
            count = deployment.n_devices or len(deployment.device_ids)
            known = deployment.device_ids if stays else ()
            devices = [known[at] if at < len(known) else (deployment.deployment_id, at) for at in range(count)]
            watts_by_device |= {device: max(watts, watts_by_device.get(device, 0.0)) for device in devices}
        return watts_by_device

    def _limit_w(self, deployment: Deployment, *, capped: bool) -> float:
        """Return the watts that a device of a deployment may draw; a cap does not move to another accelerator."""
        if deployment.power_cap_w is not None and capped:
            return float(deployment.power_cap_w)
        accelerator = self.market.accelerator(deployment.accelerator)
        if accelerator is None or accelerator.tdp_w is None:
            raise UnknownPower(f"the power limit of {deployment.accelerator} is not in the catalog")
        return accelerator.tdp_w
