"""Doubt in a forecast: why what a change saves is shown as a break-even and enters no total."""

import math

from pertoken.forecast.host import Calibration
from pertoken.forecast.serving import Range

ODD_CALIBRATION = math.log(3)
"""Beyond this the host runs so unlike the model that something unknown to it is at work."""
MAX_HIGH_OVER_LOW = 4.0
"""Of an 80 % interval of tokens/s: a wider one holds half of the likely figure and twice of it. A judgement; above
`forecast.efficiency.MAX_HIGH_OVER_LOW` there is no estimate at all."""


def doubt(calibration: Calibration, ratio: Range | None = None, *, verified: bool = False) -> str | None:
    """Return why a forecast under this calibration is doubtful, None if it is not.

    `ratio`: tokens/s after over before. `verified`: changes of this kind were measured on the host, so that the
    forecast rests on them and not on the model.
    """
    if verified:
        return None
    if abs(calibration.log_time) > ODD_CALIBRATION:
        return (
            "the forecast is doubtful: this host runs at over 3 times or under a third of the speed it expects, so "
            "something unknown is at work; try the change for some hours and compare"
        )
    if ratio is not None and ratio[2] > MAX_HIGH_OVER_LOW * ratio[0]:
        return (
            f"the forecast is doubtful: its 80 % interval is {ratio[0]:.2g} to {ratio[2]:.2g} times the tokens/s; try "
            "the change for some hours and compare"
        )
    return None
