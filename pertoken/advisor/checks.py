"""Validation of a proposal: its fleet, whether edits can produce it, and whether settings permit it.

Front door: `candidate`, `possible`, `permitted`, `objectives`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from pertoken.advisor.changes.title import shown
from pertoken.advisor.worker.wire import proposal_of
from pertoken.catalog.market import Market
from pertoken.catalog.model_facts import quantized_note
from pertoken.proof.recommendation import LatencyLine, Refusal
from pertoken.rule import Proposal
from pertoken.savings.context import Context
from pertoken.savings.estimate import Estimate
from pertoken.settings.fleet import QUALITY_FIELDS
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Change, Diff, diff
from pertoken.state.fleet import Fleet, deployments_unlike, services_unlike
from pertoken.state.knobs import InvalidEdit, is_name, knobs
from pertoken.state.model import Model
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


def refuse_other_changes(before: Fleet, after: Fleet) -> None:
    """Raise InvalidEdit for a change that no edit of `state` makes: settings, prices, names, ids."""
    for other in services_unlike(after, before):
        service = before.service(other.name)
        if replace(other, **_fields(service, _SERVICE_EDITS)) != service:
            raise InvalidEdit(
                f"objectives, limits and labels of {service.name} are settings: a rule cannot change them"
            )
    settled = _settled()
    for deployment in deployments_unlike(after, before):
        now = _present(before, deployment)
        if now is not None and settled(deployment) != settled(now):
            raise InvalidEdit(f"name and identity of {now.name} cannot change")
    if any(host != before.host(host.host_id) for host in _differing(before.hosts, after.hosts)):
        raise InvalidEdit("a rule cannot change the placement or purchase of a host: move deployments, or commit")
    differing_devices = _differing(before.devices, after.devices)
    devices = {device.device_id: device for device in before.devices} if differing_devices else {}
    for device in differing_devices:
        present_device = devices.get(device.device_id)
        if present_device is None or replace(device, partitions=present_device.partitions) != present_device:
            raise InvalidEdit(f"{device.name} is another device than the fleet has: only its partitions can change")
        if device.partitions != present_device.partitions:
            whole = replace(
                after,
                devices=tuple(
                    present_device if device.device_id == present_device.device_id else device
                    for device in after.devices
                ),
            )
            whole.partition(
                present_device, *(part.profile for part in device.partitions)
            )  # raises for impossible partitions
            if any(part.partition_id >= 0 for part in device.partitions):
                raise InvalidEdit(f"a new partition of {device.name} has an id below 0: use fleet.partition(...)")
    if after.commitments[: len(before.commitments)] != before.commitments:
        raise InvalidEdit("a commitment cannot be removed")


def _present(before: Fleet, deployment: Deployment) -> Deployment | None:
    known = deployment.deployment_id in before.listed_by
    return before.deployment(deployment.deployment_id) if known else None


def _differing(before: Iterable[T], after: Iterable[T]) -> tuple[T, ...]:
    """Return values that may differ: unchanged values of a proposal are the same objects as the present ones."""
    if after is before:
        return ()
    present = set(map(id, before))
    return tuple(record for record in after if id(record) not in present)


@cache
def _settled() -> Callable[[Deployment], tuple[Any, ...]]:
    """Return a getter of the fields of a deployment that no edit changes."""
    edits = {*knobs(), *_DEPLOYMENT_EDITS}
    return attrgetter(*(field.name for field in fields(Deployment) if field.compare and field.name not in edits))


def _fields(value: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def refuse_impossible(before: Fleet, after: Fleet, difference: Diff, market: Market) -> None:
    """Raise InvalidEdit for impossible knobs, devices, shares or replicas."""
    if len(difference.added) > MAX_ADDED:
        raise InvalidEdit(f"it adds {len(difference.added):,} deployments: propose at most {MAX_ADDED:,}")
    checked: set[tuple[str, int]] = set()  # replicas get the same value as a rule
    for change in difference.changes:
        value = change.field, id(change.after)
        if change.kind == "deployment" and change.field in knobs() and value not in checked:
            checked.add(value)
            _refuse_impossible_knob(change.field, change.after, before, market)
    for added in difference.added:
        for name in knobs():
            if getattr(added, name) is not None:
                _refuse_impossible_knob(name, getattr(added, name), before, market)
    same_devices = after.devices is before.devices
    for deployment in deployments_unlike(after, before) if same_devices else after.deployments:
        if not all(_has_device(before if same_devices else after, device_id) for device_id in deployment.device_ids):
            raise InvalidEdit(f"{deployment.name} would run on devices that the proposal does not have")
    services = services_unlike(after, before)
    names = _listed_by(before, services)
    for service in services:
        for deployment in service.deployments:
            now = _present(before, deployment)
            if now is not deployment:
                _refuse_impossible_devices(now, deployment)
            # It must serve exactly the services that list it, each once.
            if sorted([name for name, _ in deployment.serves]) != sorted(names[deployment.deployment_id]):
                raise InvalidEdit(
                    f"{deployment.name} serves other services than those that list it: use serving_share(...)"
                )
        _refuse_impossible_service(service)


def _has_device(fleet: Fleet, device_id: int) -> bool:
    """Return whether the fleet has this device or partition."""
    return device_id in fleet.device_ids or device_id in fleet.partition_of


def _listed_by(before: Fleet, changed: Iterable[Service]) -> dict[int, list[str]]:
    """Return, by deployment id, the names of the services that list it after the change."""
    services = {service.name: service for service in changed}
    ids = {deployment.deployment_id for service in services.values() for deployment in service.deployments}
    names = {
        deployment_id: [name for name in before.listed_by.get(deployment_id, ()) if name not in services]
        for deployment_id in ids
    }
    for service in services.values():
        for deployment in service.deployments:
            names[deployment.deployment_id].append(service.name)
    return names


def _refuse_impossible_knob(name: str, value: Any, before: Fleet, market: Market) -> None:
    knobs()[name].check(value)
    if not isinstance(value, Model):
        return
    if not is_name(value.name):
        raise InvalidEdit("the name of a model is printable text of at most 255 characters")
    counts = [getattr(value, field.name) for field in fields(Model) if field.name != "name"]
    if any(count is not None and not 0 < count <= MAX_COUNT for count in counts):
        raise InvalidEdit(f"the shape of {value.name} is not possible: its counts are whole numbers above 0")
    for whole, part in (("params_total", "params_active"), ("n_experts", "n_experts_active")):
        total, active = getattr(value, whole), getattr(value, part)
        if total is not None and active is not None and active > total:
            raise InvalidEdit(f"the shape of {value.name} is not possible: {part} is more than {whole}")
    present = before.models.get(value.name, ())
    known = (*present, market.model(value.name))
    if value not in present and any(deployment is not None and _contradicts(value, deployment) for deployment in known):
        raise InvalidEdit(f"{value.name} has another shape than in the fleet or the catalog")


def _contradicts(stated: Model, known: Model) -> bool:
    pairs = (
        (getattr(stated, field.name), getattr(known, field.name)) for field in fields(Model) if field.name != "name"
    )
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _refuse_impossible_devices(now: Deployment | None, to: Deployment) -> None:
    if len(to.device_ids) > 1 and len(set(to.device_ids)) != len(to.device_ids):
        raise InvalidEdit(f"{to.name} names a device twice")
    if now is not None and (to.device_ids == now.device_ids or (not to.device_ids and to.placement != now.placement)):
        return
    if not to.device_ids:
        if now is not None:
            raise InvalidEdit(f"{to.name} would run on no device: use on(Placement(...)), or release its host")
        return
    laid_out = (to.tp, to.pp, to.dp) != (None, None, None)
    needed = to.n_devices if laid_out or now is None else len(now.device_ids)
    if needed != len(to.device_ids):
        raise InvalidEdit(f"{to.name} needs {needed} devices, and {len(to.device_ids)} are named")


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
    before: Fleet, sent: object, asked: Deployment | Service | None, market: Market, *, configured: bool = False
) -> Candidate | None:
    """Return the candidate in a worker's message; None if it equals the present fleet.

    `asked` is the deployment or service that the rule was run for; None for a rule over the fleet. Demand figures
    count as confirmed only from a rule that a person `configured`. Raises InvalidEdit for a fleet that no edit
    produces, ValueError for an invalid risk, effort or rule id.
    """
    proposal = proposal_of(sent, before)
    state = proposal.state
    if isinstance(state, Deployment) and asked is not None:
        ids = {
            deployment.deployment_id for deployment in (asked.deployments if isinstance(asked, Service) else (asked,))
        }
        if state.deployment_id not in ids:
            raise InvalidEdit(f"{state.name} is another deployment than it was asked about: use now.but(...)")
    if isinstance(state, Service) and isinstance(asked, Service) and state.name != asked.name:
        raise InvalidEdit(f"{state.name} is another service than it was asked about ({asked.name})")
    after = before.edit(state)
    changed = services_unlike(after, before)
    unlike = {service.name: _service(before.service_of.get(service.name), service, configured) for service in changed}
    if any(unlike[service.name] is not service for service in changed):
        after = replace(after, services=tuple(unlike.get(service.name, service) for service in after.services))
    difference = diff(before, after)
    if not difference or _keeps_replicas(difference, before):
        return None
    refuse_other_changes(before, after)
    refuse_impossible(before, after, difference, market)
    return Candidate(proposal, after, difference)


def _keeps_replicas(difference: Diff, before: Fleet) -> bool:
    """Return whether a difference only sets numbers of replicas that run now."""
    return not (difference.added or difference.removed or difference.released) and all(
        change.field == "replicas" and change.after == len(before.service(str(change.target)).deployments)
        for change in difference.changes
    )


def _service(now: Service | None, after: Service, configured: bool) -> Service:
    """Return a service with demand and placements changed as by the edits, whichever way a rule changed them."""
    if now is None:
        return after
    present = {deployment.deployment_id: deployment for deployment in now.deployments}
    deployments = tuple(
        [_deployment(present.get(deployment.deployment_id), deployment) for deployment in after.deployments]
    )
    if any(one is not other for one, other in zip(after.deployments, deployments, strict=True)):
        after = replace(after, deployments=deployments)
    if now.demand == after.demand:
        return after
    # A demand that a rule changed is an assumption.
    changes = {
        name: to(quantity.value, quantity.source, confirmed=configured and quantity.confirmed)
        for name in EDITABLE
        if isinstance(quantity := getattr(after.demand, name), Quantity) and quantity != getattr(now.demand, name)
    }
    demand: Demand = now.demand.serving(**changes)
    if demand.tenants != after.demand.tenants:
        raise InvalidEdit(f"a rule must not change the tenants of {now.name}")
    return replace(after, demand=demand)


def _deployment(now: Deployment | None, to: Deployment) -> Deployment:
    """Return a deployment without its devices if it moves to another placement."""
    if now is None or not to.device_ids or to.device_ids != now.device_ids:
        return to
    stays = to.placement is now.placement or to.placement == now.placement
    return to if stays else replace(to, device_ids=())


_FLEET_WIDE = frozenset(("commitments", "partitions"))
"""Names by which a person may forbid changes of the fleet as a whole."""
_RENAMED = {"device_ids": "devices", "serves": "shares"}
"""Field -> the name in `forbid`, where it differs."""
_SHARED_CACHES = ("demand.response_cache_share", "demand.cached_share", "enable_prefix_caching", "kv_offload_bytes")
"""Changes that share a cache between clients: prompts of several clients, or responses of one for another."""
_TO_ELSEWHERE = ("provider", "region", "instance_type", "accelerator", "devices_per_instance")
"""Fields of a placement by which a service runs on other instances; so does one on spot instances or at an API."""


def refusal(difference: Diff, before: Fleet, after: Fleet, forbidden: Iterable[str]) -> Refusal | None:
    """Return why settings refuse a proposal; None if they permit it.

    `forbidden` is `advisor.forbid`; each service of the fleet has its own list too.
    """
    words = {change.field for change in difference.changes} & _FLEET_WIDE
    words |= {"release"} if difference.released else set()
    if hit := sorted(words & set(forbidden)):
        return Refusal("forbidden", f"{hit[0]} must not change: `advisor.forbid` names it")
    for name, changes in _by_service(difference, before).items():
        service = before.service(name)
        reasons = (
            _forbidden(service, changes)
            or _not_passed(service, changes)
            or _isolation(service, changes)
            or _too_few(service, changes)
        )
        if reasons is not None:
            return reasons
    return _together(difference, before, after)


def _by_service(difference: Diff, before: Fleet) -> Mapping[str, Sequence[Change]]:
    """Return changes by service; a new deployment with another model counts as a change of the model."""
    by_service: dict[str, list[Change]] = defaultdict(list)
    for change in difference.changes:
        if change.kind == "service":
            by_service[str(change.target)].append(change)
        elif change.kind == "deployment":
            for name in before.listed_by.get(int(change.target), ()):
                by_service[name].append(change)
    for added in difference.added:
        for name, _ in added.serves:
            served = [deployment.model for deployment in before.service(name).deployments]
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
    if isinstance(after, Model):
        return after.name
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


def _together(difference: Diff, before: Fleet, after: Fleet) -> Refusal | None:
    """Refuse changes that put another service on an engine or a device of an isolated one, or it elsewhere."""
    if not difference.added and not any(change.field in ("device_ids", "serves") for change in difference.changes):
        return None
    for service in before.services:
        if service.isolation != "tenant":
            continue
        if new := _neighbours(service, after) - _neighbours(service, before):
            return _isolated(service.name, f"no engine and no device with {', '.join(sorted(new))}")
        if _instances(service, after) - _instances(service, before):
            return Refusal("isolated", f'{service.name} stays on its own instances: it has isolation = "tenant"')
    return None


def _instances(service: Service, fleet: Fleet) -> set[tuple[object, ...]]:
    """Return the kinds of instances that a service runs on."""
    placements = (deployment.placement for deployment in fleet.service(service.name).deployments)
    return {(*(getattr(placement, name) for name in _TO_ELSEWHERE), placement.purchase) for placement in placements}


def _neighbours(service: Service, fleet: Fleet) -> set[str]:
    """Return the names of other services that share an engine or a device with a service."""
    own = fleet.service(service.name).deployments
    sharing = [
        other
        for deployment in own
        for device in _parts(fleet, deployment.device_ids)
        for other in fleet.deployments_by_device.get(device, ())
    ]
    return {name for deployment in (*own, *sharing) for name, _ in deployment.serves} - {service.name}


def _parts(fleet: Fleet, held: Iterable[int]) -> set[int]:
    """Return devices with all of their partitions; of a partition, those of its whole device."""
    parents = {partition_id: device.device_id for partition_id, (device, _) in fleet.partition_of.items()}
    whole = {parents.get(device_id, device_id) for device_id in held}
    return whole | {partition_id for partition_id, parent in parents.items() if parent in whole}


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


LIKELY = 1
"""Index of the likely figure of a range."""


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


def published_refusal(before: Fleet, after: Fleet, market: Market, *, accepted: bool = False) -> Refusal | None:
    """Return why published facts refuse a proposal of any rule; None if they do not.

    What runs already is not questioned: a combination of engine, format and accelerator counts where it changes.
    `accepted`: a person configured the rule, and so chose its models.
    """
    for deployment in deployments_unlike(after, before):
        present = _present_facts(before, deployment)
        if present is None or _combination(present) != _combination(deployment):
            reason = market.not_run(*_combination(deployment))
            if reason is not None:
                return Refusal("format-not-run", reason)
        for other, beside in () if accepted else _other_models(before, deployment):
            unsuitable = market.unsuitable(other.model, deployment.model, beside=beside)
            if unsuitable is not None and not _passed(before, deployment):
                return Refusal(*unsuitable)
    return None


def notes(before: Fleet, after: Fleet, market: Market) -> tuple[str, ...]:
    """Return the published evaluation and licence of other models, and the evaluation of weights in fewer bits."""
    lines: dict[str, None] = {}
    for deployment in deployments_unlike(after, before):
        for other, _ in _other_models(before, deployment):
            lines |= dict.fromkeys(market.published(other.model, deployment.model))
        present = _present_facts(before, deployment)
        if present is not None and deployment.weight_dtype not in (None, present.weight_dtype):
            known = market.model(deployment.model.name) or deployment.model
            lines[quantized_note(known.name, str(deployment.weight_dtype))] = None
        if present is not None:
            lines |= dict.fromkeys(_engine_notes(present, deployment, market))
    return tuple(lines)


def _engine_notes(present: Deployment, deployment: Deployment, market: Market) -> Iterator[str]:
    """Yield what release notes state since the present version, and the published gain of drafts by an MTP head."""
    if present.engine == deployment.engine and present.engine_version != deployment.engine_version:
        later = market.newer_releases(deployment.engine, deployment.engine_version)
        between = market.newer_releases(present.engine, present.engine_version)
        yield from (release.text for release in between if release.faster and release not in later)
    mtp = market.multi_token_prediction(deployment.engine, deployment.model)
    if mtp is not None and present.speculative_method != deployment.speculative_method == mtp.method:
        yield f"published gain of multi-token prediction: {mtp.text}"


def _present_facts(before: Fleet, deployment: Deployment) -> Deployment | None:
    known = deployment.deployment_id in before.listed_by
    return before.deployment(deployment.deployment_id) if known else None


def _other_models(before: Fleet, deployment: Deployment) -> Iterator[tuple[Deployment, bool]]:
    """Yield the present deployment whose requests another model would take, and whether that stays beside it."""
    present = _present_facts(before, deployment)
    if present is not None:
        if present.model.name != deployment.model.name:
            yield present, False
        return
    for name, _ in deployment.serves:
        served = before.service(name).deployments
        if served and deployment.model.name not in {other.model.name for other in served}:
            yield served[0], True


def _passed(before: Fleet, deployment: Deployment) -> bool:
    return all(before.service(name).passed("model", deployment.model.name) for name, _ in deployment.serves)


def _combination(deployment: Deployment) -> tuple[str, str | None, str | None]:
    return deployment.engine, deployment.weight_dtype, deployment.accelerator
