"""Calibration of one deployment, for benchmarks and tests: what it takes is described at `host.Measured`."""

from collections.abc import Sequence
from typing import Any

from pertoken.catalog.market import Market
from pertoken.evidence import OperatingPoint
from pertoken.forecast.host import BusyMeasurements, Calibration, calibrate_all
from pertoken.forecast.served import Load
from pertoken.state.deployment import Deployment


def calibrate(
    deployment: Deployment,
    load: Load,
    market: Market,
    busy_tok_s: float,
    tpot_ms: float | None = None,
    *,
    points: Sequence[OperatingPoint] = (),
    **measured: Any,
) -> Calibration:
    """Return the calibration on measurements. Raises Abstained as `forecast` does, ValueError for one that is not
    above 0.
    """
    seen = BusyMeasurements(deployment, load, busy_tok_s, tpot_ms, points=tuple(points), **measured)
    (result,) = calibrate_all([seen], market)
    if isinstance(result, Exception):
        raise result
    return result
