"""A `DriversReading` as one line of JSON, the way it crosses the pipe from the sampler.

Values go by position, and gaps as a text of their own: they are the same from tick to tick, and from GPU to GPU, so
either side makes them once.
"""

import json
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

from pertoken.agent.readings import DeviceProcess, DeviceReading, DriversReading, Gap, Happened

_KEPT = 256
"""Sets of gaps remembered."""


def _values(kind: type) -> Any:
    return attrgetter(*(each.name for each in fields(kind)))


_process, _gap, _happened = _values(DeviceProcess), _values(Gap), _values(Happened)
_costs = attrgetter("driver_calls", "cpu_ms", "rss_bytes")
_APART = DeviceReading._fields.index("processes")
"""These and the gaps, its last two values, are not plain."""


def encode(reading: DriversReading) -> str:
    """One line of JSON without its line end."""
    devices = [
        (each[:_APART], None if each.processes is None else list(map(_process, each.processes)), _told(each.gaps))
        for each in reading.devices
    ]
    happened = list(map(_happened, reading.happened))
    return json.dumps((devices, _told(reading.gaps), happened, _costs(reading)))


def decode(line: str | bytes) -> DriversReading:
    """The reading `encode` was given.

    Raises ValueError if the line is not one.
    """
    try:
        devices, gaps, happened, costs = json.loads(line)
        return DriversReading(
            tuple(DeviceReading(*(*values, _processes(held), _gaps(told))) for values, held, told in devices),
            _gaps(gaps),
            tuple(Happened(*each) for each in happened),
            *costs,
        )
    except TypeError as error:
        raise ValueError(f"the sampler's answer is not a reading: {error!r}") from None


def _processes(held: Any) -> Any:
    return None if held is None else tuple(DeviceProcess(*each) for each in held)


@lru_cache(_KEPT)
def _told(gaps: tuple[Gap, ...]) -> str:
    return json.dumps(list(map(_gap, gaps)))


@lru_cache(_KEPT)
def _gaps(told: str) -> tuple[Gap, ...]:
    return tuple(Gap(*each) for each in json.loads(told))
