"""Groups of a difference: deployments of a service with equal changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pertoken.by_identity import by_identity
from pertoken.savings.placing import Placed
from pertoken.state.deployment import Deployment, Placement
from pertoken.state.diff import Change, Diff
from pertoken.state.fleet import Fleet
from pertoken.state.model import Model
from pertoken.state.service import FEWEST, Schedule, Service

MAX_NAMES = 4
"""Maximum names in a list; the rest is counted."""
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Choices of pricing where the proposal leaves them open."""

    resized: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Replicas before and after of each service whose number changes, by service name."""
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
        count, of = len(self.deployments), len(self.service.deployments)
        if of == 1:
            return ""
        return f" on {count} replicas" if count == of else f" on {count} of {of} replicas"


@by_identity
def groups(difference: Diff, before: Fleet) -> tuple[Group, ...]:
    """Return the changed deployments in the order of the fleet; one that serves two services is in the first."""
    by_change: dict[tuple[Any, ...], list[Deployment]] = {}
    seen: set[int] = set()
    ids = [int(change.target) for change in difference.changes if change.kind == "deployment"]
    names = {name for deployment_id in ids for name in before.listed_by.get(deployment_id, ())}
    for service in (service for service in before.services if service.name in names):
        for deployment in service.deployments:
            changes = _alike(difference.of("deployment", deployment.deployment_id))
            if changes and deployment.deployment_id not in seen:
                seen.add(deployment.deployment_id)
                by_change.setdefault((service.name, tuple(changes.items())), []).append(deployment)
    return tuple(
        Group(before.service(name), tuple(members), dict(changes)) for (name, changes), members in by_change.items()
    )


def _alike(changes: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Return changes without the released devices of a move: these differ among replicas that move alike."""
    return {name: pair for name, pair in changes.items() if name != "device_ids" or pair[1]}


def replica_words(change: Change, before: Fleet, chosen: Chosen) -> tuple[str, str] | None:
    """Return the replicas of a service before and after as text; None if their number stays."""
    if change.after != FEWEST:
        return str(len(before.service(str(change.target)).deployments)), shown(change.after)
    if (resized := chosen.resized.get(str(change.target))) is not None:
        return str(resized[0]), str(resized[1])
    return None if chosen.priced else (str(len(before.service(str(change.target)).deployments)), "fewest")


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
        f"{word} in {len(hours_in_state)} hours a week ({_spans(hours_in_state)})"
        for word, hours_in_state in _states(schedule)
        if hours_in_state
    ]
    counts: dict[int, list[int]] = {}
    for hour, count in schedule.replicas:
        counts.setdefault(count, []).append(hour)
    parts += [
        f"{count} replica{'s' * (count != 1)} in {len(hours_with_count)} hours a week ({_spans(hours_with_count)})"
        for count, hours_with_count in counts.items()
    ]
    return ", ".join(parts) or "always on"


def _states(schedule: Schedule) -> tuple[tuple[str, list[int]], ...]:
    return ("off", sorted(schedule.off)), ("asleep", sorted(schedule.asleep))


def _spans(hours: list[int]) -> str:
    """Return hours of the week as text, days with equal hours together: `Mon-Fri 0-5, Sat Sun 0-23 h UTC`."""
    by_day = [tuple(hour % 24 for hour in sorted(hours) if hour // 24 == day) for day in range(7)]
    days: dict[tuple[int, ...], list[str]] = {}
    for day, hours_of_day in zip(DAYS, by_day, strict=True):
        if hours_of_day:
            days.setdefault(hours_of_day, []).append(day)
    return "; ".join(f"{' '.join(names)} {_ranges(hours)} h UTC" for hours, names in days.items())


def _ranges(hours: tuple[int, ...]) -> str:
    spans: list[list[int]] = []
    for hour in hours:
        if spans and spans[-1][1] == hour - 1:
            spans[-1][1] = hour
        else:
            spans.append([hour, hour])
    return ", ".join(f"{first}-{last}" if first != last else f"{first}" for first, last in spans)
