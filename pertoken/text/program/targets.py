"""Names that the key `:` can go to: screens, hosts, services, rules and settings."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pertoken.costs.report.lines import FleetReport
from pertoken.text.words import literal

if TYPE_CHECKING:
    from pertoken.proof.recommendation import Recommendation

_SCREENS = ("fleet", "savings", "plan", "rules", "hours", "settings", "events", "keys")
_WORDS = {"deployment": "service"}


class Named(Protocol):
    """A value with a name."""

    @property
    def name(self) -> str:
        """The name."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """One name to go to."""

    kind: str
    """`screen`, `host`, `deployment`, `rule` or `setting`."""
    name: str
    key: str = ""
    """Id of a host or deployment, or name of a screen."""

    @property
    def label(self) -> str:
        """Text in the list of names: `host gpu-a`."""
        return f"{_WORDS.get(self.kind, self.kind)} {literal(self.name)}"


def targets(
    report: FleetReport | None, rules: Iterable[str], advice: Sequence[Recommendation], settings: Sequence[Named]
) -> tuple[Target, ...]:
    """Return all known names. `rules` are the ids of the loaded rules."""
    hosts = () if report is None else report.hosts
    served = () if report is None else report.deployments
    times = Counter(line.model for line in served)
    advised = (row.rule_id for row in advice)
    return (
        *(Target("screen", name, name) for name in _SCREENS),
        *(Target("host", host.name, str(host.host_id)) for host in hosts),
        *(
            Target(
                "deployment",
                line.model if times[line.model] == 1 else f"{line.model} on {line.host}",
                str(line.deployment_id),
            )
            for line in served
        ),
        *(Target("rule", name) for name in dict.fromkeys((*rules, *advised))),
        *(Target("setting", setting.name) for setting in settings),
    )


def candidates(text: str, known: Sequence[Target]) -> tuple[Target, ...]:
    """Return the names that match a text, best first: the whole name, its start, then any part of it.

    A text may begin with the kind: `host gpu-1`. An empty text matches all names.
    """
    wanted = text.strip().casefold()

    def rank(target: Target) -> int | None:
        names = (target.name.casefold(), target.label.casefold())
        if wanted in names:
            return 0
        if any(name.startswith(wanted) for name in names):
            return 1
        return 2 if any(wanted in name for name in names) else None

    ranked = [(target_rank, n, target) for n, target in enumerate(known) if (target_rank := rank(target)) is not None]
    return tuple(target for _, _, target in sorted(ranked, key=lambda ranked_target: ranked_target[:2]))


def unknown(text: str, known: Sequence[Target]) -> str:
    """Return an error message for a name that does not exist, with the most similar one."""
    names = {name.casefold(): target for target in known for name in (target.label, target.name)}
    near = difflib.get_close_matches(text.strip().casefold(), names, 1, cutoff=0.4)
    what = f"No screen, host, service, rule or setting has the name “{literal(text.strip())}”"
    return f"{what}; the most similar is {names[near[0]].label}." if near else f"{what}."
