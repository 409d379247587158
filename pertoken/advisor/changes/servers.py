"""Commands for instances and servers: commit, release, order, move and start, each as a `CommandStep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pertoken.advisor.changes.title import Group, PricingChoices, share_of, shown
from pertoken.catalog.clouds import cloud_commands
from pertoken.catalog.engine_lines import health_page
from pertoken.catalog.knobs import flag_commands, like
from pertoken.catalog.offers import ANYWHERE
from pertoken.savings.placing import Placed
from pertoken.state.deployment import Commitment, Deployment, Placement, knobs
from pertoken.state.fleet import Fleet, Host
from pertoken.units import NANO_USD, counted, format_usd

PROCESSES = "nvidia-smi --query-compute-apps=pid --format=csv,noheader"
"""Command that prints the processes on the devices of a host."""


@dataclass(frozen=True, slots=True)
class CommandStep:
    """Lines that apply one change, and the lines that undo it."""

    apply: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    retire: tuple[str, ...] = ()
    """Lines that stop servers or return hardware: they follow the `apply` lines of all steps."""
    retire_undone: tuple[str, ...] = ()
    """Lines that do the same in an undo: they follow the `undo` lines of all steps."""


def commit(commitment: Commitment) -> CommandStep:
    """Return the commands that buy a commitment; it cannot be undone."""
    location = " ".join(part for part in (commitment.provider, commitment.region) if part)
    return CommandStep(
        (
            f"Commit to {commitment.count} × {commitment.instance_type} at {location} for "
            f"{format_usd(commitment.nano_usd_per_instance_hour)} per instance and hour{_term(commitment)}.",
            *_buy(commitment),
        ),
        ("A commitment cannot be cancelled before it ends.",),
    )


def _buy(commitment: Commitment) -> tuple[str, ...]:
    """Return the command lines that buy a commitment; empty if the cloud is unknown or has no such command."""
    cloud = cloud_commands().get(commitment.provider)
    if cloud is None or not commitment.region or not commitment.years:
        return ()
    usd = commitment.count * commitment.nano_usd_per_instance_hour / NANO_USD
    return cloud.committed(commitment.instance_type, commitment.region, years=commitment.years, usd_per_hour=usd)


def _term(commitment: Commitment) -> str:
    return f", for {commitment.years} year{'s' if commitment.years > 1 else ''}" if commitment.years else ""


def release(name: str, host: Host | None, present: Fleet, *, nvidia: bool = False) -> CommandStep:
    """Return the commands that drain and return a host; `host` None: only its name is known.

    `nvidia`: whether all its devices are from NVIDIA, so that nvidia-smi lists remaining processes.
    """
    host_id = None if host is None else host.host_id
    count = sum(host is not None and device.host_id == host_id and device.kind != "cpu" for device in present.devices)
    placement = host.placement if host is not None else Placement()
    instance = f" ({placement.instance_type})" if placement.instance_type else ""
    devices = f" with its {counted(count, 'device')}" if count else ""
    cloud = cloud_commands().get(placement.provider or "")
    release_commands = cloud.released(name, placement.region) if cloud and placement.region else ()
    return CommandStep(
        undo=(f"Order {name}{instance} again.", *order(placement)),
        retire=(
            f"Drain {name}{instance}.",
            f"on {name}: {PROCESSES}  # go on only if it prints nothing"
            if nvidia
            else f"Check that no process uses the devices of {name}.",
            f"Give {name} back{devices}.",
            *release_commands,
        ),
    )


def order(placement: Placement, count: int = 1) -> tuple[str, ...]:
    """Return the command that starts instances; empty if its cloud, region or type is unknown."""
    cloud = cloud_commands().get(placement.provider or "")
    by_the_hour = placement.purchase in (None, "on_demand", "spot")
    if cloud is None or not placement.region or not placement.instance_type or not by_the_hour:
        return ()
    return (cloud.ordered(placement.instance_type, placement.region, spot=placement.purchase == "spot", count=count),)


def move(
    group: Group, devices: tuple[str, str], prefix: str, replicas: int | None, chosen: PricingChoices
) -> CommandStep:
    """Return the lines that start servers elsewhere, check them and move the traffic before the old ones stop.

    `devices`: names of the old and new devices if the placement stays. `prefix`: beginning of each line, or empty.
    `replicas`: number of new servers; None: as many as now.
    """
    changes = {name.partition(".")[2]: pair for name, pair in group.changes.items() if name.startswith("placement.")}
    first = group.deployments[0]
    present, name, lead = first.placement, first.name, prefix and f"{first.name}: "
    proposed = replace(present, **{field: value for field, (_, value) in changes.items()})
    count = len(group.deployments)
    old_servers, new_servers = _servers(count), _servers(replicas or count)
    if proposed.purchase == "per_token":
        return CommandStep(
            (
                f"{lead}send a sample of its prompts to {first.model.name} at {proposed.provider} too, "
                "compare the outputs",
                f"{lead}point its clients at {proposed.provider}, and check that their requests are answered there",
            ),
            (
                f"{lead}start {old_servers} {_location(present)} again",
                health_check(first.engine, f"each server of {name}"),
                f"{lead}point the clients back",
            ),
            (f"{prefix}stop {old_servers} {_location(present)}",),
        )
    placed = chosen.instances_for(group.service.name, proposed) if changes else None
    proposed = _ordered(proposed, placed)
    other_options = "else by its defaults" if "engine" in group.changes else "else as now"
    options, previous_options = (f"{flags}, {other_options}" if flags else "" for flags in start_options(group))
    location, previous_location = _location(proposed), _location(present)
    if "device_ids" in group.changes and not changes:
        previous_location, location = (f"on {names}" for names in devices)
    old_engine, new_engine = group.changes.get("engine", (first.engine, first.engine))
    return CommandStep(
        (
            *(order(proposed, _likely_count(placed)) if changes else ()),
            f"{lead}start {new_servers} {location}{options}",
            health_check(new_engine, f"each new server of {name}"),
            f"{lead}move the traffic to {'it' if new_servers == 'the server' else 'them'}",
        ),
        # The undo of a release orders a returned host again; any other host is still in use.
        (
            f"{lead}start {old_servers} {previous_location} again{previous_options}",
            health_check(old_engine, f"each server of {name} that was started again"),
            f"{lead}move the traffic back",
        ),
        (f"{prefix}stop what ran {previous_location}",),
        (f"{lead}stop what ran {location}",),
    )


def start(deployment: Deployment, chosen: PricingChoices) -> CommandStep:
    """Return the lines that start a server beside the present ones, and the lines that route back and stop it."""
    routing = "; ".join(
        f"send {share_of(share)} of the requests for {service} to it" for service, share in deployment.serves
    )
    name = deployment.model.name
    first_service = next((service for service, _ in deployment.serves), "")
    placed = None if deployment.device_ids else chosen.instances_for(first_service, deployment.placement)
    placement = _ordered(deployment.placement, placed)
    return CommandStep(
        (
            *(() if deployment.device_ids else order(placement, _likely_count(placed))),
            f"Start {name} with {deployment.engine} {_location(placement)}{new_server_options(deployment)}.",
            health_check(deployment.engine, f"the new server of {name}"),
            *((f"{routing[0].upper()}{routing[1:]}.",) if routing else ()),
        ),
        ("Route its requests to their previous servers.",),
        retire_undone=(f"Stop the new {name}.",),
    )


def can_run_beside(old: Sequence[int], new: Sequence[int]) -> bool:
    """Return whether new devices exist beside the old ones; a planned MIG instance has an id below 0."""
    return bool(new) and not set(old) & set(new) and all(device_id >= 0 for device_id in new)


def _ordered(placement: Placement, placed: Placed | None) -> Placement:
    """Return a placement with the instance and region that pricing chose for it."""
    if placed is None or " " in placed.offer.instance_type:  # a price that a person set names no instance type
        return placement
    offer = placed.offer
    region = placement.region if offer.region == ANYWHERE else offer.region
    return replace(placement, instance_type=offer.instance_type or placement.instance_type, region=region)


def _likely_count(placed: Placed | None) -> int:
    """Return the likely number of instances to order; 1 if pricing chose none."""
    return placed.instances[1] if placed else 1


def _servers(count: int) -> str:
    return "the server" if count == 1 else f"{count} servers"


def _location(placement: Placement) -> str:
    """Return the known parts of a placement as text: `on H200 SXM, spot, p5en.48xlarge, aws us-east-1`."""
    region = " ".join(part for part in (placement.provider, placement.region) if part)
    parts = (placement.accelerator, placement.instance_type, region, placement.purchase, placement.offer)
    known_parts = ", ".join(part for part in parts if part)
    return f"on {known_parts}" if known_parts else "where it was"


_NEW_SERVER_KNOBS = ("tp", "pp", "dp", "weight_dtype", "kv_dtype", "max_model_len", "role", "lora_adapters")
"""Knobs that describe a new server."""
_DEFAULT_HEALTH_PAGE = "/v1/models"
"""Page to check where the engine has no known health page: it is part of the OpenAI API."""


def health_check(engine: str, servers: str) -> str:
    """Return a command that fails until a server serves; `servers`: text about the address to fill in."""
    page = health_page(engine) or health_page(like(engine)) or _DEFAULT_HEALTH_PAGE
    return f"curl --fail --silent --show-error http://ADDRESS{page}  # ADDRESS: host:port of {servers}"


def new_server_options(deployment: Deployment) -> str:
    """Return the options of a new server, as text after its location: ` with --a 1 (role=decode)`."""
    flags, knobs_without_flag = [], []
    for name in _NEW_SERVER_KNOBS:
        value = getattr(deployment, name)
        if value is None:
            continue
        spelling = flag_commands(deployment.engine, {name: (None, value)})
        if spelling.manual or any(line.startswith("remove ") for line in spelling.apply):
            knobs_without_flag.append(f"{name}={shown(value)}")
        else:
            flags += [line.removeprefix("set ") for line in spelling.apply]
    text = f" with {' '.join(flags)}" if flags else ""
    return f"{text} ({', '.join(knobs_without_flag)})" if knobs_without_flag else text


def start_options(group: Group) -> tuple[str, str]:
    """Return the options of the new servers of a moved group, and of the present ones, as text."""
    first = group.deployments[0]
    old_engine, new_engine = group.changes.get("engine", (first.engine, first.engine))
    flag_changes = {
        name: pair
        for name, pair in group.changes.items()
        if name in knobs() and knobs()[name].scope == "engine" and name not in ("engine", "engine_version")
    }
    unchanged = {name: getattr(first, name) for name in knobs() if name not in group.changes}
    options, previous_options = spelled(new_engine, flag_changes, unchanged)
    old_version, new_version = group.changes.get("engine_version", (None, None))
    if old_engine != new_engine or new_version is not None:
        options = f", with {new_engine} {new_version or ''}".rstrip() + options
        previous_options = f", with {old_engine} {old_version or ''}".rstrip() + previous_options
    for name, (present, proposed) in group.changes.items():
        if name in knobs() and knobs()[name].scope == "device":
            label, unit = knobs()[name].label, knobs()[name].unit
            options += f", {label} of its devices {proposed} {unit}"
            previous_options += f", {label} of its devices " + ("as it was" if present is None else f"{present} {unit}")
    return options, previous_options


def spelled(
    engine: str, changes: Mapping[str, tuple[object, object]], staying: Mapping[str, object] | None = None
) -> tuple[str, str]:
    """Return changed flags, and the previous ones, as text that continues a line: `, with --a 1, without --b`."""
    spelling = flag_commands(engine, changes, staying)
    restored = [
        f"{knobs()[name].label} as before"
        for name, pair in changes.items()
        if flag_commands(engine, {name: pair}, staying).manual
    ]
    return _continued(spelling.apply, spelling.manual), _continued(spelling.undo, restored)


def _continued(lines: Sequence[str], sentences: Sequence[str]) -> str:
    """Return lines such as `set --a 1` and `remove --b`, and sentences, as text that continues a line."""
    parts = []
    for word, verb in (("with", "set "), ("without", "remove ")):
        if flags := [line.removeprefix(verb) for line in lines if line.startswith(verb)]:
            parts.append(f"{word} {' '.join(flags)}")
    return "".join(f", {part}" for part in (*parts, *sentences))
