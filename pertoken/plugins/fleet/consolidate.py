"""Rule: serve several quiet services from one engine or one device."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pertoken.rule import (
    WEIGHT_BYTES,
    Deployment,
    Evidence,
    Fleet,
    FleetEvidence,
    Market,
    NotMeasured,
    Proposal,
    Service,
    Skip,
    option,
    propose,
    rule,
    skip,
)

RESERVES = ("vllm", "dynamo-vllm", "nim", "sglang", "dynamo-sglang")
"""Engines that reserve the share of device memory that they are told, so that two can be told theirs."""
SLEEPS = ("vllm", "dynamo-vllm", "nim")
"""Engines that leave a device's memory on request and come back without being started again (Sources, 2)."""
NEIGHBOURS, REFUSALS = 20, 500
"""Others that each service is tried with, and refusals that are yielded one by one: a run is bounded in both."""
OF_ADAPTERS = (0.6, 0.85, 1.0, "adapters of one base in a batch: S-LoRA, arXiv 2311.03285, recalled; measure yours")


@dataclass(frozen=True)
class Options:
    """What a person may set; the first two are of the field (Sources, 1), the others judgement."""

    products: float = option(
        0.1, "FLOPs or tensor-core time in use from which a service is not called quiet", low=0, high=1
    )
    kv_use: float = option(0.4, "KV cache in use (p95) from which two may not fit together", low=0, high=1)
    together: float = option(
        0.6, "busy time of both at their p95 from which they are in each other's way", low=0, high=1
    )
    memory_left: float = option(
        0.2, "share of a device's memory that the weights of both must leave for their caches", low=0, high=1
    )
    pairs: int = option(20, "pairs of services that are proposed at most", low=1, high=25)


@dataclass(frozen=True)
class _Quiet:
    """A service that one quiet engine serves alone."""

    service: Service
    now: Deployment
    busy: float
    active: frozenset[int]
    """Hours of the week in which it served."""


@rule("consolidate")
def consolidate(seen: FleetEvidence, fleet: Fleet, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Serve two quiet services from one engine, or from one device, and give the other host back.

    ## Why it saves
    Engines that are busy a tenth of the time each keep a whole device. Two services of one model need one engine;
    fine-tunes of one base are adapters in one engine; different models share a device, by turns, in MIG slices, or one
    asleep while the other serves. Small sites that idle serve as well from a central one. What becomes free is a host.
    ## When it is wrong
    Services that must be kept apart: set `isolation = "tenant"`, which ends the proposal. Peaks that come together: the
    p95 of both is added up. A slice has its part of the memory bandwidth and no NVLink, so that an engine of several
    ranks cannot use one. Whoever shares a device shares its faults. From far away every first token comes later.
    ## How to apply
    One model: point both names at one endpoint (vLLM: several names after `--served-model-name`), then drain the other.
    Adapters: vLLM `--enable-lora --max-loras N --lora-modules NAME=PATH`; SGLang `--lora-paths`. One device: start both
    with their `--gpu-memory-utilization` (SGLang `--mem-fraction-static`) under `nvidia-cuda-mps-control -d`. Slices:
    `nvidia-smi -i ID -mig 1`, then `nvidia-smi mig -cgi 3g.40gb,3g.40gb -C`. By turns: vLLM `--enable-sleep-mode`,
    `POST /sleep?level=1` and `POST /wake_up`. Give the host back only after a week of both together.
    ## Sources
    1. [A] Below 10 % of the FLOPs and 40 % of the cache two services fit one device; the limits are of the field.
    2. [C] vLLM 0.32 `entrypoints`: sleep mode and its endpoints, and several served names. Read in the code.
    3. [V] Typical GPU utilization of 30 to 60 %; edge sites at 40 to 50 % where a pool reaches 85 %. Vendors' figures.
    4. [V] NVIDIA MIG user guide: profiles by device, in the catalog with source and date.
    5. [K] S-LoRA, arXiv 2311.03285, and Punica: many adapters in a batch cost little. Recalled, not verified.
    """
    quiet: list[_Quiet] = []
    refusals: list[Skip] = []
    for service in fleet.services:
        found = _quiet(seen.of(service), service, options)
        if isinstance(found, Skip):
            refusals.append(found)
        else:
            quiet.append(found)
    left, proposed = sorted(quiet, key=_kind), 0
    while left and proposed < options.pairs:
        one = left.pop(0)
        for other in left[:NEIGHBOURS]:
            states = list(_together(one, other, fleet, market, options))
            if states:
                left.remove(other)
                proposed += 1
                yield from states
                break
        else:
            reason = (
                f"it is busy {one.busy:.0%} of the time (p95), and no other of {len(quiet)} quiet services suits it"
            )
            refusals.append(skip("nothing-alike", reason, about=one.service))
    if left:
        yield skip("enough-pairs", f"{len(left)} more quiet services wait until these {proposed} pairs are decided")
    yield from refusals[:REFUSALS]
    if len(refusals) > REFUSALS:
        yield skip("more-refused", f"{len(refusals) - REFUSALS} more services are refused likewise")
    if not fleet.services:
        yield skip("no-services", "0 services were seen")


def _kind(each: _Quiet) -> tuple[object, ...]:
    """Order in which services that suit each other are neighbours, the quieter first."""
    return each.now.model.name, each.now.engine, each.now.accelerator, len(each.now.device_ids), each.busy


def _quiet(seen: Evidence, service: Service, options: Options) -> _Quiet | Skip:
    """Return a service that may be joined to another one, else why it may not."""
    if service.isolation == "tenant":
        reason = f'it shares no engine and no device of its {len(service.deployments)}: isolation = "tenant"'
        return skip("isolated", reason, about=service)
    alone = [each for each in service.deployments if [name for name, _ in each.serves] == [service.name]]
    if len(service.deployments) > 1 or not alone or service.min_replicas + service.spare_replicas > 1:
        reason = f"it has {len(service.deployments)} replica(s), {len(alone)} of them its own: its number comes first"
        return skip("several-replicas", reason, about=service)
    now = alone[0]
    if now.accelerator is None or not now.device_ids:
        reason = f"{len(now.device_ids)} devices of it are accelerators of the catalog: nothing is shared"
        return skip("no-accelerator", reason, about=service)
    try:
        busy = seen.busy.p95
        products = next((getattr(seen, name).mean for name in ("mfu", "tensor_active") if seen.has(name)), None)
        kv_use = seen.kv_use.p95 if seen.has("kv_use") else None
        hours = seen.hours.generated_tok_s
    except NotMeasured as missing:
        return skip("not-measured", f"how busy it is, is not known: {missing}", about=service)
    if busy >= options.together:
        return skip("busy", f"it is busy {busy:.0%} of the time (p95), {options.together:.0%} or more", about=service)
    if products is not None and products >= options.products:
        reason = f"{products:.0%} of its FLOPs are in use, {options.products:.0%} or more"
        return skip("busy", reason, about=service)
    if kv_use is not None and kv_use >= options.kv_use:
        reason = f"its KV cache is {kv_use:.0%} full (p95), {options.kv_use:.0%} or more"
        return skip("kv-cache-full", reason, about=service)
    return _Quiet(service, now, busy, frozenset(hour for hour, rate in enumerate(hours) if rate is None or rate > 0))


def _together(one: _Quiet, other: _Quiet, fleet: Fleet, market: Market, options: Options) -> Iterator[Proposal]:
    """Yield the ways in which two quiet services run together, each released host a proposal of its own."""
    a, b = one.now, other.now
    if set(a.device_ids) & set(b.device_ids):
        return
    by_turns = not one.active & other.active
    if one.busy + other.busy >= options.together and not by_turns:
        return
    if a.model == b.model and a.engine == b.engine:
        adapters = tuple(dict.fromkeys((*(a.lora_adapters or ()), *(b.lora_adapters or ()))))
        for into in (a, b):
            made = into.but(lora_adapters=adapters).expecting(*OF_ADAPTERS) if adapters else into
            merged = fleet.merge((a, b), made)
            gone = b if into is a else a
            yield propose(_released(merged, gone), risk="latency", effort="high", excludes=_MOVES)
        return
    if a.accelerator != b.accelerator or len(a.device_ids) != len(b.device_ids):
        return
    for stays, moves in ((a, b), (b, a)):
        yield from _on_one_device(stays, moves, fleet, market, by_turns, options)


_MOVES = ("move-accelerator", "split-hybrid", "route-requests", "right-size-parallelism")
"""Rules that give the same deployments other devices."""


def _on_one_device(
    stays: Deployment, moves: Deployment, fleet: Fleet, market: Market, by_turns: bool, options: Options
) -> Iterator[Proposal]:
    weights = [_weights_share(each, market) for each in (stays, moves)]
    reserves = all(each.engine in RESERVES for each in (stays, moves))
    left = 0.9 - sum(each or 0 for each in weights) if reserves and None not in weights else 0.0
    if left > 0 and left >= options.memory_left:
        # Each has its weights and half of what both leave, in whole percents.
        first, second = (int(100 * ((each or 0) + left / 2)) / 100 for each in weights)
        shared = fleet.replace(stays, stays.but(gpu_memory_utilization=first))
        beside = moves.but(gpu_memory_utilization=second).on_devices(stays.device_ids)
        yield propose(_released(shared.replace(moves, beside), moves), risk="latency", effort="high", excludes=_MOVES)
    elif by_turns and all(each.engine in SLEEPS for each in (stays, moves)):
        asleep = fleet.replace(stays, stays.but(sleep=True))
        beside = moves.but(sleep=True).on_devices(stays.device_ids)
        yield propose(_released(asleep.replace(moves, beside), moves), risk="latency", effort="high", excludes=_MOVES)
    device = market.accelerator(stays.accelerator)
    if device is not None and len(stays.device_ids) == 1:
        profiles = market.slices_for(device, *((each.model, each.weight_dtype) for each in (stays, moves)))
        if profiles is not None:
            sliced = _sliced(fleet, stays, moves, profiles)
            yield propose(sliced, risk="availability", effort="high", excludes=_MOVES)


def _weights_share(of: Deployment, market: Market) -> float | None:
    """Return the share of each device's memory that its weights take."""
    device = market.accelerator(of.accelerator)
    if device is None or of.model.params_total is None or of.weight_dtype not in WEIGHT_BYTES:
        return None
    return of.model.params_total * WEIGHT_BYTES[of.weight_dtype] / len(of.device_ids) / device.memory_bytes


def _released(after: Fleet, moved: Deployment) -> Fleet:
    """Return a fleet without the hosts that a deployment leaves empty."""
    hosts = {after.device(each).host_id for each in moved.device_ids}
    for host_id in sorted(hosts):
        if not after.deployments_on(after.host(host_id)):
            after = after.release(host_id)
    return after


def _sliced(fleet: Fleet, stays: Deployment, moves: Deployment, profiles: Sequence[str]) -> Fleet:
    """Return a fleet in which both run in slices of the device of one: it is divided while that one is away."""
    device_id = stays.device_ids[0]
    away = fleet.replace(stays, stays.on_devices(moves.device_ids))
    divided = away.partition(device_id, *profiles)
    first, second = (each.partition_id for each in divided.device(device_id).partitions)
    back = divided.replace(divided.deployment(stays.deployment_id), stays.on_devices((first,)))
    return _released(back.replace(moves, moves.on_devices((second,))), moves)
