"""A `DriversReading` as one line of JSON, the way it crosses the pipe from the sampler.

Values go by position, and gaps as a text of their own: they are the same from tick to tick, and from GPU to GPU, so
either side makes them once.
"""

import json
from collections.abc import Iterable
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter

from pertoken.agent.readings import DeviceProcess, DeviceReading, DriverEvent, DriversReading, Unavailable

_KEPT = 256
"""Sets of gaps remembered."""
_process_values, _reason_values, _event_values = (
    attrgetter(*(field.name for field in fields(kind))) for kind in (DeviceProcess, Unavailable, DriverEvent)
)
_costs = attrgetter("driver_calls", "cpu_ms", "rss_bytes")
_N_PLAIN = DeviceReading._fields.index("processes")
"""Number of plain values of a reading: its processes and gaps, the last two, are not."""


def encode(reading: DriversReading) -> str:
    """Return one line of JSON without its line end."""
    devices = [
        (
            device[:_N_PLAIN],
            None if device.processes is None else list(map(_process_values, device.processes)),
            _encoded(device.unavailable),
        )
        for device in reading.devices
    ]
    driver_events = list(map(_event_values, reading.driver_events))
    return json.dumps((devices, _encoded(reading.unavailable), driver_events, _costs(reading)))


def decode(line: str | bytes) -> DriversReading:
    """Return the reading of a line. Raises ValueError if the line is not one of `encode`."""
    try:
        devices, unavailable, driver_events, costs = json.loads(line)
        return DriversReading(
            tuple(DeviceReading(*values, _processes(rows), _decoded(reasons)) for values, rows, reasons in devices),
            _decoded(unavailable),
            tuple(DriverEvent(*driver_event) for driver_event in driver_events),
            *costs,
        )
    except TypeError as error:
        raise ValueError(f"the sampler's answer is not a reading: {error!r}") from None


def _processes(rows: Iterable[tuple[int, int | None, int | None]] | None) -> tuple[DeviceProcess, ...] | None:
    return None if rows is None else tuple(DeviceProcess(*values) for values in rows)


@lru_cache(_KEPT)
def _encoded(unavailable: tuple[Unavailable, ...]) -> str:
    return json.dumps(list(map(_reason_values, unavailable)))


@lru_cache(_KEPT)
def _decoded(text: str) -> tuple[Unavailable, ...]:
    return tuple(Unavailable(*values) for values in json.loads(text))
