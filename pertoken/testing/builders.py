"""Builders of fleets and evidence. Omitted values are plausible; None is unknown, as on a real host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from math import pi, sin
from typing import Any

from pertoken.catalog.market import Market, load_market
from pertoken.evidence import EPOCHS, Comparison, Epoch, Evidence, HoursOfWeek, Series
from pertoken.metrics import HISTOGRAMS, SERIES
from pertoken.provenance import Provenance
from pertoken.rule import FleetEvidence
from pertoken.state.deployment import Commitment, Deployment, Model, Placement
from pertoken.state.fleet import Device, Fleet, Host
from pertoken.state.service import HOURS_OF_WEEK, Demand, Quantity, Service

MINUTES = 7 * 1440
"""Minutes of seven days, the default window of rules."""
WEEK_S = 7 * 86_400
PRESENT_SINCE = 1_790_553_600
"""Start of the present epoch of a deployment that has an earlier one, epoch seconds."""
ON_DEMAND_H100 = Placement("aws", "us-east-1", accelerator="H100 SXM5", purchase="on_demand")


@dataclass(frozen=True, slots=True)
class Week:
    """Observations of a series built by hand: its quantiles and its means by hour of the week."""

    summary: Series
    means: HoursOfWeek

    def quantile(self, q: float) -> float:
        """Return a quantile, interpolated between the lowest hour, the median, `p95` and the maximum."""
        if q >= 0.5:
            return self.summary.quantile(q)
        low = min((mean for mean in self.means if mean is not None), default=self.summary.p50)
        return self.summary.p50 - max(0.0, self.summary.p50 - low) * (0.5 - q) / 0.5

    def hours(self) -> HoursOfWeek:
        """Return the mean of each hour of the week."""
        return self.means

    def times(self, factor: float) -> HoursOfWeek:
        """Return these means times a factor."""
        return tuple(None if mean is None else mean * factor for mean in self.means)


def series(
    mean: float,
    *,
    p50: float | None = None,
    p95: float | None = None,
    max: float | None = None,
    n: int = MINUTES,
    hours: HoursOfWeek | None = None,
) -> Series:
    """Return a measured series of `n` observations; omitted quantiles equal the mean.

    `hours` are its means in the 168 hours of the week, Monday 00:00 UTC first; a regime assumes a day that repeats.
    """
    middle, high = mean if p50 is None else p50, mean if p95 is None else p95
    made = Series(mean=mean, p50=middle, p95=high, max=high if max is None else max, n=n, provenance=Provenance.COUNTER)
    return made if hours is None else replace(made, distribution=Week(made, hours))


def evidence(*epochs: Epoch, **values: float | Series) -> Evidence:
    """Return evidence with exactly these series: `evidence(running=2, kv_use=series(0.4, p95=0.9))`.

    Earlier epochs come first: `evidence(earlier("0.31.0", (1.1, 1.2, 1.3)), running=2)`. Raises ValueError for a name
    that is no series.
    """
    measured = {name: value if isinstance(value, Series) else series(float(value)) for name, value in values.items()}
    return Evidence(measured, epochs=epochs)


def earlier(
    engine_version: str | None,
    ratio: tuple[float, float, float] | None = None,
    *,
    changed: tuple[str, ...] = ("engine_version",),
    code: str = "load-differs",
    reason: str = "the load differed",
) -> Epoch:
    """Return an earlier epoch of one week, which ended a week ago when the present one began.

    `ratio` is the device time per token now over then (low, likely, high); None for one that cannot be compared, for
    this `code` and `reason`. `changed`: names of the changed fields.
    """
    start, end = PRESENT_SINCE - WEEK_S, PRESENT_SINCE
    if ratio is None:
        return Epoch(start, end, engine_version, changed=changed, present=Comparison(code=code, reason=reason))
    compared = Comparison(ratio, matched_hours=150, later_s_per_mtok=400.0)
    return Epoch(start, end, engine_version, changed=changed, tokens=10**9, present=compared)


def model(name: str) -> Model:
    """Return a model of the catalog. Raises ValueError if the catalog does not know it."""
    catalog_model = load_market().model(name)
    if catalog_model is None:
        raise ValueError(f"{name!r} is no model of the catalog: make a Model(...) of its shape")
    return catalog_model


def deployment(served: Model | str = "Llama-3.1-8B", **fields: Any) -> Deployment:
    """Return a vLLM deployment with 16-bit weights on one H100, with `fields` replaced; None is unknown.

    Its name is that of the model, its devices follow from `tp`, and `fleet` sets its id and host.
    """
    shape = model(served) if isinstance(served, str) else served
    base = Deployment(
        shape,
        "vllm",
        engine_version="0.32.0",
        tp=1,
        pp=1,
        dp=1,
        weight_dtype="bf16",
        kv_dtype="bf16",
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        enable_chunked_prefill=True,
        max_model_len=8192,
        gpu_memory_utilization=0.9,
        enforce_eager=False,
        enable_prefix_caching=False,
        served_model=shape.name,
        placement=ON_DEMAND_H100,
    )
    return replace(base, **fields)


def service(
    name: str,
    *deployments: Deployment,
    requests_s: float | None = None,
    prompt_len: float | None = None,
    output_len: float | None = None,
    cached_share: float | None = None,
    **fields: Any,
) -> Service:
    """Return a service of these deployments; the parts of its demand that are not given are unknown.

    `requests_s` is of all deployments together, the same in every hour of the week.
    """
    named = {"requests_per_s": requests_s, "prompt_len": prompt_len, "output_len": output_len}
    quantities = {
        key: None if value is None else Quantity(value, Provenance.COUNTER)
        for key, value in {**named, "cached_share": cached_share}.items()
    }
    demand = Demand(requests_by_hour_of_week=(requests_s,) * HOURS_OF_WEEK, **quantities)  # type: ignore[arg-type]
    return Service(name, tuple(deployments), **{"demand": demand, **fields})


def fleet(
    *services: Service,
    idle_hosts: int = 0,
    commitments: tuple[Commitment, ...] = (),
    link: str | None = "nvlink",
) -> Fleet:
    """Return a fleet of these services, each deployment on its own host unless it names its devices.

    Deployments without an id get 1, 2, 3, ... in order. Host N has the devices 10 N, 10 N + 1, ...; deployments that
    name the devices of one host share it. `idle_hosts` more hosts of two H100s run nothing. `link` is the link
    between devices of a host, None if no driver reports it: see `fleet.slowest_link(now.device_ids)`.
    """
    ids = count(1)
    placed = tuple(
        replace(service, deployments=tuple(_placed(replica, service, ids) for replica in service.deployments))
        for service in services
    )
    by_host: dict[int, dict[int, Placement]] = {}
    for replica in (replica for service in placed for replica in service.deployments):
        for device_id in replica.device_ids:
            by_host.setdefault(device_id // 10, {})[device_id] = replica.placement
    first_idle = max(by_host, default=0) + 1
    for number in range(first_idle, first_idle + idle_hosts):
        by_host[number] = {10 * number: ON_DEMAND_H100, 10 * number + 1: ON_DEMAND_H100}
    hosts, devices = [], []
    for number, placements in sorted(by_host.items()):
        host = Host(number, f"gpu-{number}", tuple(sorted(placements)), next(iter(placements.values())))
        hosts.append(host)
        devices += [_device(device_id, host, placements[device_id], link) for device_id in host.device_ids]
    return Fleet(placed, tuple(hosts), tuple(devices), commitments)


def _placed(replica: Deployment, owner: Service, ids: Iterator[int]) -> Deployment:
    number = replica.deployment_id or next(ids)
    devices = replica.device_ids or tuple(10 * number + index for index in range(replica.n_devices or 1))
    return replace(replica, deployment_id=number, device_ids=devices, serves=replica.serves or ((owner.name, None),))


def _device(device_id: int, host: Host, placement: Placement, link: str | None) -> Device:
    kind = "gpu" if placement.accelerator else "cpu"
    name = f"{placement.accelerator or 'CPUs'} #{device_id % 10}"
    others = (other_id for other_id in host.device_ids if other_id != device_id and link is not None and kind == "gpu")
    links = tuple((other_id, str(link)) for other_id in others)
    return Device(device_id, name, host.host_id, placement.accelerator, kind, links=links)


SubjectKey = tuple[str, int | str]
"""Kind and id of a subject of evidence: `("service", "chat")`, `("device", 10)`."""

SUMMED = (
    "prompt_tok_s", "computed_tok_s", "generated_tok_s", "busy_generated_tok_s", "requests_s", "running", "waiting",
    "preemptions", "power_w", "energy_w", "device_memory", "host_memory_free", "host_memory_used", "host_cpus_used",
)  # fmt: skip
"""Series of a service that are sums over its replicas; the others are the same for each replica."""
OF_HOSTS = {"host_memory_free": 5e11, "host_memory_used": 6e10, "host_cpus_used": 4.0}
"""Series of a host that its devices and deployments have too: memory in bytes, and CPUs."""
_SHARED_BY_DEVICES = ("power_w", "energy_w", "device_memory")
_OF_DEVICES = (
    *(name for name, spec in SERIES.items() if spec.owner == "device" and name not in (*_SHARED_BY_DEVICES, "held")),
    *OF_HOSTS,
)
OBSERVED_H = 168.0
IDLE_DEVICE = {
    "device_util": 0.0, "power_w": 70.0, "energy_w": 70.0, "device_memory": 6e8, "sm_clock_mhz": 345.0,
    "temperature_c": 32.0, "throttled": 0.0, "throttled_power": 0.0, "throttled_thermal": 0.0,
    **OF_HOSTS,
}  # fmt: skip
_WITHOUT_HOURS = {*HISTOGRAMS, "itl_s", "observed_h"}
"""Series of requests, which are summed over the window, and the length of the window."""


@dataclass(frozen=True, slots=True)
class Regime:
    """A situation that a rule may meet."""

    name: str
    meaning: str
    fleet: Fleet
    measured: Mapping[SubjectKey, Evidence]
    market: Market

    @property
    def seen(self) -> FleetEvidence:
        """Fresh evidence by subject, with no series marked as read."""
        return FleetEvidence(self.measured)

    def of(self, kind: str, key: int | str) -> Evidence:
        """Return fresh evidence of one subject: `regime.of("service", "chat")`."""
        return self.measured.get((kind, key), Evidence({})).fresh()

    def without(self, *names: str) -> Regime:
        """Return this regime without these series; without `epochs` there are no earlier epochs."""
        measured = {
            subject: Evidence(
                {name: evidence for name, evidence in subject_evidence.items() if name not in names},
                epochs=() if EPOCHS in names else subject_evidence.peek_epochs(),
            )
            for subject, subject_evidence in self.measured.items()
        }
        return replace(self, measured=measured)

    def over(self, window_s: int | None) -> Regime:
        """Return this regime for a rule with this window: observed at most for the length of the window.

        None is the window of a run, the default of every regime.
        """
        if window_s is None:
            return self
        hours = window_s / 3600
        measured = {}
        for subject, seen in self.measured.items():
            observed = seen.peek("observed_h")
            long = observed is not None and observed.mean > hours
            measured[subject] = (
                Evidence({**dict(seen.items()), "observed_h": series(hours, n=1)}) if long else seen.fresh()
            )
        return replace(self, measured=measured)


def regime(
    fleet: Fleet,
    measured: Mapping[str, Evidence],
    *,
    name: str = "own",
    meaning: str = "",
    market: Market | None = None,
) -> Regime:
    """Return a regime of a fleet and the evidence of each replica, by service name.

    The evidence of services, devices and hosts follows from it: a service is the sum of its replicas; a device of a
    deployment was in use all of the time and every other device never. A series without hours of its own follows
    the hours of a day, each day of the week alike, within its quantiles.
    """
    subjects: dict[SubjectKey, Evidence] = {}
    evidence_by_device: dict[int, Evidence] = {}
    for service in fleet.services:
        given = measured.get(service.name, Evidence({}))
        alone, epochs = _by_hour(given), given.peek_epochs()
        series_by_name = dict(alone.items())
        together = dict(_together(alone, len(service.deployments)).items())
        epochs_of = {
            replica.deployment_id: _epochs_of(replica.deployment_id, epochs) for replica in service.deployments
        }
        subjects["service", service.name] = Evidence(together, epochs=tuple(chain.from_iterable(epochs_of.values())))
        for replica in service.deployments:
            subjects["deployment", replica.deployment_id] = Evidence(
                series_by_name, epochs=epochs_of[replica.deployment_id]
            )
            evidence_by_device |= {
                device_id: _regime_device(alone, len(replica.device_ids)) for device_id in replica.device_ids
            }
    for device in fleet.devices:
        subjects["device", device.device_id] = _of_device(device, evidence_by_device)
    for host in fleet.hosts:
        subjects["host", host.host_id] = _of_host(
            [_of_device(fleet.device(device_id), evidence_by_device) for device_id in host.device_ids]
        )
    return Regime(name, meaning, fleet, subjects, market or load_market())


def _epochs_of(deployment_id: int, epochs: Iterable[Epoch]) -> tuple[Epoch, ...]:
    """Return the earlier epochs of one replica: epochs without a deployment apply to each replica."""
    matches = (epoch for epoch in epochs if epoch.deployment_id in (0, deployment_id))
    return tuple(replace(epoch, deployment_id=deployment_id) for epoch in matches)


def _of_device(device: Device, evidence_by_device: Mapping[int, Evidence]) -> Evidence:
    ids = [device.device_id, *(part.partition_id for part in device.partitions)]
    held = next((evidence_by_device[part_id] for part_id in ids if part_id in evidence_by_device), None)
    return (held or _by_hour(evidence(held=0, observed_h=OBSERVED_H, **IDLE_DEVICE))).fresh()


def _regime_device(alone: Evidence, devices: int) -> Evidence:
    measured = dict(alone.items())
    device_series = {name: measured[name] for name in _OF_DEVICES if name in measured}
    device_series |= {name: _times(measured[name], 1 / devices) for name in _SHARED_BY_DEVICES if name in measured}
    return _by_hour(evidence(held=1, observed_h=measured.get("observed_h", OBSERVED_H), **device_series))


def _of_host(devices: Sequence[Evidence]) -> Evidence:
    """Return the evidence of a host from its devices: power, energy and memory are sums, other series are means."""
    measured = [dict(device.items()) for device in devices]
    combined = {}
    for name in [key for key in measured[0] if all(key in series_by_name for series_by_name in measured)]:
        share = 1.0 if name in _SHARED_BY_DEVICES else 1 / len(measured)
        mean, p50, p95, largest = (
            share * sum(getattr(series_by_name[name], statistic) for series_by_name in measured)
            for statistic in ("mean", "p50", "p95", "max")
        )
        combined[name] = series(mean, p50=p50, p95=p95, max=largest)
    return _by_hour(evidence(**combined))


def _together(alone: Evidence, replicas: int) -> Evidence:
    return Evidence({name: _times(series, replicas) if name in SUMMED else series for name, series in alone.items()})


def _times(given: Series, factor: float) -> Series:
    scaled = series(
        given.mean * factor, p50=given.p50 * factor, p95=given.p95 * factor, max=given.max * factor, n=given.n
    )
    hours = given.distribution.times(factor) if isinstance(given.distribution, Week) else None
    return replace(scaled, provenance=given.provenance, distribution=None if hours is None else Week(scaled, hours))


def _by_hour(given: Evidence) -> Evidence:
    return Evidence({name: series if name in _WITHOUT_HOURS else _with_hours(series) for name, series in given.items()})


def _with_hours(original: Series) -> Series:
    """Return a series with hours that vary around the mean: highest at 15:00 UTC and below p95, lowest at 03:00."""
    if original.distribution is not None:
        return original
    swing = 0.8 * max(0.0, min(original.p95, 2 * original.mean) - original.mean)
    day = [original.mean + swing * sin(2 * pi * (hour - 9) / 24) for hour in range(24)]
    return replace(original, distribution=Week(original, tuple(7 * day)))


CHAT = "chat"


@dataclass(frozen=True, slots=True)
class Load:
    """Load of one replica, and its effect on engine and devices."""

    requests_s: float
    prompt_len: float
    generated_len: float
    ttft_s: float
    tpot_s: float
    busy: float
    waiting: float = 0.0
    cached_share: float = 0.0
    kv_use: float | None = None
    preemptions: float | None = None
    dram_active: float | None = None
    tensor_active: float | None = None
    device_util: float | None = None
    power_w: float | None = None
    """Sum over its devices."""
    device_memory: float | None = None
    sm_clock_mhz: float = 1755.0
    throttled: float = 0.0
    """Share of time in which power, heat or a limit slowed the clocks."""
    hot: float = 0.0
    """Share of `throttled` that is due to heat; the rest is due to power."""
    aborted: float = 0.02
    """Share of finished requests that were aborted."""
    load_s: float = 95.0
    """Time from the start of its process to its first metrics page."""
    peak: float = 1.5
    """p95 of the minutes over their mean."""

    @property
    def evidence(self) -> Evidence:
        """Evidence of one week."""
        prompts, tokens = self.requests_s * self.prompt_len, self.requests_s * self.generated_len
        e2e_s = self.ttft_s + self.tpot_s * self.generated_len
        rates = {
            "requests_s": self.requests_s,
            "prompt_tok_s": prompts,
            "computed_tok_s": prompts * (1 - self.cached_share),
            "generated_tok_s": tokens,
        }
        values = {name: series(mean, p95=mean * self.peak, max=2 * mean * self.peak) for name, mean in rates.items()}
        running = self.requests_s * e2e_s / self.busy
        values["running"] = series(running, p95=running * self.peak, max=2 * running * self.peak)
        values["busy"] = series(self.busy, p95=min(1, self.busy * self.peak), max=min(1, 2 * self.busy * self.peak))
        values["waiting"] = series(self.waiting, p95=self.waiting * self.peak, max=2 * self.waiting * self.peak)
        values["busy_generated_tok_s"] = series(tokens / self.busy)
        values["cached_share"] = series(self.cached_share)
        requests = max(1, round(self.requests_s * 7 * 86_400))
        for name, mean in (("prompt_len", self.prompt_len), ("generated_len", self.generated_len)):
            values[name] = series(mean, p50=0.7 * mean, p95=2.5 * mean, max=4 * mean, n=requests)
        for name, mean in (("ttft_s", self.ttft_s), ("tpot_s", self.tpot_s), ("itl_s", self.tpot_s), ("e2e_s", e2e_s)):
            values[name] = series(mean, p50=0.9 * mean, p95=1.6 * mean, max=4 * mean, n=requests)
        values["observed_h"] = series(OBSERVED_H, n=1)
        shares = ("kv_use", "dram_active", "tensor_active", "device_util")
        means = {name: getattr(self, name) for name in (*shares, "preemptions", "power_w", "device_memory")}
        for name, mean in means.items():
            if mean is not None:
                high = min(1.0, 1.1 * mean) if name in shares else 1.1 * mean
                values[name] = series(mean, p95=high, max=high)
        return evidence(**values, **self._requests(requests), **self._devices())

    def _requests(self, n: int) -> dict[str, Series]:
        """Return series of arrivals, waiting and ends of requests, and of tokens per step."""
        # Waiting follows from arrivals (Little's law); a preempted request also waits after its first token.
        queue_s = min(self.waiting / self.requests_s, 0.9 * self.ttft_s)
        tokens_s = self.requests_s * (self.prompt_len * (1 - self.cached_share) + self.generated_len)
        step = tokens_s * self.tpot_s / self.busy
        measured = {
            "queue_s": series(queue_s, p50=0.9 * queue_s, p95=1.6 * queue_s, max=4 * queue_s, n=n),
            "max_tokens": series(4 * self.generated_len, n=n),
            "step_tokens": series(step, p50=0.8 * step, p95=2.5 * step, max=4 * step, n=n),
            "ended_by_stop": series(0.92 - self.aborted),
            "ended_by_length": series(0.08),
            "ended_by_abort": series(self.aborted),
            "ended_by_error": series(0),
            "ended_by_repetition": series(0),
            "load_s": series(self.load_s, p95=1.2 * self.load_s, max=1.3 * self.load_s, n=4),
            "arrival_dispersion": series(1 + 2 * (self.peak - 1)),
        }
        if self.cached_share:
            measured |= {"prefix_hit_rate": series(self.cached_share), "kv_reuse_gap_s": series(60, p95=600, max=3600)}
        return measured

    def _devices(self) -> dict[str, Series]:
        """Return energy, clocks and memory, if the devices are measured at all."""
        series_by_name = {name: series(value) for name, value in OF_HOSTS.items()}
        if self.power_w is not None:
            power_w, tokens_s = self.power_w, self.requests_s * (self.prompt_len + self.generated_len)
            series_by_name |= {
                "energy_w": series(power_w, p95=1.1 * power_w, max=1.1 * power_w),
                "j_per_token": series(power_w / tokens_s, p95=1.2 * power_w / tokens_s, max=2 * power_w / tokens_s),
                "sm_clock_mhz": series(self.sm_clock_mhz),
                "temperature_c": series(61, p95=66, max=70),
                "throttled": series(self.throttled),
                "throttled_power": series(self.throttled - self.hot),
                "throttled_thermal": series(self.hot),
            }
        if self.tensor_active is not None and self.device_util is not None:
            active = max(self.tensor_active, 0.9 * self.device_util)
            series_by_name |= {"sm_active": series(active), "sm_occupancy": series(0.3 * active)}
        return series_by_name


def service_of(load: Load, replicas: int, like: Deployment, name: str = CHAT, **fields: object) -> Service:
    """Return replicas of one deployment, each with this load, with their total demand."""
    return service(
        name,
        *[like] * replicas,
        requests_s=load.requests_s * load.peak * replicas,
        prompt_len=load.prompt_len,
        output_len=load.generated_len,
        cached_share=load.cached_share,
        **fields,
    )
