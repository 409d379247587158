"""Energy of devices over a window, by the epochs that held them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pertoken.provenance import Provenance
from pertoken.window.epochs.node import DevicePower, Node, device_energy_mj, power_by_device, timed
from pertoken.window.measured import Measured


@dataclass(frozen=True, slots=True)
class NodeEnergy:
    """Energy of servers at their plugs, by the share of their devices that an epoch held, while it is known."""

    joules: float = 0.0
    known_ms: float = 0.0
    """Held device time in which it is known."""
    above_idle_joules: float = 0.0
    """Part above the idle level of each device with its part of the server."""
    measured_joules: float = 0.0
    """Part that was measured at the plug."""
    modelled_joules: float = 0.0
    """Part whose devices were measured, and the rest of the server modelled. What is left has only its CPUs."""

    def plus(self, other: "NodeEnergy") -> "NodeEnergy":
        """Return the sum of both."""
        return NodeEnergy(
            self.joules + other.joules,
            self.known_ms + other.known_ms,
            self.above_idle_joules + other.above_idle_joules,
            self.measured_joules + other.measured_joules,
            self.modelled_joules + other.modelled_joules,
        )


@dataclass(frozen=True, slots=True)
class EpochEnergy:
    """Energy of the devices that an epoch held, by its share of them."""

    joules: float
    """Over the device time in which energy was measured."""
    measured_ms: float
    """Device time in which it was measured, by the share that was held."""
    held_ms: float
    """Device time that was held."""
    provenance: Provenance
    """`COUNTER`, or `INTEGRAL` where power over time stood in for some device's energy counter."""
    node: NodeEnergy = NodeEnergy()
    """Over the same time."""

    def plus(self, other: "EpochEnergy") -> "EpochEnergy":
        """Return the sum of both."""
        return EpochEnergy(
            self.joules + other.joules,
            self.measured_ms + other.measured_ms,
            self.held_ms + other.held_ms,
            max(self.provenance, other.provenance),
            self.node.plus(other.node),
        )

    @property
    def measured_share(self) -> float:
        """Share of the held device time in which energy was measured, 0 to 1."""
        return self.measured_ms / self.held_ms if self.held_ms else 0.0


def energy_by_epoch(measured: Measured, nodes: Sequence[Node] = ()) -> dict[int, EpochEnergy]:
    """Return the energy of each epoch that held a device. Energy of a device that no epoch held is left out."""
    energy_of: dict[int, EpochEnergy] = {}
    power = power_by_device(measured, nodes)
    for epoch_id, device_ids in measured.own_devices.items():
        for device_id in device_ids:
            rows = timed(measured, device_id)
            energy_mj = device_energy_mj(rows)
            known = ~np.isnan(energy_mj)
            share = measured.share(epoch_id, device_id, rows)
            held_ms = share * rows.floats("duration_ms")
            if not held_ms.any():
                continue
            of_device = EpochEnergy(
                float((energy_mj[known] * share[known]).sum()) / 1000,
                float(held_ms[known].sum()),
                float(held_ms.sum()),
                Provenance.INTEGRAL
                if bool((np.isnan(rows.floats("energy_counter_mj")) & known).any())
                else Provenance.COUNTER,
                _of_node(power[device_id], held_ms) if device_id in power else NodeEnergy(),
            )
            energy_of[epoch_id] = energy_of[epoch_id].plus(of_device) if epoch_id in energy_of else of_device
    return energy_of


def _of_node(power: DevicePower, held_ms: np.ndarray) -> NodeEnergy:
    joules = np.nan_to_num(power.watts) * held_ms / 1000
    above_w = np.maximum(np.nan_to_num(power.watts - power.idle_w), 0)
    return NodeEnergy(
        float(joules.sum()),
        float(held_ms[~np.isnan(power.watts)].sum()),
        float((above_w * held_ms).sum()) / 1000,
        float(joules[power.at_plug].sum()),
        float(joules[power.modelled].sum()),
    )
