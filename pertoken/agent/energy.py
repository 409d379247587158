"""Energy a device used between two readings: from its counter and from its power, side by side.

The two measure differently (a counter covers what the power gauge averages away), so both are kept and neither
fills in for the other.
"""

from dataclasses import dataclass
from typing import Protocol

from pertoken.agent.readings import DeviceReading
from pertoken.metrics import MAX_POWER_MW, POWER_LIMITS


class Meter(Protocol):
    """Energy values of a device's earlier reading; a `DeviceReading` is one."""

    @property
    def energy_mj(self) -> int | None:
        """Its counter, absolute."""

    @property
    def power_mw(self) -> int | None:
        """What it drew at that reading."""


@dataclass(frozen=True, slots=True)
class LastMeter:
    """A meter whose counter and power were not read together."""

    energy_mj: int | None
    power_mw: int | None


NO_TIME = "no time passed between the readings"
RESET = "its energy counter was reset"
JUMPED = "its energy counter jumped past what its power limit allows"
STANDS_STILL = "its energy counter stands still while power is drawn"


@dataclass(frozen=True, slots=True)
class EnergyStep:
    """Energy between two readings, millijoules, never negative. None: not known."""

    counter_mj: int | None
    """What the device's counter grew by."""
    integral_mj: int | None
    """Trapezoid of the two power readings."""
    fault: str | None = None
    """Why the counter is not believed, though both readings had one: a constant of this module."""


def energy_step(before: Meter, after: DeviceReading, elapsed_ms: int) -> EnergyStep:
    """Return the energy from `before` to `after`, two readings of one device `elapsed_ms` (monotonic) apart.

    A counter that wraps (RAPL) is unwrapped once. One that fell, stood still under power, or grew by more than
    `POWER_LIMITS` times the power limit (`MAX_POWER_MW` without one) gives None and a fault, while the integral
    stands. Readings on two sides of a boot must not be compared.
    """
    if elapsed_ms <= 0:
        return EnergyStep(None, None, NO_TIME)
    integral = None
    if before.power_mw is not None and after.power_mw is not None:
        integral = (before.power_mw + after.power_mw) * elapsed_ms // 2000
    if before.energy_mj is None or after.energy_mj is None:
        return EnergyStep(None, integral)

    increase = after.energy_mj - before.energy_mj
    if increase < 0 and after.energy_wraps_mj is not None:
        increase += after.energy_wraps_mj
    if increase < 0:
        return EnergyStep(None, integral, RESET)
    limit_mw = POWER_LIMITS * after.power_limit_mw if after.power_limit_mw else MAX_POWER_MW
    if increase * 1000 > min(limit_mw, MAX_POWER_MW) * elapsed_ms:
        return EnergyStep(None, integral, JUMPED)
    if increase == 0 and integral is not None and integral > 0 and elapsed_ms >= 1000:
        return EnergyStep(None, integral, STANDS_STILL)
    return EnergyStep(increase, integral)
