"""Builders of fleets and evidence. Omitted values are plausible; None is unknown, as on a real host."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from pertoken.catalog.market import load_market
from pertoken.evidence import Comparison, Epoch, Evidence, HoursOfWeek, Series
from pertoken.provenance import Provenance
from pertoken.state.deployment import Commitment, Deployment, Placement
from pertoken.state.fleet import Device, Fleet, Host
from pertoken.state.model import Model
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
    known = {name: value if isinstance(value, Series) else series(float(value)) for name, value in values.items()}
    return Evidence(known, epochs=epochs)


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
    this `code` and `reason`. `changed` is what differs now.
    """
    start, end = PRESENT_SINCE - WEEK_S, PRESENT_SINCE
    if ratio is None:
        return Epoch(start, end, engine_version, changed=changed, present=Comparison(code=code, reason=reason))
    compared = Comparison(ratio, matched_hours=150, later_s_per_mtok=400.0)
    return Epoch(start, end, engine_version, changed=changed, tokens=10**9, present=compared)


def model(name: str) -> Model:
    """Return a model of the catalog. Raises ValueError if the catalog does not know it."""
    known = load_market().model(name)
    if known is None:
        raise ValueError(f"{name!r} is no model of the catalog: make a Model(...) of its shape")
    return known


def deployment(served: Model | str = "Llama-3.1-8B", **fields: Any) -> Deployment:
    """Return a vLLM deployment with 16-bit weights on one H100, with `fields` replaced; None is unknown.

    Its name is that of the model, its devices follow from `tp`, and `fleet` sets its id and host.
    """
    shape = model(served) if isinstance(served, str) else served
    known = Deployment(
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
    return replace(known, **fields)


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
        replace(service, deployments=tuple(_placed(one, service, ids) for one in service.deployments))
        for service in services
    )
    by_host: dict[int, dict[int, Placement]] = {}
    for one in (one for service in placed for one in service.deployments):
        for device_id in one.device_ids:
            by_host.setdefault(device_id // 10, {})[device_id] = one.placement
    first_idle = max(by_host, default=0) + 1
    for number in range(first_idle, first_idle + idle_hosts):
        by_host[number] = {10 * number: ON_DEMAND_H100, 10 * number + 1: ON_DEMAND_H100}
    hosts, devices = [], []
    for number, placements in sorted(by_host.items()):
        host = Host(number, f"gpu-{number}", tuple(sorted(placements)), next(iter(placements.values())))
        hosts.append(host)
        devices += [_device(device_id, host, placements[device_id], link) for device_id in host.device_ids]
    return Fleet(placed, tuple(hosts), tuple(devices), commitments)


def _placed(one: Deployment, of: Service, ids: Iterator[int]) -> Deployment:
    number = one.deployment_id or next(ids)
    devices = one.device_ids or tuple(10 * number + at for at in range(one.n_devices or 1))
    return replace(one, deployment_id=number, device_ids=devices, serves=one.serves or ((of.name, None),))


def _device(device_id: int, host: Host, placement: Placement, link: str | None) -> Device:
    kind = "gpu" if placement.accelerator else "cpu"
    name = f"{placement.accelerator or 'CPUs'} #{device_id % 10}"
    others = (other_id for other_id in host.device_ids if other_id != device_id and link is not None and kind == "gpu")
    links = tuple((other_id, str(link)) for other_id in others)
    return Device(device_id, name, host.host_id, placement.accelerator, kind, links=links)
