"""Energy of devices over a window, by the epochs that held them."""

from dataclasses import dataclass

import numpy as np

from pertoken.provenance import Provenance
from pertoken.window.measured import Measured


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

    def plus(self, other: "EpochEnergy") -> "EpochEnergy":
        """Return the sum of both."""
        return EpochEnergy(
            self.joules + other.joules,
            self.measured_ms + other.measured_ms,
            self.held_ms + other.held_ms,
            max(self.provenance, other.provenance),
        )

    @property
    def measured_share(self) -> float:
        """Share of the held device time in which energy was measured, 0 to 1."""
        return self.measured_ms / self.held_ms if self.held_ms else 0.0


def energy_by_epoch(measured: Measured) -> dict[int, EpochEnergy]:
    """Return the energy of each epoch that held a device. Energy of a device that no epoch held is left out."""
    energy_of: dict[int, EpochEnergy] = {}
    for epoch_id, device_ids in measured.own_devices.items():
        for device_id in device_ids:
            rows = measured.device(device_id)
            rows = rows.where(rows.ints("duration_ms") > 0)
            counter, integral = rows.floats("energy_counter_mj"), rows.floats("energy_integral_mj")
            energy_mj = np.where(np.isnan(counter), integral, counter)
            known = ~np.isnan(energy_mj)
            share = measured.share(epoch_id, device_id, rows)
            held_ms = share * rows.floats("duration_ms")
            if not held_ms.any():
                continue
            of_device = EpochEnergy(
                float((energy_mj[known] * share[known]).sum()) / 1000,
                float(held_ms[known].sum()),
                float(held_ms.sum()),
                Provenance.INTEGRAL if bool((np.isnan(counter) & known).any()) else Provenance.COUNTER,
            )
            energy_of[epoch_id] = energy_of[epoch_id].plus(of_device) if epoch_id in energy_of else of_device
    return energy_of
