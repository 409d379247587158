"""Commands that start servers in another place, and stop the previous ones once the new ones serve."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pertoken.advisor.changes.purchases import Step, order
from pertoken.advisor.changes.serving import health_check, new_server_options, start_options
from pertoken.advisor.groups import Chosen, Group, share_of
from pertoken.catalog.offers import ANYWHERE
from pertoken.savings.placing import Placed
from pertoken.state.deployment import Deployment, Placement


def can_run_beside(old: Sequence[int], new: Sequence[int]) -> bool:
    """Return whether a server can run on new devices while the old ones are in use. A new MIG instance is no such."""
    return bool(new) and not set(old) & set(new) and all(device_id >= 0 for device_id in new)


def move(
    group: Group,
    changes: Mapping[str, tuple[Any, Any]],
    devices: tuple[str, str],
    prefix: str,
    replicas: int | None,
    chosen: Chosen,
) -> Step:
    """Return the lines that start servers in a new place, check them and move the traffic before the old ones stop.

    `changes` are those of the placement; `devices` name the old and new devices where it stays.
    """
    first = group.deployments[0]
    now, name, lead = first.placement, first.name, prefix and f"{first.name}: "
    edits: dict[str, Any] = {field: new for field, (_, new) in changes.items()}
    to = replace(now, **edits)
    servers, new = (_servers(count) for count in (len(group.deployments), replicas or len(group.deployments)))
    if to.purchase == "per_token":
        return Step(
            (
                f"{lead}send a sample of its prompts to {first.model.name} at {to.provider} too, compare the outputs",
                f"{lead}point its clients at {to.provider}, and check that their requests are answered there",
            ),
            (
                f"{lead}start {servers} {_place(now, changes)} again",
                health_check(first.engine, f"each server of {name}"),
                f"{lead}point the clients back",
            ),
            (f"{prefix}stop {servers} {_place(now, changes)}",),
        )
    placed = chosen.instances_for(group.service.name, to) if changes else None
    to = _ordered(to, placed)
    rest = "else by its defaults" if "engine" in group.changes else "else as now"
    options, options_before = (f"{flags}, {rest}" * bool(flags) for flags in start_options(group))
    place, place_before = _place(to, changes), _place(now, changes)
    if "device_ids" in group.changes and not changes:
        place_before, place = (f"on {words}" for words in devices)
    engine = group.changes.get("engine", (first.engine, first.engine))
    return Step(
        (
            *(order(to, placed.instances[1] if placed else 1) if changes else ()),
            f"{lead}start {new} {place}{options}",
            health_check(engine[1], f"each new server of {name}"),
            f"{lead}move the traffic to {_them(new)}",
        ),
        # A host that is given back is ordered again by the undo of its release; any other is still there.
        (
            f"{lead}start {servers} {place_before} again{options_before}",
            health_check(engine[0], f"each server of {name} that was started again"),
            f"{lead}move the traffic back",
        ),
        (f"{prefix}stop what ran {place_before}",),
        (f"{lead}stop what ran {place}",),
    )


def start(deployment: Deployment, chosen: Chosen) -> Step:
    """Return the lines that start a server beside the present ones, and those that route back and stop it."""
    share = "; ".join(
        f"send {share_of(part)} of the requests for {service} to it" for service, part in deployment.serves
    )
    name = deployment.model.name
    service = next((service for service, _ in deployment.serves), "")
    placed = None if deployment.device_ids else chosen.instances_for(service, deployment.placement)
    to = _ordered(deployment.placement, placed)
    place = _place(to, {})
    return Step(
        (
            *(() if deployment.device_ids else order(to, placed.instances[1] if placed else 1)),
            f"Start {name} with {deployment.engine} {place}{new_server_options(deployment)}.",
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


def _them(servers: str) -> str:
    return "it" if servers == "the server" else "them"


def _servers(count: int) -> str:
    return "the server" if count == 1 else f"{count} servers"


def _place(placement: Placement, changes: Mapping[str, object]) -> str:
    """Return the known parts of a placement as text: `on H200 SXM, spot, p5en.48xlarge, aws us-east-1`."""
    where = " ".join(part for part in (placement.provider, placement.region) if part)
    parts = [placement.accelerator, placement.instance_type, where, placement.purchase, placement.offer]
    known = [part for part in parts if part]
    return f"on {', '.join(known)}" if known else "where it was"
