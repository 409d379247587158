"""Energy a device used between two readings: from its counter and from its power, side by side.

The two measure differently (a counter covers what the power gauge averages away), so both are kept and neither
fills in for the other.
"""

from dataclasses import dataclass
from typing import Protocol

from pertoken.agent.readings import DeviceReading

IMPLAUSIBLE = 3
"""A counter that grew by more than this many times the power limit is not believed."""


class Meter(Protocol):
    """What a device told before; a `DeviceReading` is one."""

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


@dataclass(frozen=True, slots=True)
class EnergyStep:
    """Energy between two readings, millijoules, never negative. None: not known."""

    counter_mj: int | None
    """What the device's counter grew by."""
    integral_mj: int | None
    """Trapezoid of the two power readings."""
    note: str | None = None
    """Why the counter is not believed, though both readings had one."""


def energy_step(before: Meter, after: DeviceReading, elapsed_ms: int) -> EnergyStep:
    """Energy `before` to `after`, two readings of one device `elapsed_ms` (monotonic) apart.

    A counter that wraps (RAPL) is unwrapped once; one that fell, stood still under power, or jumped past
    `IMPLAUSIBLE` times the power limit gives None and a note, while the integral stands. Readings on two sides of a
    boot must not be compared.
    """
    if elapsed_ms <= 0:
        return EnergyStep(None, None, f"no time passed between the readings ({elapsed_ms} ms)")
    integral = None
    if before.power_mw is not None and after.power_mw is not None:
        integral = (before.power_mw + after.power_mw) * elapsed_ms // 2000
    if before.energy_mj is None or after.energy_mj is None:
        return EnergyStep(None, integral)

    grown = after.energy_mj - before.energy_mj
    if grown < 0 and after.energy_wraps_mj is not None:
        grown += after.energy_wraps_mj
    if grown < 0:
        return EnergyStep(None, integral, f"energy counter was reset: {_span(before, after, elapsed_ms)}")
    limit = after.power_limit_mw
    if limit and grown * 1000 > limit * elapsed_ms * IMPLAUSIBLE:
        told = f"energy counter jumped past what {limit} mW allow: {_span(before, after, elapsed_ms)}"
        return EnergyStep(None, integral, told)
    if grown == 0 and integral is not None and integral > 0 and elapsed_ms >= 1000:
        told = f"energy counter stands still while power is drawn: {_span(before, after, elapsed_ms)}"
        return EnergyStep(None, integral, told)
    return EnergyStep(grown, integral)


def _span(before: Meter, after: DeviceReading, elapsed_ms: int) -> str:
    return f"{before.energy_mj} to {after.energy_mj} mJ in {elapsed_ms} ms"
