"""Lines of a fleet for the screens and the summary: plain, reconciled values. None is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar, overload

from pertoken.costs.ledger import NOTHING, BillTotal, KindDollars, ServedCost
from pertoken.metrics import PER_REQUEST_TPOT
from pertoken.provenance import Provenance
from pertoken.state.service import Slo
from pertoken.window.figures import STALE_TICKS, EngineCounts

T = TypeVar("T")
Row = TypeVar("Row")


class Lines(Sequence[T], Generic[T]):
    """Lines computed from rows on first access: a fleet has thousands of lines, and a screen shows one page."""

    def __init__(self, rows: Sequence[Row], line: Callable[[Row], T]) -> None:
        self._length = len(rows)
        self._compute: Callable[[int], T] = lambda index: line(rows[index])
        self._lines: dict[int, T] = {}

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        n = range(len(self))[index]
        if n not in self._lines:
            self._lines[n] = self._compute(n)
        return self._lines[n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class MissingMetric:
    """A metric that cannot be read of one owner, with the reason and the remedy."""

    owner: str
    metric: str
    status: str
    reason: str
    remedy: str | None
    owner_id: int
    """Id of the device, engine or host. Names are ambiguous: two hosts may have devices of one name."""


@dataclass(frozen=True, slots=True)
class HostLine:
    """One host. Rates are those of the newest complete minute or tick."""

    host_id: int
    name: str
    cpu_util: float | None
    load: float | None
    memory_used_bytes: int | None
    memory_bytes: int | None
    agent_cpu_share: float | None
    """Share of one core."""
    agent_rss_bytes: int | None
    age_s: int | None
    """Seconds since its newest row; None if it has none."""
    interval_s: int
    memory_traffic_bytes_s: float | None = None
    """Bytes read and written by its CPUs."""
    imported: bool = False
    """Whether its telemetry was imported. No agent runs on it then."""
    generated: bool = False
    """Whether it is a simulated host of a demo."""

    @property
    def stale(self) -> bool:
        """Whether its newest row is older than `STALE_TICKS` tick intervals."""
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
    """Names of the deployments that use it; None if its driver or missing rights hide them."""
    age_s: int | None
    """Seconds since its newest reading."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Other measured gauges of `metrics.DEVICE` in their unit, by stored name."""
    power_source: str | None = None
    """Source and scope of the power reading."""
    part_of: str | None = None
    """GPU of a MIG device, which includes its price."""
    listed_price: str | None = None
    """Provider, date and source of the list price, if no price is configured."""


@dataclass(frozen=True, slots=True)
class DeploymentLine:
    """One deployment. Rates are over the window, `*_now` over the newest ticks."""

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
    """Present price of its share of its devices."""
    ttft_p95_s: float | None
    tpot_p50_s: float | None
    spark: tuple[float | None, ...]
    """Generated tokens/s per slice of the window, oldest first; None where nothing was observed."""
    incomplete: bool
    """Whether tokens may be missing, because an engine restarted between two readings."""
    coverage: float
    """Observed share of the window from its first appearance."""
    age_s: int | None
    fault: str | None
    """Reason why its engine cannot be read now, with the remedy."""
    late: tuple[str, ...] = ()
    """Counters (`generated_tokens`) that its engine increases only when a request ends."""
    counts: EngineCounts = field(default_factory=EngineCounts)
    """Counters of its engine other than tokens."""
    pooling: bool = False
    """Whether it embeds or ranks. Its tokens are those of prompts, and no figure of several deployments has them."""
    busy_provenance: str | None = None
    """Provenance of `busy`: `counter`, or `bound` for an upper bound."""
    idle_nano_usd: int | None = None
    """Part of `nano_usd` that was paid while it was idle."""
    ended: bool = False
    """Whether it no longer runs: its epoch ended, or its host reports without it."""
    ttft_p50_s: float | None = None
    tpot_p95_s: float | None = None
    requests: int | None = None
    """Requests that ended."""
    good_share: float | None = None
    """Least share of the requests within the SLO."""
    kinds: KindDollars | None = None
    """`nano_usd` by kind of token; None if that is unknown."""
    silent_s: int | None = None
    """Least time since its newest generated token; None if the window has none."""

    @property
    def served(self) -> ServedCost:
        """Its dollars and tokens."""
        return ServedCost(self.nano_usd, self.prompt_tokens, self.generated_tokens, self.requests, self.good_share)

    @property
    def busy_is_bound(self) -> bool:
        """Whether `busy` is an upper bound."""
        return self.busy_provenance == Provenance.BOUND.label


@dataclass(frozen=True, slots=True)
class HostUse:
    """Load and cost of one host. Rates are those of the newest minutes, dollars those of the window."""

    host: HostLine
    accelerators: int
    util: float | None
    """Mean over its accelerators with a reading, like the two activities below."""
    sm_active: float | None
    dram_active: float | None
    power_w: float | None
    """Sum over its devices with a reading."""
    generated_tok_s_now: float | None
    nano_usd_per_hour: int | None
    """Present price of its devices with a price; None if it does not report."""
    nano_usd_per_mtok: int | None
    """All dollars of its devices / (prompt and generated tokens) x 10^6; None where an accelerator has no price."""
    spark: tuple[float | None, ...]
    """Generated tokens/s per slice of the window, oldest first; None where nothing was observed."""
    bill: BillTotal | None
    """Bill of its devices over the window; None if none has a price."""
    models: tuple[str, ...]
    """Models served on it in the window."""
    served: ServedCost = NOTHING
    """Dollars of its devices, and tokens of its engines."""

    @property
    def name(self) -> str:
        """Name of the host."""
        return self.host.name

    @property
    def age_s(self) -> int | None:
        """Seconds since its newest row."""
        return self.host.age_s


class TroubleKind(StrEnum):
    """Kind of trouble, the most urgent first."""

    STUCK = "stuck"
    SILENT = "telemetry lost"
    SATURATED = "saturated"
    MISSED = "objective missed"
    OUTPUT = "output changed"
    REGRESSED = "regressed"
    UNPRICED = "price lost"
    ALERT = "alert fires"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong now, which stands above all advice."""

    kind: TroubleKind
    target: str
    """Deployment, hosts, devices or target of an alert, as people call them."""
    reason: str
    """Clause with the measured figure."""
    command: str
    """The command that mends it, or shows how."""
    nano_usd_per_hour: int | None = None
    """What is paid for its target, of a regression the part that it adds; None if unknown."""
    deployment_id: int | None = None


@dataclass(frozen=True, slots=True)
class LostPrice:
    """Devices of one name that had a price in the last week, and have none now."""

    name: str
    devices: int
    nano_usd_per_hour: int
    """Of all of them, by the last price."""


@dataclass(frozen=True, slots=True)
class EventLine:
    """An event."""

    ts: int
    kind: str
    message: str
    count: int


@dataclass(frozen=True, slots=True)
class FleetReport:
    """Content of the fleet screen and of the plain summary."""

    now_ts: int
    window_s: int
    source: str
    """Location of the database, without a password."""
    hosts: tuple[HostLine, ...]
    devices: Sequence[DeviceLine]
    deployments: Sequence[DeploymentLine]
    bill: BillTotal | None
    """Bill of the priced devices; None if no price is known."""
    nano_usd_per_hour: int | None
    """Present price of all priced devices on hosts that report. A GPU includes its MIG devices."""
    unpriced_n: int
    """Devices without a price on hosts that report: accelerators, and CPUs that serve a model."""
    unpriced_devices: tuple[str, ...]
    nano_usd_per_mtok: int | None
    """Mean over all deployments with a price and tokens."""
    generated_tok_s_now: float | None
    power_w: float | None
    incomplete: bool
    """Whether tokens of a deployment with a price may be missing."""
    missing: Sequence[MissingMetric]
    events: tuple[EventLine, ...]
    hints: tuple[str, ...]
    """Next things to start, set or enable, as sentences, the most useful first."""
    bill_observed: float | None = None
    """Observed share of the time of the priced devices, from their first appearance; None without a priced device."""
    coverage: float | None = None
    """Observed share of the time of the deployments in `nano_usd_per_mtok`; None without one."""
    uses: Sequence[HostUse] = ()
    """Load and cost of each host, in the order of `hosts`."""
    lost_prices: tuple[LostPrice, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    """Present troubles, the most urgent first; filled by `proof.troubles`."""
    served: ServedCost = NOTHING
    """Dollars and tokens in `nano_usd_per_mtok`."""
    estimated: bool = False
    """Whether an hour without minutes was split in proportion to time, at a new price or at the window's start."""

    def whole(self) -> FleetReport:
        """Return the report with all lines computed, for output."""
        return replace(
            self,
            devices=tuple(self.devices),
            deployments=tuple(self.deployments),
            missing=tuple(self.missing),
            uses=tuple(self.uses),
        )


class Figure(NamedTuple):
    """A number, or the reason why it is not known."""

    value: float | None
    reason: str | None = None


def per(above: Figure, below: Figure, none: str) -> Figure:
    """Return a quotient; unknown for the reason of its unknown part, or `none` where it would divide by 0."""
    if above.value is None or below.value is None:
        return Figure(None, above.reason or below.reason)
    return Figure(above.value / below.value) if below.value else Figure(None, none)


Histogram = Mapping[tuple[float, ...], Sequence[int]]
"""Bucket counts by their upper bounds, one more count than bounds: the last bucket has no end."""


@dataclass(frozen=True, slots=True)
class GoodShare:
    """Share of the requests inside the SLO, 0 to 1, or the reason why it is not known.

    Low and high differ where an objective lies inside a bucket, and where two objectives may be missed by the same
    requests or by different ones.
    """

    low: float | None
    high: float | None
    reason: str | None = None


def good_share(slo: Slo, ttft: Histogram, tpot: Histogram, engine: str) -> GoodShare:
    """Return the share of requests whose TTFT and TPOT are within the p95 objectives."""
    limits = [
        (limit / 1000, histogram, name)
        for limit, histogram, name in ((slo.ttft_p95_ms, ttft, "TTFT"), (slo.tpot_p95_ms, tpot, "TPOT"))
        if limit is not None
    ]
    if not limits:
        return GoodShare(None, None, "no SLO is set: slo.ttft_ms, slo.tpot_ms, or those of [services.NAME]")
    if slo.tpot_p95_ms is not None and engine not in PER_REQUEST_TPOT:
        return GoodShare(
            None,
            None,
            f"{engine} counts the time between tokens, not of requests: which requests miss the TPOT is lost",
        )
    shares = []
    for limit, histogram, name in limits:
        within = share_within(histogram, limit)
        if within is None:
            return GoodShare(None, None, f"its engine has no histogram of {name}")
        shares.append(within)
    missed = sum(1 - low for low, _ in shares)
    return GoodShare(max(0.0, 1 - missed), min(high for _, high in shares))


def share_within(histogram: Histogram, limit: float) -> tuple[float, float] | None:
    """Return the least and largest share of observations up to a limit; None if nothing was observed.

    They are equal where the limit is a bound of a bucket.
    """
    total = surely = possibly = 0
    for bounds, counts in histogram.items():
        total += sum(counts)
        below = 0.0
        for bound, count in zip((*bounds, float("inf")), counts, strict=True):
            surely += count if bound <= limit else 0
            possibly += count if below < limit else 0
            below = bound
    return (surely / total, possibly / total) if total else None
