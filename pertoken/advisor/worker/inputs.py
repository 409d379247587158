"""Inputs of rules: the gathered fleet, the market and the evidence, in memory at the time of the fork."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pertoken.catalog.market import Market
from pertoken.evidence import Evidence
from pertoken.rule import FleetEvidence
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.window.parts import Parts, no_parts

SubjectKey = tuple[str, int | str]
"""Kind and id of a subject of evidence: `("host", 7)`."""

Measured = Mapping[SubjectKey, Evidence]
"""Evidence of one window, by subject."""


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """Evidence of one window, and the parts of the window that it is computed from."""

    measured: Measured
    parts: Parts = field(default_factory=no_parts)
    """Parts that are read on first use."""


Target = Deployment | Service | None
"""Target of a call; None is the fleet."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The present fleet with the evidence of one window."""

    fleet: Fleet
    market: Market
    window: MeasuredWindow
    window_s: int
    read: Callable[[int], MeasuredWindow]
    """Reads the evidence of a window by its length in seconds; results are cached."""
    default: bool = True
    """Whether this is the window of rules without a window of their own."""
    ready: frozenset[int] = frozenset()
    """Lengths of other windows that were read already, in seconds: their rules run beside those of this window."""

    def over(self, window_s: int | None) -> "Inputs":
        """Return the inputs of a rule with this window; None: the window of the run."""
        if self.suit(window_s):
            return self
        assert window_s is not None  # for None the inputs of the run are used
        return replace(self, window=self.read(window_s), window_s=window_s, default=False, ready=frozenset())

    @property
    def measured(self) -> Measured:
        """Evidence by subject."""
        return self.window.measured

    def suit(self, window_s: int | None) -> bool:
        """Return whether these are the inputs of a rule with this window."""
        return self.default if window_s is None else window_s == self.window_s

    def run(self, window_s: int | None) -> bool:
        """Return whether a rule with this window runs now: its window was read."""
        return self.suit(window_s) or window_s in self.ready

    def targets(self, scope: str) -> tuple[Target, ...]:
        """Return the targets of a rule with this scope (`deployment`, `service` or `fleet`), in call order."""
        if scope == "deployment":
            return self.fleet.deployments
        return self.fleet.services if scope == "service" else (None,)

    def seen(self, target: Target) -> Evidence | FleetEvidence:
        """Return fresh evidence of a target, with no series marked as read."""
        match target:
            case Deployment():
                return self._evidence("deployment", target.deployment_id)
            case Service():
                return self._evidence("service", target.name)
        return FleetEvidence(self.measured)

    def _evidence(self, *subject: Any) -> Evidence:
        return self.measured[subject].fresh() if subject in self.measured else Evidence({})
