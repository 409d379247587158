"""Checks of a valid proposal: permission by settings, service objectives and published facts.

Front door: `refusal_by_settings`, `refusal_by_facts`, `held`, `held_again`, `published_notes`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from pertoken.advisor.changes.title import shown
from pertoken.catalog.market import Market
from pertoken.catalog.model_facts import quantized_note
from pertoken.forecast.served import Abstained
from pertoken.proof.recommendation import LatencyLine, Refusal
from pertoken.savings.context import Context
from pertoken.savings.estimate import Estimate
from pertoken.savings.saving import LIKELY
from pertoken.settings.fleet import QUALITY_FIELDS
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Change, Diff
from pertoken.state.fleet import Fleet, deployments_unlike
from pertoken.state.service import Quantity, Service
from pertoken.units import counted

T = TypeVar("T")

_FLEET_WIDE = frozenset(("commitments", "partitions"))
"""Names by which a person may forbid changes of the fleet as a whole."""
_RENAMED = {"device_ids": "devices", "serves": "shares"}
"""Field -> the name in `forbid`, where it differs."""
_SHARED_CACHES = ("demand.response_cache_share", "demand.cached_share", "enable_prefix_caching", "kv_offload_bytes")
"""Changes that share a cache between clients: prompts of several clients, or responses of one for another."""
_TO_ELSEWHERE = ("provider", "region", "instance_type", "accelerator", "devices_per_instance")
"""Fields of a placement by which a service runs on other instances; so does one on spot instances or at an API."""


def refusal_by_settings(difference: Diff, present: Fleet, proposed: Fleet, forbidden: Iterable[str]) -> Refusal | None:
    """Return why settings refuse a proposal; None if they permit it.

    `forbidden` is `advisor.forbid`; each service of the fleet has its own list too.
    """
    words = {change.field for change in difference.changes} & _FLEET_WIDE
    words |= {"release"} if difference.released else set()
    if hit := sorted(words & set(forbidden)):
        return Refusal("forbidden", f"{hit[0]} must not change: `advisor.forbid` names it")
    for name, changes in _by_service(difference, present).items():
        service = present.service(name)
        reasons = (
            _forbidden(service, changes)
            or _not_passed(service, changes)
            or _isolation(service, changes)
            or _too_few(service, changes)
        )
        if reasons is not None:
            return reasons
    return _together(difference, present, proposed)


def _by_service(difference: Diff, present: Fleet) -> Mapping[str, Sequence[Change]]:
    """Return changes by service; a new deployment with another model counts as a change of the model."""
    by_service: dict[str, list[Change]] = defaultdict(list)
    for change in difference.changes:
        if change.kind == "service":
            by_service[str(change.target)].append(change)
        elif change.kind == "deployment":
            for name in present.listed_by.get(int(change.target), ()):
                by_service[name].append(change)
    for added in difference.added:
        for name, _ in added.serves:
            served = [deployment.model for deployment in present.service(name).deployments]
            if added.model not in served:
                by_service[name].append(Change("deployment", added.deployment_id, "model", served[0], added.model))
    return by_service


def _words(change: Change) -> set[str]:
    """Return the names by which a person may forbid a change: `placement` and `region` for `placement.region`."""
    return set(_RENAMED.get(change.field, change.field).split("."))


def _forbidden(service: Service, changes: Iterable[Change]) -> Refusal | None:
    for change in changes if service.forbidden else ():
        if hit := sorted(_words(change) & set(service.forbidden)):
            where = f'`advisor.forbid` or `forbid` of [services."{service.name}"]'
            return Refusal("forbidden", f"{hit[0]} of {service.name} must not change: {where} names it")
    return None


def _not_passed(service: Service, changes: Iterable[Change]) -> Refusal | None:
    """Refuse changes that have not passed the quality gate of a service, if it has one."""
    if not service.quality_gate:
        return None
    for change in changes:
        field = change.field.removeprefix("demand.")
        value = _value(change.after)
        if field in QUALITY_FIELDS and not service.passed(field, value):
            return Refusal(
                "quality-gate",
                f"{field} {value} can alter the outputs of {service.name} and has not passed its quality gate: "
                f'evaluate it on your own tasks, then add "{field}={value}" to `quality_passed` of '
                f'[services."{service.name}"]',
            )
    return None


def _value(after: object) -> str:
    return f"{after.value:.4g}" if isinstance(after, Quantity) else shown(after)


def _isolation(service: Service, changes: Iterable[Change]) -> Refusal | None:
    """Refuse changes by which an isolated service moves, or its clients share a cache, adapters or a device."""
    if service.isolation != "tenant":
        return None
    for change in changes:
        area, _, field = change.field.partition(".")
        if area == "placement" and (field in _TO_ELSEWHERE or change.after in ("spot", "per_token")):
            return Refusal("isolated", f'{service.name} stays on its own instances: it has isolation = "tenant"')
        if change.field in _SHARED_CACHES and change.after:
            return _isolated(service.name, "no cache")
        if change.field == "schedule" and change.after.asleep - change.before.asleep:
            return _isolated(service.name, "no device that it leaves to others while it sleeps")
        if change.field == "lora_adapters" and change.after:
            return _isolated(service.name, "no engine with adapters")
    return None


def _together(difference: Diff, present: Fleet, proposed: Fleet) -> Refusal | None:
    """Refuse changes that put another service on an engine or a device of an isolated one, or it elsewhere."""
    if not difference.added and not any(change.field in ("device_ids", "serves") for change in difference.changes):
        return None
    for service in present.services:
        if service.isolation != "tenant":
            continue
        if new := _neighbours(service, proposed) - _neighbours(service, present):
            return _isolated(service.name, f"no engine and no device with {', '.join(sorted(new))}")
        if _instances(service, proposed) - _instances(service, present):
            return Refusal("isolated", f'{service.name} stays on its own instances: it has isolation = "tenant"')
    return None


def _instances(service: Service, fleet: Fleet) -> set[tuple[object, ...]]:
    """Return the kinds of instances that a service runs on."""
    placements = (deployment.placement for deployment in fleet.service(service.name).deployments)
    return {(*(getattr(placement, name) for name in _TO_ELSEWHERE), placement.purchase) for placement in placements}


def _neighbours(service: Service, fleet: Fleet) -> set[str]:
    """Return the names of other services that share an engine or a device with a service."""
    deployments = fleet.service(service.name).deployments
    sharing = [
        neighbour
        for deployment in deployments
        for device in _parts(fleet, deployment.device_ids)
        for neighbour in fleet.deployments_by_device.get(device, ())
    ]
    return {name for deployment in (*deployments, *sharing) for name, _ in deployment.serves} - {service.name}


def _parts(fleet: Fleet, held: Iterable[int]) -> set[int]:
    """Return devices with all of their partitions, and each partition with its whole device."""
    parents = {partition_id: device.device_id for partition_id, (device, _) in fleet.partition_of.items()}
    whole_devices = {parents.get(device_id, device_id) for device_id in held}
    return whole_devices | {partition_id for partition_id, parent in parents.items() if parent in whole_devices}


def _isolated(name: str, what: str) -> Refusal:
    return Refusal("isolated", f'clients of {name} may share {what}: it has isolation = "tenant"')


def _too_few(service: Service, changes: Iterable[Change]) -> Refusal | None:
    fewest = service.min_replicas + service.spare_replicas
    for change in changes:
        if change.field == "replicas" and isinstance(change.after, int) and change.after < fewest:
            return Refusal(
                "below-minimum",
                f'{counted(change.after, "replica")} would be left, and [services."{service.name}"] keeps {fewest}',
            )
    return None


def full_batch_factor(difference: Diff, money: Estimate, context: Context) -> float | None:
    """Return the time per token at the lowered batch limit over the present time per token.

    It is the ratio of requests over the ratio of tokens/s: 0.75 of the requests at 0.9 of the tokens/s take 0.83 of
    the time. None if no batch limit falls below the running requests.
    """
    ratio = money.throughput_ratio
    for change in difference.changes:
        if change.field == "max_num_seqs" and ratio is not None and ratio[LIKELY] > 0:
            running = context.evidence(int(change.target)).peek("running")
            if running is not None and running.mean > change.after:
                return float(change.after) / running.mean / ratio[LIKELY]
    return None


def held(price: Estimate) -> Estimate | str:
    """Return an estimate with known latency that keeps the objectives; else the reason why it does not."""
    try:
        word, sentence = price.verdict
    except Abstained as reason:
        return f"whether the SLO is kept is unknown: {reason}"
    if word == "fail":
        return f"it would miss the SLO: {sentence}"
    if word == "unknown":
        return f"whether the SLO is kept is unknown: {sentence or 'its latency is not forecast'}"
    return price


def held_again(lines: Sequence[LatencyLine], tpot_factor: float | None) -> str | None:
    """Return as text which missed objectives a change would meet; None if there are none, or it misses others.

    All `lines` have objectives. A missed TPOT is scaled by `tpot_factor` if known: the forecast spreads requests
    evenly, but bursts fill batches.
    """
    held = []
    for line in lines:
        assert line.slo_ms is not None
        if line.after is None:
            return None
        after_ms = line.after[LIKELY]
        if line.measured_ms is not None and line.measured_ms > line.slo_ms:
            if tpot_factor is not None and line.figure.startswith("TPOT"):
                after_ms = tpot_factor * line.measured_ms
            held.append(
                f"it saves nothing but meets the {line.figure} objective: {line.measured_ms:.0f} ms measured, about "
                f"{after_ms:.0f} ms is expected, and the objective is {line.slo_ms:.0f} ms"
            )
        if after_ms > line.slo_ms:
            return None
    return "; ".join(held) or None


def refusal_by_facts(present: Fleet, proposed: Fleet, market: Market, *, accepted: bool = False) -> Refusal | None:
    """Return why published facts refuse a proposal of any rule; None if they do not.

    Running combinations of engine, format and accelerator are accepted: only a changed one is checked.
    `accepted`: a person configured the rule, and so chose its models.
    """
    for deployment in deployments_unlike(proposed, present):
        present_deployment = present.deployment_of.get(deployment.deployment_id)
        if present_deployment is None or _combination(present_deployment) != _combination(deployment):
            reason = market.not_run(*_combination(deployment))
            if reason is not None:
                return Refusal("format-not-run", reason)
        for replaced, beside in () if accepted else _other_models(present, deployment):
            unsuitable = market.unsuitable(replaced.model, deployment.model, beside=beside)
            if unsuitable is not None and not _passed(present, deployment):
                return Refusal(*unsuitable)
    return None


def published_notes(present: Fleet, proposed: Fleet, market: Market) -> tuple[str, ...]:
    """Return the published evaluation and licence of other models, and the evaluation of weights in fewer bits."""
    lines: dict[str, None] = {}
    for deployment in deployments_unlike(proposed, present):
        for replaced, _ in _other_models(present, deployment):
            lines |= dict.fromkeys(market.published(replaced.model, deployment.model))
        present_deployment = present.deployment_of.get(deployment.deployment_id)
        if present_deployment is not None and deployment.weight_dtype not in (None, present_deployment.weight_dtype):
            catalog_model = market.model(deployment.model.name) or deployment.model
            lines[quantized_note(catalog_model.name, str(deployment.weight_dtype))] = None
        if present_deployment is not None:
            lines |= dict.fromkeys(_engine_notes(present_deployment, deployment, market))
    return tuple(lines)


def _engine_notes(present: Deployment, deployment: Deployment, market: Market) -> Iterator[str]:
    """Yield the release notes since the present version, and the published gain of drafts by an MTP head."""
    if present.engine == deployment.engine and present.engine_version != deployment.engine_version:
        later = market.newer_releases(deployment.engine, deployment.engine_version)
        between = market.newer_releases(present.engine, present.engine_version)
        yield from (release.text for release in between if release.faster and release not in later)
    mtp = market.multi_token_prediction(deployment.engine, deployment.model)
    if mtp is not None and present.speculative_method != deployment.speculative_method == mtp.method:
        yield f"published gain of multi-token prediction: {mtp.text}"


def _other_models(present: Fleet, deployment: Deployment) -> Iterator[tuple[Deployment, bool]]:
    """Yield the present deployments that would lose requests to another model, and whether they stay."""
    present_deployment = present.deployment_of.get(deployment.deployment_id)
    if present_deployment is not None:
        if present_deployment.model.name != deployment.model.name:
            yield present_deployment, False
        return
    for name, _ in deployment.serves:
        served = present.service(name).deployments
        if served and deployment.model.name not in {replica.model.name for replica in served}:
            yield served[0], True


def _passed(present: Fleet, deployment: Deployment) -> bool:
    return all(present.service(name).passed("model", deployment.model.name) for name, _ in deployment.serves)


def _combination(deployment: Deployment) -> tuple[str, str | None, str | None]:
    return deployment.engine, deployment.weight_dtype, deployment.accelerator
