"""What rules are given: the fleet that was gathered, the market and the evidence, as they are in memory at a fork."""

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
"""Kind and id of what evidence is of: `("host", 7)`."""

Measured = Mapping[SubjectKey, Evidence]
"""What was measured in one window, by subject."""


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """What was measured in one window, and the parts of the window that it is made of."""

    measured: Measured
    parts: Parts = field(default_factory=no_parts)
    """Those that were not read are read when they are looked at."""


Target = Deployment | Service | None
"""What a rule runs for; None is the fleet."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The fleet as it is, with everything that was measured in one window."""

    fleet: Fleet
    market: Market
    window: MeasuredWindow
    window_s: int
    read: Callable[[int], MeasuredWindow]
    """Reads what was measured in a window of so many seconds; it keeps what it has read."""
    default: bool = True
    """Whether this is the window of rules that name none."""

    def over(self, window_s: int | None) -> "Inputs":
        """Return the inputs of a rule with this window; None: the window of the run."""
        if self.suit(window_s):
            return self
        assert window_s is not None  # None suits the inputs that an advice run begins with
        return replace(self, window=self.read(window_s), window_s=window_s, default=False)

    @property
    def measured(self) -> Measured:
        """What was measured, by subject."""
        return self.window.measured

    def suit(self, window_s: int | None) -> bool:
        """Return whether these are the inputs of a rule with this window."""
        return self.default if window_s is None else window_s == self.window_s

    def targets(self, scope: str) -> tuple[Target, ...]:
        """Return what a rule of this scope (`deployment`, `service` or `fleet`) runs for, in the order of its runs."""
        if scope == "deployment":
            return self.fleet.deployments
        return self.fleet.services if scope == "service" else (None,)

    def seen(self, target: Target) -> Evidence | FleetEvidence:
        """Return what was measured on a target, nothing of it read."""
        match target:
            case Deployment():
                return self._evidence("deployment", target.deployment_id)
            case Service():
                return self._evidence("service", target.name)
        return FleetEvidence(self.measured)

    def _evidence(self, *subject: Any) -> Evidence:
        return self.measured[subject].fresh() if subject in self.measured else Evidence({})
