"""Names that `:` goes to: screens, hosts, services, rules and settings."""

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pertoken.costs.report.lines import FleetReport
from pertoken.proof.recommendation import Recommendation
from pertoken.tui.text.words import literal

_SCREENS = ("fleet", "savings", "plan", "rules", "hours", "settings", "events", "keys")
_WORDS = {"deployment": "service"}


class Named(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """One name to go to."""

    kind: str
    """`screen`, `host`, `deployment`, `rule` or `setting`."""
    name: str
    key: str = ""
    """What identifies it where its name does not."""

    @property
    def label(self) -> str:
        """As it is listed: `host gpu-a`."""
        return f"{_WORDS.get(self.kind, self.kind)} {literal(self.name)}"


def targets(
    report: FleetReport | None, rules: Iterable[str], advice: Sequence[Recommendation], settings: Sequence[Named]
) -> tuple[Target, ...]:
    """Return every name that is known now. `rules` are the ids of those that were loaded."""
    hosts = () if report is None else report.hosts
    served = () if report is None else report.deployments
    times = Counter(line.model for line in served)
    advised = (each.rule_id for each in advice)
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
        *(Target("setting", each.name) for each in settings),
    )


def candidates(text: str, known: Sequence[Target]) -> tuple[Target, ...]:
    """Return the names that a text may mean, best first: the whole name, its start, then a part of it.

    A text may begin with the kind: `host gpu-1`. An empty one means all.
    """
    wanted = text.strip().casefold()

    def rank(each: Target) -> int | None:
        names = (each.name.casefold(), each.label.casefold())
        if wanted in names:
            return 0
        if any(name.startswith(wanted) for name in names):
            return 1
        return 2 if any(wanted in name for name in names) else None

    ranked = [(place, n, each) for n, each in enumerate(known) if (place := rank(each)) is not None]
    return tuple(each for _, _, each in sorted(ranked, key=lambda found: found[:2]))


def unknown(text: str, known: Sequence[Target]) -> str:
    """Return the sentence for a name that there is not, with the nearest one there is."""
    names = {name.casefold(): each for each in known for name in (each.label, each.name)}
    near = difflib.get_close_matches(text.strip().casefold(), names, 1, cutoff=0.4)
    what = f"“{literal(text.strip())}” is no screen, host, service, rule or setting here"
    return f"{what}; the nearest name is {names[near[0]].label}." if near else f"{what}."
