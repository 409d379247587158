"""A `ProbeReading` as one line of JSON, the way it crosses the pipe from the sampler."""

import json
from typing import Any

from pertoken.agent.readings import DeviceProcess, DeviceReading, Gap, Happened, HostReading, ProbeReading


def encode(reading: ProbeReading) -> str:
    """One line of JSON without its line end."""
    return json.dumps(reading, default=_fields, separators=(",", ":"))


def decode(line: str | bytes) -> ProbeReading:
    """The reading `encode` was given.

    Raises ValueError if the line is not one.
    """
    try:
        raw = json.loads(line)
        return ProbeReading(
            **raw
            | {
                "host": HostReading(**raw["host"]),
                "devices": tuple(_device(each) for each in raw["devices"]),
                "gaps": _gaps(raw["gaps"]),
                "happened": tuple(Happened(**each) for each in raw["happened"]),
            }
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the sampler's answer is not a reading: {error!r}") from None


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _gaps(raw: list[dict[str, Any]]) -> tuple[Gap, ...]:
    return tuple(Gap(**each) for each in raw)


def _device(raw: dict[str, Any]) -> DeviceReading:
    held = raw["processes"]
    processes = None if held is None else tuple(DeviceProcess(**each) for each in held)
    return DeviceReading(**raw | {"processes": processes, "gaps": _gaps(raw["gaps"])})
