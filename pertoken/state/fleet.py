"""Fleet: all that runs and is paid for, as services, deployments, hosts, devices and commitments."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations, count
from typing import TypeVar

from pertoken.state.deployment import Commitment, Deployment, InvalidEdit, Model, Placement
from pertoken.state.service import Service

MAX_PARTITIONS = 8
"""Source: 7 MIG instances of an NVIDIA GPU, 8 partitions of an AMD MI300X."""
LINKS = ("nvlink", "pcie_switch", "pcie_host", "cross_socket", "network")
"""How two devices reach each other, fastest first: directly, below one PCIe switch, through the host bridge or NUMA
node they share, from one CPU socket to another, from host to host."""
T = TypeVar("T")
_PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_/-]{0,31}")


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of a device (MIG instance, AMD partition); it is paid for with the whole device."""

    partition_id: int
    """Below 0 for one that a proposal would make: `partition` numbers these -1, -2, ..."""
    profile: str
    """`1g.10gb`, `CPX`, ..."""
    share: float | None = None
    """Part of the device's compute, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator, or the CPUs of a host."""

    device_id: int
    name: str
    host_id: int
    accelerator: str | None = None
    """Catalog name; None if the catalog does not know it."""
    kind: str = "gpu"
    """`gpu` or `cpu`: the CPUs of a host are one device. The price of GPUs usually includes it."""
    partitions: tuple[Partition, ...] = ()
    links: tuple[tuple[int, str], ...] = ()
    """(id of another device of this host, one of `LINKS`), as far as its driver reports them."""


@dataclass(frozen=True, slots=True)
class Host:
    """The unit that can be released: an instance or a server with all its devices."""

    host_id: int
    name: str
    device_ids: tuple[int, ...] = ()
    placement: Placement = field(default_factory=Placement)
    paid_until: int | None = None
    """Epoch seconds until which it is paid for anyway; None where no term is known."""


def divided(device: Device, profiles: Sequence[str], used: Container[int]) -> Device:
    """Return a device with a partition of each profile, numbered -1, -2, ... without the `used` ids.

    Raises InvalidEdit for a divided device, a text that is no profile, and more than `MAX_PARTITIONS`.
    """
    if device.partitions:
        raise InvalidEdit(f"{device.name} is divided already")
    if not profiles or not all(isinstance(profile, str) and _PROFILE.fullmatch(profile) for profile in profiles):
        raise InvalidEdit("name the profile of each partition, such as 3g.40gb")
    if len(profiles) > MAX_PARTITIONS:
        raise InvalidEdit(f"a device is divided into at most {MAX_PARTITIONS} partitions")
    free = (-number for number in count(1) if -number not in used)
    return replace(device, partitions=tuple(Partition(next(free), profile) for profile in profiles))


def accelerators(devices: Sequence[Device]) -> frozenset[int]:
    """Return the ids of those devices of a host that decide whether it is used: its CPUs if it has nothing else."""
    chosen = [device for device in devices if device.kind != "cpu"] or devices
    return frozenset(device.device_id for device in chosen)


@dataclass(frozen=True)
class Fleet:
    """All services, hosts, devices and commitments of one advice run; a proposal is a fleet too.

    A deployment that serves several services is the same value in each of them.
    """

    services: tuple[Service, ...] = ()
    hosts: tuple[Host, ...] = ()
    devices: tuple[Device, ...] = ()
    commitments: tuple[Commitment, ...] = ()

    def __post_init__(self) -> None:
        _refuse_duplicates("service", [service.name for service in self.services])
        _refuse_duplicates("host", [host.host_id for host in self.hosts])
        _refuse_duplicates("device", [device.device_id for device in self.devices])
        self._refuse_twice()

    def _refuse_twice(self) -> None:
        """Raise InvalidEdit where a deployment is listed twice, with different values."""
        listed = [deployment for service in self.services for deployment in service.deployments]
        if len({deployment.deployment_id for deployment in listed}) == len(listed):
            return
        seen: dict[int, Deployment] = {}
        for deployment in listed:
            first = seen.setdefault(deployment.deployment_id, deployment)
            if first is not deployment and first != deployment:
                raise InvalidEdit(f"{deployment.name} differs between the services it serves")

    # -- looking up ------------------------------------------------------------------------------------------------

    @cached_property
    def deployments(self) -> tuple[Deployment, ...]:
        """Each deployment once, in the order of the services."""
        return tuple(
            {
                deployment.deployment_id: deployment for service in self.services for deployment in service.deployments
            }.values()
        )

    @cached_property
    def deployment_of(self) -> Mapping[int, Deployment]:
        """Deployments by id."""
        return {deployment.deployment_id: deployment for deployment in self.deployments}

    @cached_property
    def service_of(self) -> Mapping[str, Service]:
        """Services by name."""
        return {service.name: service for service in self.services}

    @cached_property
    def _device_of(self) -> Mapping[int, Device]:
        """Devices by their id and the ids of their partitions."""
        parts = {part.partition_id: device for device in reversed(self.devices) for part in reversed(device.partitions)}
        return parts | {device.device_id: device for device in self.devices}

    @cached_property
    def _host_of(self) -> Mapping[int, Host]:
        return {host.host_id: host for host in self.hosts}

    @cached_property
    def models(self) -> Mapping[str, tuple[Model, ...]]:
        """The different models that deployments run, by name."""
        models: dict[str, dict[Model, None]] = defaultdict(dict)
        for deployment in self.deployments:
            models[deployment.model.name][deployment.model] = None
        return {name: tuple(models_of_service) for name, models_of_service in models.items()}

    @cached_property
    def device_ids(self) -> frozenset[int]:
        """Ids of all devices, without their partitions."""
        return frozenset(device.device_id for device in self.devices)

    @cached_property
    def partition_of(self) -> Mapping[int, tuple[Device, Partition]]:
        """Partitions by id, each with the device it is part of."""
        return {part.partition_id: (device, part) for device in self.devices for part in device.partitions}

    @cached_property
    def deployments_by_device(self) -> Mapping[int, Sequence[Deployment]]:
        """Deployments by the id of the device or partition they run on."""
        deployments: dict[int, list[Deployment]] = defaultdict(list)
        for deployment in self.deployments:
            for device_id in deployment.device_ids:
                deployments[device_id].append(deployment)
        return dict(deployments)

    @cached_property
    def used_devices(self) -> frozenset[int]:
        """Ids of the devices that run something, also on their partitions."""
        return frozenset().union(*self.used_by.values())

    @cached_property
    def used_by(self) -> Mapping[str, frozenset[int]]:
        """Ids of the devices that each service runs on, by its name; a partition counts as its device."""
        parts = self.partition_of
        return {
            service.name: frozenset(
                parts[held][0].device_id if held in parts else held
                for deployment in service.deployments
                for held in deployment.device_ids
            )
            for service in self.services
        }

    @cached_property
    def listed_by(self) -> Mapping[int, Sequence[str]]:
        """Names of the services that list a deployment, by its id, in the order of the services."""
        names_of_device: dict[int, list[str]] = defaultdict(list)
        for service in self.services:
            for deployment in service.deployments:
                names_of_device[deployment.deployment_id].append(service.name)
        return dict(names_of_device)

    @cached_property
    def accelerators_on(self) -> Mapping[int, frozenset[int]]:
        """Ids of the devices that decide whether a host is used, by its id: its CPUs where it has nothing else."""
        return {host_id: accelerators(devices) for host_id, devices in self._devices_on.items()}

    @cached_property
    def _devices_on(self) -> Mapping[int, Sequence[Device]]:
        devices: dict[int, list[Device]] = defaultdict(list)
        for device in self.devices:
            devices[device.host_id].append(device)
        return devices

    @cached_property
    def _positions_by_device(self) -> Mapping[int, Sequence[int]]:
        """Positions of the deployments on each device and partition."""
        places: dict[int, list[int]] = defaultdict(list)
        for position, deployment in enumerate(self.deployments):
            for device_id in deployment.device_ids:
                places[device_id].append(position)
        return places

    def __getstate__(self) -> dict[str, object]:
        """Leave out values that are computed from the rest."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def deployment(self, deployment_id: int) -> Deployment:
        """Return a deployment by id. Raises InvalidEdit if it is not part of this fleet."""
        return _required(self.deployment_of.get(deployment_id), f"deployment {deployment_id}")

    def service(self, name: str) -> Service:
        """Return a service by name. Raises InvalidEdit if it is not part of this fleet."""
        return _required(self.service_of.get(name), f"service {name!r}")

    def device(self, device_id: int) -> Device:
        """Return a device by its id or the id of one of its partitions. Raises InvalidEdit if there is none."""
        return _required(self._device_of.get(device_id), f"device {device_id}")

    def host(self, host_id: int) -> Host:
        """Return a host by id. Raises InvalidEdit if it is not part of this fleet."""
        return _required(self._host_of.get(host_id), f"host {host_id}")

    def devices_on(self, host: Host) -> Sequence[Device]:
        """Return the devices of a host that are part of this fleet."""
        return self._devices_on.get(host.host_id, ())

    def slowest_link(self, device_ids: Iterable[int]) -> str | None:
        """Return the slowest of `LINKS` between any two of these devices; a partition counts as its device.

        None for fewer than two devices, or where one of the links is not known. Raises InvalidEdit for an id that no
        device or partition of this fleet has: `fleet.slowest_link(now.device_ids)`.
        """
        devices = {device.device_id: device for device in map(self.device, device_ids)}.values()
        slowest = -1
        for first, second in combinations(devices, 2):
            link = "network" if first.host_id != second.host_id else dict(first.links).get(second.device_id)
            if link not in LINKS:
                return None
            slowest = max(slowest, LINKS.index(link))
        return LINKS[slowest] if slowest >= 0 else None

    def deployments_on(self, host: Host) -> tuple[Deployment, ...]:
        """Return the deployments that run on devices of a host, or on partitions of them."""
        ids = set(host.device_ids)
        ids |= {
            part.partition_id
            for device_id in host.device_ids
            if (device := self._device_of.get(device_id)) is not None and device.device_id == device_id
            for part in device.partitions
        }
        positions = {position for device_id in ids for position in self._positions_by_device.get(device_id, ())}
        return tuple(self.deployments[position] for position in sorted(positions))

    # -- editing ---------------------------------------------------------------------------------------------------

    def edit(self, edited: Deployment | Service | Fleet) -> Fleet:
        """Return this fleet with a service or deployment of the same identity replaced by `edited`.

        Raises InvalidEdit if the fleet has none of that identity.
        """
        if isinstance(edited, Fleet):
            return edited
        if isinstance(edited, Deployment):
            self.deployment(edited.deployment_id)
            return self._with_services(self._others_with({edited.deployment_id: edited}))
        present = self.service(edited.name)
        ids = {deployment.deployment_id for deployment in present.deployments}
        if ids != {deployment.deployment_id for deployment in edited.deployments}:
            raise InvalidEdit(
                f"{edited.name} has other deployments than in the fleet: use scaled_to(n) or resized() for another "
                "number of replicas, fleet.replace or fleet.merge for other deployments"
            )
        changed = {deployment.deployment_id: deployment for deployment in edited.deployments}
        fleet = self._with_services({**self._others_with(changed), edited.name: edited})
        if len(edited.deployments) != len(ids):
            fleet._refuse_twice()
        return fleet

    def replace(self, now: Deployment, *to: Deployment) -> Fleet:
        """Return this fleet with `now` replaced by `to`: the first keeps its id, further ones are new deployments.

        Raises InvalidEdit if `now` is not part of the fleet, or nothing replaces it.
        """
        self._refuse_edited(now)
        if not to:
            raise InvalidEdit(
                f"nothing replaces {now.name}: use scaled_to(n) for fewer replicas, or merge it into another"
            )
        first = replace(to[0], deployment_id=now.deployment_id)
        # Two engines do not share the devices of the one they replace unless the rule asks for it.
        added = self._numbered(
            replace(deployment, device_ids=()) if deployment.device_ids == now.device_ids else deployment
            for deployment in to[1:]
        )
        by_service = {
            name: [deployment for deployment in added if name in dict(deployment.serves)] for name, _ in now.serves
        }
        edited = self._others_with({now.deployment_id: first})
        for name, more in by_service.items():
            if more:
                service = edited[name]
                edited[name] = replace(service, deployments=(*service.deployments, *more))
        return self._with_services(edited)

    def merge(self, deployments: Iterable[Deployment], into: Deployment) -> Fleet:
        """Return this fleet with one new deployment in place of several; it serves all their services.

        Raises InvalidEdit for fewer than two, or one that is not part of the fleet.
        """
        merged = tuple(deployments)
        for deployment in merged:
            self._refuse_edited(deployment)
        if len({deployment.deployment_id for deployment in merged}) < 2:
            raise InvalidEdit("a merge takes two or more different deployments")
        gone = {deployment.deployment_id for deployment in merged}
        names = dict.fromkeys(name for deployment in merged for name, _ in deployment.serves)
        (made,) = self._numbered([replace(into, serves=tuple((name, None) for name in names))])
        edited = {}
        for service in map(self.service, names):
            remaining = [deployment for deployment in service.deployments if deployment.deployment_id not in gone]
            edited[service.name] = replace(service, deployments=(*remaining, made))
        return self._with_services(edited)

    def release(self, host: Host | int) -> Fleet:
        """Return this fleet without a host and its devices.

        Raises InvalidEdit if the host is not part of the fleet, or deployments still run on it.
        """
        known_host = self.host(host if isinstance(host, int) else host.host_id)
        if running := self.deployments_on(known_host):
            names = ", ".join(dict.fromkeys(deployment.name for deployment in running))
            raise InvalidEdit(f"{known_host.name} is held by {names}: move these first")
        return replace(
            self,
            hosts=tuple(host for host in self.hosts if host.host_id != known_host.host_id),
            devices=tuple(device for device in self.devices if device.device_id not in known_host.device_ids),
        )

    def partition(self, device: Device | int, *profiles: str) -> Fleet:
        """Return this fleet with a device divided into partitions of these profiles.

        Deployments move onto them by `on_devices`, as onto any device. Raises InvalidEdit if the device is not part of
        the fleet, is divided already or in use, or for a text that is no profile.
        """
        known_device = self.device(device if isinstance(device, int) else device.device_id)
        used = {part.partition_id for device in self.devices for part in device.partitions}
        parted = divided(known_device, profiles, used)
        if names := [
            deployment.name for deployment in self.deployments if known_device.device_id in deployment.device_ids
        ]:
            raise InvalidEdit(f"{known_device.name} is held by {', '.join(dict.fromkeys(names))}: move these first")
        return replace(
            self,
            devices=tuple(parted if device.device_id == known_device.device_id else device for device in self.devices),
        )

    def commit(self, commitment: Commitment) -> Fleet:
        """Return this fleet with one more commitment."""
        return replace(self, commitments=(*self.commitments, commitment))

    def _refuse_edited(self, deployment: Deployment) -> None:
        if self.deployment(deployment.deployment_id) != deployment:
            name = deployment.name
            raise InvalidEdit(f"{name} was edited before it was named: name the deployment as the fleet has it")

    def _others_with(self, changed: dict[int, Deployment]) -> dict[str, Service]:
        """Return the services that list changed deployments, with these, by name."""
        names = {name for deployment_id in changed for name in self.listed_by.get(deployment_id, ())}
        return {name: _with_deployments(self.service_of[name], changed) for name in names}

    def _with_services(self, edited: Mapping[str, Service]) -> Fleet:
        return replace(self, services=tuple(edited.get(service.name, service) for service in self.services))

    def _numbered(self, deployments: Iterable[Deployment]) -> list[Deployment]:
        """Give new deployments the smallest ids from 1 that the fleet does not use."""
        used = {deployment.deployment_id for deployment in self.deployments}
        free = (number for number in count(1) if number not in used)
        return [replace(deployment, deployment_id=next(free)) for deployment in deployments]


def services_unlike(fleet: Fleet, reference: Fleet) -> tuple[Service, ...]:
    """Return the services that `reference` does not share. An edit shares unchanged values with its original."""
    present = reference.service_of
    return tuple(service for service in fleet.services if present.get(service.name) is not service)


def deployments_unlike(fleet: Fleet, reference: Fleet) -> tuple[Deployment, ...]:
    """Return the deployments that `reference` does not share, each once, in the order of the services."""
    present = reference.deployment_of
    listed = (deployment for service in services_unlike(fleet, reference) for deployment in service.deployments)
    return tuple({e.deployment_id: e for e in listed if present.get(e.deployment_id) is not e}.values())


def _required(part: T | None, name: str) -> T:
    if part is None:
        raise InvalidEdit(f"{name} is not part of this fleet")
    return part


def _refuse_duplicates(what: str, ids: Sequence[int | str]) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: set[int | str] = set()
    for subject_id in ids:
        if subject_id in seen:
            raise InvalidEdit(f"{what} {subject_id} is in the fleet twice")
        seen.add(subject_id)


def _with_deployments(service: Service, changed: dict[int, Deployment]) -> Service:
    """Return the service itself where nothing of it changed: the same value need not be compared."""
    if all(changed.get(deployment.deployment_id, deployment) is deployment for deployment in service.deployments):
        return service
    return replace(
        service,
        deployments=tuple(changed.get(deployment.deployment_id, deployment) for deployment in service.deployments),
    )
