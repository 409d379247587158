"""Changes of configuration: what differs between an epoch and the one before it, and which variant that applies."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any

from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs.fleet import deployment_of
from pertoken.proof.recommendation import Edit, Variant
from pertoken.state.diff import diff, plain
from pertoken.state.fleet import Fleet
from pertoken.state.knobs import knobs
from pertoken.state.service import Service
from pertoken.store.schema.shared import DRIVER
from pertoken.window.inventory import Inventory

ACCELERATOR = "placement.accelerator"
"""The one field of a placement that the devices of an epoch show."""


@dataclass(frozen=True, slots=True)
class EpochChange:
    """The start of an epoch that is not the first of its deployment."""

    deployment_id: int
    epoch_id: int
    previous_epoch_id: int
    changed_ts: int
    name: str
    """Deployment and host as people call them."""
    edits: tuple[Edit, ...]
    """What differs from the previous epoch, the driver included."""
    version_before: str | None
    version_after: str | None


def epoch_changes(
    inventory: Inventory, known: Collection[int], market: Market, settings: Settings
) -> tuple[EpochChange, ...]:
    """Return the changes of configuration in an inventory, oldest first, without epochs whose ids are `known`."""
    changes = (
        _change(before, after, inventory, market, settings)
        for rows in inventory.epochs_of.values()
        for before, after in pairwise(rows)
        if after.epoch_id not in known
    )
    return tuple(sorted(changes, key=lambda change: (change.changed_ts, change.epoch_id)))


def _change(before: Any, after: Any, inventory: Inventory, market: Market, settings: Settings) -> EpochChange:
    fleets = [epoch_fleet(row, inventory, market, settings) for row in (before, after)]
    edits = [
        Edit(change.kind, change.target, change.field, plain(change.before), plain(change.after))
        for change in diff(*fleets).changes
        if change.kind == "deployment"
    ]
    drivers = [json.loads(row.knobs).get(DRIVER) for row in (before, after)]
    if drivers[0] != drivers[1]:
        edits.append(Edit("deployment", after.deployment_id, "driver", *drivers))
    return EpochChange(
        deployment_id=after.deployment_id,
        epoch_id=after.epoch_id,
        previous_epoch_id=before.epoch_id,
        changed_ts=after.start_ts,
        name=f"{after.served_model} on {after.host_name}",
        edits=tuple(edits),
        version_before=before.engine_version,
        version_after=after.engine_version,
    )


def seen_edits(variant: Variant) -> tuple[Edit, ...]:
    """Return the edits of a variant that telemetry can show."""
    return tuple(edit for edit in variant.edits if _is_seen(edit, variant))


def holds(variant: Variant, now: Fleet) -> bool:
    """Return whether all that a variant changes and telemetry shows is so now; never for one that shows in nothing."""
    edits = seen_edits(variant)
    return bool(edits) and all(_holds(edit, variant, now) for edit in edits)


def are_set(edits: Iterable[Edit], now: Fleet) -> bool:
    """Return whether the deployments of edits run with all of them."""
    return all(_holds_field(edit, now) for edit in edits)


def epoch_fleet(row: Any, inventory: Inventory, market: Market, settings: Settings) -> Fleet:
    """Return a fleet of the one deployment that an epoch was."""
    return Fleet(services=(Service("", (deployment_of(row, inventory, {}, market, settings),)),))


def bringing(variant: Variant, changes: Iterable[EpochChange]) -> tuple[EpochChange, ...]:
    """Return the changes that set a field to what a variant proposes.

    A deployment that only stopped running is no such change: it may have crashed.
    """
    return tuple(_setting({(edit.target, edit.field): edit.after for edit in seen_edits(variant)}, changes))


def reverts(variant: Variant, changes: Iterable[EpochChange], now: Fleet) -> tuple[EpochChange, ...]:
    """Return the changes that undid a variant; none unless every field of a deployment is as it was before."""
    edits = [edit for edit in seen_edits(variant) if edit.kind == "deployment" and edit.field != "running"]
    if not edits or not all(_value(edit, now) == (True, edit.before) for edit in edits):
        return ()
    return tuple(_setting({(edit.target, edit.field): edit.before for edit in edits}, changes))


def _setting(values: dict[tuple[Any, str], Any], changes: Iterable[EpochChange]) -> Iterator[EpochChange]:
    for change in changes:
        set_to = {(edit.target, edit.field): edit.after for edit in change.edits}
        if any(key in values and values[key] == value for key, value in set_to.items()):
            yield change


def _is_seen(edit: Edit, variant: Variant) -> bool:
    if edit.field == "running":
        return edit.after is False
    if edit.kind == "service":
        return edit.field == "replicas" and _replicas(edit, variant) is not None
    if edit.field == "device_ids":
        return bool(edit.after)  # empty: on whatever devices pricing or a person chooses
    return edit.kind == "deployment" and (edit.field in knobs() or edit.field == ACCELERATOR)


def _holds(edit: Edit, variant: Variant, now: Fleet) -> bool:
    if edit.kind == "host":
        ids = {device.device_id for device in now.devices if device.host_id == edit.target}
        return not any(ids & set(deployment.device_ids) for deployment in now.deployments)
    if edit.kind == "service":
        service = now.service_of.get(str(edit.target))
        wanted = _replicas(edit, variant)
        return wanted is not None and (len(service.deployments) if service else 0) == wanted
    if edit.field == "running":
        return int(edit.target) not in now.deployment_of
    return _holds_field(edit, now)


def _holds_field(edit: Edit, now: Fleet) -> bool:
    return _value(edit, now) == (True, edit.after)


def _value(edit: Edit, now: Fleet) -> tuple[bool, Any]:
    """Return whether the deployment of an edit runs, and the value of its field as JSON."""
    deployment = now.deployment_of.get(int(edit.target))
    return (False, None) if deployment is None else (True, plain(attrgetter(edit.field)(deployment)))


def _replicas(edit: Edit, variant: Variant) -> int | None:
    """Return how many replicas an edit leads to; None where pricing changed none."""
    if isinstance(edit.after, int):
        return edit.after
    return None if variant.replicas is None else variant.replicas[1]


def names(edits: Sequence[Edit]) -> tuple[str, ...]:
    """Return the fields that edits change, each once."""
    return tuple(dict.fromkeys(edit.field for edit in edits))
