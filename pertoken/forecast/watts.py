"""Watts of the devices of one deployment under a load: while its engine works, and under a power cap."""

from typing import NamedTuple

import numpy as np

from pertoken.catalog.market import Market
from pertoken.forecast.calibration import as_measured
from pertoken.forecast.candidates import Candidates
from pertoken.forecast.efficiency import Steady, efficiency, steady
from pertoken.forecast.host import Calibration
from pertoken.forecast.power import Device, busy_w, clock_bound, full_w, products_share, under_cap
from pertoken.forecast.served import Load, resolve
from pertoken.state.deployment import Deployment


class DeviceWatts(NamedTuple):
    """Power draw of one device."""

    idle: float
    busy: float
    """While its engine works."""
    limit: float
    """Its default power limit (TDP)."""


class Capped(NamedTuple):
    """One device under a power cap."""

    busy_w: float
    stretch: float
    """Step time over that without the cap, 1 or more."""


def capped(
    deployment: Deployment, load: Load, market: Market, calibration: Calibration, now: DeviceWatts, cap_w: float
) -> Capped:
    """Return the effect of a power cap on a busy device and its step time. Raises Abstained as `resolve` does."""
    bound = clock_bound(*_state(deployment, load, market, calibration))
    slowed = under_cap(_device(now), np.array([now.busy]), bound, np.array([cap_w]))
    return Capped(float(slowed.power_w[0]), float(slowed.stretch[0]))


def modelled_busy_w(
    deployment: Deployment, load: Load, market: Market, calibration: Calibration, now: DeviceWatts
) -> float:
    """Return the watts of a busy device by the model of power alone. Raises Abstained as `resolve` does."""
    candidate, state = _state(deployment, load, market, calibration)
    device = _device(now, full_w(deployment.accelerator or "", now.limit))
    return float(busy_w(device, products_share(candidate, state.running, state.token_s))[0])


def _state(deployment: Deployment, load: Load, market: Market, calibration: Calibration) -> tuple[Candidates, Steady]:
    candidate = resolve([deployment], [load], market)
    running = np.array([max(1.0, load.running)])
    state = steady(candidate, efficiency(), running, calibration.shift)
    return candidate, as_measured(state, candidate, [calibration.errors_for(deployment)])


def _device(watts: DeviceWatts, full_w: float = 0.0) -> Device:
    return Device(np.array([watts.idle]), np.array([watts.limit]), np.array([full_w]))
