"""Questions that several rules ask: services without output, formats, versions, models, owned devices, layouts."""

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
    """Return whether it ended requests and read prompts, and generated no token in the whole window."""
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


def served_tok_s(seen: Evidence) -> tuple[float | None, ...]:
    """Return the tokens/s of each hour of the week by which a service is idle: prompts where it generates nothing."""
    return seen.hours.prompt_tok_s if generates_nothing(seen) else seen.hours.generated_tok_s


def computed_prompt(seen: Evidence) -> float:
    """Return the uncached tokens of a long prompt (p95)."""
    cached_share = seen.cached_share.mean if seen.has("cached_share") else 0.0
    return seen.prompt_len.p95 * (1 - cached_share)


SIXTEEN_BIT_OR_MORE = ("bf16", "fp16", "fp32")
FILE_FORMATS = ("int8", "int4")
"""Formats of GGUF files."""
FP8_KV = ("vllm", "dynamo-vllm", "nim", "sglang", "dynamo-sglang", "trtllm", "tgi")
"""Engines that store the cache in FP8, by their flags in the catalog."""
FP8_KV_VENDORS = {"tgi": ("nvidia",)}
"""Vendors of devices with an FP8 cache by engine, where these are not `BOTH`."""
BOTH = ("nvidia", "amd")


def smaller_formats(engine: str, device: Accelerator, *, few: bool) -> list[str]:
    """Return the formats of fewer bits that an engine gains by on a device, 4-bit integers only for `few` requests."""
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
    """Return whether the engine stores the KV cache in FP8 on a device that computes in it."""
    return engine in FP8_KV and device.fp8_flops is not None and device.vendor in FP8_KV_VENDORS.get(engine, BOTH)


_SHAPE = ("model", "engine", "accelerator", "weight_dtype", "tp", "pp", "dp", "role")


def alike(service: Service, *knobs: str) -> bool:
    """Return whether replicas have the same model, engine, accelerator, weights, ranks and role, and equal `knobs`."""
    return len(set(map(attrgetter(*_SHAPE, *knobs), service.deployments))) <= 1


def replicas_differ(service: Service, words: str, *knobs: str) -> Skip | None:
    """Return a refusal, with words for the knobs, of a service with replicas that differ in `knobs`; else None."""
    if len(set(map(attrgetter(*knobs), service.deployments))) <= 1:
        return None
    return skip("replicas-differ", f"its {len(service.deployments)} replicas differ in {words}")


def not_in_catalog(deployment: Deployment, consequence: str) -> Skip:
    """Return the refusal of a deployment on a device that the catalog does not have."""
    name = deployment.accelerator or "its device"
    return skip("device-unknown", f"{name} is not in the catalog: {consequence}")


def missed_objective(
    seen: Evidence, service: Service, verb: str = "is already", figures: Iterable[str] = ("TTFT", "TPOT")
) -> str | None:
    """Return the first measured latency (p95) above its objective, as text; None if there is none."""
    for figure in figures:
        series, limit_ms = f"{figure.lower()}_s", getattr(service.slo, f"{figure.lower()}_p95_ms")
        if limit_ms is not None and seen.has(series) and (measured_ms := 1000 * getattr(seen, series).p95) > limit_ms:
            return f"its {figure} {verb} {measured_ms:.0f} ms (p95), above its objective of {limit_ms:.0f} ms"
    return None


DOCTOR = "`pertoken doctor` on its host shows what was read from its engine"
CATALOG = "neither its engine nor the catalog has it"


def is_newer(version: str | None, reference_version: str | None) -> bool:
    """Return whether a version is known to be newer than a reference; False if one of them is unknown."""
    first, second = version_numbers(version), version_numbers(reference_version)
    return first is not None and second is not None and first > second


def judged(epochs: Iterable[Epoch]) -> tuple[Epoch, ...]:
    """Return one epoch of each version: the newest one that can be compared, else the newest one.

    The choice must not depend on the ratios: choosing the best of several would select noise.
    """
    best: dict[str, Epoch] = {}
    for epoch in epochs:
        version = epoch.engine_version
        if version is not None and (version not in best or _usable(epoch) or not _usable(best[version])):
            best[version] = epoch
    return tuple(best.values())


def _usable(epoch: Epoch) -> bool:
    """Return whether only the version changed since, and the device time per token can be compared."""
    return set(epoch.changed) == {"engine_version"} and epoch.present.ratio is not None


def percent(ratio: float) -> str:
    """Return a ratio as text: 1.33 as `33% more`."""
    return f"{abs(ratio - 1):.0%} {'more' if ratio >= 1 else 'less'}"


def interval(epoch: Epoch) -> str:
    """Return the interval and the number of matched hours of a comparison, as text."""
    compared = epoch.present
    assert compared.ratio is not None
    low, _, high = compared.ratio
    return f"90 % interval {low:.2f} to {high:.2f} times, {compared.matched_hours} matched hours"


def smaller_models(
    seen: Evidence, service: Service, market: Market, *, max_size: float, min_busy: float
) -> list[Model] | Skip:
    """Return models of the same family with at most `max_size` times the active parameters, or a refusal.

    A service below `min_busy`, or one that several models already serve, is refused.
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
    active = model.params_active or 0
    smaller = [m for m in market.smaller_models(model) if (m.params_active or active) <= max_size * active]
    refusals = [market.unsuitable(model, candidate, beside=True) for candidate in smaller]
    suitable = [candidate for candidate, refused in zip(smaller, refusals, strict=True) if refused is None]
    if smaller and not suitable:
        return skip(*next(filter(None, refusals)))
    return suitable or skip(
        "no-smaller-model",
        f"the catalog has no model of {max_size:.0%} of its active parameters or less in the family of {model.name}",
    )


ADJUSTABLE = ("nvidia", "amd")
"""Vendors with a tool that sets clocks and power limits: nvidia-smi, rocm-smi."""


def owned_devices(deployment: Deployment, fleet: Fleet, market: Market) -> Accelerator | Skip:
    """Return the accelerator of a deployment with whole, owned, exclusive devices; else a refusal."""
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
    ids_by_device = {
        device.device_id: {device.device_id, *(part.partition_id for part in device.partitions)}
        for device in fleet.devices
    }
    if not set(deployment.device_ids) <= set(ids_by_device):
        return skip(
            "part-of-device", "it runs on a partition of a device: clocks and power limits apply to the whole device"
        )
    ids = {whole_id for device_id in deployment.device_ids for whole_id in ids_by_device[device_id]}
    sharing = [
        sharer.name
        for sharer in fleet.deployments
        if sharer.deployment_id != deployment.deployment_id and ids & set(sharer.device_ids)
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
    """Return a refusal for a service that is hardly busy or has replicas that differ, or None."""
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
    """Return the fewest tensor-parallel ranks that hold a model in the present dtype; None if not known."""
    device = market.accelerator(deployment.accelerator)
    return None if device is None else market.fewest_ranks(model, deployment.weight_dtype, device)


def replaced(service: Service, models: Iterable[Model], market: Market) -> list[Service]:
    """Return a service with each of other models: all on the fewest ranks that hold them, then on more ranks.

    The fewest may be too slow. More than at present are not tried, unless the model needs them. Where ranks are not
    known, only the model changes.
    """
    present = service.deployments[0]
    device = market.accelerator(present.accelerator)
    layouts: list[tuple[int, Service]] = []
    for model in models:
        ranks = () if device is None or present.tp is None else market.ranks(model, present.weight_dtype, device)
        tried = [n for n in ranks if n <= max(ranks[0], present.tp or 1)]
        stages = {"pp": 1} if present.pp is not None else {}
        layouts += [(rank_position, service.but(model=model, tp=n, **stages)) for rank_position, n in enumerate(tried)]
        layouts += [] if tried else [(0, service.but(model=model))]
    return [layout for _, layout in sorted(layouts, key=lambda entry: entry[0])]
