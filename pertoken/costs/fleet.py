"""The present as a `state.Fleet`: the window's inventory, completed by the catalog and by settings."""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from pertoken.catalog.knobs import undetermined
from pertoken.catalog.market import Market, cpu_name
from pertoken.config import Settings
from pertoken.settings.fleet import HostSettings, ServiceSettings
from pertoken.state.deployment import Commitment, Deployment, InvalidEdit, Model, Placement, knobs
from pertoken.state.fleet import LINKS, Device, Fleet, Host, Partition
from pertoken.state.service import Demand, Service, Slo
from pertoken.store.schema.shared import stable_id
from pertoken.units import SHARE
from pertoken.window.inventory import Inventory, KnownDevice, KnownEpoch, KnownHost, device_name


def service_name(served_model: str, settings: Settings) -> str:
    """Return the service of a served model name: the one whose settings name it, else a service of its own."""
    return next((service.name for service in settings.services if served_model in service.models), served_model)


def fleet(
    inventory: Inventory,
    demands: Mapping[str, Demand],
    market: Market,
    settings: Settings,
    now_ts: int,
    owned: Collection[str] = (),
) -> Fleet:
    """Return the fleet that these rows and settings describe; `demands` are by service name.

    `owned` are names of hosts whose cost of ownership is stated.
    """
    devices = [row for row in inventory.devices.values() if row.parent_id is None]
    hosts = _hosts(devices, inventory, market, settings, owned)
    deployments: dict[str, list[Deployment]] = defaultdict(list)
    models: dict[Model, Model] = {}
    placements: dict[Placement, Placement] = {}
    for row in inventory.running.values():
        deployment = deployment_of(row, inventory, hosts, market, settings)
        # Equal models and placements are one object, which rules and pricing compare much faster than several.
        model = models.setdefault(deployment.model, deployment.model)
        placement = placements.setdefault(deployment.placement, deployment.placement)
        deployments[deployment.serves[0][0]].append(replace(deployment, model=model, placement=placement))
    settings_of = {service.name: service for service in settings.services}
    return Fleet(
        services=tuple(
            _service(name, deployments[name], demands.get(name, Demand()), settings_of.get(name), settings)
            for name in sorted(deployments)
        ),
        hosts=tuple(hosts.values()),
        devices=tuple(_device(row, inventory, market, hosts[row.host_id].placement) for row in devices),
        commitments=tuple(
            Commitment(
                commitment.provider,
                commitment.region,
                commitment.instance_type,
                commitment.count,
                commitment.nano_usd_per_instance_hour,
                commitment.end_ts,
            )
            for commitment in settings.commitments
            if commitment.end_ts > now_ts
        ),
    )


def placements(inventory: Inventory, market: Market, settings: Settings) -> dict[int, Placement]:
    """Return where each host of an inventory stands, by its id."""
    devices = [row for row in inventory.devices.values() if row.parent_id is None]
    return {host_id: host.placement for host_id, host in _hosts(devices, inventory, market, settings, ()).items()}


def _service(
    name: str, deployments: Sequence[Deployment], demand: Demand, configured: ServiceSettings | None, settings: Settings
) -> Service:
    service = Service(
        name,
        tuple(deployments),
        demand,
        forbidden=settings.advisor_forbid,
        quality_gate=settings.advisor_quality_gate,
        slo=_slo(settings, configured),
    )
    if configured is None:
        return service
    return replace(
        service,
        min_replicas=configured.min_replicas,
        spare_replicas=configured.spare_replicas,
        isolation=configured.isolation,
        forbidden=tuple(dict.fromkeys((*service.forbidden, *configured.forbid))),
        quality_gate=service.quality_gate if configured.quality_gate is None else configured.quality_gate,
        quality_passed=configured.quality_passed,
    )


def objectives(served_model: str, settings: Settings) -> Slo:
    """Return the objectives of the service of a served model name."""
    name = service_name(served_model, settings)
    return _slo(settings, next((service for service in settings.services if service.name == name), None))


def _slo(settings: Settings, configured: ServiceSettings | None) -> Slo:
    """Return the objectives of a service: its own, completed by those for all services."""
    common = Slo(settings.slo_ttft_p50_ms, settings.slo_ttft_ms, settings.slo_tpot_p50_ms, settings.slo_tpot_ms)
    configured_limits = (
        {field.name: getattr(configured, field.name) for field in fields(Slo)} if configured is not None else {}
    )
    return replace(common, **{name: limit for name, limit in configured_limits.items() if limit is not None})


def _hosts(
    devices: Iterable[KnownDevice], inventory: Inventory, market: Market, settings: Settings, owned: Collection[str]
) -> dict[int, Host]:
    settings_of = {host.name: host for host in settings.hosts}
    by_host: dict[int, list[KnownDevice]] = defaultdict(list)
    for row in devices:
        by_host[row.host_id].append(row)
    return {
        host_id: Host(
            host_id,
            rows[0].host_name,
            tuple(row.device_id for row in rows),
            _placement(
                rows, inventory.host[host_id], market, settings_of.get(rows[0].host_name), rows[0].host_name in owned
            ),
            settings_of[rows[0].host_name].paid_until if rows[0].host_name in settings_of else None,
        )
        for host_id, rows in by_host.items()
    }


def _placement(
    rows: Sequence[KnownDevice], host: KnownHost, market: Market, configured: HostSettings | None, owned: bool
) -> Placement:
    configured = configured or HostSettings("")
    provider, instance_type = configured.provider or host.cloud, configured.instance_type or host.instance_type
    listed = market.devices_per_instance(provider, instance_type) if provider and instance_type else None
    return Placement(
        provider=provider,
        region=configured.region or host.region,
        instance_type=instance_type,
        accelerator=_accelerator([row for row in rows if row.kind != "cpu"], market),
        devices_per_instance=listed,
        purchase=configured.purchase or host.purchase or ("owned" if owned else None),
    )


def _accelerator(rows: Sequence[KnownDevice], market: Market, instance_type: str | None = None) -> str | None:
    """Return the catalog name of whole devices that are all alike, else None: a part of one is not known by it."""
    names = {_name(row, instance_type) if row.parent_id is None else None for row in rows}
    accelerator = market.accelerator(names.pop()) if len(names) == 1 else None
    return accelerator.name if accelerator else None


def _name(row: KnownDevice, instance_type: str | None) -> str:
    return cpu_name(row.name, instance_type) if row.kind == "cpu" else str(row.name)


def _device(row: KnownDevice, inventory: Inventory, market: Market, placement: Placement) -> Device:
    accelerator = market.accelerator(_name(row, placement.instance_type))
    partitions = tuple(
        Partition(part.device_id, device_name(part), None if part.part_1e6 is None else part.part_1e6 / SHARE)
        for part in inventory.partitions.get(row.device_id, ())
    )
    return Device(
        row.device_id,
        device_name(row),
        row.host_id,
        accelerator.name if accelerator else None,
        "cpu" if row.kind == "cpu" else "gpu",
        partitions,
        links=_links(row, inventory),
    )


def _links(row: KnownDevice, inventory: Inventory) -> tuple[tuple[int, str], ...]:
    """Return how a device reaches the others of its host that are part of the fleet."""
    stored = json.loads(row.links) if row.links else {}
    links = {stable_id("device", uuid): kind for kind in LINKS for uuid in stored.get(kind, ())}
    return tuple((device_id, kind) for device_id, kind in links.items() if device_id in inventory.devices)


def deployment_of(
    row: KnownEpoch, inventory: Inventory, hosts: Mapping[int, Host], market: Market, settings: Settings
) -> Deployment:
    """Return the deployment of an epoch's row, placed where those `hosts` that hold it are."""
    held = inventory.held(row.epoch_id)
    on = [
        hosts[host_id].placement
        for host_id in dict.fromkeys((row.host_id, *(d.host_id for d in held)))
        if host_id in hosts
    ]
    return Deployment(
        model=_model(row, market),
        engine=row.engine_kind,
        engine_version=row.engine_version,
        **_knobs(row, held),
        deployment_id=row.deployment_id,
        epoch_id=row.epoch_id,
        served_model=row.served_model,
        device_ids=tuple(device.device_id for device in held),
        placement=replace(common := _common(on), accelerator=_accelerator(held, market, common.instance_type)),
        serves=((service_name(row.served_model, settings), None),),
    )


def _common(placements: Sequence[Placement]) -> Placement:
    """Return the common fields of several hosts of one deployment."""
    values = {field.name: {getattr(placement, field.name) for placement in placements} for field in fields(Placement)}
    return Placement(**{name: distinct.pop() for name, distinct in values.items() if len(distinct) == 1})


_SIZES = ("tp", "pp", "dp")


def _knobs(row: KnownEpoch, held: Sequence[KnownDevice]) -> dict[str, Any]:
    """Return the knobs of an epoch and the power limit of its devices; one that is not possible is not known.

    Neither are parallel sizes that contradict the GPUs on which the driver shows the processes.
    """
    limits = {device.power_limit_mw for device in held}
    seen = json.loads(row.knobs)
    if len(limits) == 1 and (limit := limits.pop()) is not None:
        seen.setdefault("power_cap_w", round(limit / 1000))
    values = {}
    for name in knobs().keys() - {"model", "engine", "engine_version"}:
        try:
            values[name] = knobs()[name].check(seen[name])
        except (KeyError, InvalidEdit):
            continue
    for name in undetermined(seen):
        if name in knobs() and "other" in knobs()[name].values:
            values.setdefault(name, "other")  # without it, 16 bits would be taken for the default
    sizes = [size for name in _SIZES if isinstance(size := values.get(name), int)]
    # Ranks on several hosts may have GPUs that no agent sees, and ranks on parts of a GPU or on CPUs share a device.
    whole_gpus = bool(held) and all(device.kind == "gpu" for device in held) and "rendezvous" not in row.knobs
    contradict = bool(sizes) and whole_gpus and math.prod(sizes) != len(held)
    return {name: value for name, value in values.items() if not (contradict and name in _SIZES)}


def _model(row: KnownEpoch, market: Market) -> Model:
    """Return its shape by its own files and engine, completed by the catalog's row of its name."""
    listed = market.model(row.model_path or "") or market.model(row.served_model) or Model(row.served_model)
    facts = json.loads(row.model_facts) if row.model_facts else {}
    names = {field.name for field in fields(Model)}
    return replace(listed, **{name: value for name, value in facts.items() if name in names})
