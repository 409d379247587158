"""Rule: serve several quiet services from one engine or one device."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pertoken.plugins.common import served_tok_s
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
    counted,
    option,
    propose,
    rule,
    skip,
)

RESERVES = ("vllm", "dynamo-vllm", "nim", "sglang", "dynamo-sglang")
"""Engines with a flag for their share of device memory, so that two can share a device."""
SLEEPS = ("vllm", "dynamo-vllm", "nim")
"""Engines that release device memory on request and resume without a restart (Sources, 2)."""
NEIGHBOURS, REFUSALS = 20, 500
"""Maximum number of partners tried for each service, and of refusals that are yielded one by one."""
ADAPTER_RATIO = (0.6, 0.85, 1.0, "adapters of one base in a batch: S-LoRA, arXiv 2311.03285, recalled; measure yours")


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the first two are common practice (Sources, 1), the others are judgement."""

    products: float = option(
        0.1, "FLOPs or tensor-core time in use at or above which a service is not quiet", low=0, high=1
    )
    kv_use: float = option(0.4, "KV cache in use (p95) at or above which two may not fit on one device", low=0, high=1)
    together: float = option(0.6, "sum of both busy shares (p95) at or above which they interfere", low=0, high=1)
    memory_left: float = option(
        0.2, "share of a device's memory that must remain for both KV caches beside the weights", low=0, high=1
    )
    pairs: int = option(20, "maximum pairs or groups of services to propose", low=1, high=25)


@dataclass(frozen=True)
class _Quiet:
    """A service with a quiet engine of its own."""

    service: Service
    deployment: Deployment
    busy: float
    active: frozenset[int]
    """Hours of the week in which it served requests."""


@rule("consolidate")
def consolidate(seen: FleetEvidence, fleet: Fleet, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Serve quiet services from one engine, or two from one device, and give the other hosts back.

    ## Why it saves
    Engines that are busy a tenth of the time each occupy a whole device. Services of one model need one engine.
    Fine-tunes of one base model are adapters in one engine. Different models can share a device: with a share of its
    memory each, in MIG instances, or one asleep while the other serves. A small, idle site can be served from a central
    one. The saving is the host that becomes free.
    ## When it is wrong
    Services that must be kept apart: set `isolation = "tenant"`, and the rule does not propose it. Peaks that coincide:
    the p95 of both is added up. A MIG instance has only its fraction of the memory bandwidth and no NVLink, so that an
    engine of several ranks cannot use one. Services on one device fail together. A distant site makes every first token
    later.
    ## How to apply
    One model: point both names at one endpoint (vLLM: several names after `--served-model-name`), then drain the other.
    Adapters: vLLM `--enable-lora --max-loras N --lora-modules NAME=PATH`; SGLang `--lora-paths`. One device: start both
    with their `--gpu-memory-utilization` (SGLang `--mem-fraction-static`) under `nvidia-cuda-mps-control -d`. MIG
    instances: `nvidia-smi -i ID -mig 1`, then `nvidia-smi mig -cgi 3g.40gb,3g.40gb -C`. By turns: vLLM
    `--enable-sleep-mode`, `POST /sleep?level=1` and `POST /wake_up`. Give the host back only after both have run
    together for a week.
    ## Sources
    1. (calculated) Below 10 % of the FLOPs and 40 % of the cache two services fit one device; the thresholds are common
       in the field.
    2. (code) vLLM 0.32 `entrypoints`: sleep mode and its endpoints, and several served names.
    3. (vendor) typical GPU utilization of 30 to 60 %; edge sites at 40 to 50 % where a pool reaches 85 %.
    4. (vendor) NVIDIA MIG user guide: profiles by device, in the catalog with source and date.
    5. (unverified) S-LoRA, arXiv 2311.03285, and Punica: many adapters in a batch cost little.
    """
    quiet: list[_Quiet] = []
    refusals: list[Skip] = []
    for service in fleet.services:
        quiet_or_refusal = _quiet(seen.of(service), service, options)
        if isinstance(quiet_or_refusal, Skip):
            refusals.append(quiet_or_refusal)
        else:
            quiet.append(quiet_or_refusal)
    remaining, proposed = sorted(quiet, key=_kind), 0
    while remaining and proposed < options.pairs:
        first = remaining.pop(0)
        group = _one_engine(first, remaining[:NEIGHBOURS], options)
        if len(group) > 2:
            yield from _merged(group, fleet)
            yield from _merged(group[:2], fleet)  # in case that one engine for all is too slow
            remaining = [candidate for candidate in remaining if candidate not in group]
            proposed += 1
            continue
        for second in remaining[:NEIGHBOURS]:
            states = list(_pair_proposals(first, second, fleet, market, options))
            if states:
                remaining.remove(second)
                proposed += 1
                yield from states
                break
        else:
            reason = (
                f"it is busy {first.busy:.0%} of the time (p95), and no other of {len(quiet)} quiet services suits it"
            )
            refusals.append(skip("nothing-alike", reason, about=first.service))
    if remaining:
        yield skip(
            "enough-pairs", f"{len(remaining)} more quiet services are left until these {proposed} pairs are decided"
        )
    yield from refusals[:REFUSALS]
    if len(refusals) > REFUSALS:
        yield skip("more-refused", f"{len(refusals) - REFUSALS} more services are refused likewise")
    if not fleet.services:
        yield skip("no-services", "0 services were seen")


def _kind(quiet: _Quiet) -> tuple[object, ...]:
    """Return a sort key that places services which can share next to each other, the quietest first."""
    return (
        quiet.deployment.model.name,
        quiet.deployment.engine,
        quiet.deployment.accelerator,
        len(quiet.deployment.device_ids),
        quiet.busy,
    )


def _quiet(seen: Evidence, service: Service, options: Options) -> _Quiet | Skip:
    """Return a service that may share an engine or a device, or the refusal."""
    if service.isolation == "tenant":
        reason = (
            f'isolation = "tenant": its {counted(len(service.deployments), "deployment")} share no engine or device'
        )
        return skip("isolated", reason, about=service)
    exclusive = [
        deployment for deployment in service.deployments if [name for name, _ in deployment.serves] == [service.name]
    ]
    if len(service.deployments) > 1 or not exclusive or service.min_replicas + service.spare_replicas > 1:
        reason = (
            f"it has {counted(len(service.deployments), 'replica')}, {len(exclusive)} of them exclusive: "
            "scale its replicas first"
        )
        return skip("several-replicas", reason, about=service)
    deployed = exclusive[0]
    if deployed.accelerator is None or not deployed.device_ids:
        devices = counted(len(deployed.device_ids), "device")
        reason = f"it has {devices} and no accelerator of the catalog: nothing can be shared"
        return skip("no-accelerator", reason, about=service)
    try:
        busy = seen.busy.p95
        products = next((getattr(seen, name).mean for name in ("mfu", "tensor_active") if seen.has(name)), None)
        kv_use = seen.kv_use.p95 if seen.has("kv_use") else None
        hours = served_tok_s(seen)
    except NotMeasured as missing:
        return skip("not-measured", f"its load is not known: {missing}", about=service)
    if busy >= options.together:
        return skip("busy", f"it is busy {busy:.0%} of the time (p95), {options.together:.0%} or more", about=service)
    if products is not None and products >= options.products:
        reason = f"{products:.0%} of its FLOPs are in use, {options.products:.0%} or more"
        return skip("busy", reason, about=service)
    if kv_use is not None and kv_use >= options.kv_use:
        reason = f"its KV cache is {kv_use:.0%} full (p95), {options.kv_use:.0%} or more"
        return skip("kv-cache-full", reason, about=service)
    return _Quiet(
        service, deployed, busy, frozenset(hour for hour, rate in enumerate(hours) if rate is None or rate > 0)
    )


def _pair_proposals(
    first: _Quiet, second: _Quiet, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal]:
    """Yield the ways to run two quiet services together, one proposal for each host that may be released."""
    a, b = first.deployment, second.deployment
    if set(a.device_ids) & set(b.device_ids):
        return
    by_turns = not first.active & second.active
    if first.busy + second.busy >= options.together and not by_turns:
        return
    if a.model == b.model and a.engine == b.engine:
        yield from _merged((first, second), fleet)
        return
    if a.accelerator != b.accelerator or len(a.device_ids) != len(b.device_ids):
        return
    for staying, moving in ((a, b), (b, a)):
        yield from _on_one_device(staying, moving, fleet, market, by_turns, options)


def _one_engine(first: _Quiet, others: Sequence[_Quiet], options: Options) -> list[_Quiet]:
    """Return a quiet service and those that fit into one engine of its model with it: their busy shares add up."""
    group = [first]
    for candidate in others:
        fits = sum(member.busy for member in (*group, candidate)) < options.together
        alike = (candidate.deployment.model, candidate.deployment.engine) == (
            first.deployment.model,
            first.deployment.engine,
        )
        devices = {device for member in group for device in member.deployment.device_ids}
        if alike and fits and not devices & set(candidate.deployment.device_ids):
            group.append(candidate)
    return group


def _merged(group: Sequence[_Quiet], fleet: Fleet) -> Iterator[Proposal]:
    """Yield one engine for all services of a group, on the devices of its first or of its last one."""
    deployments = [member.deployment for member in group]
    adapters = tuple(dict.fromkeys(name for deployment in deployments for name in deployment.lora_adapters or ()))
    for into in (deployments[0], deployments[-1]):
        after = fleet.merge(
            deployments, into.but(lora_adapters=adapters).expecting(*ADAPTER_RATIO) if adapters else into
        )
        for moved in deployments:
            if moved is not into:
                after = _released(after, moved)
        yield propose(after, risk="latency", effort="high", excludes=_MOVES)


_MOVES = ("move-accelerator", "split-hybrid", "route-requests", "right-size-parallelism")
"""Rules that move the same deployments to other devices."""


def _on_one_device(
    stays: Deployment, moves: Deployment, fleet: Fleet, market: Market, by_turns: bool, options: Options
) -> Iterator[Proposal]:
    weights = [_weights_share(side, market) for side in (stays, moves)]
    reserves = all(side.engine in RESERVES for side in (stays, moves))
    remaining = 0.9 - sum(weight or 0 for weight in weights) if reserves and None not in weights else 0.0
    if remaining > 0 and remaining >= options.memory_left:
        # Each gets the memory of its weights and half of the rest, in whole percent.
        own_share, moved_share = (int(100 * ((weight or 0) + remaining / 2)) / 100 for weight in weights)
        shared = fleet.replace(stays, stays.but(gpu_memory_utilization=own_share))
        beside = moves.but(gpu_memory_utilization=moved_share).on_devices(stays.device_ids)
        yield propose(_released(shared.replace(moves, beside), moves), risk="latency", effort="high", excludes=_MOVES)
    elif by_turns and all(side.engine in SLEEPS for side in (stays, moves)):
        sleeping = fleet.replace(stays, stays.but(sleep=True))
        beside = moves.but(sleep=True).on_devices(stays.device_ids)
        yield propose(_released(sleeping.replace(moves, beside), moves), risk="latency", effort="high", excludes=_MOVES)
    device = market.accelerator(stays.accelerator)
    if device is not None and len(stays.device_ids) == 1:
        profiles = market.slices_for(device, *((side.model, side.weight_dtype) for side in (stays, moves)))
        if profiles is not None:
            partitioned = _partitioned(fleet, stays, moves, profiles)
            yield propose(partitioned, risk="availability", effort="high", excludes=_MOVES)


def _weights_share(deployment: Deployment, market: Market) -> float | None:
    """Return the share of each device's memory that the weights take; None if their size is not known."""
    device = market.accelerator(deployment.accelerator)
    params = deployment.model.params_total
    if device is None or params is None or deployment.weight_dtype not in WEIGHT_BYTES:
        return None
    return params * WEIGHT_BYTES[deployment.weight_dtype] / len(deployment.device_ids) / device.memory_bytes


def _released(after: Fleet, moved: Deployment) -> Fleet:
    """Return the fleet without the hosts that a moved deployment left empty."""
    hosts = {after.device(device_id).host_id for device_id in moved.device_ids}
    for host_id in sorted(hosts):
        if not after.deployments_on(after.host(host_id)):
            after = after.release(host_id)
    return after


def _partitioned(fleet: Fleet, stays: Deployment, moves: Deployment, profiles: Sequence[str]) -> Fleet:
    """Return the fleet with both deployments in MIG instances of one device.

    The deployment on that device moves away before the device is partitioned, and back afterwards.
    """
    device_id = stays.device_ids[0]
    away = fleet.replace(stays, stays.on_devices(moves.device_ids))
    divided = away.partition(device_id, *profiles)
    first, second = (partition.partition_id for partition in divided.device(device_id).partitions)
    back = divided.replace(divided.deployment(stays.deployment_id), stays.on_devices((first,)))
    return _released(back.replace(moves, moves.on_devices((second,))), moves)
