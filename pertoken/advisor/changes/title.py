"""A difference of fleets as text: title, changed fields, stored edits, subjects, risk and effort."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pertoken.by_identity import by_identity
from pertoken.proof.recommendation import ChangeLine, Edit
from pertoken.rule import RISKS, Proposal
from pertoken.savings.placing import Placed, instance_name
from pertoken.state.deployment import Deployment, Model, Placement, knobs
from pertoken.state.diff import Change, Diff, plain
from pertoken.state.fleet import Fleet
from pertoken.state.service import FEWEST, Schedule, Service
from pertoken.units import counted, format_bytes

MAX_NAMES = 4
"""Maximum names in a list; the rest is counted."""
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class PricingChoices:
    """Choices of pricing where the proposal leaves them open."""

    resized: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Replicas before and after of each service with a changed number, by service name."""
    released: tuple[str, ...] = ()
    """Names of hosts."""
    priced: bool = False
    """Whether the proposal was priced: then `FEWEST` of a service outside `resized` means that the number stays."""
    placed: tuple[Placed, ...] = ()
    """Instances that it orders."""

    def instances_for(self, service: str, placement: Placement) -> Placed | None:
        """Return the instances ordered for a service in a proposed placement; None where pricing named none."""
        purchase = "spot" if placement.purchase == "spot" else "on_demand"
        for placed in self.placed:
            if (placed.service or service, placed.offer.accelerator, placed.offer.purchase) == (
                service,
                placement.accelerator,
                purchase,
            ):
                return placed
        return None


@dataclass(frozen=True, slots=True)
class Group:
    """Deployments of one service with equal changes."""

    service: Service
    """In its present state."""
    deployments: tuple[Deployment, ...]
    """In their present state."""
    changes: Mapping[str, tuple[Any, Any]]
    """Field -> (before, after), as `Diff.of` returns them."""

    @property
    def replicas(self) -> str:
        """`on 4 replicas`, `on 3 of 4 replicas`; empty for a service of one deployment."""
        count, total = len(self.deployments), len(self.service.deployments)
        if total == 1:
            return ""
        return f" on {count} replicas" if count == total else f" on {count} of {total} replicas"


@by_identity
def groups(difference: Diff, present: Fleet) -> tuple[Group, ...]:
    """Return the changed deployments in the order of the fleet; one that serves two services is in the first."""
    by_change = defaultdict[tuple[str, tuple[object, ...]], list[Deployment]](list)
    seen: set[int] = set()
    ids = [int(change.target) for change in difference.changes if change.kind == "deployment"]
    names = {name for deployment_id in ids for name in present.listed_by.get(deployment_id, ())}
    for service in (service for service in present.services if service.name in names):
        for deployment in service.deployments:
            changes = _changes_of(deployment, difference)
            if changes and deployment.deployment_id not in seen:
                seen.add(deployment.deployment_id)
                by_change[service.name, tuple(changes.items())].append(deployment)
    return tuple(
        Group(present.service(name), tuple(members), _changes_of(members[0], difference))
        for (name, _), members in by_change.items()
    )


def _changes_of(deployment: Deployment, difference: Diff) -> Mapping[str, tuple[object, object]]:
    """Return changes without the released devices of a move: these differ among replicas that move alike."""
    changes = difference.of("deployment", deployment.deployment_id)
    return {name: pair for name, pair in changes.items() if name != "device_ids" or pair[1]}


def replica_words(change: Change, present: Fleet, chosen: PricingChoices) -> tuple[str, str] | None:
    """Return the replicas of a service before and after as text; None if their number stays."""
    if change.after != FEWEST:
        return str(len(present.service(str(change.target)).deployments)), shown(change.after)
    if (resized := chosen.resized.get(str(change.target))) is not None:
        return str(resized[0]), str(resized[1])
    return None if chosen.priced else (str(len(present.service(str(change.target)).deployments)), "fewest")


def listed(names: tuple[str, ...]) -> str:
    """Return names as text: `a, b, c, d and 6 more`."""
    names = tuple(dict.fromkeys(names))
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def shown(value: object) -> str:
    """Return a value as text."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ", ".join(map(shown, value)) or "none"
    return value.name if isinstance(value, Model) else str(value)


def shares(serves: tuple[tuple[str, float | None], ...]) -> str:
    """Return the shares of services that a deployment serves as text: `60% of chat`."""
    return ", ".join(f"{share_of(share)} of {service}" for service, share in serves) or "none"


def share_of(share: float | None) -> str:
    """Return a share as text: `an even part` for None."""
    return "an even part" if share is None else f"{share:.0%}"


def hours(schedule: Schedule) -> str:
    """Return a schedule as text: `off in 42 hours a week (Mon-Sun 0-5 h UTC)`."""
    parts = [
        f"{word} in {len(hours_in_state)} hours a week ({_of_week(hours_in_state)})"
        for word, hours_in_state in (("off", schedule.off), ("asleep", schedule.asleep))
        if hours_in_state
    ]
    counts: dict[int, list[int]] = {}
    for hour, count in schedule.replicas:
        counts.setdefault(count, []).append(hour)
    parts += [
        f"{count} replica{'s' * (count != 1)} in {len(hours_with_count)} hours a week ({_of_week(hours_with_count)})"
        for count, hours_with_count in counts.items()
    ]
    return ", ".join(parts) or "always on"


def _of_week(hours: Collection[int]) -> str:
    """Return hours of the week as text, days with equal hours together: `Mon-Fri 0-5, Sat Sun 0-23 h UTC`."""
    by_day = [tuple(hour % 24 for hour in sorted(hours) if hour // 24 == day) for day in range(7)]
    days: dict[tuple[int, ...], list[str]] = {}
    for day, hours_of_day in zip(DAYS, by_day, strict=True):
        if hours_of_day:
            days.setdefault(hours_of_day, []).append(day)
    return "; ".join(f"{' '.join(names)} {_ranges(hours)} h UTC" for hours, names in days.items())


def _ranges(hours: Sequence[int]) -> str:
    return ", ".join(f"{first}-{last}" if first != last else f"{first}" for first, last in number_ranges(hours))


def number_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each run of consecutive numbers; `numbers` rise."""
    ends: list[tuple[int, int]] = []
    for number in numbers:
        first = ends.pop()[0] if ends and ends[-1][1] == number - 1 else number
        ends.append((first, number))
    return ends


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


def title(difference: Diff, present: Fleet, chosen: PricingChoices) -> str:
    """Return the changes as one line, most important first. `chosen`: decisions of pricing."""
    parts = list(_hosts(difference))
    changed = groups(difference, present)
    several = len({group.service.name for group in changed}) > 1 and not difference.removed
    for group in changed:
        words = list(_words(group))
        if not words and not difference.added:  # the shares follow from a new deployment
            words = [shares(group.changes["serves"][1])]
        if words:
            parts.append(f"{group.service.name}: " * several + ", ".join(words) + group.replicas)
    parts += _services(difference, present, chosen, several=several)
    merged = [deployment.name for deployment in difference.removed]
    if merged:
        parts.append(
            f"merge {listed(tuple(merged))} into {listed(tuple(deployment.name for deployment in difference.added))}"
        )
    else:
        parts += [f"add {shown(deployment.model).rpartition('/')[2]}" for deployment in difference.added]
    for change in difference.changes:
        if change.field == "partitions":
            parts.append(f"divide {present.device(int(change.target)).name} into {', '.join(change.after)}")
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


def change_lines(difference: Diff, present: Fleet, chosen: PricingChoices) -> tuple[ChangeLine, ...]:
    """Return each changed field, before and after."""
    lines = [ChangeLine(host.name, "host", "paid", "released") for host in difference.released]
    for group in groups(difference, present):
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
            pair = _service_pair(change, present, chosen)
            lines += [ChangeLine(where, change.field, *pair)] if pair is not None else []
        elif change.kind == "device":
            name = present.device(int(change.target)).name
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
            old_text, new_text = (with_unit(name, value) for value in (old, new))
            if name == "model":
                old_text, new_text = (text.rpartition("/")[2] for text in (old_text, new_text))
            if isinstance(new, bool):  # "prefix caching on on 1 of 2 replicas" is hard to read
                yield f"{'enable' if new else 'disable'} {label.rstrip()}"
            else:
                yield f"{label}{new_text}" if old is None else f"{label}{old_text} → {new_text}"


def _is_left_open(knob: str, after: object) -> bool:
    """Return whether a change clears part of a placement: an API has none, and of new instances their own line is."""
    return knob.startswith("placement.") and after is None


def with_unit(name: str, value: object) -> str:
    """Return the value of a knob as text, with its unit unless its label implies one."""
    unit = knobs()[name].unit if name in knobs() else None
    if unit == "bytes" and isinstance(value, int):
        return format_bytes(value)
    return f"{shown(value)} {unit}" if unit in ("W", "MHz") and value is not None else shown(value)


def _services(difference: Diff, present: Fleet, chosen: PricingChoices, *, several: bool) -> Iterator[str]:
    """Yield each change of a service, with its name where a difference changes `several`."""
    for change in difference.changes:
        if change.kind != "service":
            continue
        pair = _service_pair(change, present, chosen)
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


def _service_pair(change: Change, present: Fleet, chosen: PricingChoices) -> tuple[str, str] | None:
    """Return a changed field of a service before and after as text; None if pricing left it unchanged."""
    if change.field == "replicas":
        return replica_words(change, present, chosen)
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


def present_values(sent: object, present: Fleet) -> tuple[str, ...]:
    """Return the present value of every knob and number of replicas that a proposal set, one phrase each.

    `sent` is a valid proposal of a worker. Names come from it, values from the present fleet.
    """
    assert isinstance(sent, dict)  # `candidate` accepted it
    deployments, edited, phrases = present.deployments, sent.get("edited"), list[str]()
    if "deployment" in sent:
        deployments = (present.deployment(sent["deployment"]),)
    elif "service" in sent:
        deployments = present.service(sent["service"]).deployments
        phrases += [counted(len(deployments), "replica")] * ("replicas" in sent["set"])
    for name in (name for name in knobs() if type(edited) is list and name in edited):
        values = dict.fromkeys(getattr(deployment, name) for deployment in deployments)
        texts = [with_unit(name, value) for value in values if value is not None]
        phrases += [f"{LABELS.get(name, f'{knobs()[name].label} ')}{' or '.join(texts)}"] * bool(texts)
    return tuple(phrases)


_RISKS = {
    "replicas": "latency",
    "schedule": "availability",
    "restart": "availability",
    "partitions": "availability",
    "device_ids": "availability",
    "demand.prompt_len": "quality",
    "demand.output_len": "quality",
    "demand.response_cache_share": "quality",
}
"""Risk by changed field. Knobs have their own; a placement risks availability, any other field nothing."""
_HARD = ("model", "engine", "partitions", "commitments", "schedule")
"""Changes that need more than a restart, in addition to placements and demands."""


@dataclass(frozen=True, slots=True)
class AdviceTarget:
    """Subject of a recommendation; together with the rule id it identifies the row."""

    kind: str
    """`service`, `deployment`, `host` or `fleet`; `load` for a plugin that could not be loaded."""
    key: str
    """Name of a service, id of a deployment or host as digits; empty for the fleet."""
    label: str
    """Name for people."""


FLEET = AdviceTarget("fleet", "", "the fleet")


def target_of(difference: Diff, present: Fleet) -> AdviceTarget:
    """Return the target of a proposal over the fleet: its only changed service, else its only released host, else all.

    Merges of different services are separate rows, by the host that each of them frees.
    """
    services, hosts = _touched_services(difference, present), difference.released
    if len(services) == 1:
        return AdviceTarget("service", services[0], services[0])
    if len(hosts) == 1:
        return AdviceTarget("host", str(hosts[0].host_id), hosts[0].name)
    return FLEET


def touches(difference: Diff, present: Fleet) -> tuple[str, ...]:
    """Return the subjects that a proposal changes, as `service:NAME` and `host:ID`.

    Savings of two proposals that touch the same subject are not added up.
    """
    named = [f"service:{name}" for name in _touched_services(difference, present)]
    named += [f"host:{host.host_id}" for host in difference.released]
    for change in difference.changes:
        if change.kind == "device":
            named.append(f"host:{present.device(int(change.target)).host_id}")
        elif change.kind == "fleet":
            named.append("commitments")
    return tuple(named)


def risk_of(proposal: Proposal, difference: Diff) -> str:
    """Return the risk that the rule states, else the highest risk of the changes."""
    return proposal.risk or max(_risks(difference), key=RISKS.index, default="none")


def effort_of(proposal: Proposal, difference: Diff) -> str:
    """Return the effort that the rule states, else an effort by whether an engine restarts."""
    if proposal.effort is not None:
        return proposal.effort
    fields = [change.field for change in difference.changes]
    if (
        difference.added
        or difference.removed
        or any(field in _HARD or field.startswith(("placement.", "demand.")) for field in fields)
    ):
        return "high"
    restart = any(field == "restart" or (field in knobs() and knobs()[field].restart) for field in fields)
    return "medium" if restart else "low"


def _risks(difference: Diff) -> Iterator[str]:
    for change in difference.changes:
        if change.field in knobs():
            yield knobs()[change.field].risk
        elif change.field.startswith("placement."):
            yield "availability"
        else:
            yield _RISKS.get(change.field, "none")
    if difference.released or difference.removed:
        yield "availability"
    if difference.added:
        yield "quality"


def _touched_services(difference: Diff, present: Fleet) -> list[str]:
    """Return the services with changed deployments or demand, in the order of the fleet."""
    changed = {int(change.target) for change in difference.changes if change.kind == "deployment"}
    changed |= {deployment.deployment_id for deployment in difference.removed}
    named = {change.target for change in difference.changes if change.kind == "service"}
    named |= {name for deployment in difference.added for name, _ in deployment.serves}
    named |= {name for deployment_id in changed for name in present.listed_by.get(deployment_id, ())}
    return [service.name for service in present.services if service.name in named]
