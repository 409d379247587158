"""Rule: serve from smaller instances of the same accelerator."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from pertoken.rule import (
    Evidence,
    Fleet,
    Market,
    Offer,
    Placement,
    Proposal,
    Service,
    Skip,
    counted,
    option,
    propose,
    rule,
    skip,
)

GIB = 2**30
PAID_ANYWAY = ("owned", "reserved")


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the default is judgement (Sources, 3)."""

    headroom: float = option(
        0.2, "share of the memory and CPUs of the smaller instance that stays free", low=0, high=0.9
    )


@dataclass(frozen=True)
class ReplicaUse:
    """Memory and CPUs of the hosts that one replica accounts for; None where they were not measured."""

    memory_bytes: float | None
    cpus: float | None


@rule("smaller-instance")
def smaller_instance(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Serve from smaller instances of the same accelerator.

    ## Why it saves
    A cloud rents whole instances: two used GPUs of an instance of eight cost as much as eight. The same GPU in smaller
    instances of the same provider and region serves the same requests at the same speed, and the unused GPUs are no
    longer paid for.
    ## When it is wrong
    Other services may run on the same instance: it is paid for until all of them have left. A smaller instance has
    less memory, fewer CPUs, less local disk and a slower network. Weights on a local disk are copied again, and the
    quota of the smaller type may be 0.
    ## How to apply
    Start the replicas on the smaller instances, compare a sample of the requests, move the traffic, then end the large
    instance.
    ## Sources
    1. The catalog's `prices.csv` and `instances.csv`: offers, CPUs and memory of each type, with source and date.
    2. docs.aws.amazon.com, Compute Optimizer User Guide: EC2 instance recommendations compare CPU, memory and disk.
    3. The headroom of 20 % is judgement: the operating system takes a part that does not shrink with the instance.
    """
    placements = {deployment.placement for deployment in service.deployments}
    placement = service.deployments[0].placement
    provider, kind = placement.provider, placement.instance_type
    hosts_of = [_devices_by_host(deployment.device_ids, fleet) for deployment in service.deployments]
    if len(placements) > 1:
        yield skip(
            "replicas-differ", f"its {len(service.deployments)} replicas run in {len(placements)} kinds of place"
        )
    elif placement.purchase in PAID_ANYWAY:
        yield skip("committed", f"its devices are {placement.purchase}: they are paid for whether used or not")
    elif (provider, kind) in {(commitment.provider, commitment.instance_type) for commitment in fleet.commitments}:
        yield skip("committed", f"{kind} is committed, which is paid whether it is used or not")
    elif provider is None or kind is None or placement.region is None:
        yield skip(
            "instance-unknown", "its provider, region or instance type is not known: a comparison of offers needs all 3"
        )
    elif not all(len(devices) == 1 for devices in hosts_of):
        yield skip("several-hosts", "a replica spans hosts, or its devices were not seen: it needs them together")
    else:
        ranks = max(len(devices) for deployment in hosts_of for devices in deployment.values())
        yield from _proposals(seen, service, market, ranks, options)


def _proposals(
    seen: Evidence, service: Service, market: Market, ranks: int, options: Options
) -> Iterator[Proposal | Skip]:
    """Yield the cheapest smaller instance that fits for each number of devices, or why there is none."""
    placement = service.deployments[0].placement
    offers = _smaller(placement, market)
    fitting = [offer for offer in offers if offer.n_devices >= ranks]
    if not fitting:
        larger = f", {len(offers)} with fewer than the {ranks} of a replica" if offers else ""
        reason = (
            f"{placement.provider} lists 0 instances in {placement.region} that are smaller than "
            f"{placement.instance_type} and hold a replica on {counted(ranks, 'device')}{larger}"
        )
        yield skip("no-smaller-instance", reason)
        return
    use = _use(seen, len(service.deployments))
    short: list[str] = []
    for _, alike in groupby(sorted(fitting, key=_by_devices), key=lambda offer: offer.n_devices):
        for offer in alike:
            replicas = min(len(service.deployments), offer.n_devices // ranks)
            if lacking := _lacking(offer, use, replicas, market, options):
                short.append(lacking)
                continue
            smaller = Placement(instance_type=offer.instance_type, devices_per_instance=offer.n_devices)
            yield propose(service.on(smaller), risk="availability", effort="high", against=_unknown(offer, use, market))
            break
    if short:
        yield skip("host-too-small", "; ".join(short))


def _smaller(placement: Placement, market: Market) -> list[Offer]:
    """Return offers of the same accelerator, region and purchase that have fewer devices, or fewer CPUs beside them."""
    purchase = "spot" if placement.purchase == "spot" else "on_demand"
    provider, kind = placement.provider or "", placement.instance_type or ""
    devices = placement.devices_per_instance or market.devices_per_instance(provider, kind)
    present_size = market.instance_size(provider, kind)
    smaller = []
    for offer in market.offers_at(replace(placement, instance_type=None), purchase):
        size = market.instance_size(provider, offer.instance_type)
        fewer_cpus = size is not None and present_size is not None and size.cpus < present_size.cpus
        if devices is not None and (offer.n_devices < devices or (offer.n_devices == devices and fewer_cpus)):
            smaller.append(offer)
    return smaller


def _by_devices(offer: Offer) -> tuple[int, int, str]:
    return offer.n_devices, offer.nano_usd_per_hour, offer.instance_type


def _use(seen: Evidence, replicas: int) -> ReplicaUse:
    return ReplicaUse(
        seen.host_memory_used.max / replicas if seen.has("host_memory_used") else None,
        seen.host_cpus_used.p95 / replicas if seen.has("host_cpus_used") else None,
    )


def _lacking(offer: Offer, use: ReplicaUse, replicas: int, market: Market, options: Options) -> str | None:
    """Return what an instance has too little of for its replicas; None if nothing is known to be short."""
    size = market.instance_size(offer.provider, offer.instance_type)
    if size is None:
        return None
    part = 1 - options.headroom
    if use.memory_bytes is not None and replicas * use.memory_bytes > part * size.memory_bytes:
        needed, listed = replicas * use.memory_bytes / GIB, size.memory_bytes / GIB
        return f"{offer.instance_type} has {listed:.0f} GiB of memory, {needed:.0f} GiB are in use ({part:.0%} may be)"
    if use.cpus is not None and replicas * use.cpus > part * size.cpus:
        return f"{offer.instance_type} has {size.cpus} CPUs, {replicas * use.cpus:.1f} are busy ({part:.0%} may be)"
    return None


def _unknown(offer: Offer, use: ReplicaUse, market: Market) -> tuple[str, ...]:
    """Return what is not known of the fit of a host into an instance."""
    kind = offer.instance_type
    size = market.instance_size(offer.provider, kind)
    if size is None:
        return (f"the CPUs, memory and disk of {kind} are not in the catalog: compare them with what its hosts use",)
    lines = [f"the disk that it uses is not measured: check that weights, images and logs fit on {kind}"]
    if use.memory_bytes is None:
        lines.append(f"host memory was not measured: check that less than {size.memory_bytes / GIB:.0f} GiB is in use")
    if use.cpus is None:
        lines.append(f"busy CPUs were not measured: check that fewer than {size.cpus} are")
    return tuple(lines)


def _devices_by_host(device_ids: tuple[int, ...], fleet: Fleet) -> dict[int, set[int]]:
    by_host: dict[int, set[int]] = {}
    for device in (fleet.device(device_id) for device_id in device_ids if device_id in fleet.device_ids):
        by_host.setdefault(device.host_id, set()).add(device.device_id)
    return by_host
