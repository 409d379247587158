"""Values the agent hands to the store. Field names are the columns they become; None becomes NULL."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

from pertoken.metrics import DEVICE_COLUMNS
from pertoken.provenance import Provenance


@dataclass(frozen=True, slots=True)
class HostRow:
    """Identity of a host."""

    host_id: int
    name: str
    machine_id: str | None
    boot_id: str | None
    boot_ms: int | None  # Unix time of the boot by the wall clock of the agent's start: for people, never compared
    os: str | None
    cpu_name: str | None
    cpu_count: int | None
    memory_bytes: int | None
    agent_version: str
    interval_s: int
    dmi_vendor: str | None = None
    dmi_product: str | None = None
    cloud: str | None = None  # aws | gcp | azure, by the firmware
    instance_type: str | None = None
    region: str | None = None
    purchase: str | None = None  # on_demand | spot
    plug_source: str | None = None  # what measures its power at the plug: ipmi | redfish | prometheus


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """Identity of a device; `slot` is today's index, never a key."""

    device_id: int
    host_id: int
    kind: str  # gpu | mig | partition | cpu
    uuid: str
    vendor: str | None
    name: str
    slot: int | None = None
    memory_bytes: int | None = None
    power_limit_mw: int | None = None
    driver_version: str | None = None
    pci_bus_id: str | None = None
    parent_id: int | None = None  # of a MIG device: the GPU it is a slice of, which alone is paid for
    part_1e6: int | None = None  # what part of that GPU's compute slices it is
    power_source: str | None = None  # what power_mw is, and of what: "average, gpu"
    energy_source: str | None = None  # what the energy counter counts: gpu | module
    links: str | None = None  # JSON: kind of link (`state.fleet.LINKS`) -> UUIDs of devices of this host


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One inference server process group; `process_start_ms` counts from the boot of its host."""

    engine_id: int
    host_id: int
    kind: str
    base_url: str
    port: int | None
    pid: int | None
    process_start_ms: int | None  # since the boot of the host; Unix time in rows older than schema 0005
    version: str | None
    found_by: str  # process | setting | prometheus (imported) | gateway
    life: int | None = None
    """Id of the process: of its boot and start, or of its page (`agent.rows.counters`); None where it is not seen."""


@dataclass(frozen=True, slots=True)
class DeploymentRow:
    """One model served at one endpoint."""

    deployment_id: int
    engine_id: int
    host_id: int
    served_model: str
    model_path: str | None = None
    model_facts: str | None = None  # JSON: the model's shape as the engine itself reports it


@dataclass(frozen=True, slots=True)
class EpochRow:
    """An interval of unchanged knobs, engine version and devices of a deployment; `knobs` is JSON."""

    epoch_id: int
    deployment_id: int
    start_ts: int
    end_ts: int | None
    engine_version: str | None
    knobs: str
    device_ids: tuple[int, ...]


if TYPE_CHECKING:

    class DeviceSample(tuple[int | None, ...]):
        """Measurements of one device since its previous row, by the columns of `device_sample`."""

        device_id: int
        ts: int
        duration_ms: int
        observed_ms: int
        _fields: tuple[str, ...]

        def __new__(
            cls, device_id: int, ts: int, duration_ms: int, observed_ms: int, *values: int | None, **named: int | None
        ) -> Self:
            """Return values by position or name; those left out are None."""

        def __getattr__(self, name: str) -> int | None: ...
        def _replace(self, **named: int | None) -> Self: ...
        def _asdict(self) -> dict[str, int | None]: ...

else:
    # A tuple, since each device has one in each tick; its values are those of `metrics.DEVICE`.
    DeviceSample = namedtuple(
        "DeviceSample",
        ("device_id", "ts", "duration_ms", "observed_ms", *DEVICE_COLUMNS),
        defaults=(None,) * len(DEVICE_COLUMNS),
    )


@dataclass(frozen=True, slots=True)
class HostSample:
    """Measurements of the host since its previous row."""

    host_id: int
    ts: int
    duration_ms: int
    observed_ms: int
    cpu_util_1e4: int | None = None
    load_1e2: int | None = None
    memory_used_bytes: int | None = None
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    memory_traffic_bytes: int | None = None  # to and from memory by the CPUs
    plug_mj: int | None = None  # energy of the server at its plug
    plug_ms: int | None = None  # part of the duration in which it was measured


@dataclass(frozen=True, slots=True)
class AgentSample:
    """Resources that the agent used since its previous row, its children included."""

    host_id: int
    ts: int
    duration_ms: int
    observed_ms: int
    cpu_ms: int | None
    rss_bytes: int | None
    tick_ms: int
    missed_ticks: int
    driver_calls: int | None


@dataclass(frozen=True, slots=True)
class DeploymentSample:
    """Work that one epoch served since its previous row."""

    epoch_id: int
    ts: int
    duration_ms: int
    observed_ms: int
    complete: bool  # False: tokens were counted that nobody could see
    busy_ms: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    computed_tokens: int | None = None
    generated_tokens: int | None = None
    requests_finished: int | None = None
    preemptions: int | None = None
    running_1e2: int | None = None
    waiting_1e2: int | None = None
    kv_use_1e4: int | None = None
    whole_provenance: int | None = None
    """By which it is known to hold each of its devices whole over the duration, busy as it is itself: then there is no
    row in `device_share`. NULL: its shares are there. It is set by the store (`store.write.writer`)."""
    busy_provenance: int | None = None
    """`BOUND`: `busy_ms` is an upper bound, or NULL since the engine exposes no time (at most `observed_ms`). NULL
    beside a `busy_ms`: an older row, where it is the whole tick if anything ran in it (`store.write.rollup`)."""
    split_ms: int | None = None
    """Of `busy_ms`, the time in which the kinds of work are known."""
    prefill_ms: int | None = None
    decode_ms: int | None = None
    """Of `split_ms`, at most. Requests that run together overlap: they exceed it by that, and lack what is neither."""


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """The part of a device one epoch (or `OTHER`) had over the duration, where it did not hold it whole."""

    device_id: int
    epoch_id: int
    ts: int
    duration_ms: int
    share_1e6: int
    busy_ms: int  # of the duration, while this epoch was busy
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class HistogramSample:
    """Observations that fell into one bucket; `bucket` indexes the upper bounds of its set, and +Inf."""

    epoch_id: int
    metric: str
    ts: int
    bucket_set_id: int
    bucket: int
    count: int


@dataclass(frozen=True, slots=True)
class EngineCounterSample:
    """Increment of a further counter of an engine; `metric` is its name, `word{reason="..."}` for requests.

    Without one it stood still or is not counted, as what it is a part of (tokens) shows.
    """

    epoch_id: int
    metric: str
    ts: int
    delta: int


SampleValue = (
    DeviceSample | HostSample | AgentSample | DeploymentSample | DeviceShare | HistogramSample | EngineCounterSample
)


@dataclass(frozen=True, slots=True)
class CounterState:
    """Last value seen of a counter and the life of the process (or boot) that counts it."""

    owner_id: int
    series: str
    value: int
    life: int | None
    """Id by `agent.rows.counters`; None where nothing reveals it."""
    ts: int
    process_start_ms: int | None = None
    """Only of a state stored before schema 0005, which has no life: the start by the wall clock of that time."""


@dataclass(frozen=True, slots=True)
class Capability:
    """Availability of a metric of one owner and, if it is unavailable, the reason and the remedy."""

    owner_id: int
    metric: str
    status: str
    reason: str | None = None
    remedy: str | None = None


MAX_EVENTS = 10_000
"""Events kept of a host, whatever their age: a flood of them must not fill a disk."""


@dataclass(frozen=True, slots=True)
class Event:
    """A change of state of something. A repeat within an hour of the clock raises its count."""

    kind: str
    message: str
    subject_id: int | None = None
    state: str | None = None
    """Distinguishes it from other events of its kind and subject; None: its message, without the figures in it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Everything one tick stores, in one transaction."""

    ts: int
    host: HostRow
    devices: tuple[DeviceRow, ...] = ()
    engines: tuple[EngineRow, ...] = ()
    deployments: tuple[DeploymentRow, ...] = ()
    epochs: tuple[EpochRow, ...] = ()
    samples: tuple[SampleValue, ...] = ()
    bucket_sets: dict[int, tuple[float, ...]] = field(default_factory=dict)
    counters: tuple[CounterState, ...] = ()
    forgotten: tuple[tuple[int, str], ...] = ()
    """(owner_id, series) of counters whose process is gone."""
    capabilities: tuple[Capability, ...] = ()
    events: tuple[Event, ...] = ()


class UnreadableMetric(NamedTuple):
    """A metric that cannot be read, with its owner."""

    owner_id: int  # device_id, engine_id or host_id
    metric: str
    status: str  # ok | unsupported | denied | missing | failing
    reason: str | None
    remedy: str | None
    since_ts: int


class StoredEvent(NamedTuple):
    """An event of a host."""

    event_id: int
    host_id: int
    ts: int
    last_ts: int
    count: int  # type: ignore[assignment]  # which a tuple has as a method
    kind: str
    subject_id: int | None
    message: str
