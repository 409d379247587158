"""Maximum power of the devices of a plan, compared with a power budget.

The maximum of a device is its power cap, else the power limit of its accelerator in the catalog. Only devices in use by
an engine count; deployments that move to another provider need no local power.
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
    """Maximum total power of all devices in use, and the present fleet."""

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
        """Return why a step that adds `added_w` (None: not known) is refused with `left_w` of the budget left."""
        if added_w is None:
            return f"its maximum power is not known, and the power budget is {self.max_w:,.0f} W"
        now = "is not known now" if self.used_w is None else f"leaves {left_w:,.0f} W"
        return f"its devices may draw {added_w:,.0f} W more, and the power budget of {self.max_w:,.0f} W {now}"

    def _by_device(self, deployments: Iterable[Deployment]) -> dict[object, float]:
        """Return the maximum watts of each device of deployments, by device id, or by deployment for new devices."""
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
        """Return the maximum watts of a device of a deployment; a cap does not move to another accelerator."""
        if deployment.power_cap_w is not None and capped:
            return float(deployment.power_cap_w)
        accelerator = self.market.accelerator(deployment.accelerator)
        if accelerator is None or accelerator.tdp_w is None:
            raise UnknownPower(f"the power limit of {deployment.accelerator} is not in the catalog")
        return accelerator.tdp_w
