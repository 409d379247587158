"""Inputs of rules: plugins, limits, and the gathered fleet with its evidence, in memory at the time of the fork."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from pertoken.catalog.market import Market
from pertoken.evidence import Evidence
from pertoken.rule import FleetEvidence, Rule, subject_key
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service

SubjectKey = tuple[str, int | str]
"""Kind and id of a subject of evidence: `("host", 7)`."""

Measured = Mapping[SubjectKey, Evidence]
"""Evidence of one window, by subject."""

Target = Deployment | Service | None
"""Target of a call; None is the fleet."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Part of the targets of an advice run, which one process takes from reading their load to pricing."""

    services: frozenset[str] | None = None
    """Names of the services; their deployments are targets, too. None: all."""
    fleet: bool = True
    """Whether rules over the fleet run."""


@dataclass(frozen=True)
class Inputs:
    """The present fleet with its evidence, and the targets for which rules run."""

    fleet: Fleet
    market: Market
    measured: Measured
    """Evidence of the window of the run."""
    windows: Mapping[int, Measured] = field(default_factory=dict)
    """Evidence of windows of rules, by length in seconds. A rule whose window is not there gets that of the run."""
    shard: Shard = field(default_factory=Shard)

    def over(self, window_s: int | None) -> Measured:
        """Return the evidence of the window of a rule; None: the window of the run."""
        return self.measured if window_s is None else self.windows.get(window_s, self.measured)

    def targets(self, scope: str) -> tuple[Target, ...]:
        """Return the targets of a rule with this scope (`deployment`, `service` or `fleet`), in call order."""
        return self._targets[scope]

    def place(self, target: Target) -> int:
        """Return the position of a target among those of its scope in all shards."""
        return 0 if target is None else self._places[subject_key(target)]

    def count(self, scope: str) -> int:
        """Return the number of targets of a scope in all shards."""
        return len(self._all_targets[scope])

    @cached_property
    def _all_targets(self) -> Mapping[str, tuple[Target, ...]]:
        return {"deployment": self.fleet.deployments, "service": self.fleet.services, "fleet": (None,)}

    @cached_property
    def _targets(self) -> Mapping[str, tuple[Target, ...]]:
        return {scope: tuple(filter(self._has, targets)) for scope, targets in self._all_targets.items()}

    @cached_property
    def _places(self) -> Mapping[SubjectKey, int]:
        subjects = (self.fleet.deployments, self.fleet.services)
        return {subject_key(target): place for targets in subjects for place, target in enumerate(targets)}

    def _has(self, target: Target) -> bool:
        """Return whether a target is in the shard: a deployment is where the first of its services is."""
        if target is None:
            return self.shard.fleet
        if self.shard.services is None:
            return True
        name = target.name if isinstance(target, Service) else self.fleet.listed_by[target.deployment_id][0]
        return name in self.shard.services

    def seen(self, target: Target, window_s: int | None) -> Evidence | FleetEvidence:
        """Return fresh evidence of a target in the window of a rule, with no series marked as read."""
        measured = self.over(window_s)
        if target is None:
            return FleetEvidence(measured)
        known = measured.get(subject_key(target))
        return Evidence({}) if known is None else known.fresh()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of rules; each applies to one process, which runs one rule."""

    call_s: float = 10.0
    """Wall time of one rule for one target, and of loading a plugin."""
    rule_s: float = 60.0
    """Wall time of one rule for all its targets."""
    plugin_s: float = 300.0
    """Wall time of a plugin with all its rules, and CPU time of each of its processes."""
    memory_bytes: int = 2 * 2**30
    """Address space in addition to that of the advisor."""
    output_bytes: int = 2**20
    """Bytes printed for one target, and of each file in the temporary folder."""
    kept_chars: int = 4000
    """Characters of printed output to keep, from its end."""
    proposals: int = 1000
    """Proposals and refusals for one target."""
    call_bytes: int = 4 * 2**20
    """Bytes returned by a rule for one target."""
    returned_bytes: int = 64 * 2**20
    """Bytes returned by all rules of a worker."""

    @classmethod
    def of_call(cls, call_s: float) -> "Limits":
        """Return limits in proportion to the maximum duration of one call."""
        return cls(call_s=call_s, rule_s=6 * call_s, plugin_s=30 * call_s)


class LoadedRules(Protocol):
    """Rules loaded from one plugin, or why they were not."""

    @property
    def name(self) -> str:
        """Name in error messages."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules to run."""

    @property
    def disabled(self) -> tuple[Rule, ...]:
        """The rules that a person switched off."""

    @property
    def error(self) -> str | None:
        """Why its rules do not run; None if they do."""


@dataclass(frozen=True, slots=True)
class Source:
    """A plugin that was not imported yet."""

    name: str
    origin: str
    """The distribution and version, or the file."""
    group: str
    """The distribution or the file: consecutive sources with the same group share a worker."""
    load: Callable[[], Iterable[LoadedRules]]
    """Import it in a worker; any error is an error of the plugin."""
    own: bool = False
    """Whether it is code of this program, which the conformity suite tests: its rules change nothing of each other."""
