"""Plausible ranges of what drivers and the kernel report, and their application to a reading.

Drivers report "not available" as the largest number of a type (2^32 - 1, 2^64 - 1), as -1 or as NaN, and some report
figures that no hardware reaches. A value outside its range is unknown: None, with a gap that names the metric. The
ranges are wide on purpose: they hold for every accelerator that can be bought, and refuse only what cannot be true.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from pertoken.agent.readings import DeviceProcess, DeviceReading, HostReading, ProbeReading, Unavailable
from pertoken.metrics import DEVICE, MAX_MEMORY_BYTES, MAX_POWER_MW, MEMORY_SOURCE, POWER_SOURCE, Plausible
from pertoken.units import RATIO, SHARE

MAX_PID = 2**22
"""PID_MAX_LIMIT of the Linux kernel (include/linux/threads.h)."""
MAX_NETWORK_BYTES_S = 10**13
"""80 Tbit/s: twenty times what eight network adapters of 400 Gbit/s carry together."""
MAX_TRAFFIC_BYTES_S = 10**14
"""100 TB/s: a hundred times what two sockets of a server move to and from memory."""


def _unavailable(metric: str, bound: Plausible) -> Unavailable:
    """Return the gap that a value outside the range leaves."""
    return _refused(metric, f"is not between {bound.low} and {bound.high} {bound.unit}")


def _relation_unavailable(metric: str, bound: Plausible) -> Unavailable:
    """Return the gap that a value past `limited_by` leaves."""
    times = f"{bound.times} times " if bound.times > 1 else ""
    return _refused(metric, f"is more than {times}its {bound.limited_by}")


def _refused(metric: str, fault: str) -> Unavailable:
    reason = f"the driver reports a value that cannot be true: it {fault}"
    return Unavailable(metric, "failing", reason, "update the driver; see `dmesg` if it stays")


_MEMORY = Plausible(1, MAX_MEMORY_BYTES, "bytes", MEMORY_SOURCE)
DEVICE_BOUNDS: Mapping[str, Plausible] = {
    "slot": Plausible(0, 65_535, "", "an index"),
    "memory_bytes": _MEMORY,
    "power_limit_mw": Plausible(1000, MAX_POWER_MW, "mW", POWER_SOURCE),
    "part_1e6": Plausible(1, SHARE, "millionths", "a partition is a part of its GPU"),
    **{metric.reading: metric.plausible for metric in DEVICE},
    "energy_wraps_mj": Plausible(1, 2**53, "mJ", "28 years at 10 kW"),
}
"""Of each number in a `DeviceReading`, for devices of all vendors and for the CPUs."""
_COUNTER = "what a signed 64-bit counter holds"
HOST_BOUNDS: Mapping[str, Plausible] = {
    "cpu_count": Plausible(1, 65_536, "CPUs", "eight times what Linux is built for (NR_CPUS)"),
    "memory_bytes": _MEMORY,
    "cpu_util_1e4": Plausible(0, RATIO, "hundredths of a percent", "a share of time is between 0 and 100 %"),
    "load_1e2": Plausible(0, 100 * MAX_PID, "hundredths", "a load is a number of processes"),
    "memory_used_bytes": Plausible(0, MAX_MEMORY_BYTES, "bytes", MEMORY_SOURCE, "memory_bytes"),
    "network_rx_bytes": Plausible(0, 2**63 - 1, "bytes", _COUNTER),
    "network_tx_bytes": Plausible(0, 2**63 - 1, "bytes", _COUNTER),
    "memory_traffic_bytes": Plausible(0, 2**63 - 1, "bytes", _COUNTER),
}
"""Of each number in a `HostReading` that becomes a row."""
HOST_METRICS = frozenset(HOST_BOUNDS)

_NO_POWER = "is 0 W while the device works"
_SCRAMBLED = Unavailable(
    "processes",
    "failing",
    "the driver's process list makes no sense: a pid that cannot be, or more memory than the device has",
    "update the driver",
)
_TOO_MANY_PARTS = _refused("part_1e6", "and those of the GPU's other partitions are more than the whole GPU")
DUPLICATE = "device at "
"""Begin of the metric of a gap for a device that reports the UUID of another."""
_SHARED_UUID = "the driver reports the UUID {} for {} and for {}: only the first is recorded"


class _Table:
    """Bounds of one kind of reading, laid out for a check in each tick."""

    def __init__(self, bounds: Mapping[str, Plausible]) -> None:
        self._values = attrgetter(*bounds)
        self._ranges = tuple((bound.low, bound.high, _unavailable(metric, bound)) for metric, bound in bounds.items())
        at = {metric: n for n, metric in enumerate(bounds)}
        self._relations = tuple(
            (at[metric], at[bound.limited_by], bound.times, _relation_unavailable(metric, bound))
            for metric, bound in bounds.items()
            if bound.limited_by is not None
        )

    def refused(self, reading: Any) -> list[Unavailable]:
        """Gaps of the values that cannot be true, one for each."""
        values = self._values(reading)
        unavailable = [
            missing
            for value, (low, high, missing) in zip(values, self._ranges, strict=True)
            if value is not None and not (value.__class__ is int and low <= value <= high)
        ]
        out_of_range = {missing.metric for missing in unavailable}
        for at, limit_at, times, missing in self._relations:
            value, limit = values[at], values[limit_at]
            if (
                value is not None
                and limit is not None
                and not (missing.metric in out_of_range or self._ranges[limit_at][2].metric in out_of_range)
                and value > times * limit
            ):
                unavailable.append(missing)
        return unavailable


_DEVICE, _HOST = _Table(DEVICE_BOUNDS), _Table(HOST_BOUNDS)


def bounded(probe: ProbeReading, before: Mapping[str, DeviceReading]) -> ProbeReading:
    """Return the reading with each value that cannot be true as None and a gap for it; each device once.

    `before` is the reading before this one by UUID: a device that draws nothing while its energy counter moves
    reports no power.
    """
    devices: dict[str, DeviceReading] = {}
    unavailable: list[Unavailable] = []
    for device in probe.devices:
        same = devices.get(device.uuid)
        if same is not None:
            reason = _SHARED_UUID.format(device.uuid, _place(same), _place(device))
            unavailable.append(Unavailable(f"{DUPLICATE}{_place(device)}", "failing", reason, "update the driver"))
            continue
        devices[device.uuid] = _bounded(device, before.get(device.uuid))
    host_unavailable = _HOST.refused(probe.host)
    return replace(
        probe,
        host=_without(probe.host, host_unavailable) if host_unavailable else probe.host,
        devices=_with_possible_parts(tuple(devices.values())),
        unavailable=(*probe.unavailable, *unavailable, *host_unavailable),
    )


def scrambled(processes: Sequence[DeviceProcess], memory_bytes: int | None) -> bool:
    """Return whether a process list cannot be true: a pid no process has, or more memory than the device has."""
    limit = MAX_MEMORY_BYTES if memory_bytes is None else memory_bytes
    return any(
        not 0 < process.pid <= MAX_PID or (process.memory_bytes is not None and not 0 <= process.memory_bytes <= limit)
        for process in processes
    )


def _bounded(device: DeviceReading, before: DeviceReading | None) -> DeviceReading:
    unavailable = _DEVICE.refused(device)
    if (device.power_mw == 0 or device.power_instant_mw == 0) and _works(device, before):
        powers = ("power_mw", "power_instant_mw")
        unavailable += [_refused(metric, _NO_POWER) for metric in powers if getattr(device, metric) == 0]
    if device.processes:
        limit = None if any(missing.metric == "memory_bytes" for missing in unavailable) else device.memory_bytes
        if scrambled(device.processes, limit):
            unavailable.append(_SCRAMBLED)
    return _hidden(device, unavailable) if unavailable else device


def _hidden(device: DeviceReading, unavailable: Sequence[Unavailable]) -> DeviceReading:
    """Return the reading without the metrics of these gaps, which replace what gaps those metrics had."""
    metrics = dict.fromkeys(missing.metric for missing in unavailable)
    kept = tuple(missing for missing in device.unavailable if missing.metric not in metrics)
    unknown: dict[str, Any] = dict.fromkeys(metrics)
    return device._replace(**unknown, unavailable=(*kept, *unavailable))


def _without(host: HostReading, unavailable: Sequence[Unavailable]) -> HostReading:
    values: dict[str, Any] = dict.fromkeys(missing.metric for missing in unavailable)
    return replace(host, **values)


def _works(device: DeviceReading, before: DeviceReading | None) -> bool:
    """Return whether another metric shows that a device draws power."""
    moved = (
        before is not None
        and before.energy_mj is not None
        and device.energy_mj is not None
        and device.energy_mj > before.energy_mj
    )
    return moved or bool(device.util_1e4) or bool(device.sm_active_1e4)


def _with_possible_parts(devices: tuple[DeviceReading, ...]) -> tuple[DeviceReading, ...]:
    """Return the devices, with the part unknown of those whose parts add up to more than their GPU."""
    parts: dict[str, int] = defaultdict(int)
    for device in devices:
        if device.parent_uuid is not None and not device.lost:
            parts[device.parent_uuid] += device.part_1e6 or 0
    too_many = {parent for parent, part_1e6 in parts.items() if part_1e6 > SHARE}
    if not too_many:
        return devices
    return tuple(
        _hidden(device, (_TOO_MANY_PARTS,)) if device.parent_uuid in too_many else device for device in devices
    )


def _place(device: DeviceReading) -> str:
    """Return where a device is, for people: its bus id, else its slot."""
    return device.pci_bus_id or f"slot {device.slot}"
