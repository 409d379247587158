"""A plugin as a worker loads it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from pertoken.rule import Rule


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
