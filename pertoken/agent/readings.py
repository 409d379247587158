"""What probes and engines give to a tick: absolute values as read, before any difference is taken."""

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Gap:
    """A metric that could not be read from its owner, and why."""

    metric: str
    status: str
    """`unsupported` (never will be), `denied` (a right is missing), `missing` (a driver or file is), `failing`,
    `late` (read, but only some time after it happened), `unresolved` (told by another host)."""
    reason: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that holds a device, by host pid."""

    pid: int
    memory_bytes: int | None
    sm_time: int | None = None
    """SM time since the list before, in the driver's percent-samples: only good to compare. None: not told."""


@dataclass(frozen=True, slots=True)
class Happened:
    """Something a driver told by itself."""

    uuid: str | None
    """The device it is about; None: all of this host's."""
    kind: str
    message: str


class DeviceReading(NamedTuple):
    """One device at one instant. None: not readable; `gaps` says why.

    A tuple, since a dataclass of as many fields takes five times as long to make, for each device in each tick.
    """

    uuid: str
    kind: str
    """`gpu`, `mig` (a slice of one by NVIDIA), `partition` (a part of one by AMD) or `cpu`."""
    vendor: str
    name: str
    slot: int | None = None
    memory_bytes: int | None = None
    power_limit_mw: int | None = None
    driver_version: str | None = None
    pci_bus_id: str | None = None
    parent_uuid: str | None = None
    """The GPU that a MIG device or partition is a part of."""
    part_1e6: int | None = None
    """What part of that GPU's compute slices it is."""
    power_source: str | None = None
    """What `power_mw` is, and of what: `average, gpu`; `instant, gpu`; `usage, module`."""
    energy_source: str | None = None
    """What `energy_mj` counts: `gpu`, or `module` with the CPU beside it."""
    util_1e4: int | None = None
    memory_used_bytes: int | None = None
    power_mw: int | None = None
    power_instant_mw: int | None = None
    power_module_mw: int | None = None
    """Of the whole module, GPU and CPU together (GH200)."""
    power_memory_mw: int | None = None
    energy_mj: int | None = None
    """Absolute energy counter, millijoules since it last started from 0."""
    energy_wraps_mj: int | None = None
    """Where the counter wraps (RAPL); None for one that only resets."""
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttle_reasons: int | None = None
    sm_active_1e4: int | None = None
    """Part of the SMs that were busy, since the reading before; so are the next five."""
    sm_occupancy_1e4: int | None = None
    """Warps that were active, of those there could be."""
    tensor_active_1e4: int | None = None
    dram_active_1e4: int | None = None
    """Memory bandwidth used, of what there is."""
    nvlink_rx_mib_s: int | None = None
    nvlink_tx_mib_s: int | None = None
    ecc_corrected: int | None = None
    """Absolute, since the driver was loaded."""
    ecc_uncorrected: int | None = None
    lost: str | None = None
    """Why the whole device did not answer; every value is None then."""
    silent_s: int | None = None
    """For how long a lost device has not answered; None: it never did since the agent started."""
    processes: tuple[DeviceProcess, ...] | None = None
    """None: the list could not be read, or was not asked for this time."""
    gaps: tuple[Gap, ...] = ()


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
)
"""What of a `DeviceReading` says which device it is, and what its values are of."""
identity_of: Callable[[DeviceReading], tuple[Any, ...]] = attrgetter(*IDENTITY)
"""The values of `IDENTITY`, in that order."""


def reading_of(known: DeviceReading, **values: Any) -> DeviceReading:
    """A reading of the device that `known` is of, with these values alone; gaps of `known` are not kept."""
    return DeviceReading(**dict(zip(IDENTITY, identity_of(known), strict=True)) | values)


def unread(device: DeviceReading, reason: str) -> DeviceReading:
    """A device that did not answer: its identity, `lost` with the reason, every value None."""
    return reading_of(device, lost=reason)


@dataclass(frozen=True, slots=True)
class HostReading:
    """The host at one instant. Counters of network and memory traffic are absolute."""

    name: str
    machine_id: str | None
    boot_id: str | None
    boot_ms: int
    os: str
    cpu_name: str | None
    cpu_count: int | None
    memory_bytes: int | None
    cpu_util_1e4: int | None
    """Since the reading before; None for the first."""
    load_1e2: int | None
    memory_used_bytes: int | None
    network_rx_bytes: int | None
    network_tx_bytes: int | None
    memory_traffic_bytes: int | None = None
    """To and from memory, by all CPUs, since a while ago."""


@dataclass(frozen=True, slots=True)
class ProbeReading:
    """All devices and the host at one instant, with what asking cost."""

    host: HostReading
    devices: tuple[DeviceReading, ...]
    gaps: tuple[Gap, ...] = ()
    """What is missing for the whole host: no NVIDIA driver, no ROCm."""
    happened: tuple[Happened, ...] = ()
    driver_calls: int = 0
    cpu_ms: int = 0
    """CPU time the sampler used since the reading before."""
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


LATE = "late"
"""`fault_kind` of a reading that is still under way: its engine has no row in this tick, and the next one covers it."""


@dataclass(frozen=True, slots=True)
class EngineReading:
    """One scrape of one engine: absolute counters by series, gauges by word, or why there are none.

    Counters are keyed `word` or `word{label="value"}`: one key for every series on the page, so that a label set
    that appears late is a counter of its own. Words are those of `engines.adapters.metrics`; how a request ended
    is its label `reason`, whatever the engine calls it.
    """

    endpoint: Endpoint
    served_model: str | None = None
    version: str | None = None
    model_path: str | None = None
    model_facts: dict[str, object] = field(default_factory=dict)
    """Fields of `Model` that the engine itself reported, or the files of its model."""
    knobs: dict[str, object] = field(default_factory=dict)
    """Endpoint's knobs plus what the engine's API and page told."""
    counters: dict[str, int] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    """`running`, `waiting` (requests), `kv_use` (0 to 1), `awake` (0 or 1)."""
    histograms: dict[str, HistogramReading] | None = field(default_factory=dict)
    """`ttft_s`, `tpot_s`, `e2e_s`, `prompt_len`, `generated_len`, keyed like counters; None: not read this time."""
    started_ms: int | None = None
    """Unix time at which its process started, as its own page tells; by a clock that need not be ours."""
    life_ms: int | None = None
    """The same, or another positive number that its page gives each life of its process."""
    gaps: tuple[Gap, ...] = ()
    """What this engine never tells, and what could not be read beside its page."""
    fault: str | None = None
    """Why the page could not be used: nothing of it was counted then."""
    fault_kind: str | None = None
    """`closed`, `http`, `access`, `malformed`, `too_large`, `timeout`, `metrics_off`, `no_model`, `several_models`,
    `several_servers`, `agent` (a defect of the reader), or `LATE`."""
    remedy: str | None = None
    read_ms: int | None = None
    """Time since boot at which the page was there, if that was before this tick: it came late for the tick before."""
