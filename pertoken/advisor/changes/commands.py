"""Commands that apply and undo a change: options, Kubernetes, timers, devices; a sentence where none exists.

Nothing here runs them. Their order is safe to follow line by line: start the new servers, check that they serve, move
the traffic, and only then stop or give back the old ones.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pertoken.advisor.changes.servers import (
    CommandStep,
    can_run_beside,
    commit,
    health_check,
    move,
    release,
    spelled,
    start,
)
from pertoken.advisor.changes.title import (
    DAYS,
    DEMAND,
    Group,
    PricingChoices,
    groups,
    hours,
    listed,
    number_ranges,
    replica_words,
    share_of,
    shown,
)
from pertoken.catalog.knobs import flag_commands, like
from pertoken.state.deployment import Deployment, Workload, knobs
from pertoken.state.diff import Change, Diff
from pertoken.state.fleet import Fleet, Host
from pertoken.state.service import FEWEST, HOURS_OF_WEEK, Quantity, Schedule
from pertoken.units import counted

LAST_COUNTS = ("vllm", "sglang", "llama.cpp", "trtllm", "lmdeploy")
"""Engines with parsers that accept a repeated option (argparse, click, llama.cpp's own); TGI's rejects it."""


Versions = tuple[str | None, str]
"""Engine version before and after a change."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Patch details of one kind of object."""

    resource: str
    container: str
    """JSON pointer of the container that runs the engine."""
    note: str


_FILL_IN = "KIND and NAME: the object that owns its pod, which cannot be read on the host"
_KINDS = {
    None: _Kind("KIND", "/spec/template/spec/containers/0", _FILL_IN),
    "Deployment": _Kind(
        "deployment", "/spec/template/spec/containers/0", "container 0 is the engine, and has a list args"
    ),
    "LLMInferenceService": _Kind(
        "llminferenceservice",
        "/spec/template/containers/0",
        "container 0 is main, with a list env; if it already sets VLLM_ADDITIONAL_ARGS, append to its value instead",
    ),
    "DynamoGraphDeployment": _Kind(
        "dynamographdeployments.v1alpha1.nvidia.com",
        "/spec/services/SERVICE/extraPodSpec/mainContainer",
        "SERVICE: the worker of this model, which cannot be read on the host",
    ),
}
_ADDED = {"LLMInferenceService": "VLLM_ADDITIONAL_ARGS"}
"""Kinds with an environment variable for additional arguments."""


def changed(workload: Workload, engine: str, words: Sequence[str], version: Versions | None) -> tuple[str, str]:
    """Return one command that appends `words` to an engine's command line and changes its version, and its undo.

    One patch makes one rollout, so that one undo reverts it.
    """
    kind = _KINDS[workload.kind]
    operations: list[dict[str, object]] = []
    notes, by_hand = [kind.note], []
    if version is not None:
        old, new = version
        operations.append({"op": "add", "path": f"{kind.container}/image", "value": "IMAGE"})
        notes.insert(0, f"IMAGE: yours of {engine} {new}")
        by_hand.append(f"set the image of {engine} {old} again" if old else f"set the previous image of {engine} again")
    variable = _ADDED.get(workload.kind or "")
    if words and variable is not None:
        value = {"name": variable, "value": " ".join(words)}
        operations.append({"op": "add", "path": f"{kind.container}/env/-", "value": value})
    elif words:
        operations += [{"op": "add", "path": f"{kind.container}/args/-", "value": word} for word in words]
    by_hand += [f"take {' '.join(words)} out again"] if words else []
    patch = shlex.quote(json.dumps(operations, separators=(",", ":")))
    apply = f"{_kubectl(workload)} patch {_object(workload, ' ')} --type=json -p {patch}  # {'; '.join(notes)}"
    return apply, _undone(workload, "; ".join(by_hand))


def restarted(workload: Workload) -> str:
    """Return the command that restarts the pods of an object; pods of other objects than a Deployment are deleted."""
    if workload.kind == "Deployment":
        return f"{_kubectl(workload)} rollout restart {_object(workload, '/')}"
    return f"{_kubectl(workload)} delete pod POD  # POD: the one of this server; {_KINDS[workload.kind].note}"


def _undone(workload: Workload, by_hand: str) -> str:
    """Return the undo command: a rollout undo of a Deployment, or an edit of any other object."""
    if workload.kind == "Deployment":
        return f"{_kubectl(workload)} rollout undo {_object(workload, '/')}"
    return f"{_kubectl(workload)} edit {_object(workload, ' ')}  # {by_hand}"


def _kubectl(workload: Workload) -> str:
    return f"kubectl -n {workload.namespace or 'NAMESPACE'}"


def _object(workload: Workload, between: str) -> str:
    return f"{_KINDS[workload.kind].resource}{between}{workload.name or 'NAME'}"


ON, OFF, ASLEEP = "on", "off", "asleep"


@dataclass(frozen=True, slots=True)
class Timer:
    """A moment of the week, UTC, at which a service changes."""

    days: tuple[int, ...]
    """0 is Monday."""
    hour: int
    to: str | int
    """`on` (as without a schedule), `off`, `asleep`, or a number of replicas."""

    @property
    def calendar(self) -> str:
        """Time of week as a value of `OnCalendar=` of systemd."""
        days = [
            DAYS[first] if first == last else f"{DAYS[first]}..{DAYS[last]}" for first, last in number_ranges(self.days)
        ]
        return f"{','.join(days)} *-*-* {self.hour:02}:00:00 UTC".removeprefix("Mon..Sun ")

    @property
    def cron(self) -> str:
        """Time of week in the notation of cron and Kubernetes, time zone UTC; day 0 is Sunday."""
        days = ",".join(str((day + 1) % 7) for day in self.days) if len(self.days) < len(DAYS) else "*"
        return f"0 {self.hour} * * {days}"


def timers(schedule: Schedule) -> tuple[Timer, ...]:
    """Return the timers of a schedule, by hour of the day; empty for one that never changes."""
    counts = dict(schedule.replicas)
    states = [_state(hour, schedule, counts) for hour in range(HOURS_OF_WEEK)]
    moments: dict[tuple[int, str | int], list[int]] = {}
    for hour, state in enumerate(states):
        if state != states[hour - 1]:
            moments.setdefault((hour % 24, state), []).append(hour // 24)
    return tuple(Timer(tuple(days), hour, to) for (hour, to), days in sorted(moments.items(), key=_order))


def timer_commands(service: str, schedule: Schedule, replicas: int) -> Iterator[str]:
    """Yield the action of each timer of a service with this number of replicas."""
    for timer in timers(schedule):
        count = {ON: replicas, OFF: 0}.get(str(timer.to), timer.to)
        if timer.to == ASLEEP:
            action = f"POST /sleep?level=1 to each server of {service} (vLLM; others: see the rule's page)"
        elif timer.to == ON and schedule.asleep and not schedule.off and not schedule.replicas:
            action = f"POST /wake_up to each server of {service}"
        else:
            fewer = isinstance(count, int) and count < replicas
            hosts = "then give unused hosts back" if fewer else "start their hosts first"
            action = f"kubectl scale deployment/{service} --replicas={count}, or start and stop its servers; {hosts}"
        yield f"systemd timer OnCalendar={timer.calendar} (Kubernetes CronJob: {timer.cron}): {action}"


def _state(hour: int, schedule: Schedule, counts: dict[int, int]) -> str | int:
    if hour in schedule.off:
        return OFF
    return ASLEEP if hour in schedule.asleep else counts.get(hour, ON)


def _order(moment: tuple[tuple[int, str | int], list[int]]) -> tuple[int, str]:
    (hour, to), _ = moment
    return hour, str(to)


def service_steps(change: Change, present: Fleet, chosen: PricingChoices) -> Iterator[CommandStep]:
    """Yield the steps of one change of a service."""
    name = str(change.target)
    if change.field == "replicas":
        words = replica_words(change, present, chosen)
        if words is not None:
            old, new = words
            to = "the fewest replicas that hold its demand" if new == FEWEST else counted(int(new), "replica")
            again = counted(int(old), "replica")
            apply, undo = f"Scale {name} from {old} to {to}.", f"Scale {name} to {again} again."
            more = new.isdecimal() and int(new) > int(old)
            yield CommandStep((apply,), retire_undone=(undo,)) if more else CommandStep(undo=(undo,), retire=(apply,))
    elif change.field == "schedule":
        lines = timer_commands(name, change.after, len(present.service(name).deployments))
        yield CommandStep(
            (f"Schedule {name}: {hours(change.after)}.", *lines),
            (f"Remove these timers, and schedule {name} as before: {hours(change.before)}.",),
        )
    elif change.field in DEMAND:
        yield _demand(name, change.field.partition(".")[2], change.before, change.after)


def _demand(service: str, field: str, old: Quantity | None, new: Quantity) -> CommandStep:
    sentences = {
        "output_len": "Limit the outputs of {service} to {value:.0f} tokens on average.",
        "prompt_len": "Shorten the prompts of {service} to {value:.0f} tokens on average.",
        "response_cache_share": "Put a response cache before {service} that answers {value:.0%} of its requests.",
        "cached_share": "Order the prompts of {service} so that {value:.0%} of their tokens hit the prefix cache.",
        "requests_per_s": "Change the requests of {service} to {value:.3g} per second.",
    }
    undo = f"Remove that from {service} again" + (f" (it was {old.value:.4g})." if old is not None else ".")
    return CommandStep((sentences[field].format(service=service, value=new.value),), (undo,))


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
        ids = [deployment.deployment_id for deployment in deployments if deployment.deployment_id in self.workloads]
        return tuple(dict.fromkeys(map(self.workloads.__getitem__, ids))) if len(ids) == len(deployments) else ()


def commands(difference: Diff, present: Fleet, where: Addresses, chosen: PricingChoices) -> CommandStep:
    """Return all commands of a difference in execution order, and the undo commands in reverse order.

    Lines that stop servers or give hardware back are last, in both directions, after a check of the servers that stay.
    """
    steps = list(_steps(difference, present, where, chosen))
    staying = _staying_engines(difference, present)
    return CommandStep(
        _ordered([step.apply for step in steps], [step.retire for step in steps], staying),
        _ordered([step.undo for step in reversed(steps)], [step.retire_undone for step in reversed(steps)], staying),
    )


def _ordered(safe: Iterable[tuple[str, ...]], retiring: Iterable[tuple[str, ...]], engines: Iterable[str]) -> Lines:
    """Return the safe lines, a check of the servers that stay unless there is one, and the retiring lines."""
    first, last = (tuple(line for lines in groups for line in lines) for groups in (safe, retiring))
    checked = not last or any(line.startswith("curl ") or "check that" in line for line in first)
    return (*first, *(() if checked else (health_check(engine, "each server that stays") for engine in engines)), *last)


def _staying_engines(difference: Diff, present: Fleet) -> tuple[str, ...]:
    """Return the engines of the services that a difference touches and that go on running."""
    removed = {deployment.deployment_id for deployment in difference.removed}
    named = {str(change.target) for change in difference.changes if change.kind == "service"}
    changed = {int(change.target) for change in difference.changes if change.kind == "deployment"}
    named |= {name for key in (*changed, *removed) for name in present.listed_by.get(key, ())}
    staying = [
        deployment
        for service in present.services
        if service.name in named
        for deployment in service.deployments
        if deployment.deployment_id not in removed
    ]
    return tuple(dict.fromkeys(deployment.engine for deployment in (*staying, *difference.added)))


def _steps(difference: Diff, present: Fleet, where: Addresses, chosen: PricingChoices) -> Iterator[CommandStep]:
    changed = groups(difference, present)
    single = len(changed) == 1 == len(changed[0].service.deployments) and not (difference.added or difference.removed)
    for change in difference.changes:
        if change.field == "partitions":
            yield _partition(change, present, where)
        if change.field == "commitments":
            yield from (commit(commitment) for commitment in change.after[len(change.before) :])
    for deployment in difference.added:
        merged = [removed for removed in difference.removed if removed.device_ids == deployment.device_ids]
        yield _merge(deployment, merged[0], where) if merged else start(deployment, chosen)
    replicas = _replicas(difference, present, chosen)
    for group in changed:
        prefix = "" if single else f"{_where(group, where)}: "
        yield from _group(group, present, where, prefix, replicas.get(group.service.name), chosen)
    for change in difference.changes:
        if change.kind == "service":
            yield from service_steps(change, present, chosen)
    reused = {deployment.device_ids for deployment in difference.added}
    for deployment in (deployment for deployment in difference.removed if deployment.device_ids not in reused):
        named = _named(deployment, where)
        yield CommandStep(undo=(f"Start {named} again.",), retire=(f"Stop {named}.",))
    explicit = [host.name for host in difference.released]
    for name in (*explicit, *(name for name in chosen.released if name not in explicit)):
        host = next((host for host in present.hosts if host.name == name), None)
        yield release(name, host, present, nvidia=host is not None and _is_nvidia(host, present, where))


def _is_nvidia(host: Host, present: Fleet, where: Addresses) -> bool:
    devices = [device for device in present.devices if device.host_id == host.host_id and device.kind != "cpu"]
    addresses = [where.devices.get(device.device_id) for device in devices]
    return bool(addresses) and all(address is not None and address.vendor == "nvidia" for address in addresses)


def _replicas(difference: Diff, present: Fleet, chosen: PricingChoices) -> dict[str, int]:
    """Return the new number of replicas of each service that gets one, where it is known."""
    changes = [change for change in difference.changes if change.kind == "service" and change.field == "replicas"]
    words = {str(change.target): replica_words(change, present, chosen) for change in changes}
    return {name: int(pair[1]) for name, pair in words.items() if pair is not None and pair[1].isdecimal()}


def _group(
    group: Group, present: Fleet, where: Addresses, prefix: str, replicas: int | None, chosen: PricingChoices
) -> Iterator[CommandStep]:
    """Yield the steps of one group; `replicas`: the new number of its service, None if that stays."""
    changes = group.changes
    devices = changes.get("device_ids")
    if any(name.startswith("placement.") for name in changes) or (devices is not None and can_run_beside(*devices)):
        all_move = len(group.deployments) == len(group.service.deployments)
        old, new = (_devices(device_ids, where) for device_ids in devices or ((), ()))
        yield move(group, (old, new), prefix, replicas if all_move else None, chosen)
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
            yield _device_knob(group, name, present, where)
    if devices is not None:
        to, back = (_devices(device_ids, where) for device_ids in reversed(devices))
        yield CommandStep((f"{prefix}run it on {to}",), (f"{prefix}run it on {back} again",))
    if "serves" in changes:
        yield _shares(group, prefix)
    if "restart" in changes:
        again = tuple(map(restarted, pods)) or (f"{prefix}restart the server as it is",)
        yield CommandStep(again, (f"{prefix}nothing to undo: a restart changes no setting",))


def _knob(group: Group, name: str, prefix: str) -> CommandStep:
    old, new = group.changes[name]
    if name == "engine":
        return CommandStep(
            (f"{prefix}serve with {new} instead of {old}, with the same model",), (f"{prefix}serve with {old} again",)
        )
    if name == "engine_version":
        engine = group.deployments[0].engine
        back = f"install {engine} {old} again" if old else f"install the version of {engine} that ran before"
        return CommandStep((f"{prefix}install {engine} {new} and restart",), (f"{prefix}{back} and restart",))
    staying = {knob: getattr(group.deployments[0], knob) for knob in knobs() if knob not in group.changes}
    spelling = flag_commands(group.deployments[0].engine, {name: (old, new)}, staying)
    undo = spelling.undo or (f"change {knobs()[name].label} back to {'what it was' if old is None else shown(old)}",)
    return CommandStep(
        tuple(prefix + line for line in (*spelling.apply, *spelling.manual)), tuple(prefix + line for line in undo)
    )


def _in_pods(group: Group, names: Sequence[str], pods: Sequence[Workload], prefix: str) -> Iterator[CommandStep]:
    """Yield a patch for each object that owns the pods, and sentences for changes without an argument."""
    engine = group.deployments[0].engine
    arguments: list[str] = []
    for name in names:
        spelling = flag_commands(engine, {name: group.changes[name]})
        has_arguments = spelling.apply and all(line.startswith("set ") for line in spelling.apply)
        if name in ("engine", "engine_version"):
            yield from [_knob(group, name, prefix)] if name == "engine" else []
        elif has_arguments and like(engine) in LAST_COUNTS:
            arguments += [word for line in spelling.apply for word in line.split()[1:]]
            yield CommandStep(tuple(prefix + line for line in spelling.manual))
        else:
            yield _knob(group, name, prefix)
    version = group.changes.get("engine_version")
    for pod in pods if arguments or version is not None else ():
        apply, undo = changed(pod, engine, arguments, version)
        yield CommandStep((apply,), (undo,))


_NVIDIA = {"sm_clock_mhz": ("-lgc {value},{value}", "-rgc"), "power_cap_w": ("-pl {value}", None)}
"""Arguments of nvidia-smi by knob: to set a value, and to restore the default (None: there is no such argument)."""


def _device_knob(group: Group, name: str, present: Fleet, where: Addresses) -> CommandStep:
    """Return nvidia-smi commands by host, or sentences for other vendors."""
    old, new = group.changes[name]
    apply, undo = [], []
    for host, device_ids in _by_host(group.deployments, present).items():
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
    return CommandStep(tuple(apply), tuple(undo))


def _shares(group: Group, prefix: str) -> CommandStep:
    old, new = (dict(change) for change in group.changes["serves"])
    apply, undo = [], []
    for service, share in new.items():
        if old.get(service) != share:
            apply.append(f"{prefix}send {share_of(share)} of the requests for {service} to it")
            undo.append(f"{prefix}send {share_of(old.get(service))} of the requests for {service} to it")
    return CommandStep(tuple(apply), tuple(undo))


def _merge(deployment: Deployment, base: Deployment, where: Addresses) -> CommandStep:
    """Return the commands with which one server takes over the services of other servers."""
    names = listed(tuple(service for service, _ in deployment.serves))
    engine = [name for name in base.knob_changes(deployment) if knobs()[name].scope == "engine"]
    changes = {name: (getattr(base, name), getattr(deployment, name)) for name in engine}
    options, options_before = spelled(base.engine, changes)
    named = _named(base, where)
    return CommandStep(
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


def _partition(change: Change, present: Fleet, where: Addresses) -> CommandStep:
    device = present.device(int(change.target))
    host = present.host(device.host_id).name
    address = where.devices.get(device.device_id)
    if address is None or address.vendor != "nvidia":
        return CommandStep(
            (f"on {host}: partition {device.name} into {', '.join(change.after)} with the vendor's tool",),
            (f"on {host}: make {device.name} whole again",),
        )
    smi = f"on {host}: nvidia-smi "
    names = listed(tuple(deployment.name for deployment in present.deployments_by_device.get(device.device_id, ())))
    return CommandStep(
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


def _by_host(deployments: Sequence[Deployment], present: Fleet) -> dict[str, list[int]]:
    """Return the ids of the whole devices of deployments, by host name."""
    devices = dict.fromkeys(
        present.device(device_id) for deployment in deployments for device_id in deployment.device_ids
    )
    devices_by_host: dict[str, list[int]] = defaultdict(list)
    for device in devices:
        devices_by_host[present.host(device.host_id).name].append(device.device_id)
    return devices_by_host
