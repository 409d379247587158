"""Readings of probes and engines for one tick: absolute values as read, before any difference is taken."""

from __future__ import annotations

from collections import defaultdict, namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Self

from pertoken.metrics import (
    DEVICE,
    MAX_MEMORY_BYTES,
    MAX_POWER_MW,
    MEMORY_SOURCE,
    POWER_LIMITS,
    POWER_SOURCE,
    Plausible,
)
from pertoken.units import RATIO, SHARE


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A metric that could not be read from its owner, and why."""

    metric: str
    status: str
    """`unsupported` (never will be), `denied` (a right is missing), `missing` (a driver or file is), `failing`,
    `late` (read, but only some time after it happened), `unresolved` (reported by another host)."""
    reason: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that holds a device, by host pid."""

    pid: int
    memory_bytes: int | None
    sm_time: int | None = None
    """SM time since the list before, in the driver's percent-samples: only good to compare. None: not reported."""


@dataclass(frozen=True, slots=True)
class DriverEvent:
    """Event that a driver reported without being asked."""

    uuid: str | None
    """The device it is about; None: all of this host's."""
    kind: str
    message: str


IDENTITY = (
    "uuid",
    "kind",
    "vendor",
    "name",
    "slot",
    "memory_bytes",
    "power_limit_mw",
    "driver_version",
    "pci_bus_id",
    "parent_uuid",
    "part_1e6",
    "power_source",
    "energy_source",
    "links",
)
"""Fields of a `DeviceReading` that identify the device and the sources of its values."""
_VALUES = (*(metric.reading for metric in DEVICE), "energy_wraps_mj")

if TYPE_CHECKING:

    class DeviceReading(tuple[object, ...]):
        """One device at one instant: its identity, and the values of `metrics.DEVICE` as they were read.

        None: not readable; `unavailable` gives the reason. Counters are absolute.
        """

        uuid: str
        kind: str
        """`gpu`, `mig` (a part of one by NVIDIA), `partition` (a part of one by AMD) or `cpu`."""
        vendor: str
        name: str
        slot: int | None
        driver_version: str | None
        pci_bus_id: str | None
        parent_uuid: str | None
        """The GPU that a MIG device or partition is a part of."""
        part_1e6: int | None
        """Its part of that GPU's compute slices."""
        power_source: str | None
        """Kind and scope of `power_mw`: `average, gpu`; `instant, gpu`; `usage, module`."""
        energy_source: str | None
        """Scope of `energy_mj`: `gpu`, or `module` with the CPU beside it."""
        links: str | None
        """JSON: how it reaches the other devices of its host (`state.fleet.LINKS` -> their UUIDs); None: not known."""
        energy_wraps_mj: int | None
        """Where the energy counter wraps (RAPL); None for one that only resets."""
        lost: str | None
        """Why the whole device did not answer; every value is None then."""
        silent_s: int | None
        """For how long a lost device has not answered; None: it never did since the agent started."""
        processes: tuple[DeviceProcess, ...] | None
        """None: the list could not be read, or was not asked for this time."""
        unavailable: tuple[Unavailable, ...]
        _fields: tuple[str, ...]

        def __new__(cls, *values: object, **named: object) -> Self:
            """Return values by position or name; those left out are None, except for `uuid` to `name`."""

        def __getattr__(self, name: str) -> int | None: ...
        def _replace(self, **named: object) -> Self: ...
        def _asdict(self) -> dict[str, object]: ...

else:
    # A tuple: a dataclass of as many fields takes five times as long to make, for each device in each tick.
    _FIELDS = (*IDENTITY, *_VALUES, "lost", "silent_s", "processes", "unavailable")
    DeviceReading = namedtuple("DeviceReading", _FIELDS, defaults=(*(None,) * (len(_FIELDS) - 5), ()))

identity_of: Callable[[DeviceReading], tuple[object, ...]] = itemgetter(slice(len(IDENTITY)))
"""The values of `IDENTITY`, the first of a reading."""


def reading_of(device: DeviceReading, **values: object) -> DeviceReading:
    """Return another reading of the same device, with these values and gaps alone; they may replace its identity."""
    return DeviceReading(**dict(zip(IDENTITY, identity_of(device), strict=True)) | values)


def unread(device: DeviceReading, reason: str) -> DeviceReading:
    """Return a device that did not answer: its identity, `lost` with the reason, every value None."""
    return reading_of(device, lost=reason)


@dataclass(frozen=True, slots=True)
class HostReading:
    """The host at one instant. Counters of network and memory traffic are absolute."""

    name: str
    machine_id: str | None
    boot_id: str | None
    boot_ms: int
    os: str
    cpu_name: str | None = None
    cpu_count: int | None = None
    memory_bytes: int | None = None
    cpu_util_1e4: int | None = None
    """Since the reading before; None for the first."""
    load_1e2: int | None = None
    memory_used_bytes: int | None = None
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    memory_traffic_bytes: int | None = None
    """To and from memory, by all CPUs, since a while ago."""


@dataclass(frozen=True, slots=True)
class PlugReading:
    """Power of the whole server at its plug."""

    power_mw: int
    source: str
    """Kind of the meter: one of `settings.fleet.KINDS`."""


@dataclass(frozen=True, slots=True)
class DriversReading:
    """Readings of all drivers at one instant, with their cost to the sampler."""

    devices: tuple[DeviceReading, ...]
    unavailable: tuple[Unavailable, ...] = ()
    """Gaps of the whole host: no NVIDIA driver, no ROCm."""
    driver_events: tuple[DriverEvent, ...] = ()
    driver_calls: int = 0
    cpu_ms: int = 0
    """CPU time the sampler used since the reading before."""
    rss_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ProbeReading:
    """All devices and the host at one instant, with the cost of reading them."""

    host: HostReading
    devices: tuple[DeviceReading, ...]
    """Devices of the drivers, then the CPUs."""
    unavailable: tuple[Unavailable, ...] = ()
    driver_events: tuple[DriverEvent, ...] = ()
    driver_calls: int = 0
    cpu_ms: int = 0
    rss_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An inference server found on this host, by its processes or by a setting."""

    kind: str
    """Key of `agent.engines.ADAPTERS`."""
    base_url: str
    """Where it answers; `rendezvous://ADDRESS/MODEL` for ranks that follow."""
    found_by: str
    """`process` or `setting`."""
    port: int | None = None
    """Port of this host that leads to it; None if it has an address of its own, as in a container."""
    pid: int | None = None
    """Root of its process group; None if it runs elsewhere or could not be seen."""
    process_start_ms: int | None = None
    """Milliseconds from the host's boot to the start of the root process: no clock step changes it."""
    pids: tuple[int, ...] = ()
    """All processes of the group: those that hold its devices are among them."""
    knobs: dict[str, object] = field(default_factory=dict)
    """Knobs its command line sets, in the words of `Deployment`; `rendezvous`, where ranks of several hosts meet."""
    model_path: str | None = None
    certain: bool = True
    """Whether that process is known to be the server itself; else it may only listen for it, as a proxy does."""
    model: str | None = None
    """Which of the models on its page this is, where a page counts for several."""
    contested: bool = False
    """Whether other servers listen on the same address: each connection is answered by any one of them."""
    follows: bool = False
    """Whether these are ranks that another host leads: they answer nothing, and that host counts their tokens."""


@dataclass(frozen=True, slots=True)
class HistogramReading:
    """Absolute, non-cumulative bucket counts; one more count than bounds (the last is +Inf)."""

    upper_bounds: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GatewayReading:
    """One page of a gateway: absolute counts by series, and the tenant of each."""

    kind: str
    """Key of `agent.gateways.ADAPTERS`."""
    base_url: str
    counters: dict[str, int]
    metric_of: dict[str, str]
    """Series of `counters` -> the stored metric that it is a part of (`metrics.TENANT_TOKENS`)."""
    life_ms: int | None = None
    """Unix time at which its process started, as its page exposes it."""


SLEEP_AFTER = "sleep_after_s"
"""Name, beside knobs, of the seconds without a request after which a server unloads its model."""
LATE = "late"
"""`fault_kind` of a reading that is still under way: its engine has no row in this tick, and the next one covers it."""


@dataclass(frozen=True, slots=True)
class EngineReading:
    """One scrape of one engine: absolute counters by series, gauges by word, or why there are none.

    Counters are keyed `word` or `word{label="value"}`: one key for every series on the page, so that a label set
    that appears late is a counter of its own. Words are names of `metrics`; how a request ended is
    its label `reason`, whatever the engine calls it.
    """

    endpoint: Endpoint
    served_model: str | None = None
    version: str | None = None
    model_path: str | None = None
    model_facts: dict[str, object] = field(default_factory=dict)
    """Fields of `Model` that the engine itself reported, or the files of its model."""
    knobs: dict[str, object] = field(default_factory=dict)
    """Endpoint's knobs, and the knobs that the engine's API and page report."""
    counters: dict[str, int] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    """`running`, `waiting` (requests), `kv_use` (0 to 1), `awake` (0 or 1)."""
    histograms: dict[str, HistogramReading] | None = field(default_factory=dict)
    """By the names of `metrics.HISTOGRAMS`, keyed like counters; None: not read this time."""
    started_ms: int | None = None
    """Unix time at which its process started, as its own page reports it; by a clock that need not be ours."""
    life_ms: int | None = None
    """The same, or another positive number that its page gives each life of its process."""
    unavailable: tuple[Unavailable, ...] = ()
    """Metrics that this engine never exposes, and gaps beside its page."""
    fault: str | None = None
    """Why the page could not be used: nothing of it was counted then."""
    fault_kind: str | None = None
    """`closed`, `http`, `access`, `malformed`, `too_large`, `timeout`, `metrics_off`, `no_model`, `several_models`,
    `router`, `several_servers`, `agent` (a defect of the reader), or `LATE`."""
    remedy: str | None = None
    read_ms: int | None = None
    """Time since boot at which the page was there, if that was before this tick: it came late for the tick before."""


@dataclass(frozen=True, slots=True)
class LastMeter:
    """Energy values of a device, read at two moments."""

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
    """Increase of the device's counter."""
    integral_mj: int | None
    """Trapezoid of the two power readings."""
    fault: str | None = None
    """Why the counter is not believed, though both readings had one: a constant of this module."""


def energy_step(earlier: DeviceReading | LastMeter, later: DeviceReading, elapsed_ms: int) -> EnergyStep:
    """Return the energy from `earlier` to `later`, two readings of one device `elapsed_ms` (monotonic) apart.

    A counter that wraps (RAPL) is unwrapped once. One that fell, stood still under power, or grew by more than
    `POWER_LIMITS` times the power limit (`MAX_POWER_MW` without one) gives None and a fault, while the integral
    stands. Readings on two sides of a boot must not be compared.
    """
    if elapsed_ms <= 0:
        return EnergyStep(None, None, NO_TIME)
    integral = None
    if earlier.power_mw is not None and later.power_mw is not None:
        integral = (earlier.power_mw + later.power_mw) * elapsed_ms // 2000
    if earlier.energy_mj is None or later.energy_mj is None:
        return EnergyStep(None, integral)

    increase = later.energy_mj - earlier.energy_mj
    if increase < 0 and later.energy_wraps_mj is not None:
        increase += later.energy_wraps_mj
    if increase < 0:
        return EnergyStep(None, integral, RESET)
    limit_mw = POWER_LIMITS * later.power_limit_mw if later.power_limit_mw else MAX_POWER_MW
    if increase * 1000 > min(limit_mw, MAX_POWER_MW) * elapsed_ms:
        return EnergyStep(None, integral, JUMPED)
    if increase == 0 and integral is not None and integral > 0 and elapsed_ms >= 1000:
        return EnergyStep(None, integral, STANDS_STILL)
    return EnergyStep(increase, integral)


MAX_PID = 2**22
"""PID_MAX_LIMIT of the Linux kernel (include/linux/threads.h)."""
MAX_NETWORK_BYTES_S = 10**13
"""80 Tbit/s: twenty times the sum of eight network adapters of 400 Gbit/s."""
MAX_TRAFFIC_BYTES_S = 10**14
"""100 TB/s: a hundred times the memory traffic of two sockets of a server."""


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
        position = {metric: n for n, metric in enumerate(bounds)}
        self._relations = tuple(
            (position[metric], position[bound.limited_by], bound.times, _relation_unavailable(metric, bound))
            for metric, bound in bounds.items()
            if bound.limited_by is not None
        )

    def refused(self, reading: DeviceReading | HostReading) -> list[Unavailable]:
        """Return the gaps of the values that cannot be true, one for each."""
        values = self._values(reading)
        unavailable = [
            missing
            for value, (low, high, missing) in zip(values, self._ranges, strict=True)
            if value is not None and not (value.__class__ is int and low <= value <= high)
        ]
        out_of_range = {missing.metric for missing in unavailable}
        for position, limit_position, times, missing in self._relations:
            value, limit = values[position], values[limit_position]
            if (
                value is not None
                and limit is not None
                and not (missing.metric in out_of_range or self._ranges[limit_position][2].metric in out_of_range)
                and value > times * limit
            ):
                unavailable.append(missing)
        return unavailable


_DEVICE, _HOST = _Table(DEVICE_BOUNDS), _Table(HOST_BOUNDS)


def bounded(probe: ProbeReading, previous: Mapping[str, DeviceReading]) -> ProbeReading:
    """Return the reading with each value that cannot be true as None and a gap for it; each device once.

    `previous` is the reading before this one by UUID: a device that draws nothing while its energy counter moves
    reports no power.
    """
    devices: dict[str, DeviceReading] = {}
    unavailable: list[Unavailable] = []
    for device in probe.devices:
        same = devices.get(device.uuid)
        if same is not None:
            reason = _SHARED_UUID.format(device.uuid, _location(same), _location(device))
            unavailable.append(Unavailable(f"{DUPLICATE}{_location(device)}", "failing", reason, "update the driver"))
            continue
        devices[device.uuid] = _bounded(device, previous.get(device.uuid))
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


def _bounded(device: DeviceReading, previous: DeviceReading | None) -> DeviceReading:
    unavailable = _DEVICE.refused(device)
    if (device.power_mw == 0 or device.power_instant_mw == 0) and _works(device, previous):
        powers = ("power_mw", "power_instant_mw")
        unavailable += [_refused(metric, _NO_POWER) for metric in powers if getattr(device, metric) == 0]
    if device.processes:
        limit = None if any(missing.metric == "memory_bytes" for missing in unavailable) else device.memory_bytes
        if scrambled(device.processes, limit):
            unavailable.append(_SCRAMBLED)
    return _hidden(device, unavailable) if unavailable else device


def _hidden(device: DeviceReading, unavailable: Sequence[Unavailable]) -> DeviceReading:
    """Return the reading without the metrics of these gaps, which replace the gaps of the same metrics."""
    metrics = dict.fromkeys(missing.metric for missing in unavailable)
    kept = tuple(missing for missing in device.unavailable if missing.metric not in metrics)
    return device._replace(**metrics, unavailable=(*kept, *unavailable))


def _without(host: HostReading, unavailable: Sequence[Unavailable]) -> HostReading:
    values = asdict(host)
    values.update((missing.metric, None) for missing in unavailable)
    return HostReading(**values)


def _works(device: DeviceReading, previous: DeviceReading | None) -> bool:
    """Return whether another metric shows that a device draws power."""
    moved = (
        previous is not None
        and previous.energy_mj is not None
        and device.energy_mj is not None
        and device.energy_mj > previous.energy_mj
    )
    return moved or bool(device.util_1e4) or bool(device.sm_active_1e4)


def _with_possible_parts(devices: tuple[DeviceReading, ...]) -> tuple[DeviceReading, ...]:
    """Return the devices; parts that add up to more than their GPU are unknown."""
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


def _location(device: DeviceReading) -> str:
    """Return where a device is, for people: its bus id, else its slot."""
    return device.pci_bus_id or f"slot {device.slot}"
