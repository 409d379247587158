"""Validation of a proposal: possible edits, permission by settings, service objectives and published facts.

Front door: `candidate`, `refusal_by_settings`, `refusal_by_facts`, `held`, `held_again`, `published_notes`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import attrgetter
from typing import TypeVar

from pertoken.advisor.changes.title import shown
from pertoken.advisor.worker.wire import proposal_of
from pertoken.catalog.market import Market
from pertoken.catalog.model_facts import quantized_note
from pertoken.forecast.served import Abstained
from pertoken.proof.recommendation import LatencyLine, Refusal
from pertoken.rule import Proposal
from pertoken.savings.context import Context
from pertoken.savings.estimate import Estimate
from pertoken.savings.saving import LIKELY
from pertoken.settings.fleet import QUALITY_FIELDS
from pertoken.state.deployment import Deployment, InvalidEdit, Model, is_name, knobs
from pertoken.state.diff import Change, Diff, diff
from pertoken.state.fleet import Fleet, deployments_unlike, services_unlike
from pertoken.state.service import EDITABLE, FEWEST, Demand, Quantity, Service, to
from pertoken.units import counted

T = TypeVar("T")

MAX_COUNT = 10**15
"""Maximum parameters of a model."""
MAX_ADDED = 1000
"""Maximum new deployments of one proposal."""
ROUNDING = 1e-9
"""Tolerance of sums of shares."""

_SERVICE_EDITS = ("deployments", "demand", "schedule", "replicas")
_DEPLOYMENT_EDITS = ("placement", "device_ids", "serves", "share_source", "restart", "expected")


def refuse_other_changes(present: Fleet, proposed: Fleet) -> None:
    """Raise InvalidEdit for a change that no edit of `state` makes: settings, prices, names, ids."""
    for proposed_service in services_unlike(proposed, present):
        service = present.service(proposed_service.name)
        if replace(proposed_service, **{name: getattr(service, name) for name in _SERVICE_EDITS}) != service:
            raise InvalidEdit(
                f"objectives, limits and labels of {service.name} are settings: a rule cannot change them"
            )
    settled = _settled()
    for deployment in deployments_unlike(proposed, present):
        present_deployment = _present(present, deployment)
        if present_deployment is not None and settled(deployment) != settled(present_deployment):
            raise InvalidEdit(f"name and identity of {present_deployment.name} cannot change")
    if any(host != present.host(host.host_id) for host in _differing(present.hosts, proposed.hosts)):
        raise InvalidEdit("a rule cannot change the placement or purchase of a host: move deployments, or commit")
    differing_devices = _differing(present.devices, proposed.devices)
    devices = {device.device_id: device for device in present.devices} if differing_devices else {}
    for device in differing_devices:
        present_device = devices.get(device.device_id)
        if present_device is None or replace(device, partitions=present_device.partitions) != present_device:
            raise InvalidEdit(f"{device.name} is another device than the fleet has: only its partitions can change")
        if device.partitions != present_device.partitions:
            partitioned = replace(
                proposed,
                devices=tuple(
                    present_device if device.device_id == present_device.device_id else device
                    for device in proposed.devices
                ),
            )
            partitioned.partition(
                present_device, *(part.profile for part in device.partitions)
            )  # raises for impossible partitions
            if any(part.partition_id >= 0 for part in device.partitions):
                raise InvalidEdit(f"a new partition of {device.name} has an id below 0: use fleet.partition(...)")
    if proposed.commitments[: len(present.commitments)] != present.commitments:
        raise InvalidEdit("a commitment cannot be removed")


def _present(present: Fleet, deployment: Deployment) -> Deployment | None:
    is_listed = deployment.deployment_id in present.listed_by
    return present.deployment(deployment.deployment_id) if is_listed else None


def _differing(present: Iterable[T], proposed: Iterable[T]) -> tuple[T, ...]:
    """Return values that may differ: unchanged values of a proposal are the same objects as the present ones."""
    if proposed is present:
        return ()
    present_ids = set(map(id, present))
    return tuple(record for record in proposed if id(record) not in present_ids)


@cache
def _settled() -> Callable[[Deployment], tuple[object, ...]]:
    """Return a getter of the fields of a deployment that no edit changes."""
    edits = {*knobs(), *_DEPLOYMENT_EDITS}
    return attrgetter(*(field.name for field in fields(Deployment) if field.compare and field.name not in edits))


def refuse_impossible(present: Fleet, proposed: Fleet, difference: Diff, market: Market) -> None:
    """Raise InvalidEdit for impossible knobs, devices, shares or replicas."""
    if len(difference.added) > MAX_ADDED:
        raise InvalidEdit(f"it adds {len(difference.added):,} deployments: propose at most {MAX_ADDED:,}")
    for change in difference.changes:
        if change.kind == "deployment" and change.field in knobs():
            _refuse_impossible_knob(change.field, change.after, present, market)
    for added in difference.added:
        for name in knobs():
            if getattr(added, name) is not None:
                _refuse_impossible_knob(name, getattr(added, name), present, market)
    same_devices = proposed.devices is present.devices
    fleet = present if same_devices else proposed
    for deployment in deployments_unlike(proposed, present) if same_devices else proposed.deployments:
        ids = deployment.device_ids
        if not all(device_id in fleet.device_ids or device_id in fleet.partition_of for device_id in ids):
            raise InvalidEdit(f"{deployment.name} would run on devices that the proposal does not have")
    services = services_unlike(proposed, present)
    names = _listed_by(present, services)
    for service in services:
        for deployment in service.deployments:
            present_deployment = _present(present, deployment)
            if present_deployment is not deployment:
                _refuse_impossible_devices(present_deployment, deployment)
            # It must serve exactly the services that list it, each once.
            if sorted([name for name, _ in deployment.serves]) != sorted(names[deployment.deployment_id]):
                raise InvalidEdit(
                    f"{deployment.name} serves other services than those that list it: use serving_share(...)"
                )
        _refuse_impossible_service(service)


def _listed_by(present: Fleet, changed: Iterable[Service]) -> dict[int, list[str]]:
    """Return, by deployment id, the names of the services that list it after the change."""
    services = {service.name: service for service in changed}
    ids = {deployment.deployment_id for service in services.values() for deployment in service.deployments}
    names = {
        deployment_id: [name for name in present.listed_by.get(deployment_id, ()) if name not in services]
        for deployment_id in ids
    }
    for service in services.values():
        for deployment in service.deployments:
            names[deployment.deployment_id].append(service.name)
    return names


def _refuse_impossible_knob(name: str, value: object, present: Fleet, market: Market) -> None:
    knobs()[name].check(value)
    if not isinstance(value, Model):
        return
    if not is_name(value.name):
        raise InvalidEdit("the name of a model is printable text of at most 255 characters")
    counts = [getattr(value, field.name) for field in fields(Model) if field.name != "name"]
    if any(count is not None and not 0 < count <= MAX_COUNT for count in counts):
        raise InvalidEdit(f"the shape of {value.name} is not possible: its counts are whole numbers above 0")
    for total_field, active_field in (("params_total", "params_active"), ("n_experts", "n_experts_active")):
        total, active = getattr(value, total_field), getattr(value, active_field)
        if total is not None and active is not None and active > total:
            raise InvalidEdit(f"the shape of {value.name} is not possible: {active_field} is more than {total_field}")
    fleet_models = present.models.get(value.name, ())
    listed_models = (*fleet_models, market.model(value.name))
    if value not in fleet_models and any(model is not None and _contradicts(value, model) for model in listed_models):
        raise InvalidEdit(f"{value.name} has another shape than in the fleet or the catalog")


def _contradicts(stated: Model, listed: Model) -> bool:
    pairs = (
        (getattr(stated, field.name), getattr(listed, field.name)) for field in fields(Model) if field.name != "name"
    )
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _refuse_impossible_devices(present: Deployment | None, proposed: Deployment) -> None:
    if len(proposed.device_ids) > 1 and len(set(proposed.device_ids)) != len(proposed.device_ids):
        raise InvalidEdit(f"{proposed.name} names a device twice")
    if present is not None and (
        proposed.device_ids == present.device_ids
        or (not proposed.device_ids and proposed.placement != present.placement)
    ):
        return
    if not proposed.device_ids:
        if present is not None:
            raise InvalidEdit(f"{proposed.name} would run on no device: use on(Placement(...)), or release its host")
        return
    laid_out = (proposed.tp, proposed.pp, proposed.dp) != (None, None, None)
    needed = proposed.n_devices if laid_out or present is None else len(present.device_ids)
    if needed != len(proposed.device_ids):
        raise InvalidEdit(f"{proposed.name} needs {needed} devices, and {len(proposed.device_ids)} are named")


def _refuse_impossible_service(service: Service) -> None:
    if not service.deployments:
        raise InvalidEdit(f"{service.name} would have no deployment: use scheduled(off(...)), or merge it into another")
    if isinstance(service.replicas, str):
        if service.replicas != FEWEST:
            raise InvalidEdit(f"{service.replicas!r} is no number of replicas: use resized() or scaled_to(n)")
    elif service.replicas is not None and service.replicas < 1:
        raise InvalidEdit(f"{service.replicas} replicas are not possible: use scaled_to(n), 1 or more")
    shares = [dict(deployment.serves)[service.name] for deployment in service.deployments]
    if any(share is not None and not 0 <= share <= 1 for share in shares):
        raise InvalidEdit(f"a share of the demand of {service.name} is not from 0 to 1")
    total = sum(share or 0.0 for share in shares)
    if total > 1 + ROUNDING:
        raise InvalidEdit(f"the shares of the demand of {service.name} add up to more than 1")
    if None not in shares and total < 1 - ROUNDING:
        raise InvalidEdit(f"the shares of the demand of {service.name} add up to {total:g}: the rest is not served")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A valid proposal."""

    proposal: Proposal
    after: Fleet
    diff: Diff
    """Not empty."""


def candidate(
    present: Fleet, sent: object, subject: Deployment | Service | None, market: Market, *, configured: bool = False
) -> Candidate | None:
    """Return the candidate in a worker's message; None if it equals the present fleet.

    `subject` is the deployment or service that the rule was run for; None for a rule over the fleet. Demand figures
    count as confirmed only from a rule that a person `configured`. Raises InvalidEdit for a fleet that no edit
    produces, ValueError for an invalid risk, effort or rule id.
    """
    proposal = proposal_of(sent, present)
    state = proposal.state
    if isinstance(state, Deployment) and subject is not None:
        ids = {
            deployment.deployment_id
            for deployment in (subject.deployments if isinstance(subject, Service) else (subject,))
        }
        if state.deployment_id not in ids:
            raise InvalidEdit(f"{state.name} is another deployment than it was asked about: use now.but(...)")
    if isinstance(state, Service) and isinstance(subject, Service) and state.name != subject.name:
        raise InvalidEdit(f"{state.name} is another service than it was asked about ({subject.name})")
    proposed = present.edit(state)
    changed = services_unlike(proposed, present)
    unlike = {service.name: _service(present.service_of.get(service.name), service, configured) for service in changed}
    if any(unlike[service.name] is not service for service in changed):
        proposed = replace(proposed, services=tuple(unlike.get(service.name, service) for service in proposed.services))
    difference = diff(present, proposed)
    if not difference or _keeps_replicas(difference, present):
        return None
    refuse_other_changes(present, proposed)
    refuse_impossible(present, proposed, difference, market)
    return Candidate(proposal, proposed, difference)


def _keeps_replicas(difference: Diff, present: Fleet) -> bool:
    """Return whether a difference only sets numbers of replicas that run now."""
    return not (difference.added or difference.removed or difference.released) and all(
        change.field == "replicas" and change.after == len(present.service(str(change.target)).deployments)
        for change in difference.changes
    )


def _service(present_service: Service | None, proposed_service: Service, configured: bool) -> Service:
    """Return a service with demand and placements changed as by the edits, whichever way a rule changed them."""
    if present_service is None:
        return proposed_service
    present = {deployment.deployment_id: deployment for deployment in present_service.deployments}
    deployments = tuple(
        [_deployment(present.get(deployment.deployment_id), deployment) for deployment in proposed_service.deployments]
    )
    if any(proposed is not merged for proposed, merged in zip(proposed_service.deployments, deployments, strict=True)):
        proposed_service = replace(proposed_service, deployments=deployments)
    if present_service.demand == proposed_service.demand:
        return proposed_service
    # A demand that a rule changed is an assumption.
    changes = {
        name: to(quantity.value, quantity.source, confirmed=configured and quantity.confirmed)
        for name in EDITABLE
        if isinstance(quantity := getattr(proposed_service.demand, name), Quantity)
        and quantity != getattr(present_service.demand, name)
    }
    demand: Demand = present_service.demand.serving(**changes)
    if demand.tenants != proposed_service.demand.tenants:
        raise InvalidEdit(f"a rule must not change the tenants of {present_service.name}")
    return replace(proposed_service, demand=demand)


def _deployment(present: Deployment | None, proposed: Deployment) -> Deployment:
    """Return a deployment without its devices if it moves to another placement."""
    if present is None or not proposed.device_ids or proposed.device_ids != present.device_ids:
        return proposed
    stays = proposed.placement is present.placement or proposed.placement == present.placement
    return proposed if stays else replace(proposed, device_ids=())


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
        present_deployment = _present(present, deployment)
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
        present_deployment = _present(present, deployment)
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
    present_deployment = _present(present, deployment)
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
