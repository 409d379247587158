"""Commands of instances and servers: buy, order, release, start, and move to another place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pertoken.advisor.changes.title import Group, PricingChoices, share_of, shown
from pertoken.catalog.clouds import cloud_commands
from pertoken.catalog.engine_lines import health_page
from pertoken.catalog.knobs import commands as flag_commands
from pertoken.catalog.knobs import like
from pertoken.catalog.offers import ANYWHERE
from pertoken.savings.placing import Placed
from pertoken.state.deployment import Commitment, Deployment, Placement, knobs
from pertoken.state.fleet import Fleet, Host
from pertoken.units import NANO_USD, counted, format_usd

PROCESSES = "nvidia-smi --query-compute-apps=pid --format=csv,noheader"
"""Command that prints the processes on the devices of a host."""


@dataclass(frozen=True, slots=True)
class Step:
    """Commands that belong together, and the commands that undo them."""

    apply: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    retire: tuple[str, ...] = ()
    """Lines that stop servers or give hardware back: they follow every line of `apply` of all steps."""
    retire_undone: tuple[str, ...] = ()
    """The same among the lines of an undo."""


def commit(commitment: Commitment) -> Step:
    """Return the commands that buy a commitment. Nothing undoes them."""
    location = " ".join(part for part in (commitment.provider, commitment.region) if part)
    return Step(
        (
            f"Commit to {commitment.count} × {commitment.instance_type} at {location} for "
            f"{format_usd(commitment.nano_usd_per_instance_hour)} per instance and hour{_term(commitment)}.",
            *_buy(commitment),
        ),
        ("A commitment cannot be cancelled before it ends.",),
    )


def _buy(commitment: Commitment) -> tuple[str, ...]:
    """Return the commands that buy a commitment; empty if the cloud is unknown or has no such command."""
    cloud = cloud_commands().get(commitment.provider)
    if cloud is None or not commitment.region or not commitment.years:
        return ()
    usd = commitment.count * commitment.nano_usd_per_instance_hour / NANO_USD
    return cloud.committed(commitment.instance_type, commitment.region, years=commitment.years, usd_per_hour=usd)


def _term(commitment: Commitment) -> str:
    return f", for {commitment.years} year{'s' if commitment.years > 1 else ''}" if commitment.years else ""


def release(name: str, host: Host | None, present: Fleet, *, nvidia: bool = False) -> Step:
    """Return the commands that drain and return a host; `host` is None where only its name is known.

    `nvidia`: whether all its devices are NVIDIA's, so that nvidia-smi shows remaining processes.
    """
    count = len(
        [device for device in present.devices if host and device.host_id == host.host_id and device.kind != "cpu"]
    )
    placement = host.placement if host is not None else Placement()
    instance = f" ({placement.instance_type})" if placement.instance_type else ""
    devices = f" with its {counted(count, 'device')}" if count else ""
    cloud = cloud_commands().get(placement.provider or "")
    returned = cloud.released(name, placement.region) if cloud and placement.region else ()
    return Step(
        undo=(f"Order {name}{instance} again.", *order(placement)),
        retire=(
            f"Drain {name}{instance}.",
            f"on {name}: {PROCESSES}  # go on only if it prints nothing"
            if nvidia
            else f"Check that no process uses the devices of {name}.",
            f"Give {name} back{devices}.",
            *returned,
        ),
    )


def order(placement: Placement, count: int = 1) -> tuple[str, ...]:
    """Return the command that starts instances; empty if its cloud, region or type is unknown."""
    cloud = cloud_commands().get(placement.provider or "")
    if (
        cloud is None
        or not placement.region
        or not placement.instance_type
        or placement.purchase not in (None, "on_demand", "spot")
    ):
        return ()
    return (cloud.ordered(placement.instance_type, placement.region, spot=placement.purchase == "spot", count=count),)


_SHOWN = ("tp", "pp", "dp", "weight_dtype", "kv_dtype", "max_model_len", "role", "lora_adapters")
"""Knobs in the description of a new deployment."""
_MODELS = "/v1/models"
"""Page of the OpenAI API that an engine without a known page of its health has."""


def health_check(engine: str, servers: str) -> str:
    """Return the command that fails until a server serves; `servers` names the address to fill in."""
    page = health_page(engine) or health_page(like(engine)) or _MODELS
    return f"curl --fail --silent --show-error http://ADDRESS{page}  # ADDRESS: host:port of {servers}"


def new_server_options(deployment: Deployment) -> str:
    """Return the flags of a server that did not run before, as text after its place."""
    flags, rest = [], []
    for name in _SHOWN:
        value = getattr(deployment, name)
        if value is None:
            continue
        spelling = flag_commands(deployment.engine, {name: (None, value)})
        if spelling.manual or any(line.startswith("remove ") for line in spelling.apply):
            rest.append(f"{name}={shown(value)}")
        else:
            flags += [line.removeprefix("set ") for line in spelling.apply]
    return (f" with {' '.join(flags)}" if flags else "") + (f" ({', '.join(rest)})" if rest else "")


def start_options(group: Group) -> tuple[str, str]:
    """Return the flags of the servers that replace a group elsewhere, and of the present ones, as text."""
    first = group.deployments[0]
    old, new = group.changes.get("engine", (first.engine, first.engine))
    changes = {
        name: pair
        for name, pair in group.changes.items()
        if name in knobs() and knobs()[name].scope == "engine" and name not in ("engine", "engine_version")
    }
    staying = {name: getattr(first, name) for name in knobs() if name not in group.changes}
    options, previous_options = spelled(new, changes, staying)
    version_before, version = group.changes.get("engine_version", (None, None))
    if old != new or version is not None:
        options = f", with {new} {version or ''}".rstrip() + options
        previous_options = f", with {old} {version_before or ''}".rstrip() + previous_options
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
    flags = {verb: [line.removeprefix(verb) for line in lines if line.startswith(verb)] for verb in ("set ", "remove ")}
    parts = [
        f"{word} {' '.join(flags[verb])}" for word, verb in (("with", "set "), ("without", "remove ")) if flags[verb]
    ]
    return "".join(f", {part}" for part in (*parts, *sentences))


def can_run_beside(old: Sequence[int], new: Sequence[int]) -> bool:
    """Return whether a server can run on new devices while the old ones are in use. A new MIG instance is no such."""
    return bool(new) and not set(old) & set(new) and all(device_id >= 0 for device_id in new)


def move(group: Group, devices: tuple[str, str], prefix: str, replicas: int | None, chosen: PricingChoices) -> Step:
    """Return the lines that start servers in a new place, check them and move the traffic before the old ones stop.

    `devices`: names of the old and new devices where the placement stays.
    """
    changes = {name.partition(".")[2]: pair for name, pair in group.changes.items() if name.startswith("placement.")}
    first = group.deployments[0]
    present, name, lead = first.placement, first.name, prefix and f"{first.name}: "
    to = replace(present, **{field: new for field, (_, new) in changes.items()})
    servers, new = (_servers(count) for count in (len(group.deployments), replicas or len(group.deployments)))
    if to.purchase == "per_token":
        return Step(
            (
                f"{lead}send a sample of its prompts to {first.model.name} at {to.provider} too, compare the outputs",
                f"{lead}point its clients at {to.provider}, and check that their requests are answered there",
            ),
            (
                f"{lead}start {servers} {_location(present, changes)} again",
                health_check(first.engine, f"each server of {name}"),
                f"{lead}point the clients back",
            ),
            (f"{prefix}stop {servers} {_location(present, changes)}",),
        )
    placed = chosen.instances_for(group.service.name, to) if changes else None
    to = _ordered(to, placed)
    rest = "else by its defaults" if "engine" in group.changes else "else as now"
    options, options_before = (f"{flags}, {rest}" * bool(flags) for flags in start_options(group))
    location, previous_location = _location(to, changes), _location(present, changes)
    if "device_ids" in group.changes and not changes:
        previous_location, location = (f"on {words}" for words in devices)
    engine = group.changes.get("engine", (first.engine, first.engine))
    return Step(
        (
            *(order(to, placed.instances[1] if placed else 1) if changes else ()),
            f"{lead}start {new} {location}{options}",
            health_check(engine[1], f"each new server of {name}"),
            f"{lead}move the traffic to {'it' if new == 'the server' else 'them'}",
        ),
        # A host that is given back is ordered again by the undo of its release; any other is still there.
        (
            f"{lead}start {servers} {previous_location} again{options_before}",
            health_check(engine[0], f"each server of {name} that was started again"),
            f"{lead}move the traffic back",
        ),
        (f"{prefix}stop what ran {previous_location}",),
        (f"{lead}stop what ran {location}",),
    )


def start(deployment: Deployment, chosen: PricingChoices) -> Step:
    """Return the lines that start a server beside the present ones, and those that route back and stop it."""
    share = "; ".join(
        f"send {share_of(part)} of the requests for {service} to it" for service, part in deployment.serves
    )
    name = deployment.model.name
    service = next((service for service, _ in deployment.serves), "")
    placed = None if deployment.device_ids else chosen.instances_for(service, deployment.placement)
    to = _ordered(deployment.placement, placed)
    location = _location(to, {})
    return Step(
        (
            *(() if deployment.device_ids else order(to, placed.instances[1] if placed else 1)),
            f"Start {name} with {deployment.engine} {location}{new_server_options(deployment)}.",
            health_check(deployment.engine, f"the new server of {name}"),
            *((f"{share[0].upper()}{share[1:]}.",) if share else ()),
        ),
        ("Route its requests to their previous servers.",),
        retire_undone=(f"Stop the new {name}.",),
    )


def _ordered(placement: Placement, placed: Placed | None) -> Placement:
    """Return a placement with the instance and region that pricing chose for it."""
    if placed is None or " " in placed.offer.instance_type:  # a price that a person set names no instance type
        return placement
    offer = placed.offer
    region = placement.region if offer.region == ANYWHERE else offer.region
    return replace(placement, instance_type=offer.instance_type or placement.instance_type, region=region)


def _servers(count: int) -> str:
    return "the server" if count == 1 else f"{count} servers"


def _location(placement: Placement, changes: Mapping[str, object]) -> str:
    """Return the known parts of a placement as text: `on H200 SXM, spot, p5en.48xlarge, aws us-east-1`."""
    where = " ".join(part for part in (placement.provider, placement.region) if part)
    parts = [placement.accelerator, placement.instance_type, where, placement.purchase, placement.offer]
    words = [part for part in parts if part]
    return f"on {', '.join(words)}" if words else "where it was"
