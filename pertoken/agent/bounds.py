"""Plausible ranges of what drivers and the kernel report, and their application to a reading.

Drivers report "not available" as the largest number of a type (2^32 - 1, 2^64 - 1), as -1 or as NaN, and some report
figures that no hardware reaches. A value outside its range is unknown: None, with a gap that names the metric. The
ranges are wide on purpose: they hold for every accelerator that can be bought, and refuse only what cannot be true.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from pertoken.agent.readings import DeviceProcess, DeviceReading, Gap, HostReading, ProbeReading
from pertoken.units import RATIO, SHARE

MAX_PID = 2**22
"""PID_MAX_LIMIT of the Linux kernel (include/linux/threads.h)."""
MAX_POWER_MW = 10_000_000
"""10 kW: four times the largest module that is sold (GB200: 2.7 kW)."""
POWER_LIMITS = 3
"""Times the power limit that a power, or energy over its time, is believed at most: spikes reach about twice."""
MAX_NETWORK_BYTES_S = 10**13
"""80 Tbit/s: twenty times what eight network adapters of 400 Gbit/s carry together."""
MAX_TRAFFIC_BYTES_S = 10**14
"""100 TB/s: a hundred times what two sockets of a server move to and from memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """The plausible range of one metric, both ends included, in the metric's unit."""

    metric: str
    unit: str
    low: int
    high: int
    source: str
    """Why these limits."""
    limited_by: str | None = None
    """Another metric of the same reading that this one cannot exceed..."""
    times: int = 1
    """...this many times."""

    @property
    def gap(self) -> Gap:
        """The gap that a value outside the range leaves."""
        return _refused(self.metric, f"is not between {self.low} and {self.high} {self.unit}")

    @property
    def relation_gap(self) -> Gap:
        """The gap that a value past `limited_by` leaves."""
        times = f"{self.times} times " if self.times > 1 else ""
        return _refused(self.metric, f"is more than {times}its {self.limited_by}")


def _refused(metric: str, fault: str) -> Gap:
    reason = f"the driver reports a value that cannot be true: it {fault}"
    return Gap(metric, "failing", reason, "update the driver; see `dmesg` if it stays")


_MAX_MEMORY = 2**50
_MEMORY = "1 PiB: sixteen times the largest host; an hour of such values at 1 s still adds up in 64 bits"
_POWER = "10 kW: four times the largest module that is sold (GB200: 2.7 kW)"
_MAX_CLOCK = "three times the fastest that is sold"
_RATIO = "a share of time is between 0 and 100 %"
_GPM = "101 %: a ratio of two hardware counters that are not read at the same instant"
_LINK = "about 10 TB/s: ten times NVLink 5 in one direction"
_ERRORS = "a billion: no memory with so many errors serves"

DEVICE_BOUNDS = (
    Bound("slot", "", 0, 65_535, "an index"),
    Bound("memory_bytes", "bytes", 1, _MAX_MEMORY, _MEMORY),
    Bound("power_limit_mw", "mW", 1000, MAX_POWER_MW, _POWER),
    Bound("part_1e6", "millionths", 1, SHARE, "a partition is a part of its GPU"),
    Bound("util_1e4", "hundredths of a percent", 0, RATIO, _RATIO),
    Bound("memory_used_bytes", "bytes", 0, _MAX_MEMORY, _MEMORY, limited_by="memory_bytes"),
    Bound("power_mw", "mW", 0, MAX_POWER_MW, _POWER, limited_by="power_limit_mw", times=POWER_LIMITS),
    Bound("power_instant_mw", "mW", 0, MAX_POWER_MW, _POWER, limited_by="power_limit_mw", times=POWER_LIMITS),
    Bound("power_module_mw", "mW", 0, MAX_POWER_MW, _POWER),
    Bound("power_memory_mw", "mW", 0, MAX_POWER_MW, _POWER, limited_by="power_limit_mw", times=POWER_LIMITS),
    Bound("energy_mj", "mJ", 0, 2**53, "28 years at 10 kW"),
    Bound("energy_wraps_mj", "mJ", 1, 2**53, "28 years at 10 kW"),
    Bound("sm_clock_mhz", "MHz", 0, 10_000, _MAX_CLOCK),
    Bound("memory_clock_mhz", "MHz", 0, 50_000, _MAX_CLOCK),
    Bound("temperature_c", "°C", 0, 150, "silicon is shut down below 130 °C"),
    Bound("throttle_reasons", "", 0, 2**16 - 1, "NVML defines 9 bits (nvml.h 12.9); 16 leave room for more"),
    Bound("sm_active_1e4", "hundredths of a percent", 0, 10_100, _GPM),
    Bound("sm_occupancy_1e4", "hundredths of a percent", 0, 10_100, _GPM),
    Bound("tensor_active_1e4", "hundredths of a percent", 0, 10_100, _GPM),
    Bound("dram_active_1e4", "hundredths of a percent", 0, 10_100, _GPM),
    Bound("nvlink_rx_mib_s", "MiB/s", 0, 10**7, _LINK),
    Bound("nvlink_tx_mib_s", "MiB/s", 0, 10**7, _LINK),
    Bound("ecc_corrected", "errors", 0, 10**9, _ERRORS),
    Bound("ecc_uncorrected", "errors", 0, 10**9, _ERRORS),
)
"""Of each number in a `DeviceReading`, for devices of all vendors and for the CPUs."""
_COUNTER = "what a signed 64-bit counter holds"
HOST_BOUNDS = (
    Bound("cpu_count", "CPUs", 1, 65_536, "eight times what Linux is built for (NR_CPUS)"),
    Bound("memory_bytes", "bytes", 1, _MAX_MEMORY, _MEMORY),
    Bound("cpu_util_1e4", "hundredths of a percent", 0, RATIO, _RATIO),
    Bound("load_1e2", "hundredths", 0, 100 * MAX_PID, "a load is a number of processes"),
    Bound("memory_used_bytes", "bytes", 0, _MAX_MEMORY, _MEMORY, limited_by="memory_bytes"),
    Bound("network_rx_bytes", "bytes", 0, 2**63 - 1, _COUNTER),
    Bound("network_tx_bytes", "bytes", 0, 2**63 - 1, _COUNTER),
    Bound("memory_traffic_bytes", "bytes", 0, 2**63 - 1, _COUNTER),
)
"""Of each number in a `HostReading` that becomes a row."""
HOST_METRICS = frozenset(bound.metric for bound in HOST_BOUNDS)

_NO_POWER = "is 0 W while the device works"
_SCRAMBLED = Gap(
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

    def __init__(self, bounds: Sequence[Bound]) -> None:
        self._values = attrgetter(*(bound.metric for bound in bounds))
        self._ranges = tuple((bound.low, bound.high, bound.gap) for bound in bounds)
        at = {bound.metric: n for n, bound in enumerate(bounds)}
        self._relations = tuple(
            (at[bound.metric], at[bound.limited_by], bound.times, bound.relation_gap)
            for bound in bounds
            if bound.limited_by is not None
        )

    def refused(self, reading: Any) -> list[Gap]:
        """Gaps of the values that cannot be true, one for each."""
        values = self._values(reading)
        gaps = [
            gap
            for value, (low, high, gap) in zip(values, self._ranges, strict=True)
            if value is not None and not (value.__class__ is int and low <= value <= high)
        ]
        out_of_range = {gap.metric for gap in gaps}
        for at, limit_at, times, gap in self._relations:
            value, limit = values[at], values[limit_at]
            if (
                value is not None
                and limit is not None
                and not (gap.metric in out_of_range or self._ranges[limit_at][2].metric in out_of_range)
                and value > times * limit
            ):
                gaps.append(gap)
        return gaps


_DEVICE, _HOST = _Table(DEVICE_BOUNDS), _Table(HOST_BOUNDS)


def bounded(probe: ProbeReading, before: Mapping[str, DeviceReading]) -> ProbeReading:
    """Return the reading with each value that cannot be true as None and a gap for it; each device once.

    `before` is the reading before this one by UUID: a device that draws nothing while its energy counter moves
    reports no power.
    """
    devices: dict[str, DeviceReading] = {}
    gaps: list[Gap] = []
    for device in probe.devices:
        same = devices.get(device.uuid)
        if same is not None:
            reason = _SHARED_UUID.format(device.uuid, _place(same), _place(device))
            gaps.append(Gap(f"{DUPLICATE}{_place(device)}", "failing", reason, "update the driver"))
            continue
        devices[device.uuid] = _bounded(device, before.get(device.uuid))
    host_gaps = _HOST.refused(probe.host)
    return replace(
        probe,
        host=_without(probe.host, host_gaps) if host_gaps else probe.host,
        devices=_with_possible_parts(tuple(devices.values())),
        gaps=(*probe.gaps, *gaps, *host_gaps),
    )


def scrambled(processes: Sequence[DeviceProcess], memory_bytes: int | None) -> bool:
    """Whether a process list cannot be true: a pid no process has, or more memory than the device has."""
    limit = _MAX_MEMORY if memory_bytes is None else memory_bytes
    return any(
        not 0 < each.pid <= MAX_PID or (each.memory_bytes is not None and not 0 <= each.memory_bytes <= limit)
        for each in processes
    )


def _bounded(device: DeviceReading, before: DeviceReading | None) -> DeviceReading:
    gaps = _DEVICE.refused(device)
    if (device.power_mw == 0 or device.power_instant_mw == 0) and _works(device, before):
        powers = ("power_mw", "power_instant_mw")
        gaps += [_refused(metric, _NO_POWER) for metric in powers if getattr(device, metric) == 0]
    if device.processes:
        limit = None if any(gap.metric == "memory_bytes" for gap in gaps) else device.memory_bytes
        if scrambled(device.processes, limit):
            gaps.append(_SCRAMBLED)
    return _hidden(device, gaps) if gaps else device


def _hidden(device: DeviceReading, gaps: Sequence[Gap]) -> DeviceReading:
    """The reading without the metrics of these gaps, which replace what gaps those metrics had."""
    metrics = dict.fromkeys(gap.metric for gap in gaps)
    kept = tuple(gap for gap in device.gaps if gap.metric not in metrics)
    unknown: dict[str, Any] = dict.fromkeys(metrics)
    return device._replace(**unknown, gaps=(*kept, *gaps))


def _without(host: HostReading, gaps: Sequence[Gap]) -> HostReading:
    values: dict[str, Any] = dict.fromkeys(gap.metric for gap in gaps)
    return replace(host, **values)


def _works(device: DeviceReading, before: DeviceReading | None) -> bool:
    """Whether another metric shows that a device draws power."""
    moved = (
        before is not None
        and before.energy_mj is not None
        and device.energy_mj is not None
        and device.energy_mj > before.energy_mj
    )
    return moved or bool(device.util_1e4) or bool(device.sm_active_1e4)


def _with_possible_parts(devices: tuple[DeviceReading, ...]) -> tuple[DeviceReading, ...]:
    """The devices, with the part unknown of those whose parts add up to more than their GPU."""
    parts: dict[str, int] = defaultdict(int)
    for device in devices:
        if device.parent_uuid is not None and not device.lost:
            parts[device.parent_uuid] += device.part_1e6 or 0
    too_many = {parent for parent, part_1e6 in parts.items() if part_1e6 > SHARE}
    if not too_many:
        return devices
    return tuple(_hidden(each, (_TOO_MANY_PARTS,)) if each.parent_uuid in too_many else each for each in devices)


def _place(device: DeviceReading) -> str:
    """Where a device is, for people: its bus id, else its slot."""
    return device.pci_bus_id or f"slot {device.slot}"
