"""Lines of a fleet for the screens and the summary: plain values, already reconciled. None is unknown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, overload

from pertoken.costs.ledger import Bill
from pertoken.provenance import Provenance
from pertoken.window.engine_counts import EngineCounts
from pertoken.window.observed import STALE_TICKS

T = TypeVar("T")


class Lines(Sequence[T], Generic[T]):
    """Lines that are made of their rows when somebody looks: a fleet has thousands, and a screen shows a page."""

    def __init__(self, rows: Sequence[Any], line: Callable[[Any], T]) -> None:
        self._rows, self._line = rows, line
        self._made: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        n = range(len(self))[at]
        if n not in self._made:
            self._made[n] = self._line(self._rows[n])
        return self._made[n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class MissingMetric:
    """A metric that cannot be read on some owner, with the reason and what would switch it on."""

    owner: str
    metric: str
    status: str
    reason: str
    remedy: str | None
    owner_id: int
    """Id of its device, engine or host: two hosts may have devices of one name."""


@dataclass(frozen=True, slots=True)
class HostLine:
    """One host; rates are of the newest complete minute or tick."""

    host_id: int
    name: str
    cpu_util: float | None
    load: float | None
    memory_used_bytes: int | None
    memory_bytes: int | None
    agent_cpu_share: float | None
    """Of one core."""
    agent_rss_bytes: int | None
    age_s: int | None
    """Since its newest row; None if it has none."""
    interval_s: int
    memory_traffic_bytes_s: float | None = None
    """Read from and written to memory by its CPUs."""
    imported: bool = False
    """Whether its telemetry was imported, and no agent runs on it."""
    generated: bool = False
    """Whether it is a host of a demo, which nowhere exists."""

    @property
    def stale(self) -> bool:
        """Whether its newest row is older than its tick interval explains."""
        return self.age_s is None or self.age_s > STALE_TICKS * self.interval_s


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """One device."""

    device_id: int
    host: str
    kind: str
    name: str
    slot: int | None
    util: float | None
    power_w: float | None
    memory_used_bytes: int | None
    memory_bytes: int | None
    nano_usd_per_hour: int | None
    held_by: tuple[str, ...] | None
    """None where its driver, or the rights on this host, hide them."""
    age_s: int | None
    """Since anything was read of it."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Other gauges of `metrics.DEVICE` that were read, by their stored name, in their unit."""
    power_source: str | None = None
    """Source and scope of the power reading."""
    part_of: str | None = None
    """The GPU a MIG device is a slice of and paid for with."""
    listed_price: str | None = None
    """Whose list price it is, of when and from where, if nobody set one."""


@dataclass(frozen=True, slots=True)
class DeploymentLine:
    """One deployment over the window. Rates are over the window; `*_now` over the newest ticks."""

    deployment_id: int
    model: str
    engine: str
    host: str
    devices: tuple[str, ...]
    generated_tok_s_now: float | None
    prompt_tok_s_now: float | None
    running_now: float | None
    waiting_now: float | None
    generated_tokens: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    busy: float | None
    """Share of the observed time in which its engine worked."""
    power_w: float | None
    """Its share of the power of its devices, newest tick."""
    nano_usd: int | None
    """Dollars allocated to it over the window."""
    nano_usd_per_mtok: int | None
    """All dollars allocated to it / (prompt, cached included, + generated tokens) x 10^6."""
    nano_usd_per_generated_mtok: int | None
    nano_usd_per_hour: int | None
    """What its share of its devices costs now."""
    ttft_p95_s: float | None
    tpot_p50_s: float | None
    spark: tuple[float | None, ...]
    """Generated tokens/s per slice of the window, oldest first; None where nothing was observed."""
    incomplete: bool
    """Whether tokens were counted that nobody could see (an engine restart)."""
    coverage: float
    """Part of the window, since it first appeared, that was observed."""
    age_s: int | None
    fault: str | None
    """Why its engine cannot be read now, with what to do."""
    late: tuple[str, ...] = ()
    """Words (`generated_tokens`) that its engine counts only when a request ends."""
    counts: EngineCounts = field(default_factory=EngineCounts)
    """What its engine counts beside tokens."""
    pooling: bool = False
    """Whether it embeds or ranks: its tokens are those of prompts, and count in no figure of several deployments."""
    busy_provenance: str | None = None
    """How `busy` is known: `counter`, or `bound` where it is an upper bound."""
    idle_nano_usd: int | None = None
    """Of `nano_usd`, what was paid while it held a device and was idle."""
    ended: bool = False
    """Whether it does not run any more: its epoch ended, or its host reports and it does not."""

    @property
    def busy_is_bound(self) -> bool:
        """Whether `busy` is an upper bound."""
        return self.busy_provenance == Provenance.BOUND.label


@dataclass(frozen=True, slots=True)
class HostUse:
    """Load and cost of one host; rates are of the newest minutes, dollars of the window."""

    host: HostLine
    accelerators: int
    util: float | None
    """Mean over its accelerators, as are the activities; of those that were read."""
    sm_active: float | None
    dram_active: float | None
    power_w: float | None
    """Of all its devices that were read."""
    generated_tok_s_now: float | None
    nano_usd_per_hour: int | None
    """Of its devices with a price, now; None if it does not report."""
    nano_usd_per_mtok: int | None
    """All dollars of its devices / (prompt and generated tokens) x 10^6; None where an accelerator has no price."""
    spark: tuple[float | None, ...]
    """Generated tokens/s per slice of the window, oldest first; None where nothing was observed."""
    bill: Bill | None
    """Of its devices over the window; None where none has a price."""
    models: tuple[str, ...]
    """Served on it in the window."""

    @property
    def name(self) -> str:
        """Name of the host."""
        return self.host.name

    @property
    def age_s(self) -> int | None:
        """Seconds since its newest row."""
        return self.host.age_s


@dataclass(frozen=True, slots=True)
class EventLine:
    """Something that happened."""

    ts: int
    kind: str
    message: str
    count: int


@dataclass(frozen=True, slots=True)
class FleetReport:
    """Everything the fleet screen and the plain summary show."""

    now_ts: int
    window_s: int
    source: str
    """The database that was opened, with no password in it."""
    hosts: tuple[HostLine, ...]
    devices: Sequence[DeviceLine]
    deployments: Sequence[DeploymentLine]
    bill: Bill | None
    """Over the priced devices; None where no price is known."""
    nano_usd_per_hour: int | None
    """Of all devices with a price on hosts that report, now; a MIG device is paid for with its GPU."""
    unpriced_n: int
    """Devices on hosts that report without a price that matters: accelerators, and CPUs that serve a model."""
    unpriced_devices: tuple[str, ...]
    nano_usd_per_mtok: int | None
    """Of all deployments with a price and tokens together."""
    generated_tok_s_now: float | None
    power_w: float | None
    incomplete: bool
    """Whether tokens of a deployment with a price went unseen."""
    missing: Sequence[MissingMetric]
    events: tuple[EventLine, ...]
    hints: tuple[str, ...]
    """What to start, set or switch on next, most useful first; whole sentences."""
    bill_observed: float | None = None
    """Share of the time in which priced devices should have been there, since they were first known, that was
    observed; None if no device has a price."""
    coverage: float | None = None
    """The same of the deployments in `nano_usd_per_mtok`; None if there is none."""
    uses: Sequence[HostUse] = ()
    """What each host does and costs, in the order of `hosts`."""
    estimated: bool = False
    """Whether an hour whose minutes were deleted was divided by time, at a change of price or the start of the
    window."""

    def whole(self) -> "FleetReport":
        """Return the same with all its lines made, to be written down."""
        return replace(
            self,
            devices=tuple(self.devices),
            deployments=tuple(self.deployments),
            missing=tuple(self.missing),
            uses=tuple(self.uses),
        )
