"""Checks that several rules share: services without output, formats, replicas, versions, models, owned devices."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from pertoken.rule import (
    Accelerator,
    Deployment,
    Epoch,
    Evidence,
    Fleet,
    Market,
    Model,
    Service,
    Skip,
    skip,
    version_numbers,
)


def generates_nothing(seen: Evidence) -> bool:
    """Return whether a service read prompts and ended requests, but generated no token in the whole window."""
    prompts, generated, requests = map(seen.peek, ("prompt_tok_s", "generated_tok_s", "requests_s"))
    if prompts is None or generated is None:
        return False
    return prompts.max > 0 and generated.max == 0 and (requests is None or requests.max > 0)


def encoder_refusal(seen: Evidence, reason: str) -> Skip | None:
    """Return a refusal, with the reason, for a service that generates nothing; None for others."""
    if not generates_nothing(seen):
        return None
    return skip(
        "generates-nothing", f"it reads {seen.prompt_tok_s.mean:,.0f} prompt tokens/s and generates none: {reason}"
    )


def hardly_busy(seen: Evidence, min_busy: float) -> Skip | None:
    """Return a refusal of a service that is busy below `min_busy`, a fraction; None for others."""
    busy = seen.busy.mean
    return skip("hardly-busy", f"it is busy {busy:.1%} of the time, below {min_busy:.0%}") if busy < min_busy else None


def tenants_apart(service: Service) -> Skip | None:
    """Return a refusal of a cache where the tenants of the service are isolated; None elsewhere."""
    if service.isolation != "tenant":
        return None
    return skip("isolated", 'isolation = "tenant": its tenants must not share a cache')


def served_tok_s(seen: Evidence) -> tuple[float | None, ...]:
    """Return the tokens/s of each hour of the week: generated tokens, or prompt tokens if it generates none."""
    return seen.hours.prompt_tok_s if generates_nothing(seen) else seen.hours.generated_tok_s


def computed_prompt(seen: Evidence) -> float:
    """Return the tokens of a long prompt (p95) that are not found in the cache."""
    cached_share = seen.cached_share.mean if seen.has("cached_share") else 0.0
    return seen.prompt_len.p95 * (1 - cached_share)


SIXTEEN_BIT_OR_MORE = ("bf16", "fp16", "fp32")
"""Weight and cache formats of 16 bits or more."""
FILE_FORMATS = ("int8", "int4")
"""Smaller formats of GGUF files, which llama.cpp reads."""
FP8_KV = ("vllm", "dynamo-vllm", "nim", "sglang", "dynamo-sglang", "trtllm", "tgi")
"""Engines with a flag in the catalog for an FP8 cache."""
FP8_KV_VENDORS = {"tgi": ("nvidia",)}
"""Device vendors with an FP8 cache, for engines that differ from `BOTH`."""
BOTH = ("nvidia", "amd")


def smaller_formats(engine: str, device: Accelerator, *, few: bool) -> list[str]:
    """Return the smaller formats that are faster on a device; `few`: 4-bit integers too, for few requests."""
    if engine == "llama.cpp":
        return list(FILE_FORMATS)
    formats = []
    if device.fp8_flops is not None:
        formats.append("fp8")
    elif device.int8_flops is not None and device.int8_flops > device.fp16_flops:
        formats.append("int8")
    if device.fp4_flops is not None:
        formats.append("fp4")
    if few:
        formats.append("int4")
    return formats


def stores_kv_in_fp8(engine: str, device: Accelerator) -> bool:
    """Return whether the engine stores the KV cache in FP8, and the device computes in FP8."""
    return engine in FP8_KV and device.fp8_flops is not None and device.vendor in FP8_KV_VENDORS.get(engine, BOTH)


_REPLICA_KNOBS = ("model", "engine", "accelerator", "weight_dtype", "tp", "pp", "dp", "role")


def alike(service: Service, *knobs: str) -> bool:
    """Return whether replicas have the same model, engine, accelerator, weights, ranks and role, and equal `knobs`."""
    return len(set(map(attrgetter(*_REPLICA_KNOBS, *knobs), service.deployments))) <= 1


def replicas_differ(service: Service, words: str, *knobs: str) -> Skip | None:
    """Return a refusal of a service with replicas that differ in `knobs`; `words` name the knobs. Else None."""
    if len(set(map(attrgetter(*knobs), service.deployments))) <= 1:
        return None
    return skip("replicas-differ", f"its {len(service.deployments)} replicas differ in {words}")


def not_in_catalog(deployment: Deployment, consequence: str) -> Skip:
    """Return the refusal of a deployment on a device that is not in the catalog."""
    name = deployment.accelerator or "its device"
    return skip("device-unknown", f"{name} is not in the catalog: {consequence}")


def missed_objective(
    seen: Evidence, service: Service, verb: str = "is already", figures: Iterable[str] = ("TTFT", "TPOT")
) -> str | None:
    """Return the first measured latency (p95) above its objective, as text; None if all objectives are met."""
    for figure in figures:
        series, limit_ms = f"{figure.lower()}_s", getattr(service.slo, f"{figure.lower()}_p95_ms")
        if limit_ms is None or not seen.has(series):
            continue
        measured_ms = 1000 * getattr(seen, series).p95
        if measured_ms > limit_ms:
            return f"its {figure} {verb} {measured_ms:.0f} ms (p95), above its objective of {limit_ms:.0f} ms"
    return None


DOCTOR = "`pertoken doctor` on its host shows what was read from its engine"
CATALOG = "neither its engine nor the catalog has it"
"""Ends of refusals because of an unknown value."""


def is_newer(version: str | None, reference_version: str | None) -> bool:
    """Return whether a version is known to be newer than a reference; False if one of them is unknown."""
    numbers, reference = version_numbers(version), version_numbers(reference_version)
    return numbers is not None and reference is not None and numbers > reference


def judged(epochs: Iterable[Epoch]) -> tuple[Epoch, ...]:
    """Return one epoch of each version, from epochs in order: the newest comparable one, else the newest.

    The choice must not depend on the ratios: choosing the best of several would select noise.
    """
    epoch_by_version: dict[str, Epoch] = {}
    for epoch in epochs:
        version = epoch.engine_version
        if version is None:
            continue
        if version not in epoch_by_version or _is_comparable(epoch) or not _is_comparable(epoch_by_version[version]):
            epoch_by_version[version] = epoch
    return tuple(epoch_by_version.values())


def _is_comparable(epoch: Epoch) -> bool:
    """Return whether only the version changed since, and device times per token have a ratio."""
    return set(epoch.changed) == {"engine_version"} and epoch.present.ratio is not None


def percent(ratio: float) -> str:
    """Return a ratio as text: 1.33 as `33% more`."""
    return f"{abs(ratio - 1):.0%} {'more' if ratio >= 1 else 'less'}"


def interval(epoch: Epoch) -> str:
    """Return the interval and the matched hours of an epoch's comparison with the present one, as text."""
    compared = epoch.present
    assert compared.ratio is not None
    low, _likely, high = compared.ratio
    return f"90 % interval {low:.2f} to {high:.2f} times, {compared.matched_hours} matched hours"


def smaller_models(
    seen: Evidence, service: Service, market: Market, *, max_size: float, min_busy: float
) -> list[Model] | Skip:
    """Return models of the same family with at most `max_size` times the active parameters, or a refusal.

    A service that is busy below `min_busy`, a fraction, or already served by several models, is refused.
    """
    busy = seen.busy.mean
    if busy < min_busy:
        return skip(
            "hardly-busy",
            f"it is busy {busy:.1%} of the time, below {min_busy:.0%}: too few requests to split between two models",
        )
    models = dict.fromkeys(deployment.model.name for deployment in service.deployments)
    if len(models) > 1:
        return skip("already-routed", f"its replicas already serve {len(models)} models: {', '.join(models)}")
    model = service.deployments[0].model
    params = model.params_active or 0
    smaller = [other for other in market.smaller_models(model) if (other.params_active or params) <= max_size * params]
    refusals = [market.unsuitable(model, candidate, beside=True) for candidate in smaller]
    suitable = [candidate for candidate, refusal in zip(smaller, refusals, strict=True) if refusal is None]
    if smaller and not suitable:
        return skip(*next(filter(None, refusals)))
    return suitable or skip(
        "no-smaller-model",
        f"the catalog has no model of {max_size:.0%} of its active parameters or less in the family of {model.name}",
    )


ADJUSTABLE = ("nvidia", "amd")
"""Vendors with a tool that sets clocks and power limits: nvidia-smi, rocm-smi."""


def owned_devices(deployment: Deployment, fleet: Fleet, market: Market) -> Accelerator | Skip:
    """Return the accelerator of a deployment on owned, whole devices that it does not share; else a refusal."""
    purchase = deployment.placement.purchase
    device = market.accelerator(deployment.accelerator)
    if device is None:
        return not_in_catalog(deployment, "its limits are not known")
    if purchase is None:
        return skip(
            "purchase-unknown", "whether its devices are owned or rented is not known: set `purchase` of its hosts"
        )
    if purchase != "owned":
        paid = purchase.replace("_", "-")
        return skip("rented", f"its devices are rented ({paid}): the price includes their electricity, so it saves $0")
    if device.vendor not in ADJUSTABLE:
        return skip("vendor-cannot", f"no known tool sets clocks and power limits of {device.name}")
    if not deployment.device_ids or device.tdp_w is None:
        return skip(
            "limit-unknown", f"its devices were not observed, or the catalog has no power limit of {device.name}"
        )
    own_and_partition_ids = {
        device.device_id: {device.device_id, *(partition.partition_id for partition in device.partitions)}
        for device in fleet.devices
    }
    if not set(deployment.device_ids) <= set(own_and_partition_ids):
        return skip(
            "part-of-device", "it runs on a partition of a device: clocks and power limits apply to the whole device"
        )
    used_ids = {used_id for device_id in deployment.device_ids for used_id in own_and_partition_ids[device_id]}
    sharing = [
        other.name
        for other in fleet.deployments
        if other.deployment_id != deployment.deployment_id and used_ids & set(other.device_ids)
    ]
    if sharing:
        return skip(
            "shared-device",
            f"its devices also serve {', '.join(sharing)}: clocks and power limits apply to all of them",
        )
    return device


MODEL_RULES = ("smaller-model", "mixture-of-experts", "prune", "route-requests")
"""Rules that choose the served model: at most one of them applies at a time."""


def refusal(seen: Evidence, service: Service, min_busy: float) -> Skip | None:
    """Return a refusal if a service is hardly busy, its replicas differ, or its model size is unknown; else None."""
    busy = seen.busy.mean
    if busy < min_busy:
        return skip("hardly-busy", f"it is busy {busy:.1%} of the time, below {min_busy:.0%}: there is no time to save")
    if not alike(service):
        count = len(service.deployments)
        return skip("replicas-differ", f"its {count} replicas differ in model, engine, accelerator, weights or ranks")
    if service.deployments[0].model.params_active is None:
        name = service.deployments[0].model.name
        return skip("size-unknown", f"the parameters of {name} are not known: neither engine nor catalog has them")
    return None


def fewest_ranks(deployment: Deployment, model: Model, market: Market) -> int | None:
    """Return the fewest tensor-parallel ranks that hold a model in the present weight dtype; None if unknown."""
    device = market.accelerator(deployment.accelerator)
    return None if device is None else market.fewest_ranks(model, deployment.weight_dtype, device)


def replaced(service: Service, models: Iterable[Model], market: Market) -> list[Service]:
    """Return a service with each of other models: all on the fewest ranks that hold them, then on more ranks.

    The fewest may be too slow. More ranks than now are tried only if the model needs them. With unknown ranks, only
    the model changes.
    """
    present = service.deployments[0]
    device = market.accelerator(present.accelerator)
    proposals: list[tuple[int, Service]] = []
    for model in models:
        ranks = () if device is None or present.tp is None else market.ranks(model, present.weight_dtype, device)
        tried = [tp for tp in ranks if tp <= max(ranks[0], present.tp or 1)]
        one_stage = {"pp": 1} if present.pp is not None else {}
        proposals += [(position, service.but(model=model, tp=tp, **one_stage)) for position, tp in enumerate(tried)]
        if not tried:
            proposals.append((0, service.but(model=model)))
    return [proposed for _, proposed in sorted(proposals, key=lambda entry: entry[0])]
