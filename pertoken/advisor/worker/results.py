"""Results of plugins: their rules, and what each yielded for each target."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pertoken.advisor.worker.confine import Confinement
from pertoken.advisor.worker.inputs import SubjectKey, Target
from pertoken.advisor.worker.source import Source

SeriesRead = tuple[SubjectKey | None, tuple[str, ...]]
"""A subject (None: the target) and the names of its series that a rule read."""

_NOT_STARTED = Confinement(*["its worker did not start"] * 3)


@dataclass(frozen=True, slots=True)
class OptionValue:
    """One option of a rule as text: its value, default, allowed values and meaning."""

    name: str
    value: str
    default: str
    domain: str
    meaning: str


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """Description of a rule as plain values."""

    rule_id: str
    title: str
    sections: Mapping[str, str]
    needs: tuple[str, ...]
    body: str = ""
    """Text of its docstring between the title and the sections."""
    options: tuple[OptionValue, ...] = ()
    window_s: int | None = None
    """Length of its window, seconds; None: the window of the run."""

    @property
    def scope(self) -> str:
        """Scope of one call: `deployment`, `service` or `fleet`."""
        return "deployment" if "now" in self.needs else "service" if "service" in self.needs else "fleet"


@dataclass(frozen=True, slots=True)
class Call:
    """Result of one rule for one target."""

    target: Target
    """Target in the gathered fleet; None for a rule over the fleet."""
    yielded: str = "[]"
    """Yielded values as JSON."""
    read: tuple[SeriesRead, ...] = ()
    blocked: tuple[str, str] | None = None
    """A series that it read and that was not measured, and how to measure it."""
    failed: str | None = None
    """Why it has no result: its traceback, or how its process ended."""
    output: str = ""
    """Printed and logged output."""
    ended: bool = False
    """Whether the rule is not run for further targets."""


@dataclass
class RuleRun:
    """Calls of one rule, by target."""

    rule: RuleInfo
    calls: list[Call] = field(default_factory=list)
    seconds: float = 0.0
    done: bool = False
    """Whether it ran for all of its targets, or cannot. Else its window, or a part of it, has to be read first."""
    unread: str | None = None
    """Part of its window that it read and that has to be read before it runs again."""


@dataclass
class PluginRun:
    """Result of one plugin."""

    source: Source
    rules: list[RuleRun] = field(default_factory=list)
    disabled: list[RuleInfo] = field(default_factory=list)
    """Rules that a person switched off."""
    errors: list[tuple[str, str]] = field(default_factory=list)
    """Names of the rules that do not run, with the traceback or how the process ended."""
    output: str = ""
    """Printed and logged output while it was loaded."""
    confinement: Confinement = _NOT_STARTED
    loaded: bool = False

    @property
    def known(self) -> tuple[RuleInfo, ...]:
        """All its rules, with those that a person switched off."""
        return *(run.rule for run in self.rules), *self.disabled
