"""Commands that apply and undo a change, or sentences where no command exists. Nothing here runs them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pertoken.advisor.changes import kubernetes
from pertoken.advisor.changes.purchases import Step, commit, order, release
from pertoken.advisor.changes.timers import timer_commands
from pertoken.advisor.changes.title import DEMAND
from pertoken.advisor.groups import Chosen, Group, groups, hours, listed, replica_words, share_of, shown
from pertoken.catalog import knob_commands
from pertoken.catalog.knobs import like
from pertoken.state.demand import Quantity
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Change, Diff
from pertoken.state.fleet import Fleet
from pertoken.state.knobs import knobs
from pertoken.state.placement import Placement
from pertoken.state.service import FEWEST
from pertoken.state.workload import Workload
from pertoken.units import counted


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
    """Return all commands of a difference in execution order, and the undo commands in reverse order."""
    steps = list(_steps(difference, before, where, chosen))
    return Step(
        tuple(line for step in steps for line in step.apply),
        tuple(line for step in reversed(steps) for line in step.undo),
    )


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
        yield _merge(deployment, merged[0], where) if merged else _start(deployment)
    replicas = _replicas(difference, before, chosen)
    for group in changed:
        prefix = "" if single else f"{_where(group, where)}: "
        yield from _group(group, before, where, prefix, replicas.get(group.service.name))
    for change in difference.changes:
        if change.kind == "service":
            yield from _service(change, before, chosen)
    reused = {deployment.device_ids for deployment in difference.added}
    for deployment in (deployment for deployment in difference.removed if deployment.device_ids not in reused):
        yield Step((f"Stop {_named(deployment, where)}.",), (f"Start {_named(deployment, where)} again.",))
    explicit = [host.name for host in difference.released]
    for name in (*explicit, *(name for name in chosen.released if name not in explicit)):
        host = next((host for host in before.hosts if host.name == name), None)
        yield release(name, host, before)


def _replicas(difference: Diff, before: Fleet, chosen: Chosen) -> dict[str, int]:
    """Return the new number of replicas of each service that gets one, where it is known."""
    changes = [change for change in difference.changes if change.kind == "service" and change.field == "replicas"]
    words = {str(change.target): replica_words(change, before, chosen) for change in changes}
    return {name: int(pair[1]) for name, pair in words.items() if pair is not None and pair[1].isdecimal()}


def _group(group: Group, before: Fleet, where: Addresses, prefix: str, replicas: int | None) -> Iterator[Step]:
    """Yield the steps of one group; `replicas`: the new number of its service, None if that stays."""
    changes = group.changes
    engine = [name for name in changes if name in knobs() and knobs()[name].scope == "engine"]
    pods = where.pods(group.deployments)
    if pods:
        yield from _in_pods(group, engine, pods, prefix)
    for name in () if pods else engine:
        yield _knob(group, name, prefix)
    for name in changes:
        if name in knobs() and knobs()[name].scope == "device":
            yield _device_knob(group, name, before, where)
    placement = {name.partition(".")[2]: pair for name, pair in changes.items() if name.startswith("placement.")}
    if placement:
        all_move = len(group.deployments) == len(group.service.deployments)
        yield _move(group, placement, prefix, replicas if all_move else None)
    if "device_ids" in changes:
        old, new = changes["device_ids"]
        to, back = (_devices(deployment, where) for deployment in (new, old))
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


def _move(group: Group, changes: Mapping[str, tuple[object, object]], prefix: str, replicas: int | None) -> Step:
    now = group.deployments[0].placement
    edits: dict[str, Any] = {name: new for name, (_, new) in changes.items()}
    to = replace(now, **edits)
    servers, new = (_servers(count) for count in (len(group.deployments), replicas or len(group.deployments)))
    if to.purchase == "per_token":
        model = group.deployments[0].model.name
        return Step(
            (
                f"{prefix}send a sample of its prompts to {model} at {to.provider} too, and compare the outputs",
                f"{prefix}point its clients at {to.provider}, then stop {servers}",
            ),
            (f"{prefix}start {servers} {_place(now, changes)} again, point the clients back",),
        )
    return Step(
        (
            *order(to),
            f"{prefix}start {new} {_place(to, changes)}, move the traffic, then stop what ran {_place(now, changes)}",
        ),
        # A host that is given back is ordered again by the undo of its release; any other is still there.
        (f"{prefix}start {servers} {_place(now, changes)} again, move the traffic back, then stop the new",),
    )


def _servers(count: int) -> str:
    return "the server" if count == 1 else f"{count} servers"


def _place(placement: Placement, changes: Mapping[str, object]) -> str:
    """Return the known parts of a placement as text: `on H200 SXM, spot, p5en.48xlarge, aws us-east-1`."""
    where = " ".join(part for part in (placement.provider, placement.region) if part)
    parts = [placement.accelerator, placement.instance_type, where, placement.purchase, placement.offer]
    known = [part for part in parts if part]
    return f"on {', '.join(known)}" if known else "where it was"


def _shares(group: Group, prefix: str) -> Step:
    old, new = (dict(change) for change in group.changes["serves"])
    apply, undo = [], []
    for service, share in new.items():
        if old.get(service) != share:
            apply.append(f"{prefix}send {share_of(share)} of the requests for {service} to it")
            undo.append(f"{prefix}send {share_of(old.get(service))} of the requests for {service} to it")
    return Step(tuple(apply), tuple(undo))


def _service(change: Change, before: Fleet, chosen: Chosen) -> Iterator[Step]:
    name = str(change.target)
    if change.field == "replicas":
        words = replica_words(change, before, chosen)
        if words is not None:
            old, new = words
            to = "the fewest replicas that hold its demand" if new == FEWEST else counted(int(new), "replica")
            again = counted(int(old), "replica")
            yield Step((f"Scale {name} from {old} to {to}.",), (f"Scale {name} to {again} again.",))
    elif change.field == "schedule":
        lines = timer_commands(name, change.after, len(before.service(name).deployments))
        yield Step(
            (f"Schedule {name}: {hours(change.after)}.", *lines),
            (f"Remove these timers, and schedule {name} as before: {hours(change.before)}.",),
        )
    elif change.field in DEMAND:
        yield _demand(name, change.field.partition(".")[2], change.before, change.after)


def _demand(service: str, field: str, old: Quantity | None, new: Quantity) -> Step:
    sentences = {
        "output_len": "Limit the outputs of {service} to {value:.0f} tokens on average.",
        "prompt_len": "Shorten the prompts of {service} to {value:.0f} tokens on average.",
        "response_cache_share": "Put a response cache before {service} that answers {value:.0%} of its requests.",
        "cached_share": "Order the prompts of {service} so that {value:.0%} of their tokens hit the prefix cache.",
        "requests_per_s": "Change the requests of {service} to {value:.3g} per second.",
    }
    undo = f"Remove that from {service} again" + (f" (it was {old.value:.4g})." if old is not None else ".")
    return Step((sentences[field].format(service=service, value=new.value),), (undo,))


def _start(deployment: Deployment) -> Step:
    share = "; ".join(
        f"send {share_of(part)} of the requests for {service} to it" for service, part in deployment.serves
    )
    set_knobs = [
        f"{name}={shown(getattr(deployment, name))}" for name in _SHOWN if getattr(deployment, name) is not None
    ]
    what = f"{deployment.model.name} with {deployment.engine} ({', '.join(set_knobs)})"
    return Step(
        (
            *(() if deployment.device_ids else order(deployment.placement)),
            f"Start {what} {_place(deployment.placement, {})}; {share}.",
        ),
        (f"Route its requests to their previous servers, then stop the new {deployment.model.name}.",),
    )


def _merge(deployment: Deployment, base: Deployment, where: Addresses) -> Step:
    """Return the commands with which one server takes over the services of other servers."""
    names = listed(tuple(service for service, _ in deployment.serves))
    engine = [name for name in base.knob_changes(deployment) if knobs()[name].scope == "engine"]
    changes = {name: (getattr(base, name), getattr(deployment, name)) for name in engine}
    spelling = knob_commands.commands(base.engine, changes)
    return Step(
        (
            *(f"{_named(base, where)}: {line}" for line in (*spelling.apply, *spelling.manual)),
            f"{_named(base, where)}: serve under the names of {names} (vLLM: --served-model-name takes several), "
            f"restart, and route all requests for {names} to it.",
        ),
        (
            f"Route the requests for {names} to their previous servers.",
            *(f"{_named(base, where)}: {line}" for line in spelling.undo),
        ),
    )


_SHOWN = ("tp", "pp", "dp", "weight_dtype", "kv_dtype", "max_model_len", "role", "lora_adapters")
"""Knobs in the description of a new deployment."""


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
        ((f"on {host}: stop {names}: a device can be partitioned only while nothing runs on it",) if names else ())
        + (f"{smi}-i {address.uuid} -mig 1", f"{smi}mig -i {address.uuid} -cgi {','.join(change.after)} -C"),
        (f"{smi}mig -i {address.uuid} -dci", f"{smi}mig -i {address.uuid} -dgi", f"{smi}-i {address.uuid} -mig 0"),
    )


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
