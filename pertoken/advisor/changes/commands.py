"""Commands that apply and undo a change, or sentences where no command exists. Nothing here runs them.

Their order is safe to follow line by line: start what is new with its flags, check that it serves, move the traffic,
and only then stop or give back what ran before.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pertoken.advisor.changes import kubernetes
from pertoken.advisor.changes.moves import can_run_beside, move, start
from pertoken.advisor.changes.purchases import Step, commit, release
from pertoken.advisor.changes.services import service_steps
from pertoken.advisor.changes.serving import health_check, spelled
from pertoken.advisor.groups import Chosen, Group, groups, listed, replica_words, share_of, shown
from pertoken.catalog import knobs as knob_commands
from pertoken.catalog.knobs import like
from pertoken.state.deployment import Deployment, Workload
from pertoken.state.diff import Change, Diff
from pertoken.state.fleet import Fleet, Host
from pertoken.state.knobs import knobs
from pertoken.units import counted

Lines = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceAddress:
    """Name of a device in its vendor's tool."""

    uuid: str
    vendor: str | None


@dataclass(frozen=True, slots=True)
class Addresses:
    """Locations of deployments and devices, for commands."""

    hosts: Mapping[int, str]
    """Host name of each deployment's endpoint, by deployment id."""
    devices: Mapping[int, DeviceAddress]
    """By device id."""
    workloads: Mapping[int, Workload] = field(default_factory=dict)
    """Kubernetes object of each deployment that runs in a pod, by deployment id."""

    def pods(self, deployments: Sequence[Deployment]) -> tuple[Workload, ...]:
        """Return the objects that own the pods of deployments, without duplicates; empty if one runs outside a pod."""
        workloads = [self.workloads.get(deployment.deployment_id) for deployment in deployments]
        return (
            ()
            if None in workloads
            else tuple(dict.fromkeys(workload for workload in workloads if workload is not None))
        )


def commands(difference: Diff, before: Fleet, where: Addresses, chosen: Chosen) -> Step:
    """Return all commands of a difference in execution order, and the undo commands in reverse order.

    Lines that stop servers or give hardware back are last, in both directions, after a check of the servers that stay.
    """
    steps = list(_steps(difference, before, where, chosen))
    staying = _staying_engines(difference, before)
    return Step(
        _ordered([step.apply for step in steps], [step.retire for step in steps], staying),
        _ordered([step.undo for step in reversed(steps)], [step.retire_undone for step in reversed(steps)], staying),
    )


def _ordered(safe: Iterable[tuple[str, ...]], retiring: Iterable[tuple[str, ...]], engines: Iterable[str]) -> Lines:
    """Return the safe lines, a check of the servers that stay unless there is one, and the retiring lines."""
    first, last = (tuple(line for lines in groups for line in lines) for groups in (safe, retiring))
    checked = not last or any(line.startswith("curl ") or "check that" in line for line in first)
    return (*first, *(() if checked else (health_check(engine, "each server that stays") for engine in engines)), *last)


def _staying_engines(difference: Diff, before: Fleet) -> tuple[str, ...]:
    """Return the engines of the services that a difference touches and that go on running."""
    removed = {deployment.deployment_id for deployment in difference.removed}
    named = {str(change.target) for change in difference.changes if change.kind == "service"}
    changed = {int(change.target) for change in difference.changes if change.kind == "deployment"}
    named |= {name for key in (*changed, *removed) for name in before.listed_by.get(key, ())}
    staying = [
        deployment
        for service in before.services
        if service.name in named
        for deployment in service.deployments
        if deployment.deployment_id not in removed
    ]
    return tuple(dict.fromkeys(deployment.engine for deployment in (*staying, *difference.added)))


def _steps(difference: Diff, before: Fleet, where: Addresses, chosen: Chosen) -> Iterator[Step]:
    changed = groups(difference, before)
    single = len(changed) == 1 == len(changed[0].service.deployments) and not (difference.added or difference.removed)
    for change in difference.changes:
        if change.field == "partitions":
            yield _partition(change, before, where)
        if change.field == "commitments":
            yield from (commit(commitment) for commitment in change.after[len(change.before) :])
    for deployment in difference.added:
        merged = [removed for removed in difference.removed if removed.device_ids == deployment.device_ids]
        yield _merge(deployment, merged[0], where) if merged else start(deployment, chosen)
    replicas = _replicas(difference, before, chosen)
    for group in changed:
        prefix = "" if single else f"{_where(group, where)}: "
        yield from _group(group, before, where, prefix, replicas.get(group.service.name), chosen)
    for change in difference.changes:
        if change.kind == "service":
            yield from service_steps(change, before, chosen)
    reused = {deployment.device_ids for deployment in difference.added}
    for deployment in (deployment for deployment in difference.removed if deployment.device_ids not in reused):
        named = _named(deployment, where)
        yield Step(undo=(f"Start {named} again.",), retire=(f"Stop {named}.",))
    explicit = [host.name for host in difference.released]
    for name in (*explicit, *(name for name in chosen.released if name not in explicit)):
        host = next((host for host in before.hosts if host.name == name), None)
        yield release(name, host, before, nvidia=host is not None and _is_nvidia(host, before, where))


def _is_nvidia(host: Host, before: Fleet, where: Addresses) -> bool:
    devices = [device for device in before.devices if device.host_id == host.host_id and device.kind != "cpu"]
    addresses = [where.devices.get(device.device_id) for device in devices]
    return bool(addresses) and all(address is not None and address.vendor == "nvidia" for address in addresses)


def _replicas(difference: Diff, before: Fleet, chosen: Chosen) -> dict[str, int]:
    """Return the new number of replicas of each service that gets one, where it is known."""
    changes = [change for change in difference.changes if change.kind == "service" and change.field == "replicas"]
    words = {str(change.target): replica_words(change, before, chosen) for change in changes}
    return {name: int(pair[1]) for name, pair in words.items() if pair is not None and pair[1].isdecimal()}


def _group(
    group: Group, before: Fleet, where: Addresses, prefix: str, replicas: int | None, chosen: Chosen
) -> Iterator[Step]:
    """Yield the steps of one group; `replicas`: the new number of its service, None if that stays."""
    changes = group.changes
    placement = {name.partition(".")[2]: pair for name, pair in changes.items() if name.startswith("placement.")}
    devices = changes.get("device_ids")
    if placement or (devices is not None and can_run_beside(*devices)):
        all_move = len(group.deployments) == len(group.service.deployments)
        old, new = (_devices(device_ids, where) for device_ids in devices or ((), ()))
        yield move(group, placement, (old, new), prefix, replicas if all_move else None, chosen)
        if "serves" in changes:
            yield _shares(group, prefix)
        return
    engine = [name for name in changes if name in knobs() and knobs()[name].scope == "engine"]
    pods = where.pods(group.deployments)
    if pods:
        yield from _in_pods(group, engine, pods, prefix)
    for name in () if pods else engine:
        yield _knob(group, name, prefix)
    for name in changes:
        if name in knobs() and knobs()[name].scope == "device":
            yield _device_knob(group, name, before, where)
    if devices is not None:
        to, back = (_devices(device_ids, where) for device_ids in reversed(devices))
        yield Step((f"{prefix}run it on {to}",), (f"{prefix}run it on {back} again",))
    if "serves" in changes:
        yield _shares(group, prefix)
    if "restart" in changes:
        again = tuple(map(kubernetes.restarted, pods)) or (f"{prefix}restart the server as it is",)
        yield Step(again, (f"{prefix}nothing to undo: a restart changes no setting",))


def _knob(group: Group, name: str, prefix: str) -> Step:
    old, new = group.changes[name]
    if name == "engine":
        return Step(
            (f"{prefix}serve with {new} instead of {old}, with the same model",), (f"{prefix}serve with {old} again",)
        )
    if name == "engine_version":
        engine = group.deployments[0].engine
        back = f"install {engine} {old} again" if old else f"install the version of {engine} that ran before"
        return Step((f"{prefix}install {engine} {new} and restart",), (f"{prefix}{back} and restart",))
    staying = {knob: getattr(group.deployments[0], knob) for knob in knobs() if knob not in group.changes}
    spelling = knob_commands.commands(group.deployments[0].engine, {name: (old, new)}, staying)
    undo = spelling.undo or (f"change {knobs()[name].label} back to {'what it was' if old is None else shown(old)}",)
    return Step(
        tuple(prefix + line for line in (*spelling.apply, *spelling.manual)), tuple(prefix + line for line in undo)
    )


def _in_pods(group: Group, names: Sequence[str], pods: Sequence[Workload], prefix: str) -> Iterator[Step]:
    """Yield a patch for each object that owns the pods, and sentences for changes without an argument."""
    engine = group.deployments[0].engine
    arguments: list[str] = []
    for name in names:
        spelling = knob_commands.commands(engine, {name: group.changes[name]})
        has_arguments = spelling.apply and all(line.startswith("set ") for line in spelling.apply)
        if name in ("engine", "engine_version"):
            yield from [_knob(group, name, prefix)] if name == "engine" else []
        elif has_arguments and like(engine) in kubernetes.LAST_COUNTS:
            arguments += [word for line in spelling.apply for word in line.split()[1:]]
            yield Step(tuple(prefix + line for line in spelling.manual))
        else:
            yield _knob(group, name, prefix)
    version = group.changes.get("engine_version")
    for pod in pods if arguments or version is not None else ():
        apply, undo = kubernetes.changed(pod, engine, arguments, version)
        yield Step((apply,), (undo,))


_NVIDIA = {"sm_clock_mhz": ("-lgc {value},{value}", "-rgc"), "power_cap_w": ("-pl {value}", None)}
"""Arguments of nvidia-smi by knob: to set a value, and to restore the default (None: there is no such argument)."""


def _device_knob(group: Group, name: str, before: Fleet, where: Addresses) -> Step:
    """Return nvidia-smi commands by host, or sentences for other vendors."""
    old, new = group.changes[name]
    apply, undo = [], []
    for host, device_ids in _by_host(group.deployments, before).items():
        addresses = [where.devices[device_id] for device_id in device_ids if device_id in where.devices]
        prefix = f"on {host}: "
        label, unit = knobs()[name].label, knobs()[name].unit
        if len(addresses) == len(device_ids) and all(address.vendor == "nvidia" for address in addresses):
            smi = f"{prefix}nvidia-smi -i {','.join(address.uuid for address in addresses)} "
            write, reset = _NVIDIA[name]
            apply.append(smi + write.format(value=new))
            if old is not None:
                undo.append(smi + write.format(value=old))
            elif reset is not None:
                undo.append(smi + reset)
            else:
                undo.append(f"{prefix}set the {label} to the default that `nvidia-smi -q -d POWER` shows")
        else:
            to, back = f"{new} {unit}", f"{old} {unit}" if old is not None else "its default"
            apply.append(
                f"{prefix}set the {label} of its {counted(len(device_ids), 'device')} to {to} with the vendor's tool"
            )
            undo.append(f"{prefix}set the {label} of its {counted(len(device_ids), 'device')} back to {back}")
    return Step(tuple(apply), tuple(undo))


def _shares(group: Group, prefix: str) -> Step:
    old, new = (dict(change) for change in group.changes["serves"])
    apply, undo = [], []
    for service, share in new.items():
        if old.get(service) != share:
            apply.append(f"{prefix}send {share_of(share)} of the requests for {service} to it")
            undo.append(f"{prefix}send {share_of(old.get(service))} of the requests for {service} to it")
    return Step(tuple(apply), tuple(undo))


def _merge(deployment: Deployment, base: Deployment, where: Addresses) -> Step:
    """Return the commands with which one server takes over the services of other servers."""
    names = listed(tuple(service for service, _ in deployment.serves))
    engine = [name for name in base.knob_changes(deployment) if knobs()[name].scope == "engine"]
    changes = {name: (getattr(base, name), getattr(deployment, name)) for name in engine}
    options, options_before = spelled(base.engine, changes)
    named = _named(base, where)
    return Step(
        (
            f"{named}: restart it{options}, and serve under the names of {names} "
            "(vLLM: --served-model-name takes several)",
            health_check(base.engine, f"{named}"),
            f"Route all requests for {names} to it.",
        ),
        (
            f"Route the requests for {names} to their previous servers.",
            f"{named}: restart it{options_before}, and serve under its previous name",
        ),
    )


def _partition(change: Change, before: Fleet, where: Addresses) -> Step:
    device = before.device(int(change.target))
    host = before.host(device.host_id).name
    address = where.devices.get(device.device_id)
    if address is None or address.vendor != "nvidia":
        return Step(
            (f"on {host}: partition {device.name} into {', '.join(change.after)} with the vendor's tool",),
            (f"on {host}: make {device.name} whole again",),
        )
    smi = f"on {host}: nvidia-smi "
    names = listed(tuple(deployment.name for deployment in before.deployments_by_device.get(device.device_id, ())))
    return Step(
        ((_emptied(host, names),) if names else ())
        + (f"{smi}-i {address.uuid} -mig 1", f"{smi}mig -i {address.uuid} -cgi {','.join(change.after)} -C"),
        (f"{smi}mig -i {address.uuid} -dci", f"{smi}mig -i {address.uuid} -dgi", f"{smi}-i {address.uuid} -mig 0"),
    )


def _emptied(host: str, names: str) -> str:
    why = "a device can be partitioned only while nothing runs on it"
    return f"on {host}: stop {names}: {why}, so move its traffic elsewhere before, or it is not served meanwhile"


def _where(group: Group, where: Addresses) -> str:
    """Return the hosts of a group as text, with devices where another deployment of the service uses the host."""
    changing = {deployment.deployment_id for deployment in group.deployments}
    others = [deployment for deployment in group.service.deployments if deployment.deployment_id not in changing]
    shared = {where.hosts.get(deployment.deployment_id) for deployment in others}
    hosts = []
    for deployment in group.deployments:
        host = where.hosts.get(deployment.deployment_id)
        if host is not None:
            hosts.append(f"{host} ({_devices(deployment.device_ids, where)})" if host in shared else host)
    return f"{group.deployments[0].name} on {listed(tuple(hosts))}" if hosts else group.deployments[0].name


def _named(deployment: Deployment, where: Addresses) -> str:
    host = where.hosts.get(deployment.deployment_id)
    return f"{deployment.name} on {host} ({_devices(deployment.device_ids, where)})" if host else deployment.name


def _devices(device_ids: Sequence[int], where: Addresses) -> str:
    if any(device_id < 0 for device_id in device_ids):
        return "its new MIG instance (its UUID is in `nvidia-smi -L`)"
    uuids = [where.devices[device_id].uuid for device_id in device_ids if device_id in where.devices]
    return f"devices {', '.join(uuids)}" if uuids else "other devices"


def _by_host(deployments: Sequence[Deployment], before: Fleet) -> dict[str, list[int]]:
    """Return the ids of the whole devices of deployments, by host name."""
    whole = dict.fromkeys(before.device(device_id) for deployment in deployments for device_id in deployment.device_ids)
    devices_by_host: dict[str, list[int]] = defaultdict(list)
    for device in whole:
        devices_by_host[before.host(device.host_id).name].append(device.device_id)
    return devices_by_host
