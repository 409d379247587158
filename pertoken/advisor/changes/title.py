"""Title of a difference, its changes field by field, and its edits as they are stored."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pertoken.advisor.groups import Chosen, Group, groups, hours, listed, replica_words, shares, shown
from pertoken.proof.recommendation import ChangeLine, Edit
from pertoken.savings.placing import instance_name
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Change, Diff, plain
from pertoken.state.fleet import Fleet
from pertoken.state.knobs import knobs
from pertoken.state.service import FEWEST
from pertoken.units import counted, format_bytes

_FIRST = ("model", "placement.accelerator", "weight_dtype", "kv_dtype", "placement.purchase")
"""Changes that come first in a title, because a narrow screen cuts its end."""
LABELS = {
    **{"model": "", "placement.accelerator": "", "tp": "tp ", "pp": "pp ", "dp": "dp ", "ep": "ep "},
    **{"placement.provider": "", "placement.region": "", "placement.purchase": "", "placement.instance_type": ""},
}
"""Words before the value of a field, where they are shorter than the label of the knob."""
_SECONDARY = ("placement.devices_per_instance", "placement.offer", "placement.instance_type")
"""Changes that follow from others of a move."""
MAX_TITLE = 200
"""Maximum characters of a title; the changes are listed below it."""
DEMAND = {
    "demand.requests_per_s": ("requests", " requests/s"),
    "demand.prompt_len": ("prompts", " tokens"),
    "demand.output_len": ("answers", " tokens"),
    "demand.cached_share": ("prefix-cache share", ""),
    "demand.response_cache_share": ("response-cache share", ""),
}
"""Field -> its name and unit."""


def title(difference: Diff, before: Fleet, chosen: Chosen) -> str:
    """Return the changes as one line, most important first. `chosen` is what pricing decided."""
    parts = list(_hosts(difference))
    changed = groups(difference, before)
    several = len({group.service.name for group in changed}) > 1 and not difference.removed
    for group in changed:
        words = list(_words(group))
        if not words and not difference.added:  # the shares follow from a new deployment
            words = [shares(group.changes["serves"][1])]
        if words:
            parts.append(f"{group.service.name}: " * several + ", ".join(words) + group.replicas)
    parts += _services(difference, before, chosen, several=several)
    merged = [deployment.name for deployment in difference.removed]
    if merged:
        parts.append(
            f"merge {listed(tuple(merged))} into {listed(tuple(deployment.name for deployment in difference.added))}"
        )
    else:
        parts += [f"add {shown(deployment.model).rpartition('/')[2]}" for deployment in difference.added]
    for change in difference.changes:
        if change.field == "partitions":
            parts.append(f"divide {before.device(int(change.target)).name} into {', '.join(change.after)}")
        if change.field == "commitments":
            new = change.after[len(change.before) :]
            terms = [f" for {commitment.years} y" if commitment.years else "" for commitment in new]
            parts += [
                f"commit to {commitment.count} × {commitment.instance_type}{term}"
                for commitment, term in zip(new, terms, strict=True)
            ]
    text = "; ".join(parts)
    counts = Counter[str]()
    for placed in chosen.placed:
        counts[instance_name(placed.offer)] += placed.instances[1]
    instances = ", ".join(f"{count} × {name}" for name, count in counts.items())
    text = ": ".join(filter(None, (text, instances)))
    return text if len(text) <= MAX_TITLE else f"{text[: MAX_TITLE - 1]}…"


def change_lines(difference: Diff, before: Fleet, chosen: Chosen) -> tuple[ChangeLine, ...]:
    """Return each changed field, before and after."""
    lines = [ChangeLine(host.name, "host", "paid", "released") for host in difference.released]
    for group in groups(difference, before):
        count = len(group.deployments)
        where = group.deployments[0].name if count == 1 else f"{count} replicas of {group.service.name}"
        lines += [
            ChangeLine(where, "deployment", "runs", "restarted")
            if name == "restart"
            else ChangeLine(
                where, name, *(shares(value) if name == "serves" else with_unit(name, value) for value in pair)
            )
            for name, pair in group.changes.items()
            if not _is_left_open(name, pair[1])
        ]
    for change in difference.changes:
        where = str(change.target)
        if change.kind == "service":
            pair = _service_pair(change, before, chosen)
            lines += [ChangeLine(where, change.field, *pair)] if pair is not None else []
        elif change.kind == "device":
            name = before.device(int(change.target)).name
            lines.append(ChangeLine(name, change.field, shown(change.before), shown(change.after)))
        elif change.kind == "fleet":
            lines.append(ChangeLine("fleet", change.field, str(len(change.before)), str(len(change.after))))
    lines += [ChangeLine("fleet", "instances", "none", placed.text) for placed in chosen.placed]
    lines += [ChangeLine(deployment.name, "deployment", "runs", "merged") for deployment in difference.removed]
    lines += [ChangeLine(shown(deployment.model), "deployment", "none", "added") for deployment in difference.added]
    return tuple(lines)


def _hosts(difference: Diff) -> Iterator[str]:
    if difference.released:
        yield f"release {listed(tuple(host.name for host in difference.released))}"


def _words(group: Group) -> Iterator[str]:
    """Yield each change of a group: `weights bf16 → fp8`, `tp 2 → 1`, `disable eager mode`, `H100 SXM5 → H200 SXM`."""
    moved = "placement.accelerator" in group.changes or "placement.provider" in group.changes
    for name in sorted(group.changes, key=lambda knob: _FIRST.index(knob) if knob in _FIRST else len(_FIRST)):
        old, new = group.changes[name]
        if name == "serves" or (name in _SECONDARY and (moved or name != "placement.instance_type")):
            continue
        if _is_left_open(name, new):
            continue
        if name == "restart":
            yield f"restart {group.deployments[0].name}"
        elif name == "device_ids":
            yield f"on {counted(len(new), 'other device')}"
        else:
            label = LABELS.get(name, f"{knobs()[name].label} " if name in knobs() else f"{name} ")
            before, after = (with_unit(name, value) for value in (old, new))
            if name == "model":
                before, after = (text.rpartition("/")[2] for text in (before, after))
            if isinstance(new, bool):  # "prefix caching on on 1 of 2 replicas" is hard to read
                yield f"{'enable' if new else 'disable'} {label.rstrip()}"
            else:
                yield f"{label}{after}" if old is None else f"{label}{before} → {after}"


def _is_left_open(knob: str, after: object) -> bool:
    """Return whether a change clears part of a placement: an API has none, and of new instances their own line is."""
    return knob.startswith("placement.") and after is None


def with_unit(name: str, value: object) -> str:
    """Return the value of a knob as text, with its unit unless its label implies one."""
    unit = knobs()[name].unit if name in knobs() else None
    if unit == "bytes" and isinstance(value, int):
        return format_bytes(value)
    return f"{shown(value)} {unit}" if unit in ("W", "MHz") and value is not None else shown(value)


def _services(difference: Diff, before: Fleet, chosen: Chosen, *, several: bool) -> Iterator[str]:
    """Yield each change of a service, with its name where a difference changes `several`."""
    for change in difference.changes:
        if change.kind != "service":
            continue
        pair = _service_pair(change, before, chosen)
        if pair is None:
            continue
        old, new = pair
        if change.field == "replicas":
            name = f"{change.target}: " * several
            yield f"{name}fewest replicas" if new == FEWEST else f"{name}{old} → {new} replicas"
        elif change.field == "schedule":
            yield f"{change.target} {new}"
        elif change.field in DEMAND:
            yield (
                f"{DEMAND[change.field][0]} {new}"
                if change.before is None
                else (f"{DEMAND[change.field][0]} {old} → {new}")
            )


def _service_pair(change: Change, before: Fleet, chosen: Chosen) -> tuple[str, str] | None:
    """Return a changed field of a service before and after as text; None if pricing left it unchanged."""
    if change.field == "replicas":
        return replica_words(change, before, chosen)
    if change.field == "schedule":
        return hours(change.before), hours(change.after)
    if change.field in DEMAND:
        unit = DEMAND[change.field][1]
        old, new = (None if edited is None else f"{edited.value:.4g}{unit}" for edited in (change.before, change.after))
        return old or "unknown", new or "unknown"
    if change.field == "demand.requests_by_hour_of_week":
        return None  # it follows from requests_per_s
    return shown(change.before), shown(change.after)


def edits(difference: Diff) -> tuple[Edit, ...]:
    """Return the changes of a difference as JSON values. A removed deployment and a released host stop running.

    Changes of demand are left out: they are not configuration.
    """
    fields = (
        Edit(change.kind, change.target, change.field, plain(change.before), plain(change.after))
        for change in difference.changes
        if not change.field.startswith("demand.")
    )
    removed = (
        Edit("deployment", deployment.deployment_id, "running", True, False) for deployment in difference.removed
    )
    released = (Edit("host", host.host_id, "running", True, False) for host in difference.released)
    added = (Edit("deployment", deployment.deployment_id, "running", False, True) for deployment in difference.added)
    return (*fields, *removed, *released, *added)


def present_values(sent: Any, before: Fleet) -> tuple[str, ...]:
    """Return the present value of every knob and number of replicas that a proposal set, one phrase each.

    `sent` is a valid proposal of a worker. Names come from it, values from the present fleet.
    """
    return tuple(_replicas(sent, before)) + tuple(_knobs(sent, before))


def _replicas(sent: Any, before: Fleet) -> Iterator[str]:
    if "service" in sent and "replicas" in sent["set"]:
        n = len(before.service(sent["service"]).deployments)
        yield f"{n} replica{'s' if n > 1 else ''}"


def _knobs(sent: Any, before: Fleet) -> Iterator[str]:
    named = sent.get("edited")
    edited = [name for name in named if type(name) is str] if type(named) is list else []
    for name in knobs():
        if name in edited:
            values = dict.fromkeys(getattr(deployment, name) for deployment in _deployments(sent, before))
            shown = " or ".join(with_unit(name, value) for value in values if value is not None)
            if shown:
                yield f"{LABELS.get(name, f'{knobs()[name].label} ')}{shown}"


def _deployments(sent: Any, before: Fleet) -> tuple[Deployment, ...]:
    if "deployment" in sent:
        return (before.deployment(sent["deployment"]),)
    return before.service(sent["service"]).deployments if "service" in sent else before.deployments
